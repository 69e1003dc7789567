"""The rules of `deploy/compose.yaml`, as functions of the loaded file: each finding is a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.unit.deployed import DEPLOY, KNOWN, SECRET, TEMPORARY, command_findings

_SERVICE = {"image", "build", "command", "restart", "environment", "volumes", "networks", "ports", "depends_on"}
_SERVICE |= {"healthcheck", "logging", "read_only", "cap_drop", "security_opt", "mem_limit"}
_REQUIRED = re.compile(r"\$\{([A-Z_0-9]+):\?\}")
_USED = re.compile(r"\$\{([A-Z_0-9]+)[:}]")


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
        yield from command_findings(name, service.get("command"))
        yield from _ports(name, service)
        yield from _environment(name, service.get("environment") or {}, services)
    used = set(_USED.findall(yaml.safe_dump(services)))
    if used - set(example):
        yield f"environment.example does not have {used - set(example)}"
    if set(example) - used:
        yield f"nothing uses {set(example) - used}"
    for name, value in example.items():
        if SECRET.search(name) and value:
            yield f"environment.example has a secret: {name}"


def _confined(name: str, service: dict[str, Any]) -> Iterator[str]:
    """Look at what a service may do. Postgres begins as root, with capabilities, and writes outside of its volume."""
    if not re.fullmatch("[0-9]+g", str(service.get("mem_limit"))):
        yield f"{name} can take all memory of the machine"
    if service.get("security_opt") != ["no-new-privileges:true"]:
        yield f"{name} can get privileges"
    if name != "postgres" and (service.get("read_only"), service.get("cap_drop")) != (True, ["ALL"]):
        yield f"{name} can write its root file system, or has capabilities"
    if name != "postgres" and TEMPORARY not in service["volumes"]:
        yield f"{name} can write nothing temporary"


def _volumes(name: str, service: dict[str, Any], compose: dict[str, Any]) -> Iterator[str]:
    for volume in service.get("volumes", []):
        if _REQUIRED.match(volume) or volume == TEMPORARY:  # a folder of the machine, which the environment names
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
        if SECRET.search(key) and not _REQUIRED.fullmatch(str(value)):
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
