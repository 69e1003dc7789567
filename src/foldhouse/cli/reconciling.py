"""The command that compares two tables that must agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from foldhouse.cli.codes import FOUND_WRONG
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.output import Column, json_option, plain, print_rows, stderr, text_of
from foldhouse.values.moment_text import utc_text
from foldhouse.values.reconciled import Disagreement, Reconciled


@click.command()
@click.argument("one")
@click.argument("other")
@click.option("--on", multiple=True, required=True, metavar="COLUMN", help="A key column; several for several.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    required=True,
    metavar="COLUMN[=COLUMN]",
    help="A column of ONE, and that of OTHER if it has another name.",
)
@click.option("--tolerance", default="0", show_default=True, help="The difference that is still the same.")
@click.option("--no-search", is_flag=True, help="Do not search for the first commit at which they disagree.")
@lake_option
@json_option
@click.pass_context
def reconcile(
    ctx: click.Context,
    one: str,
    other: str,
    on: tuple[str, ...],
    columns: tuple[str, ...],
    tolerance: str,
    no_search: bool,
    folder: Path,
    as_json: bool,
) -> None:
    """Compare the totals by key of two tables that must agree.

    Both are read where they are folds of the same states of their common sources, so a table that is only behind is not
    called wrong. The command ends with 1 if a key disagrees.
    """
    pairs: dict[str, str] = {}
    for name, _, same in (column.partition("=") for column in columns):
        if name in pairs:
            raise click.UsageError(f"--column {name} is given twice; compare it with one column of {other}")
        pairs[name] = same or name
    with opened(folder) as lake, stderr().status(f"comparing {one} with {other}"):
        names = [known(lake, name) for name in (one, other)]
        found = lake.reconcile(*names, on=on, columns=pairs, tolerance=tolerance, search=not no_search)
    if as_json:
        print_rows([], [_plain(found)], as_json=True)
    else:
        _say(found)
    if found.passed is False:
        ctx.exit(FOUND_WRONG)


def _say(found: Reconciled) -> None:
    click.echo(found.said)
    _print(found, found.disagreements)
    first = found.first
    if first is not None:
        by = f"run {first.run_id}" if first.run_id else "another tool than foldhouse"
        click.echo(f"\nfirst at snapshot {first.snapshot_id} of {first.table}, {utc_text(first.committed_at)}, by {by}")
        _print(found, first.disagreements)
        agreed = " and ".join(f"{name}@{one}" for name, one in first.last_agreeing.items())
        click.echo(f"{agreed} agree" if agreed else "no earlier commits can be compared")


def _print(found: Reconciled, disagreements: Sequence[Disagreement]) -> None:
    rows = [
        {
            "key": ", ".join(f"{name}={text_of(value)}" for name, value in one.key.items()),
            found.one: _totals(one.one),
            found.other: _totals(one.other),
        }
        for one in disagreements
    ]
    if rows:
        totals = [Column(side, is_folded=True) for side in (found.one, found.other)]
        columns = [Column("key"), *totals]
        print_rows(columns, rows, as_json=False, headed=1)


def _totals(side: dict[str, Any] | None) -> str:
    if side is None:
        return "no row"
    return ", ".join(f"{name}={'null' if value is None else text_of(value)}" for name, value in side.items())


def _plain(found: Reconciled) -> dict[str, Any]:
    first = found.first
    return {
        "one": found.one,
        "other": found.other,
        "passed": found.passed,
        "said": found.said,
        "compared": {name: str(at) for name, at in found.compared.items()},
        "keys": found.keys,
        "wrong": found.wrong,
        "disagreements": [_plain_one(one) for one in found.disagreements],
        "first": None
        if first is None
        else {
            "snapshot_id": str(first.snapshot_id),
            "table": first.table,
            "committed_at": utc_text(first.committed_at),
            "run_id": first.run_id,
            "last_agreeing": {name: str(at) for name, at in first.last_agreeing.items()},
            "disagreements": [_plain_one(one) for one in first.disagreements],
        },
    }


def _plain_one(one: Disagreement) -> dict[str, Any]:
    return {"key": plain(one.key), "one": plain(one.one), "other": plain(one.other)}
