"""Reads of a store whose replies are too short: noticed, whatever was in memory before."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from foldhouse.storage import complete
from foldhouse.storage.complete import CompleteReads, filled

CONTENTS = bytes(range(256)) * 3  # each last byte, also the one that memory is marked with


class Part(io.BytesIO):
    """A stream that leaves the end of the memory as it was, and counts it, as Arrow's for S3 does."""

    def __init__(self, contents: bytes, missing: int) -> None:
        super().__init__(contents)
        self._missing = missing

    def readinto(self, memory: Any) -> int:
        given = self.read(max(0, len(memory) - self._missing))
        memory[: len(given)] = given
        return len(memory)


class Handle:
    """An open file of a store, whose replies lack some bytes."""

    def __init__(self, contents: bytes, missing: int = 0) -> None:
        self._contents, self._missing = contents, missing

    def size(self) -> int:
        return len(self._contents)

    def get_stream(self, at: int, count: int) -> Part:
        return Part(self._contents[at : at + count], self._missing)


def of(contents: bytes, missing: int = 0) -> Any:
    return Handle(contents, missing)


@pytest.fixture(params=[1 << 20, 7], ids=["in one request", "in several requests"], autouse=True)
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete, "_AT_ONCE_BYTES", request.param)


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 511, 512, 768, 1000])
@pytest.mark.parametrize("at", [0, 1, 255, 767, 768])
def test_a_complete_reply_is_returned_whatever_its_last_byte_is(at: int, count: int) -> None:
    assert bytes(filled(of(CONTENTS), at, count, "s3://b/f")) == CONTENTS[at : at + count]


@pytest.mark.parametrize("missing", [1, 2, 100, 5000])
@pytest.mark.parametrize("count", [1, 2, 255, 256, 768])
def test_a_reply_that_is_too_short_is_an_error_with_the_name_of_the_file(count: int, missing: int) -> None:
    with pytest.raises(OSError, match="fewer bytes than it said") as failure:
        filled(of(CONTENTS, missing), 0, count, "s3://b/f")
    assert failure.value.filename == "s3://b/f"
    assert failure.value.errno is not None, "it is no damage of the file"


def test_arrow_reads_a_file_through_it_and_sees_its_errors() -> None:
    table = pa.table({"n": pa.array(range(1_000))})
    written = io.BytesIO()
    with pa.ipc.new_file(written, table.schema) as to:
        to.write_table(table)
    whole = pa.PythonFile(CompleteReads(of(written.getvalue()), "s3://b/f"), mode="r")
    assert whole.size() == len(written.getvalue())
    assert pa.ipc.open_file(whole).read_all().equals(table)
    whole.close()
    short = pa.PythonFile(CompleteReads(of(written.getvalue(), 1), "s3://b/f"), mode="r")
    with pytest.raises(OSError, match="fewer bytes than it said"):
        pa.ipc.open_file(short)


def test_two_readers_of_one_handle_do_not_disturb_each_other() -> None:
    handle = of(CONTENTS)
    one, other = (CompleteReads(handle, "s3://b/f") for _ in range(2))
    assert bytes(one.read(10)) == CONTENTS[:10]
    assert other.seek(-5, io.SEEK_END) == len(CONTENTS) - 5
    assert bytes(other.read()) == CONTENTS[-5:]
    assert (one.tell(), bytes(one.read(3))) == (10, CONTENTS[10:13])
    other.close()
    assert bytes(one.read()) == CONTENTS[13:]
