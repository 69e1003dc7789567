"""The results that folding tasks return to the driver, as JSON and Arrow; the driver checks them before it commits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from foldhouse.refresh.bucket.deletes import sequence_of_text, sequence_to_json
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.storage import described
from foldhouse.storage.described import checked, is_count, parsed

ANSWERS = "result string, unresolved binary"
"""The columns of the answers, as a Spark schema."""
ANSWER_SCHEMA = pa.schema([("result", pa.string()), ("unresolved", pa.binary())])
"""The same as an Arrow schema."""

_COUNTS = ("rows_written", "rows_carried", "rows_deleted")
_NET = ("null_key_rows", "null_sequence_rows")
_NAMES = {"bucket", "added", "removed", "deleted_upto", *_COUNTS, *_NET}


def answered(job: BucketJob, results: Iterable[BucketResult]) -> pa.RecordBatch:
    """Encode the results of some buckets, one row per bucket."""
    given = list(results)
    results_json = [json.dumps(_parts(job, one)) for one in given]
    unresolved = [None if one.unresolved is None else _ipc(one.unresolved) for one in given]
    return pa.record_batch(
        {"result": pa.array(results_json, pa.string()), "unresolved": pa.array(unresolved, pa.binary())}
    )


def results_of(job: BucketJob, answers: pa.Table) -> list[BucketResult]:
    """Decode the results that `answered` encoded.

    Raises:
        FoldhouseError: no task of this job can have returned the answer. For example, an added file is outside of the
            table, a removed file is not a file of the table, or a count is below zero.
    """
    stored = {path for slices in job.slices.values() for one in slices for path in (one.file.path, *one.deletes)}
    rows = zip(answers["result"].to_pylist(), answers["unresolved"].to_pylist(), strict=True)
    return [_result(job, stored, text, keys) for text, keys in rows]


def _parts(job: BucketJob, result: BucketResult) -> dict[str, Any]:
    return {
        "bucket": result.bucket,
        "added": [described.to_json(file) for file in result.added],
        "removed": list(result.removed),
        "deleted_upto": sequence_to_json(result.deleted_upto, job.plan.sequence),
        **{name: getattr(result, name) for name in (*_COUNTS, *_NET)},
    }


def _result(job: BucketJob, stored: set[str], text: Any, keys: bytes | None) -> BucketResult:
    parts = parsed(text)
    checked(isinstance(parts, dict) and set(parts) == _NAMES, parts, "the names of its parts")
    for name in _COUNTS:
        checked(is_count(parts[name]), parts[name], name)
    for name in _NET:  # below zero if more such rows were retracted than added
        checked(type(parts[name]) is int and abs(parts[name]) < 2**63, parts[name], name)
    checked(isinstance(parts["bucket"], str), parts["bucket"], "a bucket")
    removed, added, deleted_upto = parts["removed"], parts["added"], parts["deleted_upto"]
    checked(isinstance(removed, list) and all(isinstance(one, str) for one in removed), removed, "removed files")
    checked(stored.issuperset(removed), sorted(set(removed) - stored), "removed files, which the table does not have")
    checked(isinstance(added, list), added, "added files")
    checked(deleted_upto is None or isinstance(deleted_upto, str), deleted_upto, "a sequence")
    return BucketResult(
        parts["bucket"],
        added=tuple(described.from_json(one, job.layout) for one in added),
        removed=tuple(removed),
        unresolved=None if keys is None else _keys(job, keys),
        deleted_upto=_sequence(job, deleted_upto),
        **{name: parts[name] for name in (*_COUNTS, *_NET)},
    )


def _sequence(job: BucketJob, text: str | None) -> tuple[Any, ...] | None:
    try:
        return None if text is None else sequence_of_text(text, job.plan.sequence)
    except (TypeError, ValueError, RecursionError, pa.ArrowException):
        checked(False, text, "a sequence")
        raise


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _keys(job: BucketJob, content: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
            keys = stream.read_all()
        keys.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        checked(False, content, "keys to recompute")
        raise
    checked(keys.column_names == job.plan.key_names, keys.column_names, "the names of the keys to recompute")
    return keys
