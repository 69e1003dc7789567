"""The table of the contract once more, through a lake whose every window is folded in the tasks of Spark.

One stream holds every timeline as a key of its own; a batch restates its one day, so that what goes is retracted and
what stays cancels. One table a fold takes all cases of that fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from contract.cases import CASES, TIMELINES, Case, batches_of, left_of

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog

pytestmark = [pytest.mark.spark, pytest.mark.heavy]

DAY = date(2024, 3, 4)
ROUNDS = (1, 2)
"""After how many batches the tables are refreshed; a timeline that has fewer has ended by then."""

KINDS = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.string(): "string"}
COLUMNS = {argument: f"v{n}" for n, argument in enumerate(dict.fromkeys((case.kind, case.values) for case in CASES))}
TYPES = {column: KINDS.get(kind, "decimal(12,2)") for (kind, _), column in COLUMNS.items()}

events = fh.stream(
    "contract.events",
    schema={"timeline": "string", "day": "date", "seq": "long", "word": "string", **TYPES},
    keys="timeline",
    sequence_by="seq",
    partition_by="day",
)


def column_of(case: Case) -> str:
    return COLUMNS[case.kind, case.values]


def output_of(case: Case) -> str:
    return f"out{CASES.index(case)}"


def fold_name(case: Case) -> str:
    return case.name.replace("(", " ").split()[0]


TABLES = [
    fh.table(
        f"contract.{name}",
        source=events,
        fold=fh.fold(**{output_of(case): case.make(column_of(case)) for case in CASES if fold_name(case) == name}),
    )
    for name in dict.fromkeys(map(fold_name, CASES))
]


def rows_after(case: Case, timeline: str, batches: int) -> list[dict[str, Any]]:
    return [dict(row) for row in left_of(batches_of(case, TIMELINES[timeline])[:batches])]


def state_after(batches: int) -> pa.Table:
    """The stream's day: what is left of every timeline after so many of its batches, with a value for each case."""
    rows = []
    for timeline in TIMELINES:
        by_case = {column_of(case): rows_after(case, timeline, batches) for case in CASES}
        for place, one in enumerate(next(iter(by_case.values()))):
            values = {column: left[place]["value"] for column, left in by_case.items()}
            rows.append({"timeline": timeline, "day": DAY, "seq": one["seq"], "word": one["word"], **values})
    types = {column: kind for (kind, _), column in COLUMNS.items()}
    plain = {"timeline": pa.string(), "day": pa.date32(), "seq": pa.int64(), "word": pa.string()}
    return pa.Table.from_pylist(rows, pa.schema({**plain, **types}))


@pytest.fixture(scope="module")
def published(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, int], dict[str, Any]]]:
    """(table, batches) -> timeline -> the published row."""
    catalog = open_local_catalog(tmp_path_factory.mktemp("contract") / "lake")
    lake = fh.Lake(catalog, lambda: spark, in_process_rows=-1)
    found = {}
    for batches in ROUNDS:
        lake.replace(events, state_after(batches), partitions=[DAY])
        for table in TABLES:
            lake.refresh(table)
            rows = lake.to_arrow(table).to_pylist()
            found[table.name, batches] = {row.pop("timeline"): row for row in rows}
    yield found
    lake.close()


@pytest.mark.parametrize("batches", ROUNDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fold_in_the_tasks_of_spark_is_what_plain_python_makes_of_the_rows_that_are_left(
    published: dict[tuple[str, int], dict[str, Any]], case: Case, batches: int
) -> None:
    rows = published[f"contract.{fold_name(case)}", batches]
    left = {timeline: rows_after(case, timeline, batches) for timeline in TIMELINES}
    expected = {timeline: named(case, case.expected(rows)) for timeline, rows in left.items() if rows}
    assert {timeline: row[output_of(case)] for timeline, row in rows.items()} == expected


def named(case: Case, value: Any) -> Any:
    """What is expected, where it is a list of rows with the name that the argument has here."""
    if not isinstance(value, list):
        return value
    names = {"value": column_of(case)}
    return [{names.get(k, k): v for k, v in row.items()} if isinstance(row, dict) else row for row in value]


def test_every_round_adds_and_takes_away() -> None:
    sizes = [state_after(batches).num_rows for batches in ROUNDS]
    assert len(set(sizes)) == len(ROUNDS)
    assert min(sizes) > len(TIMELINES) // 2
