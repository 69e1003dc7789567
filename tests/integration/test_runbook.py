"""The runbook does what it says: each section is run on a lake in just that trouble, and prints what the page shows.

`FOLDHOUSE_WRITE_RUNBOOK=1` writes what is printed into the page instead of failing; look at the difference then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from runbook_troubles import TROUBLES, WITHOUT_COMMANDS, Place
from transcripts import Transcript, sections

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
WRITES = bool(os.environ.get("FOLDHOUSE_WRITE_RUNBOOK"))
SECTIONS = sections(PAGE.read_text())
RUN = [heading for heading, blocks in SECTIONS.items() if blocks]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """An empty folder to work in; modules that are imported from it are forgotten afterwards."""
    for name in ("FOLDHOUSE_LAKE", "FOLDHOUSE_CATALOG"):  # `foldhouse backfill` sets them in this process
        monkeypatch.setenv(name, "")  # so that they are as before afterwards
    for name in [name for name in os.environ if name.startswith(("FOLDHOUSE_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    one = Place(tmp_path, monkeypatch)
    with one.with_own_modules():
        yield one


def marked(heading: str) -> Any:
    is_long = heading in TROUBLES and TROUBLES[heading].needs_spark
    return pytest.param(heading, marks=[pytest.mark.spark, pytest.mark.heavy] if is_long else [])


@pytest.mark.parametrize("heading", [marked(heading) for heading in RUN])
def test_a_section_prints_what_it_shows_in_the_trouble_that_it_is_for(
    heading: str, place: Place, request: pytest.FixtureRequest
) -> None:
    if TROUBLES[heading].needs_spark:
        request.getfixturevalue("spark")
    TROUBLES[heading].prepare(place)
    transcript, given, printed = Transcript(place.folder, names=place.names), list[str](), list[str]()
    said = ""
    for block in SECTIONS[heading]:
        given.append(block.text)
        if block.language == "console":
            printed.append(transcript.run(block))
        elif block.language == "python":
            said = transcript.run_python(block)
            printed.append(block.text)
        else:
            assert block.language == "text", f"{heading}: a block of {block.language} cannot be run"
            printed.append(block.text if transcript.fits(block.text, said) else said)
    if WRITES:
        _write(heading, printed)
    else:
        shown, found = "\n".join(given).splitlines(), "\n".join(printed).splitlines()
        assert shown == found, "\n".join(unified_diff(shown, found, "docs/runbook.md", "printed", lineterm="", n=2))


def _write(heading: str, texts: list[str]) -> None:
    page = PAGE.read_text()
    for block, text in reversed(list(zip(sections(page)[heading], texts, strict=True))):
        page = page[: block.at[0]] + text + page[block.at[1] :]
    PAGE.write_text(page)


def test_every_section_has_commands_that_are_run_in_its_trouble_or_is_said_to_have_none() -> None:
    without = {heading for heading, blocks in SECTIONS.items() if not blocks and heading}
    assert set(RUN) == set(TROUBLES)
    assert without == WITHOUT_COMMANDS


def test_every_error_has_its_line() -> None:
    import foldhouse.errors as errors

    page = PAGE.read_text()
    assert [name for name in errors.__all__ if name != "FoldhouseError" and f"`{name}`" not in page] == []
