"""The exit codes of the command line: each class of error has one, and commands end with it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse import errors
from foldhouse.cli import codes, main
from foldhouse.cli.main import SUBCOMMANDS

events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
EXPECTED = {
    1: "ChecksFailed CorruptFile DaysNotCovered DaysNotLanded FoldhouseError ForeignCommit LandingError SourceReplaced "
    "TooManyBadLines UnreadableFile",
    2: "ConfigurationError DefinitionChanged DefinitionError InvalidCall InvalidData InvalidProperty Paused "
    "UnknownSnapshot UnknownTable Unsupported",
    3: "CannotStart CommitConflict CorruptCatalog DaysChanged LostTables SparkLost StorageError UnknownLake",
}


@pytest.fixture
def house(lake: fh.Lake) -> fh.Lake:
    lake.append(events, [{"key": "a", "n": 1}])
    lake.refresh(sums)
    return lake


def call(*words: str, answer: str | None = None) -> Result:
    return CliRunner(env={"FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(main, list(words), input=answer)


def test_every_class_of_error_has_the_code_that_is_written_here() -> None:
    found: dict[int, list[str]] = {}
    for name in errors.__all__:
        found.setdefault(codes.code_of(getattr(errors, name)("said")), []).append(name)
    assert {code: " ".join(sorted(names)) for code, names in found.items()} == EXPECTED


@pytest.mark.parametrize("name", errors.__all__)
def test_a_command_ends_with_the_code_of_its_error_and_one_line(
    name: str, house: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = getattr(errors, name)("said")

    def failing(*_: object) -> None:
        raise failure

    monkeypatch.setattr(fh.Lake, "status", failing)
    done = call("status", "--lake", str(tmp_path / "lake"))
    assert (done.exit_code, done.stderr) == (codes.code_of(failure), "error: said\n")


def test_commands_end_with_2_for_what_cannot_be_carried_out(house: fh.Lake, tmp_path: Path) -> None:
    at = ("--lake", str(tmp_path / "lake"))
    for words in (
        ("status", "h.nothing"),
        ("show", "h.nothing"),
        ("show", "h.sums", "--as-of", "yesterday"),
        ("expire", "--older-than", "yesterday"),
        ("publish", "h.sums"),
        ("rollback", "h.sums", "--to", "1", "--yes"),
        ("refresh", "--declared-in", "no_such_package"),
        ("status", "--watch", "soon"),
        ("trace", "h.sums", "no=1", "two=2"),
    ):
        done = call(*words, *at)
        assert done.exit_code == 2, (words, done.output)


def test_commands_end_with_3_without_a_lake_or_with_one_that_cannot_be_opened(house: fh.Lake, tmp_path: Path) -> None:
    house.close()
    for command in ("status", "register"):
        missing = call(command, "--lake", str(tmp_path / "nowhere"))
        assert (missing.exit_code, missing.stdout) == (3, "")
        assert missing.stderr.startswith("error: there is no lake in")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "lake" / "catalog.db").write_bytes(b"no database" * 1000)
    damaged = call("status", "--lake", str(tmp_path / "lake"))
    assert (damaged.exit_code, "not a SQLite database" in damaged.stderr) == (3, True)
    (tmp_path / "lake" / "catalog.db").unlink()
    lost = call("status", "--lake", str(tmp_path / "lake"))
    assert (lost.exit_code, "foldhouse register" in lost.stderr) == (3, True)
    planned = call("register", "--lake", str(tmp_path / "lake"))
    assert (planned.exit_code, "h.sums" in planned.stdout) == (0, True)


def test_a_spark_that_cannot_start_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    from foldhouse.spark.session import local_session

    class Refuses:
        def __getattr__(self, name: str) -> object:
            if name == "getOrCreate":
                raise RuntimeError("no java")
            return lambda *_: self

    monkeypatch.setattr(SparkSession, "builder", Refuses())
    with pytest.raises(fh.CannotStart, match="Java 17 or later is needed") as failure:
        local_session("local[1]")
    assert codes.code_of(failure.value) == codes.UNREACHABLE


def test_refresh_ends_with_the_code_of_the_first_error(
    house: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declared_here.py").write_text(
        "from tests_of_codes import events\nimport foldhouse as fh\n"
        "sums = fh.table('h.sums', source=events, fold=fh.fold(n=fh.total('n')), checks=[fh.between('n', 0, 100)])\n"
        "above = fh.table('h.above', source=sums, keys='key', fold=fh.fold(rows=fh.count()))\n"
    )
    (tmp_path / "tests_of_codes.py").write_text(
        "import foldhouse as fh\nevents = fh.stream('h.events', schema={'key': 'string', 'n': 'long'}, keys='key')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    house.append(events, [{"key": "a", "n": 500}])
    words = ("refresh", "--declared-in", "declared_here", "--lake", str(tmp_path / "lake"))
    assert call(*words).exit_code == codes.FOUND_WRONG

    def unreachable(*_: object) -> None:
        raise fh.StorageError("the disk is away")

    monkeypatch.setattr(fh.Lake, "refresh", unreachable)
    assert call(*words).exit_code == codes.UNREACHABLE


def test_the_help_lists_the_codes() -> None:
    said = call("--help").stdout
    for code in (codes.FINE, codes.FOUND_WRONG, codes.MISUSE, codes.UNREACHABLE, codes.STOPPED, codes.CLOSED_PIPE):
        assert f"\n    {code} " in said.partition("Exit codes:")[2]


def test_no_as_an_answer_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    command = click.Command("tables", callback=lambda: click.confirm("Do it?", abort=True))
    monkeypatch.setattr(type(main), "get_command", lambda *_: command)
    assert "tables" in SUBCOMMANDS
    assert call("tables", answer="n\n").exit_code == codes.STOPPED
