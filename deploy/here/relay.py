"""A TCP relay on 127.0.0.1, which stands for the store's address.

moto keeps its objects in memory, so a kill of moto would be a loss of data and not an outage. The relay in front of it
is killed instead: connections break in the middle of a reply, and new ones are refused.
"""

import asyncio
import contextlib
import sys

_CHUNK_BYTES = 1 << 16


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def serve(port: int, target: int) -> None:
    """Pass each connection to a port on to another port."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to, from_ = (await asyncio.open_connection("127.0.0.1", target))[::-1]
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, to), _copy(from_, writer))

    async with await asyncio.start_server(relay, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
