"""The loaded files of `deploy/`, and what is looked for in each of them: secrets, variables and commands."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from typing import Any

import click
import yaml

from foldhouse.cli import main
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
INSTANCE: dict[str, Any] = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
EXAMPLE = re.findall(r"^([A-Z_0-9]+)=(.*)$", (DEPLOY / "environment.example").read_text(), re.MULTILINE)
SECRET = re.compile(r"PASSWORD|SECRET|ACCESS_KEY|TOKEN")
TEMPORARY = "/tmp"


def _known_variables() -> set[str]:
    """Return the names in upper case that the code of foldhouse and the files of the deployment read."""
    texts = [path.read_text() for path in (ROOT / "src").rglob("*.py")] + [
        (DEPLOY / name).read_text() for name in ("dagster.yaml", "workspace.yaml")
    ]
    return {name for text in texts for name in re.findall(r"\b(?:FOLDHOUSE|DAGSTER)_[A-Z_]+\b", text)}


KNOWN = _known_variables()


def command_findings(name: str, words: list[str] | None) -> Iterator[str]:
    """Look for the module, command, program and files that a container's command contains."""
    if not words:
        return
    if words[0] == "python":
        module = words[words.index("-m") + 1]
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            yield f"{name} starts {module}, which does not exist"
    elif words[0] == "foldhouse":
        yield from _subcommand(name, words[1:])
    elif not os.access(ROOT / words[0], os.X_OK):
        yield f"{name} starts {words[0]}, which is no program here"
    for flag in ("-w",):
        if flag in words and not (ROOT / words[words.index(flag) + 1]).is_file():
            yield f"{name} names a file that does not exist"


def _subcommand(name: str, words: list[str]) -> Iterator[str]:
    command = main.get_command(click.Context(main), words[0])
    if command is None:
        yield f"{name} starts foldhouse {words[0]}, which is no command"
        return
    try:
        command.make_context(words[0], list(words[1:]), resilient_parsing=False)
    except click.ClickException as failure:
        yield f"{name}: {failure.message}"
