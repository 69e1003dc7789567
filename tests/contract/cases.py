"""The table of the contract: every fold with its meaning in plain Python, and every way in which rows come and go."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from contract.bucket import Bucket, Row, Signed

import foldhouse as fh

INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
MONEY = pa.decimal128(12, 2)


def _given(rows: list[Row]) -> list[Any]:
    return [row["value"] for row in rows if row["value"] is not None]


def _sum(rows: list[Row]) -> Any:
    return sum(_given(rows)) if _given(rows) else None


def _mean(rows: list[Row]) -> float | None:
    return sum(_given(rows)) / len(_given(rows)) if _given(rows) else None


def _float_sum(rows: list[Row]) -> float | None:
    """The exact sum, rounded once; one infinity among the values is the sum."""
    given = _given(rows)
    if not given or math.inf in given:
        return math.inf if given else None
    exact = sum(map(Fraction, given))
    return math.inf if exact > Fraction(LARGEST) + 1 else float(exact)


def _float_mean(rows: list[Row]) -> float | None:
    given = _given(rows)
    if not given or math.inf in given:
        return math.inf if given else None
    return float(sum(map(Fraction, given)) / len(given))


def _exact_mean(rows: list[Row]) -> Decimal | None:
    if not _given(rows):
        return None
    exact = sum(map(Fraction, _given(rows))) / len(_given(rows)) * 10**6
    whole = Decimal(exact.numerator) / Decimal(exact.denominator)
    return whole.quantize(Decimal(1), ROUND_HALF_UP).scaleb(-6)


def _least(rows: list[Row]) -> Any:
    return min(_given(rows), default=None)


def _most(rows: list[Row]) -> Any:
    return max(_given(rows), default=None)


def _different(rows: list[Row]) -> int:
    return len(set(_given(rows)))


def _in_order(rows: list[Row]) -> list[Row]:
    """By sequence, then by value; null comes before every value."""
    return sorted(rows, key=lambda row: (row["seq"], row["value"] is not None, row["value"] or Decimal(0)))


def _last(rows: list[Row]) -> Any:
    return _in_order(rows)[-1]["value"]


def _first(rows: list[Row]) -> Any:
    return _in_order(rows)[0]["value"]


def _last_given(rows: list[Row]) -> Any:
    return next((row["value"] for row in reversed(_in_order(rows)) if row["value"] is not None), None)


def _word_of(chosen: Callable[..., Row], rows: list[Row]) -> str | None:
    ranked = [row for row in rows if row["value"] is not None]
    return chosen(ranked, key=lambda row: (row["value"], row["word"]))["word"] if ranked else None


def _best(rows: list[Row]) -> list[dict[str, Any]]:
    ranked = [{"word": row["word"], "value": row["value"]} for row in rows if row["value"] is not None]
    return sorted(ranked, key=lambda row: (-row["value"], row["word"]))[:2]


def _by_word(rows: list[Row]) -> list[Any]:
    ranked = sorted((row["word"], row["value"]) for row in rows if row["value"] is not None)
    return [value for _, value in ranked]


def _longest(rows: list[Row]) -> str | None:
    return max(_given(rows), key=lambda word: (len(word), word), default=None)


def _spread(rows: list[Row]) -> int | None:
    """How often each value is there, squared and summed: to be subtracted, a state has to be more than a number."""
    return sum(times**2 for times in Counter(_given(rows)).values()) if _given(rows) else None


def longest(value: str) -> fh.ColumnFold:
    return fh.custom(
        value,
        name="longest",
        prepare=lambda word: word,
        merge=lambda one, other: max(one, other, key=lambda word: (len(word), word)),
        state="string",
    )


def spread(value: str) -> fh.ColumnFold:
    def added(one: dict[str, int], other: dict[str, int], sign: int = 1) -> dict[str, int]:
        counts = {key: one.get(key, 0) + sign * other.get(key, 0) for key in sorted({*one, *other})}
        return {key: count for key, count in counts.items() if count}

    return fh.custom(
        value,
        name="spread",
        prepare=lambda value: None if value is None else {str(value): 1},
        merge=added,
        subtract=lambda one, other: added(one, other, -1),
        present=lambda counts: sum(times**2 for times in counts.values()),
        state="map<string, long>",
        type="long",
    )


@dataclass(frozen=True)
class Case:
    """A fold over a column, what it publishes, and three values for it, from low to high.

    `word` and `seq` are columns of the same rows. `stays` says that the fold subtracts every retraction.
    """

    name: str
    make: Callable[[str], fh.ColumnFold]
    kind: pa.DataType
    expected: Callable[[list[Row]], Any]
    published: pa.DataType
    values: tuple[Any, Any, Any] = (-3, 4, 11)
    stays: bool = False

    @property
    def fold(self) -> fh.ColumnFold:
        return self.make("value")

    def bucket(self) -> Bucket:
        types = {"value": self.kind, "seq": LONG, "word": TEXT}
        return Bucket(fh.fold(out=self.fold), types, sequence=["seq"])


DECIMALS = (Decimal("-2.25"), Decimal("0.10"), Decimal("1000000.01"))
DOUBLES = (-0.5, 0.25, 8.0)
LARGEST = sys.float_info.max
ALL_SIZES = (-1e17, 0.1, 1e300)
OUTSIDE = (0.1, LARGEST, math.inf)
WORDS = ("", "grün", "zebra")
BEST = pa.list_(pa.struct([("word", TEXT), ("value", LONG)]))

CASES = [
    Case("count()", lambda value: fh.count(), INT, len, LONG, stays=True),
    Case("count(value)", fh.count, TEXT, lambda rows: len(_given(rows)), LONG, WORDS, stays=True),
    Case("total of ints", fh.total, INT, _sum, LONG, stays=True),
    Case("total of longs", fh.total, LONG, _sum, LONG, (-(2**40), 5, 2**50), stays=True),
    Case("total of decimals", fh.total, MONEY, _sum, pa.decimal128(22, 2), DECIMALS, stays=True),
    Case("total of doubles", fh.total, DOUBLE, _sum, DOUBLE, DOUBLES, stays=True),
    Case("total of floats", fh.total, FLOAT, _sum, DOUBLE, DOUBLES, stays=True),
    Case("total of doubles of all sizes", fh.total, DOUBLE, _float_sum, DOUBLE, ALL_SIZES, stays=True),
    Case("total of doubles that leaves their range", fh.total, DOUBLE, _float_sum, DOUBLE, OUTSIDE, stays=True),
    Case("average of doubles of all sizes", fh.average, DOUBLE, _float_mean, DOUBLE, ALL_SIZES, stays=True),
    Case("average of doubles beyond their range", fh.average, DOUBLE, _float_mean, DOUBLE, OUTSIDE, stays=True),
    Case("average of ints", fh.average, INT, _mean, DOUBLE, stays=True),
    Case("average of doubles", fh.average, DOUBLE, _mean, DOUBLE, DOUBLES, stays=True),
    Case("average of decimals", fh.average, MONEY, _exact_mean, pa.decimal128(16, 6), DECIMALS, stays=True),
    Case("minimum", fh.minimum, INT, _least, INT),
    Case("minimum of decimals", fh.minimum, MONEY, _least, MONEY, DECIMALS),
    Case("maximum", fh.maximum, INT, _most, INT),
    Case("maximum of words", fh.maximum, TEXT, _most, TEXT, WORDS),
    Case("minimum_by", lambda value: fh.minimum_by("word", value), INT, lambda r: _word_of(min, r), TEXT),
    Case("maximum_by", lambda value: fh.maximum_by("word", value), INT, lambda r: _word_of(max, r), TEXT),
    Case("minimum_by of nulls", lambda value: fh.minimum_by(value, "seq"), INT, _first, INT),
    Case("maximum_by of nulls", lambda value: fh.maximum_by(value, "seq"), INT, _last, INT),
    Case("latest", fh.latest, INT, _last, INT),
    Case("latest that is given", lambda value: fh.latest(value, ignore_nulls=True), INT, _last_given, INT),
    Case("earliest", fh.earliest, INT, _first, INT),
    Case("distinct", fh.distinct, TEXT, _different, LONG, WORDS),
    Case("distinct of decimals", fh.distinct, MONEY, _different, LONG, DECIMALS),
    Case("distinct_exact", fh.distinct_exact, TEXT, _different, LONG, WORDS, stays=True),
    Case("distinct_exact of ints", fh.distinct_exact, INT, _different, LONG, stays=True),
    Case("collect", fh.collect, TEXT, lambda r: sorted(_given(r)), pa.list_(TEXT), WORDS, stays=True),
    Case("collect by", lambda value: fh.collect(value, by="word"), INT, _by_word, pa.list_(INT), stays=True),
    Case("collect 2", lambda v: fh.collect(v, limit=2), LONG, lambda r: sorted(_given(r))[:2], pa.list_(LONG)),
    Case(
        "collect distinct",
        lambda value: fh.collect(value, distinct=True),
        MONEY,
        lambda rows: sorted(set(_given(rows))),
        pa.list_(MONEY),
        DECIMALS,
        stays=True,
    ),
    Case(
        "collect 2 distinct by",
        lambda value: fh.collect(value, by="word", distinct=True, limit=2),
        INT,
        lambda rows: list(dict.fromkeys(_by_word(rows)))[:2],
        pa.list_(INT),
    ),
    Case("top", lambda value: fh.top(2, "word", by=value), LONG, _best, BEST),
    Case("custom", longest, TEXT, _longest, TEXT, WORDS),
    Case("custom that subtracts", spread, INT, _spread, LONG, stays=True),
]

# L, M and H are a low, a middle and a high value, N is null; each batch adds (+) and takes away (-).
TIMELINES = {
    "nothing": [""],
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
    "one of two equal low rows goes": ["+L +H +L", "-L"],
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


def batches_of(case: Case, timeline: Sequence[str]) -> list[list[Signed]]:
    # The sequence goes against the values, so that the latest is never the largest by chance.
    rows: dict[str, Row] = {
        "H": {"value": case.values[2], "seq": 1, "word": "a"},
        "M": {"value": case.values[1], "seq": 3, "word": "c"},
        "L": {"value": case.values[0], "seq": 2, "word": "b"},
        "N": {"value": None, "seq": 4, "word": "d"},
    }
    return [[(1 if step[0] == "+" else -1, rows[step[1]]) for step in batch.split()] for batch in timeline]


def left_of(batches: Iterable[list[Signed]]) -> list[Row]:
    """The rows that were added and not taken away."""
    counts: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for batch in batches:
        for weight, row in batch:
            counts[tuple(row.items())] += weight
    return [dict(items) for items, times in counts.items() for _ in range(times)]
