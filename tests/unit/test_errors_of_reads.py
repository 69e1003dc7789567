"""Which errors of reading a file mean that it is damaged, and which that the store cannot be used now."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.storage.parquet import reading


@pytest.mark.parametrize(
    "failure",
    [
        OSError(
            "When reading information for key 'k' in bucket 'b': AWS Error ACCESS_DENIED during HeadObject operation"
        ),
        OSError("When reading 'k': AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate"),
        OSError("google::cloud::Status(UNAVAILABLE: Permanent error)"),
        OSError("GetProperties for 'https://a/c' failed. Azure Error: [AuthenticationFailed]"),
        OSError(errno.EIO, "the store gave fewer bytes than it said", "s3://b/k"),
        TimeoutError(errno.ETIMEDOUT, "timed out"),
    ],
)
def test_what_a_store_refuses_is_tried_again_and_no_damage(failure: OSError) -> None:
    with pytest.raises(fh.StorageError, match="try again"), reading("s3://b/k"):
        raise failure


@pytest.mark.parametrize(
    "failure",
    [
        OSError("Unexpected end of stream"),
        OSError("could not verify page integrity, CRC checksum verification failed for page_ordinal 0"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        pa.ArrowInvalid("Parquet magic bytes not found"),
    ],
)
def test_bytes_that_cannot_be_decoded_and_a_file_that_is_gone_are_damage(failure: Exception) -> None:
    with pytest.raises(fh.CorruptFile), reading("s3://b/k"):
        raise failure
