"""Every stock fold against plain Python: all the ways in which rows come and go, without a JVM and without Iceberg."""

from __future__ import annotations

import random
import statistics
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.kernel import sketch
from foldhouse.kernel.combine import FILE, POSITION, Combined, cancelled, combine
from foldhouse.kernel.plan import STATE, WEIGHT, argument_column, arguments_of, plan_of, polars_type, sequence_column

Row = Mapping[str, Any]
Signed = tuple[int, Row]
"""A weight, +1 or -1, and a row."""


class Bucket:
    """One bucket in memory, combined as `refresh/bucket.py` does it: keys that stay unresolved are asked for again."""

    def __init__(self, fold: fh.Fold, types: Mapping[str, pa.DataType], sequence: Sequence[str] = ()) -> None:
        names = [str(argument) for argument in arguments_of(fold)]
        keys, ordered = {"key": pa.string()}, {name: types[name] for name in sequence}
        self.plan = plan_of(fold, keys, ordered, [types[name] for name in names])
        self._called = {argument_column(i): name for i, name in enumerate(names)}
        self._called |= {sequence_column(i): name for i, name in enumerate(sequence)}
        schema = {f.name: polars_type(f.type) for f in self.plan.table_schema}
        self.held = pl.DataFrame(schema=schema | {FILE: pl.UInt32, POSITION: pl.Int64})
        self.source = self.signed([])
        self.recomputed_keys = 0
        self._files = 0

    def signed(self, rows: Iterable[Signed]) -> pl.DataFrame:
        """Signed rows as the kernel takes them; a row without a key is of the key `k`."""
        columns: dict[str, list[Any]] = {name: [] for name in self.plan.delta_schema.names}
        for weight, row in rows:
            columns["key"].append(row.get("key", "k"))
            columns[WEIGHT].append(weight)
            for column, name in self._called.items():
                columns[column].append(row.get(name))
        return _frame(pa.table(columns, self.plan.delta_schema))

    def take(self, *rows: Signed) -> Combined:
        return self.take_frame(self.signed(rows))

    def take_frame(self, rows: pl.DataFrame) -> Combined:
        """Fold signed rows, with the second round for unresolved keys, and replace what changed."""
        source = pl.concat([self.source, rows])
        combined = combine(self.plan, self.held, rows)
        if not combined.unresolved.is_empty():
            assert combined.rows.is_empty(), "a blocked bucket was to be written"
            assert combined.replaced.is_empty(), "rows of a blocked bucket were to be deleted"
            self.recomputed_keys += combined.unresolved.height
            combined = combine(self.plan, self.held, rows, _all_rows_of(source, combined.unresolved))
            assert combined.unresolved.is_empty(), "a recomputed key is unresolved again"
        self.source = source
        self._replace(combined)
        return combined

    def _replace(self, combined: Combined) -> None:
        self._files += 1
        stored = _frame(combined.rows.to_arrow().cast(self.plan.table_schema))  # as it comes back from a file
        places = [pl.lit(self._files, pl.UInt32).alias(FILE), pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION)]
        kept = self.held.join(combined.replaced, on=[FILE, POSITION], how="anti")
        assert kept.height == self.held.height - combined.replaced.height, "a row was replaced that is not there"
        self.held = pl.concat([kept, stored.with_columns(places)])
        assert self.held["key"].is_unique().all(), "a key stands in the table twice"

    def rows(self) -> dict[str, dict[str, Any]]:
        """The published rows by key."""
        shown = self.held.drop(STATE, FILE, POSITION).to_dicts()
        return {row.pop("key"): row for row in shown}

    def values(self, key: str = "k") -> Any:
        """The one published column of a key."""
        (value,) = self.rows()[key].values()
        return value

    def contents(self) -> dict[str, str]:
        """All there is of each key, `_state` and the last bit of every double included."""
        return {row.pop("key"): _bits(row) for row in self.held.drop(FILE, POSITION).to_dicts()}


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _all_rows_of(source: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """What the second round is given: every source row of these keys, and a mark for each key."""
    columns = [name for name in source.columns if name != WEIGHT]
    net = source.join(keys, on="key", how="semi").group_by(columns).agg(pl.col(WEIGHT).sum())
    assert net[WEIGHT].min() is None or net[WEIGHT].min() >= 0, "the test retracts rows that were never added"
    full = net.select(pl.all().repeat_by(WEIGHT)).explode(pl.all()).drop_nulls(WEIGHT)
    full = full.with_columns(pl.lit(1, pl.Int64).alias(WEIGHT), pl.lit(False).alias("__key_only"))
    return pl.concat([full, keys.with_columns(pl.lit(True).alias("__key_only"))], how="diagonal")


def _bits(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_bits(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_bits, value)) + "]"
    return struct.pack("<d", value).hex() if isinstance(value, float) else repr(value)


# What each fold means, in plain Python


def _given(rows: list[Row]) -> list[Any]:
    return [row["value"] for row in rows if row["value"] is not None]


def _sum(rows: list[Row]) -> Any:
    return sum(_given(rows)) if _given(rows) else None


def _mean(rows: list[Row]) -> float | None:
    return sum(_given(rows)) / len(_given(rows)) if _given(rows) else None


def _exact_mean(rows: list[Row]) -> Decimal | None:
    if not _given(rows):
        return None
    exact = sum(map(Fraction, _given(rows))) / len(_given(rows)) * 10**6
    whole = Decimal(exact.numerator) / Decimal(exact.denominator)
    return whole.quantize(Decimal(1), ROUND_HALF_UP).scaleb(-6)


def _in_order(rows: list[Row]) -> list[Row]:
    """By sequence, then by value; null comes before every value."""
    return sorted(rows, key=lambda row: (row["seq"], row["value"] is not None, row["value"] or Decimal(0)))


def _best(rows: list[Row]) -> list[dict[str, Any]]:
    ranked = [{"word": row["word"], "value": row["value"]} for row in rows if row["value"] is not None]
    return sorted(ranked, key=lambda row: (-row["value"], row["word"]))[:2]


@dataclass(frozen=True)
class Case:
    """A fold, what it publishes, and three values for it, from low to high."""

    name: str
    fold: fh.ColumnFold
    kind: pa.DataType
    expected: Callable[[list[Row]], Any]
    published: pa.DataType
    values: tuple[Any, Any, Any] = (-3, 4, 11)

    def bucket(self) -> Bucket:
        types = {"value": self.kind, "seq": pa.int64(), "word": pa.string()}
        return Bucket(fh.fold(out=self.fold), types, sequence=["seq"])


INT, LONG, DOUBLE, TEXT, MONEY = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(12, 2)
DECIMALS = (Decimal("-2.25"), Decimal("0.10"), Decimal("1000000.01"))
DOUBLES = (-0.5, 0.25, 8.0)
WORDS = ("", "grün", "zebra")
BEST = pa.list_(pa.struct([("word", TEXT), ("value", LONG)]))

CASES = [
    Case("count()", fh.count(), INT, len, LONG),
    Case("count(value)", fh.count("value"), TEXT, lambda rows: len(_given(rows)), LONG, WORDS),
    Case("total of ints", fh.total("value"), INT, _sum, LONG),
    Case("total of longs", fh.total("value"), LONG, _sum, LONG, (-(2**40), 5, 2**50)),
    Case("total of decimals", fh.total("value"), MONEY, _sum, pa.decimal128(22, 2), DECIMALS),
    Case("total of doubles", fh.total("value"), DOUBLE, _sum, DOUBLE, DOUBLES),
    Case("total of floats", fh.total("value"), pa.float32(), _sum, DOUBLE, DOUBLES),
    Case("average of ints", fh.average("value"), INT, _mean, DOUBLE),
    Case("average of doubles", fh.average("value"), DOUBLE, _mean, DOUBLE, DOUBLES),
    Case("average of decimals", fh.average("value"), MONEY, _exact_mean, pa.decimal128(16, 6), DECIMALS),
    Case("minimum", fh.minimum("value"), INT, lambda rows: min(_given(rows), default=None), INT),
    Case("minimum of decimals", fh.minimum("value"), MONEY, lambda r: min(_given(r), default=None), MONEY, DECIMALS),
    Case("maximum", fh.maximum("value"), INT, lambda rows: max(_given(rows), default=None), INT),
    Case("maximum of words", fh.maximum("value"), TEXT, lambda rows: max(_given(rows), default=None), TEXT, WORDS),
    Case("latest", fh.latest("value"), INT, lambda rows: _in_order(rows)[-1]["value"], INT),
    Case("earliest", fh.earliest("value"), INT, lambda rows: _in_order(rows)[0]["value"], INT),
    Case("distinct", fh.distinct("value"), TEXT, lambda rows: len(set(_given(rows))), LONG, WORDS),
    Case("distinct of decimals", fh.distinct("value"), MONEY, lambda rows: len(set(_given(rows))), LONG, DECIMALS),
    Case("distinct_exact", fh.distinct_exact("value"), TEXT, lambda rows: len(set(_given(rows))), LONG, WORDS),
    Case("distinct_exact of ints", fh.distinct_exact("value"), INT, lambda rows: len(set(_given(rows))), LONG),
    Case("top", fh.top(2, "word", by="value"), LONG, _best, BEST),
]

# L, M and H are a low, a middle and a high value, N is null; each batch adds (+) and takes away (-).
TIMELINES = {
    "one row": ["+M"],
    "three rows": ["+L +M +H"],
    "a row a batch": ["+H", "+L", "+M"],
    "an update to a middle value": ["+L +H", "-L +M"],
    "an update of the high value": ["+L +H", "-H +M"],
    "an update of the only row": ["+M", "-M +L"],
    "an update to a higher value": ["+L +M", "-M +H"],
    "an update to a lower value": ["+M +H", "-M +L"],
    "the high value goes": ["+L +M +H", "-H"],
    "the low value goes": ["+L +M +H", "-L"],
    "the middle value goes": ["+L +M +H", "-M"],
    "both ends go": ["+L +M +H", "-L -H"],
    "the only row goes": ["+M", "-M"],
    "the only row goes and comes back": ["+M", "-M", "+M"],
    "one of two equal rows goes": ["+M +M", "-M"],
    "one of two equal high rows goes": ["+H +L +H", "-H"],
    "both of two equal rows go": ["+L +H +H", "-H -H"],
    "a row goes and comes in one batch": ["+L +H", "-H +H"],
    "all values are null": ["+N +N"],
    "a null among values": ["+L +N +H"],
    "a null goes": ["+L +N +H", "-N"],
    "the last value goes and a null stays": ["+L +N", "-L"],
    "the only row is null and goes": ["+N", "-N"],
    "a value comes to a null": ["+N", "+M"],
    "a null comes to a value": ["+M", "+N"],
    "added and taken away within one batch": ["+L +H -H"],
    "many updates": ["+L +M", "-L +H", "-M", "+N +M", "-H +L", "-L -M"],
}


def _batches(case: Case, timeline: Sequence[str]) -> list[list[Signed]]:
    # The sequence goes against the values, so that the latest is never the largest by chance.
    rows: dict[str, Row] = {
        "H": {"value": case.values[2], "seq": 1, "word": "a"},
        "M": {"value": case.values[1], "seq": 3, "word": "c"},
        "L": {"value": case.values[0], "seq": 2, "word": "b"},
        "N": {"value": None, "seq": 4, "word": "d"},
    }
    return [[(1 if step[0] == "+" else -1, rows[step[1]]) for step in batch.split()] for batch in timeline]


def _left(batches: Iterable[list[Signed]]) -> list[Row]:
    """The rows that were added and not taken away."""
    counts: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for batch in batches:
        for weight, row in batch:
            counts[tuple(row.items())] += weight
    return [dict(items) for items, times in counts.items() for _ in range(times)]


@pytest.mark.parametrize("timeline", TIMELINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fold_is_what_plain_python_makes_of_the_rows_that_are_left(case: Case, timeline: str) -> None:
    bucket = case.bucket()
    bystander = {"key": "other", "value": case.values[1], "seq": 9, "word": "o"}
    bucket.take((1, bystander))
    batches = _batches(case, TIMELINES[timeline])
    for number, batch in enumerate(batches, start=1):
        bucket.take(*batch)
        left = _left(batches[:number])
        rows = bucket.rows()
        assert rows.pop("other") == {"out": case.expected([bystander])}
        assert rows == ({"k": {"out": case.expected(left)}} if left else {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fold_publishes_the_type_it_says(case: Case) -> None:
    assert case.bucket().plan.table_schema.field("out").type == case.published


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_combining_with_nothing_writes_nothing(case: Case) -> None:
    bucket = case.bucket()
    for _ in range(2):  # of an empty bucket, and of one that holds a row
        combined = bucket.take()
        assert (combined.rows.height, combined.replaced.height, combined.unresolved.height) == (0, 0, 0)
        bucket.take((1, {"value": case.values[0], "seq": 1, "word": "a"}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_row_that_goes_and_comes_in_one_batch_writes_nothing(case: Case) -> None:
    bucket = case.bucket()
    row = {"value": case.values[2], "seq": 1, "word": "a"}
    bucket.take((1, row), (1, {"value": case.values[0], "seq": 2, "word": "b"}))
    combined = bucket.take((-1, row), (1, row))
    assert (combined.rows.height, combined.replaced.height) == (0, 0)
    assert bucket.recomputed_keys == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_the_rows_that_changed_are_written(case: Case) -> None:
    bucket = case.bucket()
    bucket.take(*[(1, {"key": key, "value": case.values[0], "seq": 1, "word": "a"}) for key in "abc"])
    combined = bucket.take((1, {"key": "b", "value": case.values[2], "seq": 2, "word": "b"}))
    assert combined.rows["key"].to_list() == ["b"]
    assert combined.replaced.height == 1


SUBTRACTING = {"count()", "count(value)", "distinct_exact", "distinct_exact of ints"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_retraction_is_recomputed_only_by_the_folds_that_cannot_subtract(case: Case) -> None:
    bucket = case.bucket()
    # Whatever is published comes from the low or from the high row, and both go.
    low, middle, high = ({"value": v, "seq": s, "word": "w"} for v, s in zip(case.values, (3, 2, 1), strict=True))
    bucket.take((1, low), (1, middle), (1, high))
    bucket.take((-1, low), (-1, high))
    subtracts = case.name in SUBTRACTING or case.name.startswith(("total", "average"))
    assert bucket.recomputed_keys == (0 if subtracts else 1)


@pytest.mark.parametrize(
    ("fold", "gone"),
    [
        (fh.minimum("value"), "H"),
        (fh.maximum("value"), "L"),
        (fh.latest("value"), "H"),
        (fh.earliest("value"), "M"),
        (fh.top(1, "word", by="value"), "M"),
        (fh.top(4, "word", by="value"), "H"),
        (fh.distinct("value"), "N"),
    ],
    ids=repr,
)
def test_the_retraction_of_a_row_that_is_not_published_recomputes_nothing(fold: fh.ColumnFold, gone: str) -> None:
    case = Case("", fold, LONG, len, LONG)
    bucket = case.bucket()
    for batch in _batches(case, ["+L +M +H +N", f"-{gone}"]):
        bucket.take(*batch)
    assert bucket.recomputed_keys == 0


@pytest.mark.parametrize(
    ("fold", "batches"),
    [
        (fh.minimum("value"), ["+M +H", "-M +L"]),
        (fh.maximum("value"), ["+L +M", "-M +H"]),
        (fh.latest("value"), ["+H +L", "-L +M"]),
        (fh.earliest("value"), ["+L +M", "-L +H"]),
    ],
    ids=repr,
)
def test_a_published_row_that_is_outdone_as_it_goes_recomputes_nothing(fold: fh.ColumnFold, batches: list[str]) -> None:
    case = Case("", fold, LONG, len, LONG)
    bucket = case.bucket()
    for batch in _batches(case, batches):
        bucket.take(*batch)
    assert bucket.recomputed_keys == 0


def test_an_unresolved_key_blocks_the_whole_bucket() -> None:
    bucket = Bucket(fh.fold(least=fh.minimum("value")), {"value": INT})
    bucket.take(*[(1, {"key": key, "value": value}) for key in "ab" for value in (1, 2)])
    rows = bucket.signed([(-1, {"key": "a", "value": 1}), (1, {"key": "b", "value": 0})])
    combined = combine(bucket.plan, bucket.held, rows)
    assert combined.unresolved.to_dicts() == [{"key": "a"}]
    assert (combined.rows.height, combined.replaced.height) == (0, 0)
    bucket.take_frame(rows)
    assert bucket.rows() == {"a": {"least": 2}, "b": {"least": 0}}


def test_a_recomputed_key_without_any_row_left_disappears() -> None:
    # The window says that a row is left, the source at its end knows better: the recomputed rows decide.
    bucket = Bucket(fh.fold(least=fh.minimum("value")), {"value": INT})
    bucket.take((1, {"value": 1}), (1, {"value": 2}), (1, {"key": "other", "value": 5}))
    gone = bucket.signed([(-1, {"value": 1})])
    marks = _all_rows_of(bucket.signed([]), pl.DataFrame({"key": ["k"]}))
    combined = combine(bucket.plan, bucket.held, gone, marks)
    assert combined.rows.is_empty()
    assert combined.replaced.height == 1


def test_a_key_that_was_recomputed_does_not_take_its_own_changes_twice() -> None:
    bucket = Bucket(fh.fold(least=fh.minimum("value"), rows=fh.count()), {"value": INT})
    bucket.take((1, {"value": 1}), (1, {"value": 2}))
    bucket.take((-1, {"value": 1}), (1, {"value": 3}))
    assert bucket.rows() == {"k": {"least": 2, "rows": 2}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_more_rows_taken_away_than_were_folded_are_invalid(case: Case) -> None:
    bucket = case.bucket()
    row = {"value": case.values[1], "seq": 1, "word": "a"}
    bucket.take((1, row))
    with pytest.raises(fh.InvalidData, match=r"more rows of the key \('k',\) are taken away.*foldhouse rebuild"):
        combine(bucket.plan, bucket.held, bucket.signed([(-1, row), (-1, row)]))


def test_a_retraction_for_a_key_that_is_not_there_is_invalid() -> None:
    bucket = Bucket(fh.fold(rows=fh.count()), {})
    with pytest.raises(fh.InvalidData, match="more rows"):
        bucket.take((-1, {}))


# Overflow


HUGE = Decimal("6" * 38)
HUGE_WITH_CENTS = Decimal("6" * 34 + ".6666")
NO_ROOM = "does not fit its column|38 digits hold no more"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("batches", [1, 2], ids=["in one batch", "over two batches"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(LONG, 2**63 - 1), (pa.decimal128(38, 0), HUGE), (pa.decimal128(38, 4), HUGE_WITH_CENTS)],
    ids=["long", "decimal(38,0)", "decimal(38,4)"],
)
def test_a_sum_that_does_not_fit_is_an_error_and_never_a_wrap(
    sign: int, batches: int, kind: pa.DataType, value: Any
) -> None:
    row = (1, {"value": sign * value})
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": kind})
    if batches == 2:
        bucket.take(row)
        assert bucket.values() == sign * value
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take(row, row)


@pytest.mark.parametrize(
    ("kind", "value", "times"),
    [(LONG, 2**63 - 1, 2), (pa.decimal128(38, 0), Decimal("9" * 34), 25_000)],
    ids=["long", "decimal"],
)
def test_the_sum_behind_an_average_that_does_not_fit_is_an_error(kind: pa.DataType, value: Any, times: int) -> None:
    bucket = Bucket(fh.fold(out=fh.average("value")), {"value": kind})
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take(*[(1, {"value": value})] * times)


@pytest.mark.parametrize("times", [3, 4, 5, 7, 11, 100])
def test_a_decimal_sum_far_beyond_38_digits_does_not_come_round_again(times: int) -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": pa.decimal128(38, 0)})
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take(*[(1, {"value": HUGE})] * times)


def test_a_sum_up_to_the_last_long_is_exact() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": LONG})
    bucket.take((1, {"value": 2**63 - 2}), (1, {"value": 1}))
    assert bucket.values() == 2**63 - 1
    bucket.take((-1, {"value": 2**63 - 2}), (-1, {"value": 1}), (1, {"value": -(2**63)}))
    assert bucket.values() == -(2**63)


def test_a_sum_may_leave_the_range_of_a_long_within_one_batch_as_long_as_it_comes_back() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": LONG})
    bucket.take(*[(1, {"value": value}) for value in (2**62, 2**62, 2**62, -(2**62), -(2**62))])
    assert bucket.values() == 2**62


def test_a_decimal_sum_takes_ten_more_digits_than_its_argument() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": pa.decimal128(5, 2)})
    bucket.take(*[(1, {"value": Decimal("999.99")})] * 50)
    assert bucket.values() == Decimal("49999.50")


@pytest.mark.parametrize(
    ("scale", "values", "expected"),
    [(4, ["1.0000", "2.0001"], "1.50005"), (36, ["0.5", "0.25"], "0.375"), (38, ["0.25", "0.5"], "0.375")],
)
def test_an_average_of_the_widest_decimals_is_exact(scale: int, values: list[str], expected: str) -> None:
    bucket = Bucket(fh.fold(out=fh.average("value")), {"value": pa.decimal128(38, scale)})
    bucket.take(*[(1, {"value": Decimal(value)}) for value in values])
    assert bucket.values() == Decimal(expected)


def test_an_average_that_has_no_room_for_its_four_more_digits_is_an_error() -> None:
    bucket = Bucket(fh.fold(out=fh.average("value")), {"value": pa.decimal128(38, 4)})
    with pytest.raises(fh.InvalidData, match=NO_ROOM):
        bucket.take((1, {"value": HUGE_WITH_CENTS}))


def test_an_average_is_rounded_half_up_and_its_sign_does_not_matter() -> None:
    for sign, expected in ((1, "0.000003"), (-1, "-0.000003")):  # 0.0000025 in the seventh digit
        bucket = Bucket(fh.fold(out=fh.average("value")), {"value": MONEY})
        bucket.take((1, {"value": sign * Decimal("0.01")}), *[(1, {"value": Decimal(0)})] * 3999)
        assert bucket.values() == Decimal(expected)


# One answer, whatever the order and the batches


WIDE = fh.fold(
    rows=fh.count(),
    words=fh.count("word"),
    units=fh.total("units"),
    amount=fh.total("amount"),
    mean=fh.average("units"),
    exact_mean=fh.average("amount"),
    least=fh.minimum("amount"),
    last_word=fh.maximum("word"),
    current=fh.latest("word"),
    current_units=fh.latest("units"),
    first=fh.earliest("amount"),
    first_day=fh.earliest("day"),
    different=fh.distinct_exact("word"),
    about=fh.distinct("word"),
    best=fh.top(3, "word", "day", by="units"),
)
WIDE_TYPES = {
    "word": TEXT,
    "units": INT,
    "amount": MONEY,
    "day": pa.date32(),
    "seq": LONG,
    "at": pa.timestamp("us"),
}
PERMUTATIONS = 100


def _some_events(chance: random.Random, number: int) -> list[tuple[Row, bool]]:
    """Rows, many of them equal or tied, and whether each is taken away again."""
    return [
        (
            {
                "word": chance.choice([None, "", "x", "y", "zz", "ß"]),
                "units": chance.choice([None, -4, 0, 1, 2, 3]),
                "amount": chance.choice([None, Decimal("1.50"), Decimal("-2.25"), Decimal("10.01")]),
                "day": chance.choice([None, date(1969, 12, 31), date(2024, 1, 1)]),
                "seq": chance.choice([None, 1, 2, 3]),
                "at": chance.choice([datetime(2024, 1, 1, 12), datetime(1960, 1, 1)]),
            },
            chance.random() < 0.4,
        )
        for _ in range(number)
    ]


def _permuted(chance: random.Random, events: list[tuple[Any, bool]]) -> list[tuple[int, Any]]:
    """Adding and taking away in any order, but nothing is taken away before it was added."""
    places = [(chance.random(), 1, row) for row, _ in events]
    places += [(chance.uniform(place, 1), -1, row) for (place, _, row), (_, goes) in zip(places, events) if goes]  # noqa: B905
    return [(weight, row) for _, weight, row in sorted(places, key=lambda one: one[:2])]


def _fold_permutations(bucket: Bucket, timelines: list[list[tuple[int, Any]]], batches: int) -> None:
    """Fold each timeline as a key of its own, all of them cut into so many batches."""
    size = -(-len(timelines[0]) // batches)
    for start in range(0, len(timelines[0]), size):
        bucket.take(
            *[
                (weight, {**row, "key": f"permutation {number}"})
                for number, timeline in enumerate(timelines)
                for weight, row in timeline[start : start + size]
            ]
        )


@pytest.mark.parametrize("batches", [1, 2, 8, 30])
@pytest.mark.parametrize("seed", range(2))
def test_a_hundred_permutations_in_any_number_of_batches_give_one_answer_bit_for_bit(seed: int, batches: int) -> None:
    chance = random.Random(seed)
    events = _some_events(chance, 60)
    once = Bucket(WIDE, WIDE_TYPES, sequence=["seq", "at"])
    once.take(*[(1, row) for row, goes in events if not goes])
    bucket = Bucket(WIDE, WIDE_TYPES, sequence=["seq", "at"])
    _fold_permutations(bucket, [_permuted(chance, events) for _ in range(PERMUTATIONS)], batches)
    assert len(bucket.rows()) == PERMUTATIONS
    assert list(bucket.rows().values()) == [once.rows()["k"]] * PERMUTATIONS
    exact = [{n: v for n, v in row.items() if n != "about_sketch"} for row in bucket.held[STATE].to_list()]
    assert {_bits(state) for state in exact} == {_bits({n: v for n, v in once.held[STATE][0].items() if n in exact[0]})}


def test_the_permutations_are_not_one_and_the_same_order() -> None:
    chance = random.Random(0)
    events = _some_events(chance, 60)
    orders = {repr(_permuted(chance, events)) for _ in range(PERMUTATIONS)}
    assert len(orders) == PERMUTATIONS


@pytest.mark.parametrize("batches", [1, 2, 8, 30])
def test_the_estimate_of_distinct_does_not_depend_on_the_order_or_the_batches(batches: int) -> None:
    fold = fh.fold(about=fh.distinct("word"))
    words = [f"word {number % 3000}" for number in range(3600)]
    once = Bucket(fold, {"word": TEXT})
    once.take(*[(1, {"word": word}) for word in words])
    assert abs(once.values() - 3000) < 3000 * 0.03
    assert len(once.held[STATE][0]["about_sketch"]) > 4096, "the sketch is not in HLL mode"
    chance = random.Random(7)
    timelines = [_permuted(chance, [*((word, False) for word in words), ("gone", True)]) for _ in range(PERMUTATIONS)]
    bucket = Bucket(fold, {"word": TEXT})
    size = -(-len(timelines[0]) // batches)
    for start in range(0, len(timelines[0]), size):
        signed = [
            pl.DataFrame(timeline[start : start + size], {WEIGHT: pl.Int64, "__a0": pl.String}, orient="row").select(
                pl.lit(str(number)).alias("key"), "__a0", WEIGHT
            )
            for number, timeline in enumerate(timelines)
        ]
        bucket.take_frame(pl.concat(signed))
    assert Counter(row["about"] for row in bucket.rows().values()) == {once.values(): PERMUTATIONS}


@pytest.mark.parametrize("kind", ["text", "long", "decimal", "date"])
def test_distinct_is_within_three_percent_of_fifty_thousand_values(kind: str) -> None:
    numbers = range(50_000)
    values, arrow = {
        "text": ([f"customer {n}" for n in numbers], TEXT),
        "long": ([n * 7919 for n in numbers], LONG),
        "decimal": ([Decimal(n).scaleb(-2) for n in numbers], MONEY),
        "date": ([date.fromordinal(700_000 + n) for n in numbers], pa.date32()),
    }[kind]
    bucket = Bucket(fh.fold(about=fh.distinct("value")), {"value": arrow})
    bucket.take(*[(1, {"value": value}) for value in values])
    assert abs(bucket.values() - 50_000) < 50_000 * 0.03


def test_the_estimate_of_distinct_has_the_error_it_says_and_no_bias() -> None:
    errors = []
    for seed in range(40):
        numbers = random.Random(seed)
        values = {numbers.getrandbits(60) for _ in range(10_000)}
        errors.append(sketch.estimate({"sketch": sketch.extended({"old": None, "new": values})}) / len(values) - 1)
    assert abs(statistics.mean(errors)) < 0.006
    assert 0.010 < statistics.pstdev(errors) < 0.020


def test_distinct_counts_the_empty_text_as_a_value() -> None:
    bucket = Bucket(fh.fold(about=fh.distinct("value")), {"value": TEXT})
    bucket.take((1, {"value": ""}))
    assert bucket.values() == 1


# Ties


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_all_columns_of_latest_come_from_one_row_even_where_the_sequence_ties(batches: int) -> None:
    rows = [{"word": word, "units": units, "seq": 1} for word, units in (("a", 9), ("b", 1), ("b", 0))]
    types = {"word": TEXT, "units": INT, "seq": LONG}
    bucket = Bucket(fh.fold(word=fh.latest("word"), units=fh.latest("units")), types, sequence=["seq"])
    for number in range(batches):
        bucket.take(*[(1, row) for row in rows[number::batches]])
    assert bucket.rows()["k"] == {"word": "b", "units": 1}


def test_the_second_sequence_column_decides_where_the_first_ties() -> None:
    types = {"word": TEXT, "seq": LONG, "at": pa.timestamp("us")}
    bucket = Bucket(fh.fold(word=fh.latest("word")), types, sequence=["seq", "at"])
    bucket.take((1, {"word": "z", "seq": 1, "at": datetime(2024, 1, 1)}))
    bucket.take((1, {"word": "a", "seq": 1, "at": datetime(2024, 1, 2)}))
    bucket.take((1, {"word": "y", "seq": 0, "at": datetime(2024, 1, 3)}))
    assert bucket.values() == "a"


def test_a_row_without_a_sequence_is_before_every_other() -> None:
    types = {"word": TEXT, "seq": LONG}
    bucket = Bucket(fh.fold(last=fh.latest("word"), first=fh.earliest("word")), types, sequence=["seq"])
    bucket.take((1, {"word": "b", "seq": -5}))
    bucket.take((1, {"word": "z", "seq": None}))
    assert bucket.rows()["k"] == {"last": "b", "first": "z"}


def test_top_holds_equal_rows_as_often_as_they_are_there() -> None:
    bucket = Bucket(fh.fold(best=fh.top(3, "word", by="units")), {"word": TEXT, "units": INT})
    row = {"word": "a", "units": 5}
    bucket.take((1, row), (1, row))
    bucket.take((1, row), (1, row))
    assert bucket.values() == [row] * 3
    bucket.take((-1, row), (-1, row))
    assert bucket.values() == [row] * 2


def test_top_ranks_nulls_among_its_values_last() -> None:
    bucket = Bucket(fh.fold(best=fh.top(2, "word", by="units")), {"word": TEXT, "units": INT})
    for word in (None, "b", "a"):
        bucket.take((1, {"word": word, "units": 5}))
    assert bucket.values() == [{"word": "a", "units": 5}, {"word": "b", "units": 5}]


# Values that compare in their own way


NAN = float("nan")


@pytest.mark.parametrize("fold", [fh.minimum("value"), fh.maximum("value"), fh.distinct_exact("value")], ids=repr)
def test_a_nan_gives_one_answer_whatever_the_batches(fold: fh.ColumnFold) -> None:
    answers = set()
    for order in ([NAN, 1.0, 2.0], [2.0, NAN, 1.0], [1.0, 2.0, NAN]):
        for batches in (1, 3):
            bucket = Bucket(fh.fold(out=fold), {"value": DOUBLE})
            for number in range(batches):
                bucket.take(*[(1, {"value": value}) for value in order[number::batches]])
            answers.add(_bits(bucket.values()))
    assert len(answers) == 1


def test_a_nan_that_was_counted_as_a_value_can_be_taken_away_again() -> None:
    bucket = Bucket(fh.fold(out=fh.distinct_exact("value")), {"value": DOUBLE})
    bucket.take((1, {"value": NAN}), (1, {"value": NAN}), (1, {"value": 1.0}))
    assert bucket.values() == 2
    bucket.take((-1, {"value": NAN}))
    bucket.take((-1, {"value": NAN}))
    assert bucket.values() == 1


@pytest.mark.parametrize("n", [1, 2, 3], ids=lambda n: f"top({n})")
def test_top_lets_go_of_a_row_that_is_ranked_by_nan(n: int) -> None:
    bucket = Bucket(fh.fold(best=fh.top(n, "word", by="units")), {"word": TEXT, "units": DOUBLE})
    rows = [{"word": "a", "units": NAN}, {"word": "b", "units": 1.0}, {"word": "c", "units": 2.0}]
    bucket.take(*[(1, row) for row in rows])
    assert bucket.values()[0]["word"] == "a"  # NaN is greater than every number, as in Spark
    bucket.take((-1, rows[0]))
    assert bucket.values() == [rows[2], rows[1]][:n]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), NAN])
@pytest.mark.parametrize("fold", [fh.total("value"), fh.average("value")], ids=repr)
def test_a_double_that_is_no_number_leaves_nothing_behind_when_it_is_taken_away(
    fold: fh.ColumnFold, value: float
) -> None:
    bucket = Bucket(fh.fold(out=fold), {"value": DOUBLE})
    bucket.take((1, {"value": 1.5}), (1, {"value": value}))
    bucket.take((-1, {"value": value}))
    assert bucket.values() == 1.5


@pytest.mark.parametrize("name", ["weight", "inserted", "retracted", "old", "value0", "count"])
def test_top_may_publish_a_column_of_any_name(name: str) -> None:
    bucket = Bucket(fh.fold(best=fh.top(1, name, by="units")), {name: TEXT, "units": INT})
    bucket.take((1, {name: "a", "units": 1}))
    bucket.take((1, {name: "b", "units": 2}))
    assert bucket.values() == [{name: "b", "units": 2}]


NESTED = {"list": (pa.list_(INT), [1, 2]), "struct": (pa.struct([("a", INT)]), {"a": 1})}


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    "fold",
    [fh.latest, fh.earliest, fh.minimum, fh.maximum, fh.total, fh.average, fh.distinct, fh.distinct_exact, fh.count],
    ids=lambda fold: fold.__name__,
)
def test_a_nested_argument_is_folded_or_refused_at_the_declaration(
    fold: Callable[[str], fh.ColumnFold], shape: str
) -> None:
    kind, value = NESTED[shape]
    try:
        bucket = Bucket(fh.fold(out=fold("value")), {"value": kind, "seq": LONG}, sequence=["seq"])
    except fh.DefinitionError:
        return
    for number in (1, 2):
        bucket.take((1, {"value": value, "seq": number}))
    bucket.take((-1, {"value": value, "seq": 2}))
    assert bucket.values() in (value, 1)


def test_the_columns_of_a_table_may_be_called_what_the_kernel_calls_its_own() -> None:
    names = ["rows", "count", "sum", "sequence", "sketch", "counts", "value0", "latest", "weight"]
    bucket = Bucket(fh.fold(**{name: fh.total("value") for name in names}), {"value": INT})
    bucket.take((1, {"value": 2}))
    bucket.take((1, {"value": 3}), (-1, {"value": 2}))
    assert bucket.rows()["k"] == dict.fromkeys(names, 3)


def test_rows_that_cancel_leave_together_and_the_others_stay() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": INT})
    one, other = {"value": 1}, {"value": None}
    left = cancelled(bucket.plan, bucket.signed([(1, one), (-1, one), (-1, other), (1, other), (1, other), (1, one)]))
    assert sorted(left.select("__a0", WEIGHT).rows(), key=str) == [(1, 1), (None, 1)]
