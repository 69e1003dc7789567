"""A user's own fold: the arguments of its functions, the results they may return, and the errors if they fail."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from contract.bucket import Bucket
from contract.cases import INT, TEXT, longest

import foldhouse as fh
from foldhouse.kernel.fitting import fits
from foldhouse.values.types import arrow_type


def summed(**changed: Any) -> fh.ColumnFold:
    functions = {
        "name": "summed",
        "prepare": lambda value: value,
        "merge": lambda one, other: one + other,
        "state": "int",
        **changed,
    }
    return fh.custom("value", **functions)


def bucket_of(fold: fh.ColumnFold) -> Bucket:
    return Bucket(fh.fold(out=fold), {"value": INT, "word": TEXT})


def test_prepare_is_given_the_arguments_in_their_order_and_null_as_none() -> None:
    seen = []

    def prepare(*values: Any) -> int:
        seen.append(values)
        return 1

    fold = fh.custom("word", "value", name="seen", prepare=prepare, merge=lambda one, other: one + other, state="int")
    bucket = bucket_of(fold)
    bucket.take((1, {"word": "a", "value": 1}), (1, {"word": None, "value": 2}))
    assert sorted(seen, key=str) == [("a", 1), (None, 2)]
    assert bucket.values() == 2


def test_a_row_for_which_prepare_returns_none_is_left_out() -> None:
    bucket = bucket_of(summed(prepare=lambda value: value if value and value > 0 else None))
    bucket.take(*[(1, {"value": value}) for value in (3, -5, None, 4)])
    assert bucket.values() == 7


def test_a_state_that_all_rows_were_taken_from_is_none_again() -> None:
    bucket = bucket_of(summed(subtract=lambda one, other: one - other))
    bucket.take((1, {"value": 3}), (1, {"value": None}))
    bucket.take((-1, {"value": 3}))
    assert bucket.values() is None


def test_equal_rows_count_as_often_as_they_are_there() -> None:
    bucket = bucket_of(summed(subtract=lambda one, other: one - other))
    bucket.take(*[(1, {"value": 3})] * 4, (-1, {"value": 3}))
    bucket.take(*[(-1, {"value": 3})] * 2)
    assert bucket.values() == 3


def test_a_state_keeps_its_shape_over_batches() -> None:
    fold = fh.custom(
        "value",
        name="mean",
        prepare=lambda value: {"sum": Decimal(value), "rows": 1, "seen": [value]},
        merge=lambda one, other: {
            "sum": one["sum"] + other["sum"],
            "rows": one["rows"] + other["rows"],
            "seen": sorted({*one["seen"], *other["seen"]}),
        },
        present=lambda state: {"mean": float(state["sum"] / state["rows"]), "seen": state["seen"]},
        state="struct<sum: decimal(18,4), rows: long, seen: list<int>>",
        type="struct<mean: double, seen: list<int>>",
    )
    bucket = bucket_of(fold)
    for value in (1, 2, 6, 2):
        bucket.take((1, {"value": value}))
    assert bucket.values() == {"mean": 2.75, "seen": [1, 2, 6]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prepare": lambda value: 1 // 0}, r"prepare\(1\) failed with ZeroDivisionError"),
        ({"prepare": lambda one, other: one}, r"prepare\(1\) failed with TypeError"),
        ({"prepare": lambda value: "one"}, r"prepare\(1\) returned 'one', which is no int32"),
        ({"prepare": lambda value: 1.0}, r"prepare\(1\) returned 1.0, which is no int32"),
        ({"merge": lambda one, other: one["x"]}, r"merge\(1, 1\) failed with TypeError"),
        ({"merge": lambda one, other: None}, r"merge\(1, 1\) returned None"),
        ({"merge": lambda one, other: 2**31}, r"merge\(1, 1\) returned 2147483648, which is no int32"),
        ({"present": lambda state: {}["x"], "type": "long"}, r"present\(2\) failed with KeyError"),
        ({"present": lambda state: b"", "type": "string"}, r"present\(2\) returned b'', which is no string"),
    ],
)
def test_a_function_that_fails_or_returns_another_type_is_named_with_its_values(
    changed: dict[str, Any], said: str
) -> None:
    bucket = bucket_of(summed(**changed))
    with pytest.raises(fh.InvalidData, match=f"'summed': {said}"):
        bucket.take((1, {"value": 1}), (1, {"value": 1}))


def test_a_subtract_that_fails_is_named_with_its_values() -> None:
    bucket = bucket_of(summed(subtract=lambda one, other: one.minus(other)))
    bucket.take((1, {"value": 1}), (1, {"value": 2}))
    with pytest.raises(fh.InvalidData, match=r"subtract\(3, 1\) failed with AttributeError"):
        bucket.take((-1, {"value": 1}))


def test_a_value_too_long_to_be_shown_is_cut() -> None:
    bucket = Bucket(fh.fold(out=longest("word")), {"word": TEXT})
    fold = fh.custom("word", name="failing", prepare=lambda word: word[10**6], merge=max, state="string")
    bucket = Bucket(fh.fold(out=fold), {"word": TEXT})
    with pytest.raises(fh.InvalidData) as raised:
        bucket.take((1, {"word": "x" * 10_000}))
    assert "x..." in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_the_name_the_types_and_the_version_stand_in_what_a_definition_is_known_by() -> None:
    assert repr(summed()) == "custom('value', name='summed', state='int32', type='int32', version=1)"
    others = [summed(name="other"), summed(version=2), summed(state="long")]
    assert len({repr(summed()), *map(repr, others)}) == 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "number"}, "'number' is not a type"),
        ({"state": 5}, "5 is not a type"),
        ({"type": "long"}, "publishes its state, which is int32 and not int64"),
        ({"present": str}, "type=... has to say what that returns"),
        ({"merge": None}, "merge is None, not a function"),
        ({"subtract": 1}, "subtract is 1, not a function"),
    ],
)
def test_a_declaration_that_cannot_be_folded_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(fh.DefinitionError, match=said):
        summed(**changed)


@pytest.mark.parametrize(
    ("kind", "fitting", "strange"),
    [
        ("boolean", [True, False], [1, "true"]),
        ("int", [1, -(2**31)], [True, 1.0, 2**31, "1"]),
        ("double", [1, 1.5, float("nan")], [True, "1", Decimal(1)]),
        ("decimal(5,2)", [Decimal("1.2"), 3, Decimal("999.99"), Decimal("1.2000")], [Decimal("1.234"), 1000, 1.5]),
        ("decimal(38,30)", [Decimal("1." + "1" * 30)], [Decimal("1." + "1" * 31), Decimal("NaN"), Decimal(10**8)]),
        ("date", [date(2024, 1, 1)], ["2024-01-01", 5]),
        ("string", ["", "a"], [b"a", 1]),
        ("binary", [b""], ["a"]),
        ("fixed[2]", [b"ab"], [b"a", "ab"]),
        ("list<int>", [[1, None], (1,), []], [{1}, [1, "a"], "ab"]),
        ("map<string, int>", [{"a": 1}, {}], [{None: 1}, {"a": "b"}, [("a", 1)]]),
        ("struct<a: int>", [{"a": None}], [{}, {"a": 1, "b": 2}, {"b": 1}]),
    ],
)
def test_a_value_fits_a_type_only_if_nothing_of_it_is_lost(kind: str, fitting: list[Any], strange: list[Any]) -> None:
    assert [value for value in [*fitting, None] if not fits(value, arrow_type(kind))] == []
    assert [value for value in strange if fits(value, arrow_type(kind))] == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("decimal(18,4)", pa.decimal128(18, 4)),
        ("decimal( 18, 4 )", pa.decimal128(18, 4)),
        ("fixed[16]", pa.binary(16)),
        ("timestamptz", pa.timestamp("us", "UTC")),
        ("map<string, list<int>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        (
            "struct<a:decimal(3,1),b:map<string,long>>",
            pa.struct([("a", pa.decimal128(3, 1)), ("b", pa.map_(TEXT, pa.int64()))]),
        ),
    ],
)
def test_types_are_said_in_the_words_of_iceberg(text: str, kind: pa.DataType) -> None:
    assert arrow_type(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "number",
        "decimal(40,2)",
        "decimal(2,3)",
        "struct<a>",
        "struct<a:int,a:int>",
        "map<string>",
        "list<int,int>",
        "list<>",
        "list<int",
    ],
)
def test_a_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(fh.DefinitionError, match="is not a type; an Iceberg type is needed"):
        arrow_type(text)
