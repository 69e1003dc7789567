"""What the page shows of columns: before the first run, after it, and where each comes from."""

import dagster as dg
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.dagster import fold_asset
from foldhouse.dagster.columns import declared_columns, declared_types

events = fh.stream(
    "l.events",
    schema={"k": "string", "at": "long", "n": "int", "price": "double", "s": "string"},
    keys="k",
    sequence_by="at",
)
sums = fh.table(
    "l.sums",
    source=events,
    fold=fh.fold(
        revenue=fh.total("n * price"), rows=fh.count(), last=fh.latest("s"), x=fh.maximum("if(s = 'n', 1, 0)")
    ),
)
whole = fh.table("l.whole", source=events, fold=fh.latest(columns=["n"]))
every = fh.table("l.every", source=events, fold=fh.latest())
above = fh.table("l.above", source=sums, keys="rows", fold=fh.fold(revenue=fh.total("revenue")))
with_rows = fh.table("l.with_rows", source=events, rows=lambda rows: rows, keys="k", fold=fh.fold(n=fh.count()))
called = fh.table("l.called", source=events, fold=fh.fold(n=fh.total("n(s)")))
in_code = fh.table("l.in_code", source=events, fold=fh.fold(n=fh.total(lambda: F.col("n"))))
unknown = fh.table("l.unknown", source=events, rows=lambda rows: rows, keys="k", fold=fh.latest())


def columns(table: fh.Table) -> dict[str, tuple[str, str | None]]:
    schema = fold_asset(table).get_asset_spec().metadata.get("dagster/column_schema")
    return {one.name: (one.type, one.description) for one in schema.columns} if schema else {}


def lineage(table: fh.Table) -> dict[str, list[str]]:
    found = declared_columns(table).get("dagster/column_lineage")
    if found is None:
        return {}
    return {name: [dep.column_name for dep in deps] for name, deps in found.deps_by_column.items()}


def test_columns_are_shown_before_the_first_run() -> None:
    assert columns(sums) == {
        "k": ("string", "key; from k of l.events"),
        "revenue": ("?", "total('n * price'); from n, price of l.events"),
        "rows": ("long", "count()"),
        "last": ("string", "latest('s'); from s of l.events"),
        "x": ("?", "maximum(\"if(s = 'n', 1, 0)\"); from s of l.events"),
    }
    assert list(columns(every)) == ["k", "at", "n", "price", "s"]
    assert columns(with_rows) == {"k": ("?", None), "n": ("?", None)}, "those of a run would not be shown"
    assert columns(unknown) == {}


def test_a_column_comes_from_the_columns_that_its_fold_names() -> None:
    assert lineage(sums) == {"k": ["k"], "revenue": ["n", "price"], "rows": [], "last": ["s"], "x": ["s"]}
    assert lineage(whole) == {"k": ["k"], "n": ["n"]}
    assert lineage(above) == {"rows": ["rows"], "revenue": ["revenue"]}
    assert lineage(with_rows) == {}
    assert lineage(called) == {"k": ["k"], "n": ["s"]}
    assert lineage(in_code) == {"k": ["k"]}


def test_a_run_reports_types_meanings_and_lineage(lake: fh.Lake) -> None:
    class Opened:
        def open(self) -> fh.Lake:
            return lake

    lake.append(events, [{"k": "a", "at": 1, "n": 2, "price": 1.5, "s": "x"}])
    result = dg.materialize([fold_asset(whole)], resources={"lake": Opened()})
    (event,) = result.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    schema = metadata["dagster/column_schema"].value  # type: ignore[attr-defined]
    assert [(one.name, one.type, one.description) for one in schema.columns] == [
        ("k", "string", "key; from k of l.events"),
        ("n", "int", "latest('n'); from n of l.events"),
    ]
    deps = metadata["dagster/column_lineage"].value.deps_by_column["n"]  # type: ignore[attr-defined]
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in deps] == [("l/events", "n")]


def test_types_before_the_first_run_are_those_after_it(lake: fh.Lake) -> None:
    odd = fh.stream(
        "l.odd",
        schema={"k": "string", "at": "timestamptz", "d": "decimal(9,2)", "l": "list<int>", "n": "int", "f": "float"},
        keys="k",
        sequence_by="at",
    )
    folded = fh.table(
        "l.folded",
        source=odd,
        fold=fh.fold(
            d=fh.total("d"),
            average=fh.average("d"),
            n=fh.total("n"),
            f=fh.average("f"),
            last=fh.latest("l"),
            every=fh.collect("n"),
            first_of=fh.minimum_by("d", by="n"),
            top=fh.top(3, "n", by="d"),
            keys=fh.distinct("f"),
            rows=fh.count(),
        ),
    )
    over = fh.table("l.over", source=folded, keys="rows", fold=fh.fold(d=fh.maximum("average"), n=fh.total("n")))
    lake.append(odd, [])
    for table in (folded, over, fh.table("l.same", source=odd, fold=fh.latest())):
        lake.refresh(table)
        assert declared_types(table) == lake.types(table)
    assert declared_types(folded)["top"] == "list<struct<n: int, d: decimal(9, 2)>>"


def test_a_declaration_that_a_refresh_refuses_does_not_keep_the_page_from_loading() -> None:
    wrong = fh.table("l.wrong", source=events, fold=fh.fold(s=fh.total("s"), n=fh.total("n")))
    assert columns(wrong)["s"][0] == "?"
