"""Reads of a store whose replies are too short: noticed, whatever was in memory before."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from foldhouse.storage.complete import CompleteReads, filled

CONTENTS = bytes(range(256)) * 3  # each last byte, also the one that memory is marked with


class Short(io.BytesIO):
    """A stream that leaves the end of the memory as it was, and counts it, as Arrow's for S3 does."""

    def __init__(self, contents: bytes, missing: int) -> None:
        super().__init__(contents)
        self.missing = missing

    def size(self) -> int:
        return len(self.getvalue())

    def readinto(self, memory: Any) -> int:
        begin = self.tell()
        given = self.read(max(0, len(memory) - self.missing))
        memory[: len(given)] = given
        self.seek(begin + len(memory))
        return len(memory)


def of(contents: bytes, missing: int = 0) -> Any:
    return Short(contents, missing)


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 511, 512, 768, 1000])
def test_a_complete_reply_is_returned_whatever_its_last_byte_is(count: int) -> None:
    stream = of(CONTENTS)
    assert bytes(filled(stream, count, "s3://b/f")) == CONTENTS[:count]
    assert stream.tell() == min(count, len(CONTENTS))
    assert bytes(filled(stream, count, "s3://b/f")) == CONTENTS[count : 2 * count]


@pytest.mark.parametrize("missing", [1, 2, 100, 5000])
@pytest.mark.parametrize("count", [1, 2, 255, 256, 768])
def test_a_reply_that_is_too_short_is_an_error_with_the_name_of_the_file(count: int, missing: int) -> None:
    with pytest.raises(OSError, match="fewer bytes than it said") as failure:
        filled(of(CONTENTS, missing), count, "s3://b/f")
    assert failure.value.filename == "s3://b/f"
    assert failure.value.errno is not None, "it is no damage of the file"


def test_arrow_reads_a_file_through_it_and_sees_its_errors() -> None:
    table = pa.table({"n": pa.array(range(10_000))})
    written = io.BytesIO()
    with pa.ipc.new_file(written, table.schema) as to:
        to.write_table(table)
    whole = pa.PythonFile(CompleteReads(of(written.getvalue()), "s3://b/f"), mode="r")
    assert whole.size() == len(written.getvalue())
    assert pa.ipc.open_file(whole).read_all().equals(table)
    whole.close()
    with pytest.raises(OSError, match="fewer bytes than it said"):
        pa.ipc.open_file(pa.PythonFile(CompleteReads(of(written.getvalue(), 1), "s3://b/f"), mode="r")).read_all()
