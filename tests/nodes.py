"""A stand-in for the machines of a Kubernetes cluster: it runs the containers of pods as processes of this machine.

It does the work of the scheduler, of the kubelet and of the entry point of Spark's image, as far as Spark's executors
need it. It binds a pod to a node, runs the command of its container with the variables and config maps of the pod in a
folder of its own, and reports its status. Nothing is isolated: no image, user, limit or network. A pod ends with its
process, and the process with its pod.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from killing import kill
from kubernetes_server import Kubernetes, Refused
from spark_servers import below

from foldhouse.spark.class_archive import archive_options

IMAGE = "registry.test/spark-executors:1"
"""Spark's image, with the Python of the tests; `Nodes.images` are those that can be pulled."""
_SPARK = Path(pyspark.__file__).parent
_TURN_SECONDS = 0.2
_ADDRESS = "127.0.0.1"


@dataclass
class _Running:
    """A container that was started: its process, and when it is killed after it was asked to end."""

    process: subprocess.Popen[bytes]
    killed_at: float = 0

    def signal(self, number: int) -> None:
        for one in [self.process.pid, *below(self.process.pid)]:
            if number == signal.SIGKILL:
                kill(one)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)


class Nodes(threading.Thread):
    """Runs the pods of a namespace until it is stopped.

    Args:
        server: the API server.
        namespace: whose pods are run.
        folder: for the folders of the pods.
    """

    def __init__(self, server: Kubernetes, namespace: str, folder: Path) -> None:
        super().__init__(daemon=True)
        self._server, self._folder, self._ended = server, folder, threading.Event()
        self._here = f"/api/v1/namespaces/{namespace}"
        self._containers: dict[str, _Running] = {}
        self.images = {IMAGE}
        self.failed: list[BaseException] = []
        self.started = 0

    def __enter__(self) -> Nodes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        for one in self._containers.values():
            one.signal(signal.SIGKILL)
            one.process.wait()

    def processes(self) -> list[int]:
        """Return the processes of the containers that run; an executor is below each."""
        return [one.process.pid for one in list(self._containers.values()) if one.process.poll() is None]

    def run(self) -> None:
        try:
            while not self._ended.wait(_TURN_SECONDS):
                self._turn()
        except BaseException as failure:
            self.failed.append(failure)

    def _turn(self) -> None:
        pods = {one["metadata"]["uid"]: one for one in self._server.ask("GET", f"{self._here}/pods")["items"]}
        for uid in [one for one in self._containers if one not in pods]:  # deleted without a time to end
            gone = self._containers.pop(uid)
            gone.signal(signal.SIGKILL)
            gone.process.wait()
        for uid, pod in pods.items():
            try:
                self._attend(uid, pod)
            except Refused as failure:
                if failure.status not in (404, 409):  # it was deleted or changed meanwhile
                    raise

    def _attend(self, uid: str, pod: dict[str, Any]) -> None:
        name, running = pod["metadata"]["name"], self._containers.get(uid)
        if "nodeName" not in pod["spec"]:
            node = {"apiVersion": "v1", "kind": "Node", "name": "node"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": node}
            self._server.ask("POST", f"{self._here}/pods/{name}/binding", binding)
        elif "deletionTimestamp" in pod["metadata"]:
            self._end(uid, pod, running)
        elif pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        elif running is None:
            self._begin(uid, pod)
        elif running.process.poll() is not None:
            code = running.process.returncode
            ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
            self._report(pod, "Failed" if code else "Succeeded", ended)

    def _end(self, uid: str, pod: dict[str, Any], running: _Running | None) -> None:
        if running is not None and running.process.poll() is None:
            if not running.killed_at:
                running.killed_at = time.monotonic() + pod["metadata"]["deletionGracePeriodSeconds"]
                running.signal(signal.SIGTERM)
            elif time.monotonic() > running.killed_at:
                running.signal(signal.SIGKILL)
            return
        self._containers.pop(uid, None)
        self._server.ask("DELETE", f"{self._here}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def _begin(self, uid: str, pod: dict[str, Any]) -> None:
        image = pod["spec"]["containers"][0]["image"]
        if image not in self.images:
            pull = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
            if not pod["status"].get("containerStatuses"):
                self._report(pod, "Pending", {"waiting": pull})
            return
        folder = self._folder / f"{pod['metadata']['name']}-{uid[:8]}"
        folder.mkdir(parents=True)
        command, environment = entry_point(*self._container(pod, folder))
        # As in the image, the first process of the container is not the executor.
        wrapped = ["sh", "-c", '"$@"; exit $?', "tini", *command]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                wrapped, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._containers[uid] = _Running(process)
        self.started += 1
        self._report(pod, "Running", {"running": {"startedAt": _now()}})

    def _container(self, pod: dict[str, Any], folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and variables of a container, with its volumes in the folder."""
        given = pod["spec"]["containers"][0]
        volumes = {one["name"]: one for one in pod["spec"].get("volumes", [])}
        places: dict[str, str] = {}
        for mount in given.get("volumeMounts", []):
            place = folder / "volumes" / mount["name"]
            place.mkdir(parents=True)
            places[mount["mountPath"]] = str(place)
            if "configMap" in volumes[mount["name"]]:
                self._write(volumes[mount["name"]]["configMap"], place)
        environment = {one["name"]: self._value(one, pod) for one in given.get("env", [])}
        return given["args"], {name: places.get(text, text) for name, text in environment.items()}

    def _write(self, volume: dict[str, Any], folder: Path) -> None:
        held = self._server.ask("GET", f"{self._here}/configmaps/{volume['name']}").get("data", {})
        items = volume.get("items") or [{"key": one, "path": one} for one in held]
        for item in items:
            (folder / item["path"]).write_text(held[item["key"]])

    def _value(self, variable: dict[str, Any], pod: dict[str, Any]) -> str:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            known = {"status.podIP": _ADDRESS, "metadata.name": pod["metadata"]["name"]}
            return known[source["fieldRef"]["fieldPath"]]
        if "secretKeyRef" in source:
            asked = source["secretKeyRef"]
            held = self._server.ask("GET", f"{self._here}/secrets/{asked['name']}")["data"]
            return base64.b64decode(held[asked["key"]]).decode()
        return variable.get("value", "")

    def _report(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        given = pod["spec"]["containers"][0]
        container = {"name": given["name"], "image": given["image"], "imageID": "", "restartCount": 0}
        container |= {"ready": phase == "Running", "state": state}
        status = {"phase": phase, "containerStatuses": [container], "startTime": pod["status"].get("startTime", _now())}
        if phase != "Pending":
            status |= {"hostIP": _ADDRESS, "podIP": _ADDRESS, "podIPs": [{"ip": _ADDRESS}]}
        path = f"{self._here}/pods/{pod['metadata']['name']}/status"
        self._server.ask("PATCH", path, {"status": status})


def entry_point(arguments: list[str], given: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return what `entrypoint.sh` of Spark's image runs for an executor, and its variables.

    The variables are those of the image and of the pod, and none of this process.
    """
    assert arguments == ["executor"], arguments
    java = shutil.which("java")
    assert java is not None
    of_image = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "SPARK_HOME": str(_SPARK)}
    of_image["JDK_JAVA_OPTIONS"] = " ".join([os.environ.get("JDK_JAVA_OPTIONS", ""), *archive_options()])
    variables = {**of_image, **given}
    options = sorted((int(name.rpartition("_")[2]), name) for name in given if name.startswith("SPARK_JAVA_OPT_"))
    memory = given["SPARK_EXECUTOR_MEMORY"]
    command = [java, *(given[name] for _, name in options), f"-Xms{memory}", f"-Xmx{memory}"]
    command += ["-cp", f"{given['SPARK_CONF_DIR']}:{_SPARK}/jars/*"]
    command += ["org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"]
    for option, name in (
        ("--driver-url", "SPARK_DRIVER_URL"),
        ("--executor-id", "SPARK_EXECUTOR_ID"),
        ("--cores", "SPARK_EXECUTOR_CORES"),
        ("--app-id", "SPARK_APPLICATION_ID"),
        ("--hostname", "SPARK_EXECUTOR_POD_IP"),
        ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
        ("--podName", "SPARK_EXECUTOR_POD_NAME"),
    ):
        command += [option, given[name]]
    return command, variables


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
