"""The commands that prove: do the rows pass their checks, and are they what another engine computes?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldhouse.cli.codes import FOUND_WRONG
from foldhouse.cli.declared import declared, declared_option
from foldhouse.cli.lakes import known, lake_option, opened
from foldhouse.cli.numbers import FiniteRange
from foldhouse.cli.output import (
    Column,
    checked_text,
    count_text,
    json_option,
    plain,
    print_rows,
    snapshots_plain,
    snapshots_text,
    stderr,
    text_of,
)
from foldhouse.values.gapless import Gapless
from foldhouse.values.moment_text import utc_text
from foldhouse.values.proofs import Difference, FirstWrong, Verified
from foldhouse.values.results import Checked

if TYPE_CHECKING:
    from foldhouse.values.definition import Table


@click.command()
@click.argument("name")
@click.option(
    "--share",
    type=FiniteRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of the keys to compare; always the same ones.",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Compare only keys that changed since a snapshot id, a time, a tag or a branch; older errors are not found.",
)
@click.option("--no-search", is_flag=True, help="Do not search for the first wrong commit.")
@declared_option
@lake_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    name: str,
    share: float,
    since: str | None,
    no_search: bool,
    package: str,
    folder: Path,
    as_json: bool,
) -> None:
    """Compare a table with what Spark computes from all rows of its sources, as a batch job.

    Both are taken at the position of the table's head, so events that were not folded yet do not matter. If a key is
    wrong, its history is searched for the first commit where it was; that takes as many further batch jobs, over the
    rows of these keys alone, as the number of commits has bits. The positions in its history must form one chain, too.
    The command ends with 1 if a key or the chain is wrong. If checks of the table read other tables, their snapshots
    are printed.

    With --since, only the keys are compared whose rows, or whose source rows, changed since then. If the table was
    right then, it is right now. A key that was wrong before and did not change since is not found.
    """
    table = declared(name, package)
    with opened(folder) as lake, stderr().status(f"computing {name} with Spark"):
        known(lake, name)
        chain = lake.gapless(table)
        found = lake.verify(table, share=share, since=since, search=not no_search)
        against = lake.checked_against(table, as_of=found.snapshot_id)
    if as_json:
        told = {"gapless": _plain_chain(chain), "checked_against": snapshots_plain(against)}
        print_rows([], [{**_plain(found), **told}], as_json=True)
    else:
        _say(found, table)
        _say_chain(chain)
        if against:
            click.echo(f"{name}: {checked_text(found.snapshot_id, against)}")
    if not (found.passed and chain.passed):
        ctx.exit(FOUND_WRONG)


@click.command()
@click.argument("name")
@click.option("--as-of", help="A snapshot id, a time, a tag or a branch, such as foldhouse-audit.")
@declared_option
@lake_option
@json_option
@click.pass_context
def audit(ctx: click.Context, name: str, as_of: str | None, package: str, folder: Path, as_json: bool) -> None:
    """Evaluate the checks of a table on all its rows.

    Nothing is committed. `--as-of foldhouse-audit` looks at the rows that failed and were not published. The command
    ends with 1 if a check fails.
    """
    table = declared(name, package)
    with opened(folder) as lake, stderr().status(f"checking {name}"):
        known(lake, name)
        found = lake.audit(table, as_of=as_of)
    if as_json:
        print_rows([], [_plain_check(one) for one in found], as_json=True)
    elif not found:
        click.echo(f"{name} has no checks; `checks=[...]` of its declaration adds some", err=True)
    else:
        rows = [
            {"check": one.check, "result": "passed" if one.passed else "warning" if not one.blocks else "failed"}
            | {"found": one.said + _against(one)}
            for one in found
        ]
        print_rows([Column("check", is_folded=True), Column("result"), Column("found")], rows, as_json=False)
        for one in found:
            if one.sample:
                click.echo(f"\n{one.name}:")
                print_rows([Column(column) for column in one.sample[0]], one.sample, as_json=False, headed=1)
    if not all(one.passed for one in found):
        ctx.exit(FOUND_WRONG)


def _against(one: Checked) -> str:
    return f"; against {snapshots_text(one.against)}" if one.against else ""


def _plain_check(one: Checked) -> dict[str, Any]:
    return {
        "name": one.name,
        "check": one.check,
        "severity": one.severity,
        "passed": one.passed,
        "said": one.said,
        "failing": one.failing,
        "sample": [plain(row) for row in one.sample],
        "against": snapshots_plain(one.against),
    }


def _say(found: Verified, table: Table) -> None:
    sources = snapshots_text(found.position)
    keys = _keys_text(found)
    unproven = f"; compared within a tenth: {', '.join(found.estimated)}" if found.estimated else ""
    unproven += f"; not compared: {', '.join(found.unproven)}" if found.unproven else ""
    if found.keys_since == 0:
        click.echo(f"{found.table}: at snapshot {found.snapshot_id}, no key and no source row of one changed")
        _say_unseen(found)
        return
    if found.passed:
        click.echo(
            f"{found.table}: at snapshot {found.snapshot_id}, {keys} is what Spark computes from {sources}{unproven}"
        )
        _say_unseen(found)
        return
    wrong = "1 key is" if found.wrong == 1 else f"{found.wrong:,} keys are"
    click.echo(
        f"{found.table}: at snapshot {found.snapshot_id}, {wrong} not what Spark computes from {sources}{unproven}"
    )
    _say_unseen(found)
    _print_differences(found.differences)
    if found.first_wrong is not None:
        _say_first(found.table, found.first_wrong)
    if table.partition_by is not None:
        days = {str(one.key[table.partition_by]) for one in found.differences}
        day = days.pop() if len(days) == 1 and found.wrong <= len(found.differences) else "DAYS"
        click.echo(f"`foldhouse restate {found.table} {day}` folds only the wrong days again")


def _keys_text(found: Verified) -> str:
    changed = "" if found.keys_since is None else f" of the {count_text(found.keys_since, 'key')} that changed"
    if found.share < 1:
        return f"every compared key ({found.share:g} of all){changed}"
    return f"each{changed}" if changed else "every key"


def _say_unseen(found: Verified) -> None:
    """Say what was not looked at."""
    if found.since is None:
        return
    if found.keys_since is None:
        click.echo(
            f"all keys were compared: it is unknown which of them changed since snapshot {found.since}, because the "
            "table was declared otherwise then, or its sources' history of then has expired"
        )
        return
    click.echo(
        f"not looked at: keys whose rows and source rows are as they were at snapshot {found.since}; one that was "
        "wrong already then is not found"
    )


def _say_chain(chain: Gapless) -> None:
    unknown = [
        f"{number:,} {one if number == 1 else several}"
        for number, one, several in (
            (chain.unrecorded, "does not say where it began", "do not say where they began"),
            (chain.spans_expired, "stands on expired commits", "stand on expired commits"),
            (chain.mended, "broke it, and was folded again since", "broke it, and were folded again since"),
        )
        if number
    ]
    rest = f"; {'; '.join(unknown)}" if unknown else ""
    if chain.passed:
        commits = "1 commit forms" if chain.commits == 1 else f"{chain.commits:,} commits form"
        click.echo(f"{chain.table}: its {commits} one chain{rest}")
        return
    click.echo(f"{chain.table}: {chain.broken:,} of its {chain.commits:,} commits break the chain{rest}")
    for one in chain.breaks:
        by = f"run {one.run_id}" if one.is_ours else "another tool"
        click.echo(f"  snapshot {one.snapshot_id}, {utc_text(one.committed_at)}, by {by}: {one.reason}")


def _plain_chain(chain: Gapless) -> dict[str, Any]:
    return {
        "passed": chain.passed,
        "commits": chain.commits,
        "unrecorded": chain.unrecorded,
        "mended": chain.mended,
        "spans_expired": chain.spans_expired,
        "broken": chain.broken,
        "breaks": [
            {
                "snapshot_id": str(one.snapshot_id),
                "committed_at": utc_text(one.committed_at),
                "is_ours": one.is_ours,
                "run_id": one.run_id,
                "reason": one.reason,
            }
            for one in chain.breaks
        ],
    }


def _say_first(table: str, first: FirstWrong) -> None:
    by = f"run {first.run_id}" if first.is_ours else "another tool than foldhouse"
    click.echo(f"\nfirst wrong at snapshot {first.snapshot_id}, {utc_text(first.committed_at)}, by {by}")
    _print_differences(first.differences)
    if first.last_right is None:
        click.echo(f"no earlier commit can be computed again; `foldhouse rebuild {table}` folds the table anew")
    else:
        click.echo(
            f"right at snapshot {first.last_right}: `foldhouse rollback {table} --to {first.last_right}` and a refresh "
            f"mend it, or `foldhouse rebuild {table}`"
        )


def _print_differences(differences: Sequence[Difference]) -> None:
    rows = [
        {
            "key": ", ".join(f"{name}={text_of(value)}" for name, value in one.key.items()),
            "column": name,
            "found": found,
            "expected": expected,
        }
        for one in differences
        for name, found, expected in _cells(one)
    ]
    values = [Column(side, is_folded=True) for side in ("found", "expected")]
    columns = [Column("key"), Column("column"), *values]
    print_rows(columns, rows, as_json=False)


def _cells(one: Difference) -> list[tuple[str, str, str]]:
    if one.found is None or one.expected is None:
        sides = ("no row" if side is None else "a row" for side in (one.found, one.expected))
        return [("", *sides)]  # type: ignore[list-item]
    return [(name, _text(one.found[name]), _text(one.expected[name])) for name in one.columns]


def _text(value: Any) -> str:
    return "null" if value is None else text_of(value)


def _plain(found: Verified) -> dict[str, Any]:
    first = found.first_wrong
    return {
        "table": found.table,
        "passed": found.passed,
        "snapshot_id": str(found.snapshot_id),
        "position": snapshots_plain(found.position),
        "share": found.share,
        "since": None if found.since is None else str(found.since),
        "keys_since": found.keys_since,
        "columns": list(found.columns),
        "unproven": list(found.unproven),
        "estimated": list(found.estimated),
        "wrong": found.wrong,
        "differences": [_plain_difference(one) for one in found.differences],
        "first_wrong": None
        if first is None
        else {
            "snapshot_id": str(first.snapshot_id),
            "committed_at": utc_text(first.committed_at),
            "is_ours": first.is_ours,
            "run_id": first.run_id,
            "last_right": None if first.last_right is None else str(first.last_right),
            "differences": [_plain_difference(one) for one in first.differences],
        },
    }


def _plain_difference(one: Difference) -> dict[str, Any]:
    return {"key": plain(one.key), "found": plain(one.found), "expected": plain(one.expected)}
