"""The rules of `deploy/values.yaml` and `deploy/kubernetes.yaml`, as functions of the loaded files."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

from tests.conftest import ROOT
from tests.unit.deployed import DEPLOY, INSTANCE, KNOWN, SECRET, TEMPORARY, command_findings


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
    if TEMPORARY not in {one["mountPath"] for one in given.get("volumeMounts", [])}:
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
        if SECRET.search(one["name"]) or "@" in one["value"]:
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
        yield from command_findings(name, container["command"])
    remote = next(one["value"] for one in values["dagsterDaemon"]["env"] if one["name"] == "FOLDHOUSE_SPARK_REMOTE")
    host, _, number = remote.removeprefix("sc://").partition(":")
    if host not in services or services[host]["ports"][0]["port"] != int(number):
        yield f"{remote} is no service"
