"""The page's GraphQL API, as the page itself asks it: launch days, see the runs, see the processes."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

_LOCATION = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename }
  } } } }"""
_LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_RUNS = """query($tags: [ExecutionTag!]) { runsOrError(filter: {tags: $tags}) { ... on Runs { results {
  runId status tags { key value } } } } }"""
_RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { runId status tags { key value } } } }"
_LOGS = """query($id: ID!) { logsForRun(runId: $id, limit: 1000) { ... on EventConnection { events {
  __typename ... on MessageEvent { message } } } } }"""
_STATUSES = "{ runsOrError { ... on Runs { results { runId status } } } }"
ENDED = ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True)
class Run:
    """A run as the page lists it."""

    id: str
    status: str
    tags: dict[str, str]

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and Dagster does not start it again; a failed run is tagged a moment later."""
        is_tagged = self.tags.get("dagster/will_retry") == "false"
        return self.status in ENDED and (self.status != "FAILURE" or is_tagged)


class Page:
    """The web server on a port of 127.0.0.1.

    Args:
        port: of the web server.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the data of a query.

        Raises:
            OSError: the web server cannot be reached, or answers something else.
        """
        host = f"127.0.0.1:{self.port}"
        headers = {"Content-Type": "application/json", "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", "/graphql", json.dumps({"query": query, "variables": variables}), headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (http.client.HTTPException, ValueError) as failure:
            raise ConnectionError(f"no answer of the page: {failure}") from failure
        finally:
            connection.close()
        if said.get("errors") or not said.get("data"):
            raise ConnectionError(f"the page answered {str(said)[:2000]}")
        return said["data"]

    def is_loaded(self) -> bool:
        """Whether the page shows the code location."""
        try:
            entries = self.ask(_LOCATION)["workspaceOrError"]["locationEntries"]
        except OSError:
            return False
        loaded = [one["locationOrLoadError"] or {} for one in entries]
        return [one.get("__typename") for one in loaded] == ["RepositoryLocation"]

    def launch(self, job: str, first: date, last: date) -> str:
        """Launch a range of days of a job in one run, and return the run's id."""
        selector = {
            "repositoryLocationName": "foldhouse",
            "repositoryName": "__repository__",
            "jobName": job,
        }
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        metadata = {"tags": [{"key": key, "value": str(value)} for key, value in tags.items()]}
        params = {"selector": selector, "executionMetadata": metadata, "mode": "default"}
        launched = self.ask(_LAUNCH, params=params)["launchRun"]
        if launched["__typename"] != "LaunchRunSuccess":
            raise ConnectionError(f"the page did not launch {job}: {launched}")
        return str(launched["run"]["runId"])

    def attempts(self, root: str) -> list[Run]:
        """Return a run and what was started again of it, the newest first."""
        again = self.ask(_RUNS, tags=[{"key": "dagster/root_run_id", "value": root}])["runsOrError"]["results"]
        first = self.ask(_RUN, id=root)["runOrError"]
        return [_run(one) for one in (*(one for one in again if one["runId"] != root), first)]

    def statuses(self) -> list[str]:
        """Return the statuses of all runs."""
        return [one["status"] for one in self.ask(_STATUSES)["runsOrError"]["results"]]

    def runs(self) -> list[Run]:
        """Return all runs, the newest first."""
        ids = [one["runId"] for one in self.ask(_STATUSES)["runsOrError"]["results"]]
        return [_run(self.ask(_RUN, id=one)["runOrError"]) for one in ids]

    def events(self, run_id: str) -> Sequence[dict[str, str]]:
        """Return the first events of a run."""
        found: Sequence[dict[str, str]] = self.ask(_LOGS, id=run_id)["logsForRun"]["events"]
        return found

    def worker(self, run_id: str) -> int | None:
        """Return the id of the process of a run, as the run itself reported it."""
        for event in self.events(run_id):
            if found := re.search(r"pid:? (\d+)", event.get("message", "")):
                return int(found.group(1))
        return None


def _run(told: dict[str, Any]) -> Run:
    return Run(told["runId"], told["status"], {tag["key"]: tag["value"] for tag in told["tags"]})
