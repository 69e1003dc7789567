"""Which columns are sensitive: the declared ones, and every column that may be computed from one."""

import pytest
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.values.sensitive import has_sensitive, is_sensitive

people = fh.stream(
    "s.people",
    schema={"id": "long", "email": "string", "e-mail 2": "string", "town": "string", "at": "timestamp"},
    keys="id",
    sequence_by="at",
    sensitive=["email", "e-mail 2"],
)
plain = fh.stream("s.plain", schema={"id": "long", "town": "string"}, keys="id")
kept = fh.table("s.kept", source=people, fold=fh.latest())
columns = fh.table(
    "s.columns",
    source=people,
    keys="town",
    fold=fh.fold(
        people=fh.count("email"),
        addresses=fh.distinct_exact("email"),
        contact=fh.latest("email"),
        lowered=fh.maximum("lower(EMAIL)"),
        second=fh.latest("e-mail 2"),
        quoted=fh.latest("concat(town, `e-mail 2`)"),
        first_of=fh.minimum_by("town", by="email"),
        everything=fh.latest("struct(*)"),
        by_function=fh.latest(lambda: F.col("town")),
        doubled=fh.total("id * id"),
        newest=fh.maximum("at"),
    ),
)
again = fh.table("s.again", source=columns, keys="town", sequence_by="newest", fold=fh.fold(one=fh.latest("CONTACT")))
by_rows = fh.table(
    "s.by_rows",
    source=kept,
    rows=lambda kept: kept.withColumnRenamed("email", "address"),
    keys="town",
    fold=fh.fold(address=fh.maximum("address"), people=fh.count()),
)


def hidden(table: fh.Table, *names: str) -> set[str]:
    return {name for name in names if is_sensitive(table, name)}


def test_a_column_that_may_be_computed_from_a_sensitive_one_is_sensitive_and_counts_are_not():
    found = hidden(columns, "town", *(name for name, _ in columns.fold.columns))
    clear = {"town", "people", "addresses", "doubled", "newest"}
    assert found == {name for name, _ in columns.fold.columns} - clear


def test_whole_rows_hide_the_columns_that_their_source_hides():
    assert hidden(kept, "id", "email", "EMAIL", "e-mail 2", "town") == {"email", "EMAIL", "e-mail 2"}


def test_it_is_inherited_through_tables_under_other_names_and_in_any_case():
    assert hidden(again, "town", "one") == {"one"}


def test_with_rows_every_column_but_counts_is_sensitive_until_the_table_says_which():
    assert hidden(by_rows, "town", "address", "people") == {"town", "address"}
    joined = fh.table(
        "s.joined",
        source=[plain, kept],
        rows=lambda a, b: a.join(b, "id"),
        keys="id",
        fold=fh.fold(town=fh.maximum("town")),
    )
    assert hidden(joined, "id", "town") == {"id", "town"}


def test_a_table_with_rows_that_declares_its_own_hides_those_and_the_same_names_of_its_sources():
    def declared(*names: str) -> fh.Table:
        return fh.table(
            "s.declared",
            source=kept,
            rows=lambda kept: kept,
            keys="id",
            fold=fh.fold(email=fh.maximum("email"), address=fh.maximum("email"), town=fh.maximum("town")),
            sensitive=names,
        )

    assert hidden(declared("address"), "id", "email", "address", "town") == {"email", "address"}
    assert hidden(declared(), "id", "email", "address", "town") == {"email"}


def test_nothing_is_sensitive_without_a_declaration():
    table = fh.table("s.t", source=plain, rows=lambda rows: rows, keys="id", fold=fh.fold(town=fh.maximum("town")))
    assert not has_sensitive(table)
    assert hidden(table, "id", "town") == set()


def test_a_sensitive_column_that_does_not_exist_is_refused():
    with pytest.raises(fh.DefinitionError, match="'mail', which is not in its schema"):
        fh.stream("s.x", schema={"id": "long"}, sensitive="mail")
    with pytest.raises(fh.DefinitionError, match="declares the column 'mail' as sensitive, but has: id, n"):
        fh.table("s.x", source=plain, fold=fh.fold(n=fh.count()), sensitive="mail")
