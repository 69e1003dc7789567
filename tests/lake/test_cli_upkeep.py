"""`foldhouse compact` and `expire` over all tables, of which one cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main

first, damaged, last = (fh.stream(f"u.{name}", schema={"n": "long"}) for name in ("first", "damaged", "last"))


@pytest.mark.parametrize(
    ("words", "done_to"), [("compact", ["u.first", "u.last"]), ("expire", []), ("expire --orphans", [])]
)
def test_the_others_have_their_turn_and_the_command_ends_with_the_error(
    lake: fh.Lake, tmp_path: Path, words: str, done_to: list[str]
) -> None:
    """Nothing is expired meanwhile: the table that cannot be read may need any snapshot and any file."""
    for stream in (first, damaged, last):
        lake.append(stream, [{"n": 1}])
    file = Path(lake.load(damaged).metadata_location.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:100])
    call = [*words.split(), "--lake", str(tmp_path / "lake")]
    done = CliRunner().invoke(main, [*call, "--json"])
    assert done.exit_code == 1, done.output
    assert [json.loads(line)["table"] for line in done.stdout.splitlines()] == done_to
    assert done.stderr.startswith(f"error: file://{file} is not what was written")
    assert done.stderr.count("\n") == 1
    alone = CliRunner().invoke(main, [*call, "u.damaged"])
    assert (alone.exit_code, alone.stdout) == (1, "")
