"""Checks that Spark evaluates: queries, and values that do not fit in memory."""

from __future__ import annotations

from typing import Any

import pytest

import foldhouse as fh
from foldhouse.refresh import checked as checking

events = fh.stream("q.events", schema={"key": "string", "n": "long", "kind": "string"}, keys="key")
known = fh.stream("q.known", schema={"kind": "string"})


def table(*checks: fh.Check) -> fh.Table:
    fold = fh.fold(n=fh.total("n"), kind=fh.maximum("kind"))
    return fh.table("q.sums", source=events, fold=fold, checks=checks)


@pytest.fixture
def given(spark_lake: Any) -> fh.Lake:
    lake: fh.Lake = spark_lake()
    lake.append(events, [{"key": "a", "n": 1, "kind": "x"}, {"key": "b", "n": 1, "kind": None}])
    lake.append(known, [{"kind": "x"}])
    return lake


def test_a_query_that_returns_rows_is_a_failure(given: fh.Lake) -> None:
    query = "SELECT s.* FROM {sums} s LEFT ANTI JOIN {known} k ON s.kind = k.kind WHERE s.kind RLIKE '^[a-z]{1}$'"
    checked = table(fh.no_rows(query, using=known, name="kinds"))
    (passed,) = given.refresh(checked).checks
    assert (passed.name, passed.passed, passed.said) == ("kinds", True, "no row fails")
    given.append(events, [{"key": "a", "n": 1, "kind": "z"}])
    with pytest.raises(fh.ChecksFailed, match="1 row fails, such as key=a, n=2, kind=z"):
        given.refresh(checked)
    given.append(known, [{"kind": "z"}])
    assert given.refresh(checked).committed
    assert [one.name for one in given.spark.catalog.listTables() if one.name.startswith("foldhouse_")] == []


def test_a_query_reads_a_source_where_the_table_is_folded_to(given: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT * FROM (SELECT sum(n) AS n FROM {sums}) EXCEPT SELECT sum(n) AS n FROM {events}"
    checked = table(fh.no_rows(query, using=events, name="totals"))
    real = checking._passed

    def late(*arguments: Any) -> Any:
        given.append(events, [{"key": "a", "n": 100, "kind": "x"}])
        return real(*arguments)

    monkeypatch.setattr(checking, "_passed", late)
    done = given.refresh(checked)
    assert (done.committed, done.checks[0].against) == (True, done.position)
    (now,) = given.audit(checked)
    assert (now.passed, now.against) == (True, done.position), "the table is behind, but not wrong"


def test_a_query_that_spark_refuses_names_the_check(given: fh.Lake) -> None:
    with pytest.raises(fh.DefinitionError, match=r"cannot evaluate the query of the check wrong: .*missing"):
        given.refresh(table(fh.no_rows("SELECT missing FROM {sums}", name="wrong")))
    assert given.head("q.sums") is None


def test_a_query_that_gives_a_text_that_is_not_utf8_names_the_check(given: fh.Lake) -> None:
    query = "SELECT key, CAST(X'C328' AS STRING) AS text FROM {sums}"
    with pytest.raises(
        fh.DefinitionError, match=r"the query of the check bytes gives a text that is not UTF-8: Column 1"
    ):
        given.refresh(table(fh.no_rows(query, name="bytes")))


@pytest.mark.slow
@pytest.mark.parametrize("checked_rows", [1, 1_000])
def test_values_are_compared_alike_in_memory_and_by_spark(given: fh.Lake, checked_rows: int) -> None:
    given.append(events, [{"key": key, "n": 1, "kind": kind} for key, kind in (("c", "y"), ("d", "y"), ("e", "x"))])
    given.refresh(table())
    given.tuning = fh.Tuning(checked_rows=checked_rows)
    found = given.audit(table(fh.unique("n"), fh.unique("kind"), fh.unique("key"), fh.references("kind", known)))
    assert [(one.failing, sorted(one.sample, key=str)) for one in found] == [
        (5, [{"n": 1, "rows": 5}]),
        (4, [{"kind": "x", "rows": 2}, {"kind": "y", "rows": 2}]),
        (0, []),
        (2, [{"kind": "y", "rows": 2}]),
    ]


@pytest.mark.parametrize("checked_rows", [1, 1_000])
def test_columns_may_have_any_names(spark_lake: Any, checked_rows: int) -> None:
    """Spark took `a.b` for a field `b`, and two columns of the sample were called `rows`."""
    lake: fh.Lake = spark_lake(tuning=fh.Tuning(checked_rows=checked_rows))
    odd = fh.stream("q.odd", schema={"a.b": "string", "rows": "long"}, keys="a.b")
    lake.append(odd, [{"a.b": key, "rows": 1} for key in "xyz"])
    lake.append(known, [{"kind": "x"}])
    checks = [fh.references("a.b", known, to="kind"), fh.unique("rows")]
    folded = fh.table("q.folded", source=odd, fold=fh.fold(rows=fh.total("rows")))
    lake.refresh(folded)
    found = lake.audit(fh.table("q.folded", source=odd, fold=fh.fold(rows=fh.total("rows")), checks=checks))
    assert [(one.failing, sorted(one.sample, key=str)) for one in found] == [
        (2, [{"a.b": "y", "rows": 1}, {"a.b": "z", "rows": 1}]),
        (3, [{"rows": 1, "rows_": 3}]),
    ]
