"""The documentation's lists of folds, their types and their retractions, compared with the folds themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from laws.columns import FOLDS

import foldhouse as fh
from foldhouse.kernel import folds
from foldhouse.kernel.plan import FoldPlan, plan_of

ROOT = Path(__file__).parents[2]
LONG, TEXT, MAP = pa.int64(), pa.string(), pa.map_(pa.string(), pa.int64())

KINDS: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": LONG,
    "decimal": pa.decimal128(12, 2),
    "wide decimal": pa.decimal128(36, 30),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "text": TEXT,
    "binary": pa.binary(),
    "list": pa.list_(LONG),
    "struct": pa.struct([("one", LONG)]),
    "map": MAP,
    "list of maps": pa.list_(MAP),
}
WITH_MAPS = {"map", "list of maps"}
TAKES = {
    "integers": {"int", "long"},
    "decimals": {"decimal", "wide decimal"},
    "floats": {"float", "double"},
    "any type": set(KINDS),
    "any type that is not nested": set(KINDS) - {"list", "struct"} - WITH_MAPS,
    "any type without maps": set(KINDS) - WITH_MAPS,
}


def _digits(more: int, more_after: int) -> Callable[[pa.DataType], pa.DataType]:
    return lambda kind: pa.decimal128(min(38, kind.precision + more), min(38, kind.scale + more_after))


GIVES: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "long": lambda kind: LONG,
    "double": lambda kind: pa.float64(),
    "the argument's type": lambda kind: kind,
    "list of the argument's type": pa.list_,
    "list of structs of its columns": lambda kind: pa.list_(pa.struct([("value", kind), ("by", LONG)])),
    "the declared `type`, or that of `state`": lambda kind: LONG,
    "decimal with ten more digits (38 at most), the same scale": _digits(10, 0),
    "decimal with four more digits (38 at most), all after the point; rounded half up": _digits(4, 4),
}


def _custom(value: str, subtract: Callable[[int, int], int] | None = None) -> fh.ColumnFold:
    return fh.custom(
        value,
        name="rows",
        prepare=lambda value: 1,
        merge=lambda one, other: one + other,
        subtract=subtract,
        state="long",
    )


MADE: dict[str, Callable[[], fh.ColumnFold]] = {
    "minimum_by": lambda: fh.minimum_by("value", "by"),
    "maximum_by": lambda: fh.maximum_by("value", "by"),
    "collect(distinct=True)": lambda: fh.collect("value", distinct=True),
    "top": lambda: fh.top(3, "value", by="by"),
    "custom": lambda: _custom("value"),
}
"""Folds that take more than a value; every other is called with it."""

BY_TAKES: dict[str, Callable[[], fh.ColumnFold]] = {
    "minimum_by": lambda: fh.minimum_by("value", "by"),
    "maximum_by": lambda: fh.maximum_by("value", "by"),
    "collect": lambda: fh.collect("value", by="by"),
    "top": lambda: fh.top(3, "value", by="by"),
}

# What a limit, a `subtract` or a flag changes of a retraction, as the table words it.
SUBTRACTS_IF: dict[str, tuple[str, Callable[[], fh.ColumnFold], Callable[[], fh.ColumnFold]]] = {
    # fold: the condition, one that subtracts, one that does not
    "collect": ("; with a limit, recompute", lambda: fh.collect("value"), lambda: fh.collect("value", limit=2)),
    "custom": (
        " if it has a `subtract`, else recompute",
        lambda: _custom("value", lambda one, other: one - other),
        lambda: _custom("value"),
    ),
}


def _made(name: str) -> fh.ColumnFold:
    return MADE[name]() if name in MADE else getattr(fh, name)("value")


def _plan(fold: fh.ColumnFold, value: pa.DataType, by: pa.DataType = LONG) -> FoldPlan:
    types = [{"value": value, "by": by}[str(argument)] for argument in fold.arguments]
    return plan_of(fh.fold(out=fold), {"key": TEXT}, {"seq": LONG}, types)


def _accepted(plan: Callable[[pa.DataType], FoldPlan]) -> set[str]:
    found = set()
    for name, kind in KINDS.items():
        try:
            plan(kind)
        except fh.DefinitionError:
            continue
        found.add(name)
    return found


def _rows(page: str, heading: str) -> Iterator[tuple[list[str], list[str]]]:
    """The rows of the table below a heading: the folds in the first cell, and the other cells."""
    section = (ROOT / page).read_text("utf-8").split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    for line in section.splitlines():
        first, *others = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield re.findall(r"`([^`]+)`", first), others


TYPES = [
    (name, cells) for names, cells in _rows("docs/table-format.md", "Types of published columns") for name in names
]
RETRACTIONS = {
    name: cells[1] for names, cells in _rows("docs/how-it-works.md", "What each fold can take back") for name in names
}


def test_every_list_of_folds_names_every_fold_and_no_other() -> None:
    stock = set(folds.__all__)
    readme = re.search(r"The folds are (.+?)\. A custom", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert readme is not None
    assert set(re.findall(r"`(\w+)`", readme[1])) == stock
    assert set(RETRACTIONS) == stock
    assert {name for name, _ in TYPES if "(" not in name} == stock


def test_the_law_makes_columns_of_every_fold() -> None:
    custom = {"squares", "longest"}
    assert set(FOLDS) - custom | {"custom"} == set(folds.__all__)


@pytest.mark.parametrize("name", RETRACTIONS)
def test_a_fold_subtracts_where_the_documentation_says_so(name: str) -> None:
    said = RETRACTIONS[name]
    if name in SUBTRACTS_IF:
        condition, subtracting, recomputing = SUBTRACTS_IF[name]
        assert said.startswith(f"merge (subtract){condition}")
        assert _plan(subtracting(), LONG).units[0].algebra.unresolved is None
        assert _plan(recomputing(), LONG).units[0].algebra.unresolved is not None
        return
    assert said == "merge (subtract)" or said.startswith("recompute the key")
    kinds = set.union(*(_taken(cells[0]) for fold, cells in TYPES if fold == name))
    for kind in kinds:
        subtracts = _plan(_made(name), KINDS[kind]).units[0].algebra.unresolved is None
        assert subtracts == (said == "merge (subtract)"), kind


def _taken(cell: str) -> set[str]:
    return TAKES[re.split("; as `by`|, or no argument", cell)[0]]


@pytest.mark.parametrize("name", sorted({name for name, _ in TYPES}))
def test_a_fold_takes_the_types_that_the_documentation_lists(name: str) -> None:
    rows = [cells for fold, cells in TYPES if fold == name]
    assert _accepted(lambda kind: _plan(_made(name), kind)) == set.union(*(_taken(cells[0]) for cells in rows))
    by = [found[1] for cells in rows if (found := re.search("as `by`, (.+)", cells[0]))]
    assert bool(by) == (name in BY_TAKES)
    if by:
        assert _accepted(lambda kind: _plan(BY_TAKES[name](), LONG, kind)) == TAKES[by[0]]


@pytest.mark.parametrize(("name", "cells"), TYPES, ids=[f"{name} of {cells[0]}" for name, cells in TYPES])
def test_a_fold_gives_the_type_that_the_documentation_lists(name: str, cells: list[str]) -> None:
    for kind in sorted(_taken(cells[0])):
        published = _plan(_made(name), KINDS[kind]).table_schema.field("out").type
        assert published == GIVES[cells[1]](KINDS[kind]), kind
