"""`deploy/`: every service, image, volume, variable, port and module that a file refers to exists.

The rules are in `compose_rules` and `chart_rules`. A test breaks each file in many ways to see that they find it.
"""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.chart_rules import helm_findings
from tests.unit.compose_rules import compose_findings
from tests.unit.deployed import COMPOSE, DEPLOY, EXAMPLE, MANIFESTS, VALUES


def test_the_compose_file_refers_to_what_exists() -> None:
    assert list(compose_findings(COMPOSE, dict(EXAMPLE))) == []
    assert set(COMPOSE["services"]) == {"postgres", "spark", "code", "daemon", "web", "metrics"}


def test_the_helm_values_refer_to_what_exists_and_agree_with_the_instance() -> None:
    assert list(helm_findings(VALUES, MANIFESTS)) == []


def _set(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(loaded: Any) -> None:
        for step in path[:-1]:
            loaded = loaded[step]
        if to is None:
            del loaded[path[-1]]
        else:
            loaded[path[-1]] = to

    return change


SECRET = "PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY"


@pytest.mark.parametrize(
    "change",
    [
        _set("services", "web", "comand", to=[]),
        _set("services", "postgres", "image", to=None),
        _set("services", "web", "restart", to=None),
        _set("networks", "inside", to=None),
        _set("volumes", "postgres", to=None),
        _set("services", "postgres", "volumes", 1, to="./gone.sql:/x"),
        _set("services", "daemon", "depends_on", to={"cod": {}}),
        _set("services", "code", "healthcheck", to=None),
        _set("services", "code", "healthcheck", "interval", to="5s"),
        _set("services", "postgres", "logging", to=None),
        _set("services", "spark", "logging", "driver", to="json-file"),
        _set("services", "postgres", "mem_limit", to=None),
        _set("services", "web", "mem_limit", to="1"),
        _set("services", "postgres", "security_opt", to=None),
        _set("services", "spark", "read_only", to=False),
        _set("services", "code", "cap_drop", to=None),
        _set("services", "metrics", "volumes", to=[]),
        _set("services", "daemon", "command", 2, to="dagster.gone"),
        _set("services", "web", "command", 4, to="deploy/gone.yaml"),
        _set("services", "spark", "command", 0, to="deploy/gone.sh"),
        _set("services", "metrics", "command", 1, to="metric"),
        _set("services", "metrics", "command", 2, to="--run"),
        _set("services", "web", "ports", to=["3000:3000"]),
        _set("services", "web", "ports", to=["127.0.0.1:3000:3001"]),
        _set("services", "code", "environment", "FOLDHOUSE_RETRY", to="3"),
        _set("services", "code", "environment", SECRET, to="hunter2"),
        _set("services", "code", "environment", "DAGSTER_PG_URL", to="postgresql://a:b@postgres:5432/x"),
        _set("services", "code", "environment", "FOLDHOUSE_SPARK_REMOTE", to="sc://spark:15003"),
        _set("services", "code", "environment", "FOLDHOUSE_CODE_PORT", to="4001"),
        _set("services", "code", "environment", "FOLDHOUSE_CODE_HOST", to="cod"),
        _set("services", "code", "environment", "PYICEBERG_CATALOG__PROD__WAREHOUSE", to="${OTHER:?}"),
    ],
)
def test_a_broken_compose_file_is_found(change: Callable[[Any], None]) -> None:
    broken = copy.deepcopy(COMPOSE)
    change(broken)
    assert list(compose_findings(broken, dict(EXAMPLE)))


@pytest.mark.parametrize("example", [{}, {**dict(EXAMPLE), "MORE": ""}, {**dict(EXAMPLE), "POSTGRES_PASSWORD": "x"}])
def test_a_broken_example_of_the_environment_is_found(example: dict[str, str]) -> None:
    assert list(compose_findings(COMPOSE, example))


_CODE = ("dagster-user-deployments", "deployments", 0)
_NO_LAUNCHER = {"module": "foldhouse.dagster.launcher", "class": "Gone", "config": {}}


@pytest.mark.parametrize(
    "change",
    [
        _set("dagsterDaemon", "image", to={"repository": "other", "tag": "1"}),
        _set(*_CODE, "dagsterApiGrpcArgs", to=["-m", "gone"]),
        _set(*_CODE, "env", 0, to={"name": "FOLDHOUSE_CATALOGUE", "value": "prod"}),
        _set(*_CODE, "env", 0, to={"name": SECRET, "value": "hunter2"}),
        _set(*_CODE, "envSecrets", to=[{"name": "other"}]),
        _set(*_CODE, "volumes", to=[]),
        _set("postgresql", "enabled", to=True),
        _set("postgresql", "postgresqlPassword", to="test"),
        _set("dagsterWebserver", "readinessProbe", "httpGet", "httpHeaders", to=[{"name": "Host", "value": "pod"}]),
        _set("dagsterWebserver", "service", "port", to=80),
        _set("dagsterWebserver", "nameOverride", to="webserver"),
        _set("dagsterWebserver", "startupProbe", "enabled", to=False),
        _set("dagsterWebserver", "startupProbe", "httpGet", to={"port": 3000, "httpHeaders": []}),
        _set("dagsterWebserver", "livenessProbe", "httpGet", "port", to=80),
        _set("ingress", "enabled", to=True),
        _set("dagsterWebserver", "podSecurityContext", "runAsUser", to=None),
        _set(*_CODE, "podSecurityContext", to={}),
        _set("dagsterDaemon", "securityContext", "readOnlyRootFilesystem", to=False),
        _set(*_CODE, "securityContext", "capabilities", to=None),
        _set(*_CODE, "resources", "limits", to=None),
        _set("dagsterDaemon", "resources", to=None),
        _set("dagsterWebserver", "volumeMounts", to=[]),
        _set("runLauncher", "config", "k8sRunLauncher", "securityContext", to=None),
        _set("runLauncher", "config", "k8sRunLauncher", "runK8sConfig", to=None),
        _set("runLauncher", "type", to="CeleryK8sRunLauncher"),
        _set("runLauncher", to={"type": "CustomRunLauncher", "config": {"customRunLauncher": _NO_LAUNCHER}}),
        _set("concurrency", "enabled", to=None),
        _set("concurrency", "pools", "defaultLimit", to=2),
        _set("concurrency", "runs", "maxConcurrentRuns", to=5),
        _set("dagsterDaemon", "runRetries", "maxRetries", to=1),
        _set("dagsterDaemon", "runRetries", "retryOnAssetOrOpFailure", to=None),
        _set("dagsterDaemon", "runMonitoring", "pollIntervalSeconds", to=120),
    ],
)
def test_broken_helm_values_are_found(change: Callable[[Any], None]) -> None:
    broken = copy.deepcopy(VALUES)
    change(broken)
    assert list(helm_findings(broken, MANIFESTS))


_POD = (0, "spec", "template", "spec", "containers", 0)


@pytest.mark.parametrize(
    "change",
    [
        _set(1, to=None),
        _set(1, "spec", "selector", to={"app": "other"}),
        _set(1, "spec", "ports", 0, "port", to=15003),
        _set(*_POD, "image", to="other:1"),
        _set(*_POD, "securityContext", to=None),
        _set(*_POD, "resources", "limits", to={}),
        _set(*_POD, "volumeMounts", to=[]),
        _set(0, "spec", "template", "spec", "securityContext", "runAsNonRoot", to=False),
        _set(2, "spec", "template", "spec", "volumes", to=[]),
        _set(*_POD, "envFrom", to=[]),
        _set(*_POD, "command", 0, to="deploy/gone.sh"),
        _set(2, "spec", "template", "spec", "containers", 0, "command", 1, to="metric"),
    ],
)
def test_broken_manifests_are_found(change: Callable[[Any], None]) -> None:
    broken = copy.deepcopy(MANIFESTS)
    change(broken)
    assert list(helm_findings(VALUES, broken))


def _copied() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text()
    return [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]


def test_the_image_copies_what_exists_and_installs_by_hash() -> None:
    text, sources = (DEPLOY / "Dockerfile").read_text(), _copied()
    assert len(sources) > 8
    assert [word for word in sources if not (ROOT / word).exists()] == []
    installs = re.findall(r"pip install [^&\\\n]+", text)
    assert len(installs) == 4
    assert all("--require-hashes" in one or one.rstrip().endswith(" .") for one in installs)
    # A name, such as `fold`, is refused by a cluster that demands `runAsNonRoot`.
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["1000"]
    assert re.search(r"useradd .*--uid 1000 ", text)


def test_the_image_has_no_file_with_secrets() -> None:
    """`deploy/.env` is beside the files that are copied, and an image is pushed to where others pull it."""
    lines = [one for one in (ROOT / ".dockerignore").read_text().splitlines() if one and not one.startswith("#")]
    assert lines[0] == "*"
    assert {one[1:] for one in lines if one.startswith("!")} == set(_copied())
    assert lines[-2:] == ["**/.env", "**/__pycache__"]
    assert not {".", "deploy", "deploy/.env"} & set(_copied())


def test_what_the_chart_starts_by_name_is_foldhouses_own() -> None:
    """The chart starts `dagster-webserver` and `dagster-daemon`; Dagster's own have no guard, and look rarely."""
    text = (DEPLOY / "Dockerfile").read_text()
    names = re.search(r"for name in ([a-z ]+);", text)
    assert names is not None
    assert "exec python -m foldhouse.dagster.%s" in text
    for name in names[1].split():
        assert importlib.util.find_spec(f"foldhouse.dagster.{name}") is not None
    assert set(names[1].split()) == {"webserver", "daemon"}


def test_the_folder_has_the_files_that_its_readme_lists() -> None:
    listed = set(re.findall(r"^\| `([^`]+)` \|", (DEPLOY / "README.md").read_text(), re.MULTILINE))
    there = {path.name for path in DEPLOY.iterdir() if path.name not in ("__init__.py", "__pycache__", "README.md")}
    assert listed == {name + "/" if (DEPLOY / name).is_dir() else name for name in there}
