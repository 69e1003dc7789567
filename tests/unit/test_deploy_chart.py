"""`deploy/values.yaml` against what Dagster's Helm chart reads, in words of our own; the chart itself is not here.

The paths were read in the chart's public schema and templates of Dagster 1.13. Helm ignores a key that a chart does not
have, so a misspelt one would go unnoticed until its default does harm.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/values.yaml").read_text())
_CODE = "dagster-user-deployments.deployments[]"


def _under(place: str, **kinds: type) -> dict[str, type]:
    return {f"{place}.{key}": kind for key, kind in kinds.items()}


def _image(place: str) -> dict[str, type]:
    return _under(f"{place}.image", repository=str, tag=str, pullPolicy=str)


def _environment(place: str) -> dict[str, type]:
    return _under(f"{place}.env[]", name=str, value=str) | _under(f"{place}.envSecrets[]", name=str)


def _probe(place: str) -> dict[str, type]:
    asked = _under(f"{place}.httpGet", path=str, port=int) | _under(
        f"{place}.httpGet.httpHeaders[]", name=str, value=str
    )
    often = _under(place, periodSeconds=int, timeoutSeconds=int, successThreshold=int, failureThreshold=int)
    return asked | often


def _pod_security(place: str) -> dict[str, type]:
    kinds = _under(place, runAsNonRoot=bool, runAsUser=int, runAsGroup=int)
    return {**kinds, f"{place}.seccompProfile.type": str}


def _container_security(place: str) -> dict[str, type]:
    kinds = _under(place, allowPrivilegeEscalation=bool, readOnlyRootFilesystem=bool)
    return {**kinds, f"{place}.capabilities.drop[]": str}


def _confined(place: str) -> dict[str, type]:
    """What each of the chart's processes has: who it is, what it may use, and the one folder that it may write."""
    return {
        **_pod_security(f"{place}.podSecurityContext"),
        **_container_security(f"{place}.securityContext"),
        **_under(f"{place}.resources.requests", cpu=str, memory=str),
        f"{place}.resources.limits.memory": str,
        **_under(f"{place}.volumes[]", name=str, emptyDir=dict),
        **_under(f"{place}.volumeMounts[]", name=str, mountPath=str),
    }


_RUNS = "runLauncher.config.k8sRunLauncher"
CHART: dict[str, type] = {
    **_under("global", postgresqlSecretName=str, dagsterHome=str),
    "generatePostgresqlPasswordSecret": bool,
    "postgresql.enabled": bool,
    **_under("postgresql", postgresqlHost=str, postgresqlUsername=str, postgresqlDatabase=str, postgresqlScheme=str),
    "postgresql.service.port": int,
    **_under("dagsterWebserver", replicaCount=int, nameOverride=str),
    **_under("dagsterWebserver.service", type=str, port=int),
    **_image("dagsterWebserver"),
    **_probe("dagsterWebserver.readinessProbe"),
    **_probe("dagsterWebserver.livenessProbe"),
    **_probe("dagsterWebserver.startupProbe"),
    "dagsterWebserver.startupProbe.enabled": bool,
    "ingress.enabled": bool,
    "dagster-user-deployments.enabled": bool,
    **_under(_CODE, name=str, port=int),
    f"{_CODE}.dagsterApiGrpcArgs[]": str,
    f"{_CODE}.includeConfigInLaunchedRuns.enabled": bool,
    **_image(_CODE),
    **_environment(_CODE),
    **_confined("dagsterWebserver"),
    **_confined("dagsterDaemon"),
    **_confined(_CODE),
    **_container_security(f"{_RUNS}.securityContext"),
    **_pod_security(f"{_RUNS}.runK8sConfig.podSpecConfig.securityContext"),
    f"{_CODE}.volumes[].persistentVolumeClaim.claimName": str,
    f"{_CODE}.volumeMounts[].readOnly": bool,
    "runLauncher.type": str,
    f"{_RUNS}.imagePullPolicy": str,
    "dagsterDaemon.enabled": bool,
    **_image("dagsterDaemon"),
    **_environment("dagsterDaemon"),
    **_under("dagsterDaemon.runCoordinator", enabled=bool, type=str),
    **_under("dagsterDaemon.runRetries", enabled=bool, maxRetries=int, retryOnAssetOrOpFailure=bool),
    **_under("dagsterDaemon.runMonitoring", enabled=bool, pollIntervalSeconds=int, startTimeoutSeconds=int),
    **_under("dagsterDaemon.runMonitoring", cancelTimeoutSeconds=int, maxRuntimeSeconds=int),
    "concurrency.enabled": bool,
    **_under("concurrency.pools", defaultLimit=int, granularity=str),
    "concurrency.runs.maxConcurrentRuns": int,
    **_under("concurrency.runs.tagConcurrencyLimits[]", key=str, limit=int),
    "computeLogManager.type": str,
    "telemetry.enabled": bool,
}
"""What the chart reads of the values that the file sets: where, and as what."""


def _leaves(given: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(given, dict) and given:
        for key, value in given.items():
            yield from _leaves(value, f"{place}.{key}" if place else key)
    elif isinstance(given, list):
        for value in given:
            yield from _leaves(value, f"{place}[]")
    else:
        yield place, given


def chart_findings(values: dict[str, Any]) -> Iterator[str]:
    for place, value in _leaves(values):
        if place not in CHART:
            yield f"the chart reads nothing at {place}"
        elif type(value) is not CHART[place]:
            yield f"the chart reads {CHART[place].__name__} at {place}, and not {value!r}"


def test_the_chart_reads_every_value() -> None:
    assert list(chart_findings(VALUES)) == []
    assert set(CHART) == {place for place, _ in _leaves(VALUES)}  # no line of the table is left over


@pytest.mark.parametrize("place", sorted(CHART))
def test_a_misspelt_key_and_another_type_are_found(place: str) -> None:
    for change in ("key", "type"):
        broken = copy.deepcopy(VALUES)
        _break(broken, place.replace("[]", ".[]").split("."), change)
        assert list(chart_findings(broken)), change


def _break(given: Any, steps: list[str], change: str) -> None:
    """Break the first place of the file that has these steps; lists may have elements of several kinds."""
    step, *more = steps
    if isinstance(given, list):
        found = next(at for at, one in enumerate(given) if not more or _has(one, more))
        if more:
            _break(given[found], more, change)
        else:
            given[found] = 1.5 if change == "type" else {"misspelt": given[found]}
    elif more:
        _break(given[step], more, change)
    elif change == "type":
        given[step] = 1.5
    else:
        given[f"{step}s"] = given.pop(step)


def _has(given: Any, steps: list[str]) -> bool:
    if not steps:
        return True
    if isinstance(given, list):
        return any(_has(one, steps[1:]) for one in given)
    return steps[0] in given and _has(given[steps[0]], steps[1:])


def _job_of_a_run() -> dict[str, Any]:
    """Return the job that the chart's launcher makes of a run, from what the chart hands to the code server for it."""
    pytest.importorskip("dagster_k8s", reason="dagster-k8s is not installed; `pip install dagster-k8s`")
    from dagster_k8s.container_context import K8sContainerContext
    from dagster_k8s.job import DagsterK8sJobConfig, construct_dagster_k8s_job
    from kubernetes.client import ApiClient

    [code] = VALUES["dagster-user-deployments"]["deployments"]
    given = {
        "image_pull_policy": code["image"]["pullPolicy"],
        "env_secrets": [one["name"] for one in code["envSecrets"]],
        "env": code["env"],
        "volumes": code["volumes"],
        "volume_mounts": code["volumeMounts"],
        "resources": code["resources"],
    }
    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    given["security_context"] = launcher["securityContext"]
    given["run_k8s_config"] = {"pod_spec_config": launcher["runK8sConfig"]["podSpecConfig"]}
    context = K8sContainerContext.create_from_config({"k8s": given})
    config = DagsterK8sJobConfig(
        job_image="{repository}:{tag}".format(**code["image"]),
        dagster_home=VALUES["global"]["dagsterHome"],
        postgres_password_secret=VALUES["global"]["postgresqlSecretName"],
    )
    job = construct_dagster_k8s_job(config, ["x"], "run", user_defined_k8s_config=context.run_k8s_config)
    made: dict[str, Any] = ApiClient().sanitize_for_serialization(job)
    return made


def test_the_pod_of_a_run_has_the_landing_files_the_environment_and_the_secrets() -> None:
    pod = _job_of_a_run()["spec"]["template"]["spec"]
    [code], [container] = VALUES["dagster-user-deployments"]["deployments"], pod["containers"]
    assert pod["volumes"] == code["volumes"]
    assert container["volumeMounts"] == code["volumeMounts"]
    assert [one for one in container["env"] if one in code["env"]] == code["env"]
    assert {"secretRef": {"name": "foldhouse"}} in container["envFrom"]
    assert container["imagePullPolicy"] == "IfNotPresent"


def test_the_pod_of_a_run_is_confined_and_has_a_limit_of_memory_as_the_code_server_has() -> None:
    pod = _job_of_a_run()["spec"]["template"]["spec"]
    [code], [container] = VALUES["dagster-user-deployments"]["deployments"], pod["containers"]
    assert container["securityContext"] == code["securityContext"]
    assert pod["securityContext"] == code["podSecurityContext"]
    assert container["resources"] == code["resources"]
    assert container["resources"]["limits"]["memory"] == "4Gi"
