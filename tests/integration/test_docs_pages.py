"""The pages of the site: every block of code is run and prints what it shows; the site is built without a warning.

`FOLDHOUSE_WRITE_DOCS=1` writes what is printed into the pages instead of failing; look at the difference then.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest
import runbook_troubles
from transcripts import Transcript, blocks

from scripts import commands_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ("index", "five-minutes", "your-own-table", "corrections", "backfills", "operating", "from-other-tools")
ON_SPARK = ("joins", "recipes")
NOT_RUN = {"from-other-tools": {"sql"}}
"""Code of other tools."""
WRITES = bool(os.environ.get("FOLDHOUSE_WRITE_DOCS"))


def run(page: str, folder: Path) -> None:
    """Run the blocks of a page in their order, in one folder and with one set of names."""
    path = DOCS / f"{page}.md"
    transcript, said, given, printed = Transcript(folder), "", list[str](), list[str]()
    for block in blocks(path.read_text()):
        text = block.text
        if block.language == "console":
            text = transcript.run(block)
        elif block.language == "python":
            said = transcript.run_python(block)
        elif block.language == "text":
            text = block.text if transcript.fits(block.text, said) else said
            said = ""
        else:
            assert block.language in NOT_RUN.get(page, ()), f"a block of {block.language} is not run"
        if block.language in ("python", "console"):
            assert block.language == "python" or not said, f"what is printed before {text!r} is not on the page"
        given.append(block.text)
        printed.append(text)
    assert not said, f"the page does not show {said!r}"
    if WRITES:
        text = path.read_text()
        for block, new in reversed(list(zip(blocks(text), printed, strict=True))):
            text = text[: block.at[0]] + new + text[block.at[1] :]
        path.write_text(text)
        return
    shown, found = "\n".join(given).splitlines(), "\n".join(printed).splitlines()
    assert shown == found, "\n".join(unified_diff(shown, found, f"docs/{page}.md", "printed", lineterm="", n=2))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOLDHOUSE_LAKE", raising=False)
    if page != "operating":
        run(page, tmp_path)
        return
    place = runbook_troubles.Place(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with place.with_own_modules():
        runbook_troubles.folded(place)
        run(page, tmp_path)


@pytest.mark.spark
@pytest.mark.classic  # the pages open a lake of this machine
@pytest.mark.heavy
@pytest.mark.parametrize("page", ON_SPARK)
def test_a_page_with_joins_prints_what_it_shows(
    page: str, spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOLDHOUSE_LAKE", raising=False)
    run(page, tmp_path)


def test_the_reference_of_the_commands_is_current() -> None:
    assert commands_page.PAGE.read_text() == commands_page.text(), "run scripts/commands_page.py"


@pytest.mark.heavy
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed; `make docs` installs it, and so does `make setup` if CI is set")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index", "runbook", "reference/api", "reference/commands", "decisions/0004-events-by-key"):
        assert (tmp_path / "site" / f"{page}.html").stat().st_size > 5_000
    text = (tmp_path / "site" / "reference" / "api.html").read_text()
    assert 'id="foldhouse.lake.Lake.refresh"' in text
    assert "https://fonts." not in text
