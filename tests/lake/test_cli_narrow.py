"""A terminal of 80 columns: no key and no value of a change is cut, however wide the table is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.values.moment_text import utc_text

ONE, OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7", "7c9e6679-7425-40de-944b-e07fc1f90ae8"
LONG = "a description that is longer than what is left of a line of eighty columns"
STYLE = re.compile("\x1b\\[[0-9;]*m")
TYPES = {
    "customer": "string",
    "shop": "string",
    "note": "string",
    "tags": "list<string>",
    "amount": "long",
    "n": "long",
}
events = fh.stream("narrow.events", schema=TYPES, keys="customer", sequence_by="n")
notes = fh.table(
    "narrow.notes",
    source=events,
    keys=["customer", "shop"],
    fold=fh.fold(
        note=fh.latest("note"),
        tags=fh.latest("tags"),
        amount_of_everything_bought=fh.total("amount"),
        deliveries_until_today=fh.count(),
    ),
)


def event(customer: str, n: int, note: str, amount: int) -> dict[str, object]:
    return {"customer": customer, "shop": "north", "note": note, "tags": ["a", "b"], "amount": amount, "n": n}


@pytest.fixture
def folded(lake: fh.Lake) -> fh.Lake:
    lake.append(events, [event(ONE, 1, "short", 1), event(OTHER, 1, LONG, 1)])
    lake.refresh(notes)
    lake.append(events, [event(ONE, 2, LONG, 5)])
    lake.refresh(notes)
    return lake


def seen(tmp_path: Path, *words: str, width: int = 80) -> list[str]:
    env = {"FORCE_COLOR": "1", "COLUMNS": str(width), "NO_COLOR": "1", "TTY_INTERACTIVE": "0"}
    done = CliRunner(env=env).invoke(main, [*words, "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in STYLE.sub("", done.stdout).splitlines()]


def test_a_change_of_a_wide_table_has_its_key_and_what_differs(folded: fh.Lake, tmp_path: Path) -> None:
    lines = seen(tmp_path, "changes", "narrow.notes")
    assert lines[1:] == [
        f"~ UPDATE  customer={ONE}, shop=north",
        "    note                         short",
        f"                              -> {LONG}",
        "    amount_of_everything_bought  1 -> 6",
        "    deliveries_until_today       1 -> 2",
        "",
        "0 inserted, 0 deleted, 1 updated in 1 commit",
    ]
    before = folded.history(notes)[-1].id
    assert seen(tmp_path, "diff", "narrow.notes", str(before))[1] == lines[1]


def test_an_inserted_row_of_a_wide_table_is_whole(folded: fh.Lake, tmp_path: Path) -> None:
    lines = seen(tmp_path, "changes", "narrow.notes", "--after", "0", "--net")
    at = lines.index(f"+ INSERT  customer={OTHER}, shop=north")
    assert lines[at + 1] == f"    note                         {LONG}"
    assert lines[at + 2] == '    tags                         ["a", "b"]'


def test_rows_of_a_wide_table_are_below_each_other(folded: fh.Lake, tmp_path: Path) -> None:
    lines = seen(tmp_path, "show", "narrow.notes")
    assert lines[:6] == [
        f"customer                     {ONE}",
        "shop                         north",
        f"note                         {LONG}",
        'tags                         ["a", "b"]',
        "amount_of_everything_bought  6",
        "deliveries_until_today       2",
    ]
    assert lines[6:8] == ["", f"customer                     {OTHER}"]
    assert lines[-1] == "2 rows"


def test_a_wide_terminal_has_a_table(folded: fh.Lake, tmp_path: Path) -> None:
    assert seen(tmp_path, "show", "narrow.notes", width=200)[0].split() == [
        "customer",
        "shop",
        "note",
        "tags",
        "amount_of_everything_bought",
        "deliveries_until_today",
    ]
    assert "_change_type" in seen(tmp_path, "changes", "narrow.notes", width=250)[1]


def test_what_the_doctor_says_to_do_is_not_cut(lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "a-home-of-dagster-that-is-not-there"))
    env = {"FORCE_COLOR": "1", "COLUMNS": "80", "NO_COLOR": "1", "TTY_INTERACTIVE": "0"}
    done = CliRunner(env=env).invoke(main, ["doctor", "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 1
    assert "…" not in done.stdout
    assert "setanother" in done.stdout.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("words", [["history", "narrow.notes"], ["status"], ["tables"]])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_nothing_of_a_list_is_cut_and_no_table_is_wrapped(
    folded: fh.Lake, tmp_path: Path, words: list[str], width: int
) -> None:
    lines = seen(tmp_path, *words, width=width)
    assert not any("…" in line for line in lines)
    # A line may be longer than the terminal only if it holds one value that is.
    assert all(len(line) <= width or "  " not in line.strip() for line in lines if "@" not in line), lines
    wide = " ".join(seen(tmp_path, *words, width=400)).split()
    ids = [word for word in wide if "@" in word or (word.isdigit() and len(word) > 12)]
    together = "".join(lines).replace(" ", "")
    assert all(one in together for one in ids)


def test_a_commit_is_a_line_and_its_figures_are_below(folded: fh.Lake, tmp_path: Path) -> None:
    lines = seen(tmp_path, "history", "narrow.notes")
    newest, source = folded.history(notes)[0], folded.history(events)[0]
    assert lines[0] == f"{newest.id}  {utc_text(newest.committed_at)}  overwrite"
    assert lines[1].strip().split("   ") == ["written 2", "removed 2", "rows 2", f"position narrow.events@{source.id}"]
    assert len(lines) == 4


def test_a_table_without_lag_is_up_to_date_and_one_with_it_names_the_source(folded: fh.Lake, tmp_path: Path) -> None:
    assert "up to date   none" in seen(tmp_path, "status", width=70)[3]
    assert seen(tmp_path, "tables")[3].endswith("up to date")
    folded.append(events, [event(OTHER, 9, "late", 1)])
    behind = "".join(seen(tmp_path, "tables")[2:])
    assert "1 commit behind" in behind
    assert "narrow.events" in behind
    assert "up to date with narrow.events" not in behind


def test_failing_rows_of_an_audit_are_whole(folded: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "foldhouse.cli.proving.declared",
        lambda *_: replace(notes, checks=(fh.accepted("note", ["short"]),)),
    )
    env = {"FORCE_COLOR": "1", "COLUMNS": "80", "NO_COLOR": "1", "TTY_INTERACTIVE": "0"}
    done = CliRunner(env=env).invoke(main, ["audit", "narrow.notes", "--lake", str(tmp_path / "lake")])
    shown = STYLE.sub("", done.stdout)
    assert done.exit_code == 1, done.output
    assert "…" not in shown
    assert all(word in shown for word in [ONE, OTHER, *LONG.split()])
