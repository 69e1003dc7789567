"""The statistics that foldhouse packs from a footer are those that pyiceberg computes."""

from __future__ import annotations

import io
import random
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)

from foldhouse.errors import DefinitionError
from foldhouse.storage.schema import schema_of_types
from foldhouse.storage.statistics import _columns, statistics_of

_TEXTS = ["", "a", "short", "exactly sixteen!", "more than sixteen characters", "ü" * 20, "z" * 15 + "\U0010ffff" + "z"]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "long": [0, -1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 1.5, float("inf"), float("nan")],
    "double": [0.0, -0.0, -1.5e300, float("-inf"), float("nan")],
    "date": [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 1, 1, 1, 2, 3, 4)],
    "time": [time(0), time(23, 59, 59, 999_999)],
    "string": _TEXTS,
    "binary": [text.encode() for text in _TEXTS],
    "decimal(9,2)": [Decimal("0.00"), Decimal("-1.28"), Decimal("9999999.99")],
    "decimal(18,0)": [Decimal(0), Decimal(-(10**18) + 1), Decimal(128)],
    "decimal(38,3)": [Decimal("0.000"), Decimal(-(10**35) + 1), Decimal("0.255"), Decimal("-0.256")],
}
MODES = [{}, *({"write.metadata.metrics.default": mode} for mode in ("none", "counts", "full", "truncate(1)"))]


def _written(rows: pa.Table, row_group_size: int = 1_000) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=row_group_size, store_decimal_as_integer=True)
    return pq.read_metadata(io.BytesIO(sink.getvalue()))


def _by_pyiceberg(schema: Any, properties: dict[str, str], footer: pq.FileMetaData) -> dict[str, Any]:
    plan, mapping = compute_statistics_plan(schema, properties), parquet_path_to_id_mapping(schema)
    return data_file_statistics_from_parquet_metadata(footer, plan, mapping).to_serialized_dict()


@pytest.mark.parametrize("properties", MODES, ids=lambda one: str(next(iter(one.values()), "default")))
@pytest.mark.parametrize("seed", range(20))
def test_packed_statistics_are_those_of_pyiceberg(seed: int, properties: dict[str, str]) -> None:
    chosen = random.Random(seed)
    kinds = chosen.sample(sorted(VALUES), chosen.randint(1, len(VALUES)))
    types = {f"c{place}": kind for place, kind in enumerate(kinds)}
    schema = schema_of_types(types)
    count = chosen.choice([0, 1, 2, 7])
    share_of_nulls = chosen.choice([0.0, 0.3, 1.0])

    def value(kind: str) -> Any:
        return None if chosen.random() < share_of_nulls else chosen.choice(VALUES[kind])

    columns = [[value(kind) for _ in range(count)] for kind in kinds]
    arrow = schema_to_pyarrow(schema)
    rows = pa.table([pa.array(given, field.type) for given, field in zip(columns, arrow, strict=True)], schema=arrow)
    for row_group_size in (1_000, 2):
        footer = _written(rows, row_group_size)
        given = tuple(properties.items())
        found = statistics_of(schema.model_dump_json(), given, footer)
        assert found == _by_pyiceberg(schema, properties, footer), kinds


def test_common_types_are_packed_and_nested_columns_are_only_counted() -> None:
    kinds = {f"c{place}": kind for place, kind in enumerate(VALUES) if kind not in ("time", "binary")}
    columns = _columns(schema_of_types(kinds).model_dump_json(), ())
    assert columns is not None
    assert all(one.physical for one in columns.values())
    nested = schema_of_types({"s": "struct<a: long, b: list<string>>"})
    rows = pa.table({"s": pa.array([{"a": 1, "b": ["x", None]}, None], schema_to_pyarrow(nested).field("s").type)})
    footer = _written(rows)
    found = statistics_of(nested.model_dump_json(), (), footer)
    assert found == _by_pyiceberg(nested, {}, footer)
    assert found["lower_bounds"] == {}


def test_a_bound_that_cannot_be_rounded_up_is_whole_and_a_wrong_mode_is_refused() -> None:
    schema = schema_of_types({"word": "string", "at": "timestamp"})
    word = "x" * 15 + "\ud7ff" + "more"
    at = [datetime(2026, 1, 1) + timedelta(microseconds=1)]
    footer = _written(pa.table({"word": [word], "at": pa.array(at, pa.timestamp("us"))}))
    found = statistics_of(schema.model_dump_json(), (), footer)
    assert found["upper_bounds"][1] == word.encode()
    wrong = (("write.metadata.metrics.default", "all"),)
    with pytest.raises(DefinitionError, match=r"write\.metadata\.metrics"):
        statistics_of(schema.model_dump_json(), wrong, footer)


def test_a_column_with_a_row_group_without_bounds_has_none() -> None:
    rows = pa.table({"text": ["a", "z" * 5_000, "b", None], "n": [1, None, 3, 4]})
    schema_json = schema_of_types({"text": "string", "n": "long"}).model_dump_json()
    found = statistics_of(schema_json, (), _written(rows, row_group_size=1))
    assert found["lower_bounds"].keys() == found["upper_bounds"].keys() == {2}, "a row group of nulls hides nothing"
    assert (found["null_value_counts"], found["value_counts"]) == ({1: 1, 2: 1}, {1: 4, 2: 4})


def test_a_file_with_days_and_times_that_python_does_not_have_has_no_bounds() -> None:
    schema_json = schema_of_types({"at": "timestamp", "n": "long"}).model_dump_json()
    rows = pa.table({"at": pa.array([2**62, -(2**62)]).cast(pa.timestamp("us")), "n": [1, 2]})
    assert statistics_of(schema_json, (), _written(rows))["lower_bounds"].keys() == {1, 2}
    in_groups = statistics_of(schema_json, (), _written(rows, row_group_size=1))
    assert (in_groups["lower_bounds"], in_groups["value_counts"]) == ({}, {1: 2, 2: 2})
