"""Declarations: what they come to, and that every refusal says what was found and how to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.kernel.plan import plan_of
from foldhouse.storage.schema import day_spec, schema_of_types, table_spec
from foldhouse.values.fold import VALUE

SCHEMA = {"order_id": "string", "at": "timestamp", "day": "date", "units": "int", "price": "double"}
orders = fh.stream("shop.orders", schema=SCHEMA, keys="order_id", sequence_by=["at", "units"])
COUNTED = fh.fold(orders=fh.count())


def a_table(**changed: Any) -> fh.Table:
    return fh.table(**{"name": "shop.t", "source": orders, "fold": COUNTED, **changed})


def a_plan(fold: fh.Fold, *types: pa.DataType) -> Any:
    return plan_of(fold, {"key": pa.string()}, {}, types)


def a_spec(keys: list[str], partition_by: str | None, buckets: int) -> Any:
    return table_spec(schema_of_types(SCHEMA), keys, partition_by, buckets)


def _remembering(name: str) -> fh.ColumnFold:
    """A user's own fold, which keeps a field of that name in its state."""
    counted = fh.count().algebra
    fields = {VALUE: pa.int64(), name: pa.int64()}
    return fh.ColumnFold(dataclasses.replace(counted, fields=lambda types, sequence: fields), ())


REFUSALS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    # what is refused: how it is declared, and what the message has to name
    "a stream without a namespace": (
        lambda: fh.stream("orders", schema=SCHEMA),
        ["'orders'", "namespace.name", "letters, digits and underscores"],
    ),
    "a stream without columns": (
        lambda: fh.stream("shop.s", schema={}),
        ["shop.s", "no columns", "schema={'column': 'type'"],
    ),
    "a partition that is neither day() nor a column": (
        lambda: fh.stream("shop.s", schema=SCHEMA, partition_by="hour(at)"),
        ["shop.s", "'hour(at)'", "day("],
    ),
    "a partition by a column that is not there": (
        lambda: fh.stream("shop.s", schema=SCHEMA, partition_by="day(never)"),
        ["shop.s", "'never'", "order_id, at, day, units, price"],
    ),
    "a key that is not in the schema": (
        lambda: fh.stream("shop.s", schema=SCHEMA, keys=["order_id", "nr"]),
        ["shop.s", "'nr'", "order_id, at, day, units, price"],
    ),
    "a sequence that is not in the schema": (
        lambda: fh.stream("shop.s", schema=SCHEMA, sequence_by="version"),
        ["shop.s", "'version'", "order_id, at"],
    ),
    "an event time that is not in the schema": (
        lambda: fh.stream("shop.s", schema=SCHEMA, event_time="then"),
        ["shop.s", "'then'", "order_id, at"],
    ),
    "an event id that is not in the schema": (
        lambda: fh.stream("shop.s", schema=SCHEMA, event_id="offset"),
        ["shop.s", "'offset'", "order_id, at"],
    ),
    "columns that differ by case alone": (
        lambda: fh.stream("shop.s", schema={"Id": "int", "iD": "int"}),
        ["shop.s", "'id' twice", "upper and lower case"],
    ),
    "a column of foldhouse's own": (
        lambda: fh.stream("shop.s", schema={"_state": "int"}),
        ["shop.s", "'_state'", "underscore", "keeps for itself"],
    ),
    "a table without a namespace": (lambda: a_table(name="t"), ["'t'", "namespace.name"]),
    "a table from something else": (lambda: a_table(source="shop.orders"), ["shop.t", "'shop.orders'", "a stream or"]),
    "a bare fold of one column": (
        lambda: a_table(fold=fh.count()),
        ["shop.t", "count()", "fold(column=total('amount'), ...)"],
    ),
    "a table without keys": (
        lambda: a_table(source=fh.stream("shop.s", schema=SCHEMA)),
        ["shop.t", "no keys", "keys=[...]", "shop.s"],
    ),
    "a partition that is not a key": (
        lambda: a_table(partition_by="day"),
        ["shop.t", "'day'", "['order_id']"],
    ),
    "a published column that is a key too": (
        lambda: a_table(fold=fh.fold(Order_id=fh.count())),
        ["shop.t", "'order_id' twice"],
    ),
    "a key named twice": (lambda: a_table(keys=["day", "day"]), ["shop.t", "'day' twice"]),
    "a published column of foldhouse's own": (
        lambda: a_table(fold=fh.fold(_state=fh.count())),
        ["shop.t", "'_state'", "keeps for itself"],
    ),
    "no bucket at all": (lambda: a_table(buckets=0), ["buckets of table shop.t", "is 0", "from 1 to 65,536"]),
    "latest without a sequence": (
        lambda: a_table(source=fh.stream("shop.s", schema=SCHEMA), keys="day", fold=fh.fold(last=fh.latest("units"))),
        ["shop.t", "latest('units')", "sequence_by"],
    ),
    "latest of a table's changes without a sequence": (
        lambda: fh.table("shop.u", source=a_table(), keys="order_id", fold=fh.fold(last=fh.latest("orders"))),
        ["shop.u", "latest('orders')", "sequence_by"],
    ),
    "a fold of nothing": (lambda: fh.fold(), ["at least one column", "fold(orders=count())"]),
    "a column that is not a fold": (
        lambda: fh.fold(units="units"),  # type: ignore[arg-type]
        ["'units'", "not a fold", "total('units') or count()"],
    ),
    "the best none": (lambda: fh.top(0, "day", by="units"), ["n of top()", "is 0", "from 1"]),
    "the best of its own column": (
        lambda: fh.top(3, "units", by="units"),
        ["top(3, 'units', by='units')", "'units' twice", "has `by` as well"],
    ),
    "the best of a column given twice": (lambda: fh.top(3, "day", "day", by="units"), ["'day' twice"]),
    "the best of no column": (lambda: fh.top(3, by="units"), ["top(3, )", "a column beside `by`"]),
    "the sum of a text": (
        lambda: a_plan(fh.fold(units=fh.total("word")), pa.string()),
        ["need a number", "string"],
    ),
    "the mean of a date": (
        lambda: a_plan(fh.fold(units=fh.average("day")), pa.date32()),
        ["need a number", "date32"],
    ),
    "the largest list": (
        lambda: a_plan(fh.fold(units=fh.maximum("tags")), pa.list_(pa.string())),
        ["maximum", "list<item: string>", "one of their fields"],
    ),
    "two states of one name": (
        lambda: a_plan(fh.fold(a=_remembering("b_sketch"), a_b=fh.distinct("n")), pa.int32()),
        ["'a_b_sketch'", "rename one", "['a', 'a_b']"],
    ),
    "a type that Iceberg does not have": (
        lambda: schema_of_types({"n": "integer(4)"}),
        ["'n'", "'integer(4)'", "string, int, long", "decimal(12,4)"],
    ),
    "a stream by the day of a text": (
        lambda: day_spec(schema_of_types(SCHEMA), "order_id"),
        ["partition_by", "order_id", "string", "timestamp"],
    ),
    "a table by a text": (lambda: a_spec(["order_id"], "order_id", 1), ["'order_id'", "date column", "string"]),
    "buckets without a key to hash": (lambda: a_spec(["day"], "day", 4), ["buckets=4", "'day'", "leave buckets at 1"]),
    "buckets of doubles": (lambda: a_spec(["price"], None, 4), ["buckets=4", "double", "price", "leave buckets at 1"]),
}


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_refusal_names_what_was_found_and_the_way_out(refused: str) -> None:
    declare, named = REFUSALS[refused]
    with pytest.raises(fh.DefinitionError) as refusal:
        declare()
    message = str(refusal.value)
    assert [words for words in named if words not in message] == [], message


@pytest.mark.parametrize(
    "kind",
    ["decimals(12,2)", "decimal", "decimal(12)", "decimal(50,2)", "decimal(12,2", "fixed", "strin", "list<strin>"],
)
def test_a_stream_refuses_a_type_that_is_none_where_it_is_declared(kind: str) -> None:
    with pytest.raises(fh.DefinitionError, match=r"the type of a\.events\.n: '.*' is not a type; an Iceberg"):
        fh.stream("a.events", schema={"n": kind})


@pytest.mark.parametrize(
    "name",
    ["", "t", ".t", "shop.", "shop..t", "../../evil.t", "shop/../evil.t", "shop.t;", "shop.t t", "1shop.t", "shop.ü"],
)
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(fh.DefinitionError, match=r"namespace\.name"):
        fh.stream(name, schema=SCHEMA)
    with pytest.raises(fh.DefinitionError, match=r"namespace\.name"):
        a_table(name=name)


def test_a_name_may_have_a_namespace_within_a_namespace() -> None:
    assert a_table(name="shop.eu_west.t2").name == "shop.eu_west.t2"


@pytest.mark.parametrize("name", ["attempts", "at0", "value0", "values", "sequence"])
def test_a_fold_may_give_its_state_any_name(name: str) -> None:
    plan = a_plan(fh.fold(n=_remembering(name)))
    assert plan.table_schema.names == ["key", "n", "_state"]
    assert [field.name for field in plan.table_schema.field("_state").type] == ["rows", f"n_{name}"]


def test_a_table_takes_keys_and_sequence_from_its_stream() -> None:
    table = a_table(fold=fh.fold(units=fh.latest("units")))
    assert table.keys == ("order_id",)
    assert table.sequence_by == ("at", "units")


def test_what_a_table_names_itself_goes_before_what_its_stream_names() -> None:
    table = a_table(keys="day", sequence_by="price", fold=fh.fold(first=fh.earliest("units")))
    assert table.keys == ("day",)
    assert table.sequence_by == ("price",)


def test_a_table_without_an_ordered_fold_has_no_sequence() -> None:
    assert a_table(sequence_by="at").sequence_by == ()


def test_a_count_of_a_star_counts_rows() -> None:
    assert fh.count("*") == fh.count()
    assert fh.count("a * b") != fh.count()


def test_one_name_may_be_given_without_a_list() -> None:
    assert a_table(keys="day") == a_table(keys=["day"]) == a_table(keys=("day",))
    one = fh.stream("shop.s", schema=SCHEMA, event_id="order_id", sequence_by="at")
    assert one == fh.stream("shop.s", schema=SCHEMA, event_id=["order_id"], sequence_by=["at"])


@pytest.mark.parametrize(("partition_by", "column"), [("day(at)", "at"), ("day", "day"), (None, None)])
def test_a_stream_is_partitioned_by_a_date_or_by_the_day_of_a_timestamp(
    partition_by: str | None, column: str | None
) -> None:
    declared = fh.stream("shop.s", schema=SCHEMA, partition_by=partition_by)
    assert declared.partition_column == column
    spec = day_spec(schema_of_types(SCHEMA), column)
    assert [str(f.transform) for f in spec.fields] == (
        [] if column is None else ["day" if column == "at" else "identity"]
    )


def test_a_table_is_laid_out_by_its_day_and_then_by_a_hash_of_its_first_other_key() -> None:
    spec = a_spec(["day", "order_id", "units"], "day", 4)
    assert [(f.name, str(f.transform)) for f in spec.fields] == [("day", "identity"), ("order_id_bucket", "bucket[4]")]
    assert a_spec(["order_id"], None, 1).is_unpartitioned()


@pytest.mark.parametrize("value", [orders, a_table(), COUNTED, fh.count()], ids=lambda value: type(value).__name__)
def test_a_declaration_cannot_be_changed(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "other"


def test_the_repr_of_a_fold_says_everything_its_declaration_says() -> None:
    declared = fh.fold(
        orders=fh.count(), units=fh.total("units"), best=fh.top(3, "day", by="units"), odd=fh.maximum(lambda: None)
    )
    assert repr(declared) == (
        "fold(orders=count(), units=total('units'), best=top('day', 'units', n=3, by='units'), odd=maximum(<column>))"
    )


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("struct<x: int>", "s.x"),
        ("struct<x: struct<y: int>>", "s.x.y"),
        ("list<int>", "s.element"),
        ("map<string, int>", "s.key"),
        ("map<string, struct<x: int>>", "s.value.x"),
    ],
)
def test_a_column_with_the_name_of_a_nested_one_is_refused(kind: str, other: str) -> None:
    """Iceberg names both alike, so no reader could tell them apart."""
    with pytest.raises(fh.DefinitionError, match=f"two columns that Iceberg calls '{other}'"):
        fh.stream("shop.events", schema={"s": kind, other: "string"})


def test_a_column_may_have_the_short_name_of_a_nested_one() -> None:
    assert fh.stream("shop.events", schema={"s": "list<struct<x: int>>", "s.x": "string"}).name == "shop.events"


def test_an_argument_that_two_folds_share_is_read_once() -> None:
    plan = a_plan(fh.fold(a=fh.total("units"), b=fh.minimum("units"), c=fh.count("day")), pa.int32(), pa.date32())
    assert plan.delta_schema.names == ["key", "__a0", "__a1", "__weight"]
    assert plan.table_schema.names == ["key", "a", "b", "c", "_state"]
