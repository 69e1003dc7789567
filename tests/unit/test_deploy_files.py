"""`deploy/`: every service, image, volume, variable, port and module that a file refers to exists.

The checks are functions of the loaded files, and a test breaks each file in many ways to see that they find it.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
import yaml

from foldhouse.cli import main
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
INSTANCE: dict[str, Any] = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
EXAMPLE = re.findall(r"^([A-Z_0-9]+)=(.*)$", (DEPLOY / "environment.example").read_text(), re.MULTILINE)
_SERVICE = {"image", "build", "command", "restart", "environment", "volumes", "networks", "ports", "depends_on"}
_SERVICE |= {"healthcheck", "logging", "read_only", "cap_drop", "security_opt", "mem_limit"}
_SECRET = re.compile(r"PASSWORD|SECRET|ACCESS_KEY|TOKEN")
_REQUIRED = re.compile(r"\$\{([A-Z_0-9]+):\?\}")
_USED = re.compile(r"\$\{([A-Z_0-9]+)[:}]")
_OPTIONAL = {"FOLDHOUSE_IMAGE", "DAGSTER_HOME", "DAGSTER_PG_URL", "FOLDHOUSE_CODE_HOST", "FOLDHOUSE_CODE_PORT"}


def _known_variables() -> set[str]:
    """Return the names in upper case that the code of foldhouse and the files of the deployment read."""
    texts = [path.read_text() for path in (ROOT / "src").rglob("*.py")] + [
        (DEPLOY / name).read_text() for name in ("dagster.yaml", "workspace.yaml")
    ]
    return {name for text in texts for name in re.findall(r"\b(?:FOLDHOUSE|DAGSTER)_[A-Z_]+\b", text)}


KNOWN = _known_variables()


def compose_findings(compose: dict[str, Any], example: dict[str, str]) -> Iterator[str]:
    services = compose.get("services") or {}
    for name, service in services.items():
        if unknown := set(service) - _SERVICE:
            yield f"{name} has {unknown}"
        if not service.get("image"):
            yield f"{name} has no image"
        if service.get("restart") != "unless-stopped":
            yield f"{name} is not restarted"
        if service.get("logging") != {"driver": "local"}:
            yield f"the log of {name} grows until the disk is full"
        if "dagster" in service.get("healthcheck", {}).get("test", []) and service["healthcheck"]["interval"] != "15s":
            yield f"{name} is asked too often: each look imports Dagster"
        if missing := set(service.get("networks", [])) - set(compose.get("networks") or {}):
            yield f"{name} is in unknown networks {missing}"
        yield from _confined(name, service)
        yield from _volumes(name, service, compose)
        yield from _dependencies(name, service, services)
        yield from _command(name, service.get("command"))
        yield from _ports(name, service)
        yield from _environment(name, service.get("environment") or {}, services)
    used = set(_USED.findall(yaml.safe_dump(services)))
    if used - set(example):
        yield f"environment.example does not have {used - set(example)}"
    if set(example) - used:
        yield f"nothing uses {set(example) - used}"
    for name, value in example.items():
        if _SECRET.search(name) and value:
            yield f"environment.example has a secret: {name}"


_TEMPORARY = "/tmp"


def _confined(name: str, service: dict[str, Any]) -> Iterator[str]:
    """Look at what a service may do. Postgres begins as root, with capabilities, and writes outside of its volume."""
    if not re.fullmatch("[0-9]+g", str(service.get("mem_limit"))):
        yield f"{name} can take all memory of the machine"
    if service.get("security_opt") != ["no-new-privileges:true"]:
        yield f"{name} can get privileges"
    if name != "postgres" and (service.get("read_only"), service.get("cap_drop")) != (True, ["ALL"]):
        yield f"{name} can write its root file system, or has capabilities"
    if name != "postgres" and _TEMPORARY not in service["volumes"]:
        yield f"{name} can write nothing temporary"


def _volumes(name: str, service: dict[str, Any], compose: dict[str, Any]) -> Iterator[str]:
    for volume in service.get("volumes", []):
        if _REQUIRED.match(volume) or volume == _TEMPORARY:  # a folder of the machine, which the environment names
            continue
        source = volume.split(":")[0]
        if source.startswith("."):
            if not (DEPLOY / source).exists():
                yield f"{name} mounts {source}, which does not exist"
        elif source not in (compose.get("volumes") or {}):
            yield f"{name} mounts the unknown volume {source}"


def _dependencies(name: str, service: dict[str, Any], services: dict[str, Any]) -> Iterator[str]:
    for other, how in (service.get("depends_on") or {}).items():
        if other not in services:
            yield f"{name} waits for {other}, which is no service"
        elif how.get("condition") == "service_healthy" and "healthcheck" not in services[other]:
            yield f"{name} waits for {other} to be healthy, which is never looked at"


def _command(name: str, words: list[str] | None) -> Iterator[str]:
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


def _ports(name: str, service: dict[str, Any]) -> Iterator[str]:
    for port in service.get("ports", []):
        host, _, inside = port.rpartition(":")
        if not host.startswith("127.0.0.1:"):
            yield f"{name} publishes {port} to other machines"
        if inside not in (service.get("command") or []):
            yield f"{name} publishes {inside}, where it does not listen"


def _environment(name: str, given: dict[str, Any], services: dict[str, Any]) -> Iterator[str]:
    for key, value in given.items():
        if key.startswith(("FOLDHOUSE_", "DAGSTER_")) and key not in KNOWN:
            yield f"{name} sets {key}, which nothing reads"
        if _SECRET.search(key) and not _REQUIRED.fullmatch(str(value)):
            yield f"{name} has the secret {key}"
        text = str(value or "")
        if re.search(r"://[^/@]*@", text) and len(_REQUIRED.findall(text)) != 2:
            yield f"{name} has a secret in {key}"
        for host, port in re.findall(r"(?:@|sc://)([a-z]+):([0-9]+)", text):
            yield from _reached(name, services, host, port)
    if "FOLDHOUSE_CODE_HOST" in given:
        yield from _reached(name, services, given["FOLDHOUSE_CODE_HOST"], given["FOLDHOUSE_CODE_PORT"])


def _reached(name: str, services: dict[str, Any], host: str, port: str) -> Iterator[str]:
    listening = (services.get(host) or {}).get("command") or (["5432"] if host == "postgres" else [])
    if host not in services or port not in listening:
        yield f"{name} asks {host}:{port}, where nobody listens"


def helm_findings(values: dict[str, Any], manifests: list[dict[str, Any]]) -> Iterator[str]:
    code = values["dagster-user-deployments"]["deployments"][0]
    daemon, web = values["dagsterDaemon"], values["dagsterWebserver"]
    if not web["image"] == code["image"] == daemon["image"]:
        yield "the processes have several images"
    if importlib.util.find_spec(code["dagsterApiGrpcArgs"][-1]) is None:
        yield "the code location does not exist"
    yield from _parameters(code["env"])
    secrets = {one["name"] for one in code["envSecrets"]} | {values["global"]["postgresqlSecretName"]}
    documented = set(re.findall(r"^#   ([a-z-]+) ", (DEPLOY / "values.yaml").read_text(), re.MULTILINE))
    if secrets != documented:
        yield f"the secrets are {secrets}, and documented {documented}"
    if (
        values["postgresql"]["enabled"]
        or values["generatePostgresqlPasswordSecret"]
        or "postgresqlPassword" in str(values)
    ):
        yield "the password of Postgres is in the values"
    if {one["name"] for one in code["volumeMounts"]} - {one["name"] for one in code["volumes"]}:
        yield "an unknown volume is mounted"
    if f"service/foldhouse-{web.get('nameOverride')} " not in (DEPLOY / "values.yaml").read_text():
        yield "the service of the page has another name than its comment says"
    yield from _probes(web)
    for name, one in {"code": code, "daemon": daemon, "web": web}.items():
        yield from _confined_pod(name, one["podSecurityContext"], one)
    launcher = values["runLauncher"]["config"].get("k8sRunLauncher", {})
    if launcher and launcher.get("securityContext") != code["securityContext"]:
        yield "the containers of runs have privileges"
    of_runs = launcher.get("runK8sConfig", {}).get("podSpecConfig", {}).get("securityContext")
    if launcher and of_runs != code["podSecurityContext"]:
        yield "the pods of runs have privileges"
    if values["ingress"]["enabled"]:
        yield "the page is open"
    yield from _launcher(values)
    yield from _as_the_instance(values)
    yield from _manifest_findings(values, manifests)


def _confined_pod(name: str, pod: dict[str, Any], given: dict[str, Any]) -> Iterator[str]:
    """Look at what a pod may do; `given` has its container's part, and its mounts."""
    # The chart's pods also have containers of other images, whose user is root: a number is needed here too.
    if (pod.get("runAsNonRoot"), pod.get("runAsUser"), pod.get("runAsGroup")) != (True, 1000, 1000):
        yield f"{name} is not user 1000"
    if pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield f"{name} may make all calls of the system"
    container = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    if given.get("securityContext") != container:
        yield f"{name} has privileges"
    resources = given.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})) or set(resources.get("limits", {})) != {"memory"}:
        yield f"{name} has no limit of memory, or asks for nothing"
    if _TEMPORARY not in {one["mountPath"] for one in given.get("volumeMounts", [])}:
        yield f"{name} can write nothing temporary"


def _probes(web: dict[str, Any]) -> Iterator[str]:
    """Look at the probes of the page. The chart's own ask port 80, by a name that the guard refuses."""
    port = web["service"]["port"]
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        asked = web[name]["httpGet"]
        if asked["httpHeaders"] != [{"name": "Host", "value": f"localhost:{port}"}]:
            yield f"the guard refuses the {name}"
        if asked["port"] != port:
            yield f"the {name} asks elsewhere"
    if not web["startupProbe"].get("enabled"):
        yield "the liveness probe ends a page that starts slowly"


def _parameters(given: list[dict[str, str]]) -> Iterator[str]:
    for one in given:
        if one["name"].startswith(("FOLDHOUSE_", "DAGSTER_")) and one["name"] not in KNOWN:
            yield f"{one['name']} is set, which nothing reads"
        if _SECRET.search(one["name"]) or "@" in one["value"]:
            yield f"{one['name']} is a secret"


_LAUNCHERS = {"K8sRunLauncher": "dagster-k8s", "CeleryK8sRunLauncher": "dagster-celery-k8s"}
"""The run launchers of the chart, and the packages that they are in."""


def _launcher(values: dict[str, Any]) -> Iterator[str]:
    """Look for the package of the launcher: the chart's web server and daemon do not start without it."""
    kind = values["runLauncher"]["type"]
    if kind == "CustomRunLauncher":
        given = values["runLauncher"]["config"]["customRunLauncher"]
        if not hasattr(importlib.import_module(given["module"]), given["class"]):
            yield f"{given} does not exist"
    elif f"\n{_LAUNCHERS[kind]}==" not in (ROOT / "requirements-deploy.lock").read_text():
        yield f"the image does not have {_LAUNCHERS[kind]}, which {kind} needs"


def _as_the_instance(values: dict[str, Any]) -> Iterator[str]:
    """Compare what the chart and dagster.yaml both say."""
    queue, daemon = values["concurrency"], values["dagsterDaemon"]
    if queue.get("enabled") is not True:
        yield "the chart leaves out the queue and the pools"
    if (queue["runs"]["maxConcurrentRuns"], queue["runs"]["tagConcurrencyLimits"]) != (
        INSTANCE["concurrency"]["runs"]["max_concurrent_runs"],
        INSTANCE["concurrency"]["runs"]["tag_concurrency_limits"],
    ):
        yield "another queue than in dagster.yaml"
    if list(queue["pools"].values()) != list(INSTANCE["concurrency"]["pools"].values()):
        yield "other pools than in dagster.yaml"
    for ours, theirs in (("runRetries", "run_retries"), ("runMonitoring", "run_monitoring")):
        said = {
            re.sub("[A-Z]", lambda one: f"_{one.group().lower()}", key): value for key, value in daemon[ours].items()
        }
        if said != INSTANCE[theirs]:
            yield f"another {theirs} than in dagster.yaml"


def _manifest_findings(values: dict[str, Any], manifests: list[dict[str, Any]]) -> Iterator[str]:
    image = "{repository}:{tag}".format(**values["dagsterWebserver"]["image"])
    secrets = {one["name"] for one in values["dagsterDaemon"]["envSecrets"]}
    deployments = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "Deployment"}
    services = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "Service"}
    if set(deployments) != set(services):
        yield "a deployment has no service"
        return
    for name, spec in deployments.items():
        labels, [container] = spec["template"]["metadata"]["labels"], spec["template"]["spec"]["containers"]
        pod = spec["template"]["spec"]
        yield from _confined_pod(name, pod.get("securityContext", {}), container)
        if pod.get("volumes") != [{"name": "temporary", "emptyDir": {}}]:
            yield f"{name} has other volumes"
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        [port] = services[name]["ports"]
        if not labels == spec["selector"]["matchLabels"] == services[name]["selector"]:
            yield f"{name} selects others"
        if ports.get(port["targetPort"]) != port["port"] or str(port["port"]) not in container["command"]:
            yield f"{name} listens elsewhere"
        if container["image"] != image or {one["secretRef"]["name"] for one in container["envFrom"]} != secrets:
            yield f"{name} has another image or secret"
        yield from _parameters(container["env"])
        yield from _command(name, container["command"])
    remote = next(one["value"] for one in values["dagsterDaemon"]["env"] if one["name"] == "FOLDHOUSE_SPARK_REMOTE")
    host, _, number = remote.removeprefix("sc://").partition(":")
    if host not in services or services[host]["ports"][0]["port"] != int(number):
        yield f"{remote} is no service"


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
