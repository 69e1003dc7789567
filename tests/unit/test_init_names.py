"""The names that `foldhouse init` takes for a project, and the commands that it prints; no Dagster."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from foldhouse.cli import main
from foldhouse.values.job_names import JOB_NAMES


@pytest.mark.parametrize("name", ["lake", "refresh", "maintenance", "drop_branch", "set_tag", "tag"])
def test_a_project_does_not_get_a_name_that_is_taken_in_every_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["init", name])
    assert (done.exit_code, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert f"'{name}' cannot be the name of a project: " in done.stderr
    assert name == "lake" or name in JOB_NAMES


@pytest.mark.parametrize("folder", ["my shop", "it's", "plain"])
def test_the_next_steps_can_be_pasted_into_a_shell_whatever_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["init", "shop", "--folder", folder, "--json"])
    assert done.exit_code == 0, done.output
    assert shlex.split(json.loads(done.stdout)["next"][0]) == ["cd", folder]
    assert (tmp_path / folder / "shop" / "__init__.py").is_file()
