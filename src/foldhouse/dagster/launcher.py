"""A run launcher that can say whether a run is still executed, so that run monitoring ends a run that is not.

Dagster's own launcher cannot: a run whose code server was killed stays STARTED, and keeps its slot and its pools.

| the code server of a run | the run |
|---|---|
| lists the run | goes on |
| does not list it, because it was started again since | failed, then retried as `run_retries` says |
| has ended: nobody listens at its socket any more | failed, then retried |
| there is none, and the process of `foldhouse backfill` was killed | failed |
| does not answer for `patience_seconds`, because it is slow or away | failed, then retried |
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import GetCurrentRunsResult
from dagster._serdes import ConfigurableClassData, deserialize_value

from foldhouse.dagster.living import has_died

_PATIENCE_SECONDS = 300
_CONNECTS_WITHIN_SECONDS = 5


class Launcher(dg.DefaultRunLauncher):
    """Dagster's `DefaultRunLauncher`, with the health of its runs, for `run_launcher` of `dagster.yaml`.

    Args:
        patience_seconds: how long a code server may be slow or away before its runs are failed.
        inst_data: how Dagster made it.
    """

    def __init__(
        self, patience_seconds: int = _PATIENCE_SECONDS, inst_data: ConfigurableClassData | None = None
    ) -> None:
        super().__init__(inst_data)
        self._patience_seconds = patience_seconds
        self._unreachable_since: dict[str, float] = {}

    @classmethod
    def config_type(cls) -> Any:
        """Return the fields of its `config`."""
        return {"patience_seconds": dg.Field(dg.IntSource, is_required=False, default_value=_PATIENCE_SECONDS)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Launcher:
        """Make it from its `config`."""
        return cls(inst_data=inst_data, **config_value)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether run monitoring asks it."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Ask the code server of a started run whether it executes the run."""
        told = run.tags.get(GRPC_INFO_TAG)
        if told is None:  # not started by a code server, such as by `foldhouse backfill`
            if has_died(Path(self._instance.root_directory), run.run_id):
                return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its process was killed; run the command again")
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        address: Mapping[str, Any] = json.loads(told)
        try:
            runs = _runs_at(address)
        except DagsterUserCodeUnreachableError:
            return self._unreachable(run.run_id, address)
        self._unreachable_since.pop(run.run_id, None)
        if run.run_id in runs:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server was started again, and does not know it")

    def _unreachable(self, run_id: str, address: Mapping[str, Any]) -> CheckRunHealthResult:
        since = self._unreachable_since.setdefault(run_id, time.monotonic())
        waited = time.monotonic() - since
        if waited < self._patience_seconds and not _has_ended(address):
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"its code server has not answered for {waited:.0f} s")
        del self._unreachable_since[run_id]
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server cannot be reached")


def _has_ended(address: Mapping[str, Any]) -> bool:
    """Whether a code server at a socket has ended: a slow one does not answer, but its socket accepts connections."""
    path = address.get("socket")
    if not path:  # at a port, somebody else may accept, or a network may be away
        return False
    with closing(socket.socket(socket.AF_UNIX)) as asked:
        asked.settimeout(_CONNECTS_WITHIN_SECONDS)
        try:
            asked.connect(str(path))
        except (BlockingIOError, TimeoutError):  # its queue is full
            return False
        except OSError:
            return True
    return False


def _runs_at(address: Mapping[str, Any]) -> list[str]:
    """Return the ids of the runs that a code server executes."""
    client = DagsterGrpcClient(
        port=address.get("port"),
        socket=address.get("socket"),
        host=address.get("host", "localhost"),
        use_ssl=bool(address.get("use_ssl")),
    )
    found = deserialize_value(client.get_current_runs(), GetCurrentRunsResult)
    return list(found.current_runs)
