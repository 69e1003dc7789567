"""Kubernetes' own API server for a test, over etcd, on 127.0.0.1 alone. `nodes.py` stands in for its machines.

.venv/bin/python tests/kubernetes_server.py        builds both with Go (half an hour on two busy cores; the modules and
                                                   what Go compiles take 3 GB, the two programs 125 MB)
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from catalog_servers import HERE, JARS, Missing, free_port
from spark_servers import running

PINS = HERE / "kubernetes"
"""`go.mod` with the versions, and `go.sum` with the hashes of all modules."""
PROGRAMS = JARS.parent / "kubernetes"
_PACKAGES = {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}
_VERSIONS = {"kube-apiserver": "Kubernetes v1.35.4", "etcd": "etcd Version: 3.6.5"}
_STARTS_WITHIN_SECONDS = 180
_TOKEN_SECONDS = 7200
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class Refused(Exception):
    """An answer of the API server that is an error; `status` is that of HTTP."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


@dataclass(frozen=True)
class Kubernetes:
    """A running API server: its address, the file with its certificate, and the token of its administrator."""

    address: str
    authority: Path
    token: str

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request.

        Args:
            method: of HTTP; `PATCH` merges.
            path: such as `/api/v1/namespaces`.
            body: the object that is sent.

        Raises:
            Refused: the server refused the request.
        """
        host = self.address.removeprefix("https://")
        context = ssl.create_default_context(cafile=self.authority)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": _MERGE if method == "PATCH" else _JSON}
        with closing(http.client.HTTPSConnection(host, timeout=30, context=context)) as asked:
            asked.request(method, path, json.dumps(body or {}), headers)
            answer = asked.getresponse()
            said = answer.read().decode()
        if answer.status >= 300:
            raise Refused(answer.status, said)
        return json.loads(said) if said.startswith("{") else said

    def apply(self, manifests: Path, namespace: str) -> None:
        """Create the objects of a YAML file in a namespace."""
        for text in manifests.read_text().split("\n---\n"):
            made = yaml.safe_load(text)
            group = made["apiVersion"]
            path = f"/api/{group}" if group == "v1" else f"/apis/{group}"
            self.ask("POST", f"{path}/namespaces/{namespace}/{made['kind'].lower()}s", made)

    def token_of(self, account: str, namespace: str) -> str:
        """Return a token of a service account, as a pod of it has."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.ask("POST", path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})["status"]["token"]
        return token


@contextmanager
def kubernetes(folder: Path) -> Iterator[Kubernetes]:
    """Run an API server until the block ends; its data are in `folder`."""
    _check()
    folder.mkdir(parents=True)
    port, store, peers = free_port(), f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    etcd = [str(PROGRAMS / "etcd"), f"--data-dir={folder}/data", "--unsafe-no-fsync", f"--listen-client-urls={store}"]
    etcd += [f"--advertise-client-urls={store}", f"--listen-peer-urls={peers}"]
    etcd += [f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"]
    token, known = secrets.token_hex(), folder / "tokens.csv"
    known.touch(mode=0o600)
    known.write_text(f'{token},administrator,1,"system:masters"\n')
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    server = [str(PROGRAMS / "kube-apiserver"), f"--etcd-servers={store}", f"--cert-dir={folder}/certificates"]
    server += ["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"]
    server += ["--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"]
    server += ["--authorization-mode=RBAC", f"--token-auth-file={known}"]
    server += ["--service-account-issuer=https://kubernetes.test", f"--service-account-key-file={key}"]
    server += [f"--service-account-signing-key-file={key}"]
    with running(etcd, folder / "etcd", {}), running(server, folder / "server", {}) as process:
        made = Kubernetes(f"https://127.0.0.1:{port}", folder / "certificates" / "apiserver.crt", token)
        _wait(made, folder / "server" / "log", process)
        yield made


def _wait(server: Kubernetes, log: Path, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + _STARTS_WITHIN_SECONDS
    said: object = "nothing"
    while time.monotonic() < ends:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            said = server.ask("GET", "/readyz")
            return
        except (OSError, Refused) as failure:
            said = failure
        time.sleep(0.2)
    raise AssertionError(f"the API server is not ready: {said}; {log.read_text()[-3000:]}")


def _check() -> None:
    for name, version in _VERSIONS.items():
        if not (PROGRAMS / name).is_file():
            raise Missing(f"{name} is not here; `.venv/bin/python tests/kubernetes_server.py` builds it with Go")
        said = subprocess.run([PROGRAMS / name, "--version"], capture_output=True, text=True, check=True).stdout
        if said.splitlines()[0] != version:
            raise Missing(f"{PROGRAMS / name} is not {version}; delete it, and build it again")
    if shutil.which("openssl") is None:
        raise Missing("openssl is not installed; the API server of the tests needs a key")


def fetch() -> None:
    """Build the programs with Go, which compares the modules with their hashes in `go.sum`."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("Go is not installed; Kubernetes' API server is built with Go 1.25 or newer")
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={_VERSIONS['kube-apiserver'].split()[1]}"
    environment = {**os.environ, "CGO_ENABLED": "0"}
    for name, package in _PACKAGES.items():
        command = [go, "build", "-p", "2", "-buildvcs=false", "-trimpath", "-mod=readonly", "-ldflags", flags]
        subprocess.run([*command, "-o", str(PROGRAMS / name), package], cwd=PINS, env=environment, check=True)
    _check()


if __name__ == "__main__":
    try:
        fetch()
    except Missing as missing:
        raise SystemExit(str(missing)) from None
