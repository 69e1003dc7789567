"""Remote tasks return data, JSON and Arrow that is checked, and never a pickle."""

from __future__ import annotations

import ast
import json
import pickle
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult
from foldhouse.refresh.run.answers import answered, results_of
from foldhouse.storage import described
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, live_slices
from foldhouse.storage.schema import Layout

LONG = pa.int64()
SOURCES = Path(fh.__file__).parent
SEQUENCES: dict[str, tuple[pa.DataType, Any]] = {
    "a moment": (pa.timestamp("us", "UTC"), datetime(2024, 3, 1, 12, 30, 1, 999_999, tzinfo=UTC)),
    "a local moment": (pa.timestamp("us"), datetime(2024, 3, 1, 12, 30, 1, 999_999)),
    "a day": (pa.date32(), date(2024, 3, 1)),
    "a decimal": (pa.decimal128(12, 4), Decimal("-12.3400")),
    "a float": (pa.float64(), 0.1 + 0.2),
    "a number": (pa.int64(), -(2**63)),
    "a text": (pa.string(), 'ä"\n\0'),
    "bytes": (pa.binary(), b"\x00\xff"),
}

events = fh.stream(
    "s.events",
    schema={"key": "string", "n": "long", "x": "double", "day": "date", "blob": "binary", "tags": "list<string>"},
    partition_by="day",
)


@pytest.fixture
def layout(lake: fh.Lake) -> Layout:
    row = {"key": "a" * 40, "n": 1, "x": 0.5, "day": date(2024, 3, 1), "blob": b"\x00\xff", "tags": ["t"]}
    empty = dict.fromkeys(row) | {"day": date(2024, 3, 1)}
    lake.append(events, pa.Table.from_pylist([row, empty], columns()))
    return Layout.of(lake.load(events))


def columns() -> pa.Schema:
    return pa.schema(
        [
            ("key", pa.string()),
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("day", pa.date32()),
            ("blob", pa.binary()),
            ("tags", pa.list_(pa.string())),
        ]
    )


def a_file(layout: Layout) -> Any:
    rows = pa.Table.from_pylist(
        [{"key": "\U0010ffff" * 20, "n": -1, "x": float("nan"), "day": date(1960, 1, 1), "blob": b"", "tags": []}],
        columns(),
    )
    return write_data_file(layout, Partition((-3653,)), rows)


def a_job(lake: fh.Lake, layout: Layout, kind: pa.DataType = LONG) -> BucketJob:
    iceberg = lake.load(events)
    slices = tuple(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values())
    plan: Any = SimpleNamespace(sequence=(("at", kind),), key_names=["key"])
    return BucketJob(plan, layout, {Partition((19783,)): slices}, fh.Tuning())


def through_json(said: Any) -> Any:
    return json.loads(json.dumps(said))


def test_nothing_in_the_engine_unpickles_evaluates_or_loads_yaml_as_code() -> None:
    forbidden = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}
    calls = {"eval", "exec", "compile", "__import__"}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & set(named), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                # The digest of a declaration compares the text of a file with code that this process runs already.
                is_compared = node.func.id == "compile" and path.name == "source_text.py"
                assert is_compared or node.func.id not in calls, (path, node.lineno)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                assert node.attr == "safe_load", (path, node.lineno)


def test_a_described_file_is_the_file(layout: Layout) -> None:
    written = [a_file(layout), write_position_deletes(layout, Partition((None,)), [("file:///x", _positions())])]
    for file in written:
        again = described.from_json(through_json(described.to_json(file)), layout)
        assert again == file
        assert (again.spec_id, again.content, again.partition) == (file.spec_id, file.content, file.partition)


def _positions() -> Any:
    import numpy as np

    return np.array([1, 2], np.int64)


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "no mapping": lambda said: said.clear(),
    "another part": lambda said: said.update(more=1),
    "a path outside": lambda said: said.update(file_path="file:///etc/passwd"),
    "a way out": lambda said: said.update(file_path=said["file_path"].replace("/data/", "/../../data/")),
    "a path that is no text": lambda said: said.update(file_path=["x"]),
    "a negative count": lambda said: said.update(record_count=-1),
    "a count that is a truth": lambda said: said.update(record_count=True),
    "a fraction": lambda said: said.update(file_size_in_bytes=1.5),
    "a count beyond a long": lambda said: said.update(record_count=2**63),
    "another partition": lambda said: said.update(partition=[1, 2]),
    "a nested partition": lambda said: said.update(partition=[[1]]),
    "another content": lambda said: said.update(content="equality-deletes"),
    "a content that is no text": lambda said: said.update(content=[]),
    "bounds that are no bytes": lambda said: said.update(lower_bounds={"1": "xy"}),
    "a column that is no number": lambda said: said.update(value_counts={"x": 1}),
    "a negative column count": lambda said: said.update(null_value_counts={"1": -1}),
    "offsets that are texts": lambda said: said.update(split_offsets=["4"]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_description_that_cannot_be_right_is_refused(layout: Layout, wrong: str) -> None:
    said = through_json(described.to_json(a_file(layout)))
    WRONG[wrong](said)
    with pytest.raises(fh.FoldhouseError, match=r"returned what cannot be right: .*nothing was committed"):
        described.from_json(through_json(said), layout)


@pytest.mark.parametrize("text", [None, b"\x80\x04.", "", "{", "[" * 100_000, pickle.dumps({}), "1", "null", '"x"'])
def test_an_answer_that_is_no_object_of_json_is_refused(lake: fh.Lake, layout: Layout, text: Any) -> None:
    answers = pa.table({"result": [text], "unresolved": pa.array([None], pa.binary())})
    with pytest.raises(fh.FoldhouseError, match="cannot be right"):
        results_of(a_job(lake, layout), answers)


@pytest.mark.parametrize("kind", SEQUENCES)
def test_an_answer_is_the_result(lake: fh.Lake, layout: Layout, kind: str) -> None:
    arrow, value = SEQUENCES[kind]
    job = a_job(lake, layout, arrow)
    (held,) = (one for slices in job.slices.values() for one in slices)
    results = [
        BucketResult("null", null_key_rows=-3, null_sequence_rows=2),
        BucketResult("[1]", unresolved=pa.table({"key": ["a", None]})),
        BucketResult("[2]", (a_file(layout),), (held.file.path,), None, 0, 0, (value,), 5, 4, 3),
    ]
    assert results_of(job, pa.Table.from_batches([answered(job, results)])) == results


@pytest.mark.parametrize(
    "change",
    [
        {"removed": ["file:///etc/passwd"]},
        {"removed": "file:///etc/passwd"},
        {"rows_written": -1},
        {"null_key_rows": "1"},
        {"bucket": 1},
        {"added": {}},
        {"deleted_upto": 5},
        {"deleted_upto": "[]"},
        {"deleted_upto": '["x"]'},
        {"deleted_upto": '{"a": 1}'},
    ],
)
def test_an_answer_that_cannot_be_right_is_refused(lake: fh.Lake, layout: Layout, change: dict[str, Any]) -> None:
    job = a_job(lake, layout)
    answers = answered(job, [BucketResult("[1]", rows_written=1)]).to_pydict()
    answers["result"] = [json.dumps({**json.loads(answers["result"][0]), **change})]
    with pytest.raises(fh.FoldhouseError, match="cannot be right"):
        results_of(job, pa.table(answers, pa.schema([("result", pa.string()), ("unresolved", pa.binary())])))


@pytest.mark.parametrize("keys", [b"", b"no arrow", pickle.dumps([1]), b"\xff\xff\xff\xff\x10\x00\x00\x00"])
def test_keys_that_are_no_arrow_are_refused(lake: fh.Lake, layout: Layout, keys: bytes) -> None:
    job = a_job(lake, layout)
    encoded = answered(job, [BucketResult("[1]")]).column("result")
    with pytest.raises(fh.FoldhouseError, match="cannot be right"):
        results_of(job, pa.table({"result": encoded, "unresolved": pa.array([keys], pa.binary())}))


def test_keys_of_other_columns_are_refused(lake: fh.Lake, layout: Layout) -> None:
    job = a_job(lake, layout)
    answers = answered(job, [BucketResult("[1]", unresolved=pa.table({"other": ["a"]}))])
    with pytest.raises(fh.FoldhouseError, match="names of the keys"):
        results_of(job, pa.Table.from_batches([answers]))


def test_thousands_of_files_are_described(lake: fh.Lake, layout: Layout) -> None:
    job = a_job(lake, layout)
    results = [BucketResult("[1]", added=(a_file(layout),) * 2_000)]
    started = time.perf_counter()
    assert results_of(job, pa.Table.from_batches([answered(job, results)])) == results
    print(f"2,000 files: {time.perf_counter() - started:.2f} s")
