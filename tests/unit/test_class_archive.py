"""Which archive of Java's classes is used: only one that nobody else could have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foldhouse.errors import CannotStart
from foldhouse.spark import cache_folder, session
from foldhouse.spark.class_archive import archive_file, archive_options, drop_archive, remove_earlier


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive where it is looked for, of a Java that is not there."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = archive_file()
    assert file is not None
    file.parent.mkdir(mode=0o700, parents=True)
    file.write_bytes(b"classes")
    file.chmod(0o600)
    return file


def test_an_archive_of_this_user_is_used_and_its_checksums_are_compared(archive: Path) -> None:
    assert f"-XX:SharedArchiveFile={archive}" in archive_options()
    assert "-XX:+VerifySharedSpaces" in archive_options()


def test_without_an_archive_or_java_there_are_no_options(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.unlink()
    assert archive_options() == []
    monkeypatch.setenv("JAVA_HOME", str(archive.parent))
    assert archive_file() is None
    assert archive_options() == []


@pytest.mark.parametrize("where", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_one_that_others_can_write_is_not_used(archive: Path, where: str, mode: int) -> None:
    shared = archive if where == "file" else archive.parent
    shared.chmod(shared.stat().st_mode | mode)
    assert archive_options() == []


def test_one_of_another_user_is_not_used(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder.os, "geteuid", lambda: os.stat(archive).st_uid + 1)
    monkeypatch.setattr(cache_folder, "_ROOT", -1)
    assert archive_options() == []


def test_a_link_is_not_used(archive: Path) -> None:
    archive.rename(archive.with_suffix(".moved"))
    archive.symlink_to(archive.with_suffix(".moved"))
    assert archive_options() == []


def test_another_java_and_an_update_of_java_have_an_archive_of_their_own(archive: Path) -> None:
    release = Path(os.environ["JAVA_HOME"]) / "release"
    release.write_text('JAVA_VERSION="17.0.16"\n')
    assert archive_file() != archive
    assert archive_options() == []


def test_jars_that_were_installed_again_have_an_archive_of_their_own_which_replaces_the_other(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java would do without the archive of the others, and say nothing."""
    jar = tmp_path / "spark" / "jars" / "spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    first = archive_file()
    assert first not in (None, archive)
    assert first == archive_file()
    os.utime(jar, (1, 1))
    second = archive_file()
    assert second not in (None, first, archive)
    for one in (first, second):
        one.touch()
    remove_earlier(second)
    assert [first.exists(), second.exists(), archive.exists()] == [False, True, True]


def test_one_that_java_did_not_start_with_is_removed(archive: Path) -> None:
    drop_archive()
    assert not archive.exists()
    drop_archive()


@pytest.mark.parametrize("fails", [1, 2, 3], ids=["Java was killed once", "the archive is broken", "there is no Java"])
def test_it_stays_unless_spark_starts_without_it_alone(
    archive: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    tried = []

    def start(options: list[str], *given: object) -> str:
        tried.append(bool(options))
        if len(tried) <= fails:
            raise RuntimeError("Java exited")
        return "a session"

    monkeypatch.setattr(session, "_started_with", start)
    if fails < 3:
        assert session._started("local", {}, {}) == "a session"  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(CannotStart, match=r"did not start \(RuntimeError: Java exited\)"):
            session._started("local", {}, {})
    assert tried == [True, True, False][: fails + 1]
    assert archive.exists() == (fails != 2)
