"""Declarations of checks: what is refused, and what a check says of itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import foldhouse as fh

events = fh.stream("u.events", schema={"key": "string", "n": "long"}, keys="key")
namesake = fh.stream("v.table", schema={"key": "string"})
FOLD = fh.fold(n=fh.total("n"))
others = fh.stream("u.others", schema={"key": "string"}, keys="key")


def table(*checks: object) -> fh.Table:
    return fh.table("u.table", source=events, fold=FOLD, checks=checks)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "name", "said"),
    [
        (fh.not_null("n"), "not_null_n", "not_null('n')"),
        (fh.unique("key", "n"), "unique_key_n", "unique('key', 'n')"),
        (fh.accepted("n", (1, 2)), "accepted_n", "accepted('n', [1, 2])"),
        (fh.between("n", 0), "between_n", "between('n', 0, None)"),
        (fh.references("key", others), "references_key", "references(['key'], u.others)"),
        (fh.row_count_within(1), "row_count_within", "row_count_within(1, None)"),
        (fh.changed_at_most("20 %"), "changed_at_most", "changed_at_most('20 %')"),
        (fh.changed_at_most(0.205), "changed_at_most", "changed_at_most('20.5 %')"),
        (fh.no_rows("SELECT * FROM {table}", name="none"), "none", "no_rows('SELECT * FROM {table}')"),
    ],
)
def test_a_check_says_what_it_is(check: fh.Check, name: str, said: str) -> None:
    assert (check.name, str(check), check.blocks) == (name, said, True)
    assert table(check).checks == (check,)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: fh.not_null(), "not_null names no column"),
        (lambda: fh.not_null("n", "n"), "not_null names a column twice"),
        (lambda: fh.not_null("n", name="not null"), "use up to 100 letters, digits and underscores"),
        (lambda: fh.not_null("n", severity="fatal"), "use 'error' or 'warn'"),  # type: ignore[arg-type]
        (lambda: fh.accepted("n", []), "give one or more values that are not null"),
        (lambda: fh.accepted("n", [1, None]), "give one or more values that are not null"),
        (lambda: fh.accepted("n", "abc"), "give a list of values"),
        (lambda: fh.between("n"), "has no end"),
        (lambda: fh.between("n", 2, 1), "ends at 1, before 2"),
        (lambda: fh.between("n", 1, "a"), "cannot be compared"),
        (lambda: fh.between("n", float("nan"), 1), "is NaN"),
        (lambda: fh.references("key", "u.others"), "is not a declared stream or table"),  # type: ignore[arg-type]
        (lambda: fh.references(["key", "n"], others, to=["key"]), "cannot be looked for"),
        (lambda: fh.row_count_within(), "no range from None to None"),
        (lambda: fh.row_count_within(5, 2), "no range from 5 to 2"),
        (lambda: fh.row_count_within(-1), "is not a number of rows"),
        (lambda: fh.changed_at_most("much"), "is not a share"),
        (lambda: fh.changed_at_most(-0.1), "is not a share"),
        (lambda: fh.no_rows(" "), "give a query"),
        (lambda: table(fh.no_rows("SELECT 1")), r"reads no table; write {table} for it"),
        (lambda: table(fh.no_rows("SELECT * FROM {others}")), r"reads {others}; it knows {table}"),
        (lambda: table(fh.no_rows("SELECT * FROM {table}", using=namesake)), "the same last name"),
        (lambda: table("not_null"), "is not a check"),
        (lambda: fh.table("u.t", source=events, fold=FOLD, checks=fh.not_null("n")), "a list of checks"),  # type: ignore[arg-type]
        (lambda: table(fh.not_null("n"), fh.not_null("n", severity="warn")), "two checks named not_null_n"),
        (lambda: table(fh.unique("missing")), "names the column 'missing'; the table has key, n"),
    ],
)  # fmt: skip
def test_a_check_that_means_nothing_is_refused(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(fh.DefinitionError, match=said):
        declare()


def test_a_long_condition_has_a_short_identity() -> None:
    one, other = (fh.accepted("n", range(first, 1000)) for first in (0, 1))
    assert len(one.identity) == len(other.identity) == 32
    assert one.identity != other.identity
    assert fh.between("n", 0, 1).identity == "between('n', 0, 1)"


def test_checks_do_not_change_what_a_table_is() -> None:
    assert table(fh.not_null("n")).fold == table().fold
