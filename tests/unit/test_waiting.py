"""What a cluster session says while its jobs wait for executors; the objects stand in for those of Py4J."""

from __future__ import annotations

import logging
import types
from typing import Any

import pytest

from foldhouse.errors import CannotStart
from foldhouse.spark import process, waiting


class Context:
    """A Spark context whose jobs wait at the moments that are given; after the last one it is stopped."""

    def __init__(self, master: str, moments: list[tuple[int, int]], **settings: str) -> None:
        self.master, self.applicationId, self._moments = master, "spark-1", moments
        self._settings = {name.replace("_", "."): text for name, text in settings.items()}
        self._jsc = types.SimpleNamespace(sc=self._next)

    def getConf(self) -> Any:  # noqa: N802, as Spark calls it
        return self._settings

    def _next(self) -> Any:
        jobs, executors = self._moments.pop(0) if self._moments else (0, 0)
        return types.SimpleNamespace(
            isStopped=lambda: not self._moments,
            statusTracker=lambda: types.SimpleNamespace(getActiveJobIds=lambda: [0] * jobs),
            getExecutorMemoryStatus=lambda: types.SimpleNamespace(size=lambda: 1 + executors),
        )


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which ten seconds pass between two moments."""
    now = [0.0]
    monkeypatch.setattr(
        waiting, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: now.append(now.pop() + 10))
    )


def said(context: Context, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING, "foldhouse.spark"):
        waiting._warn(context)
    return [one.getMessage() for one in caplog.records]


def test_jobs_without_executors_are_named_after_30_60_and_120_seconds(caplog: pytest.LogCaptureFixture) -> None:
    found = said(Context("spark://host:7077", [(1, 0)] * 14), caplog)
    assert [text.partition("have waited for ")[2].partition(" s,")[0] for text in found] == ["30", "60", "120"]
    assert all("no executor at spark://host:7077" in text for text in found)


def test_a_session_that_works_or_has_nothing_to_do_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert said(Context("yarn", [(1, 2)] * 8 + [(0, 0)] * 8), caplog) == []


def test_the_time_counts_from_when_the_last_executor_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    assert said(Context("yarn", [(1, 0), (1, 0), (1, 1), (1, 0), (1, 0), (1, 0)]), caplog) == []


def test_on_kubernetes_the_pods_are_named_and_what_spark_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "last_warnings_of_its_log", lambda: "Failed to create executor pod 1")
    (text,) = said(Context("k8s://https://host", [(1, 0)] * 5, spark_kubernetes_namespace="lake"), caplog)
    assert "`kubectl describe pods --namespace lake --selector spark-app-selector=spark-1` says why" in text
    assert "Spark logged: Failed to create executor pod 1" in text


def test_executors_without_an_image_are_refused_on_kubernetes_alone() -> None:
    stopped = []
    given = lambda *a, **b: types.SimpleNamespace(sparkContext=Context(*a, [], **b), stop=lambda: stopped.append(a))  # noqa: E731
    with pytest.raises(CannotStart, match=r"no container image.*Set spark\.kubernetes\.container\.image"):
        waiting.refuse_no_image(given("k8s://https://host"))
    assert stopped == [("k8s://https://host",)]
    waiting.refuse_no_image(given("k8s://https://host", spark_kubernetes_container_image="a"))
    waiting.refuse_no_image(given("k8s://https://host", spark_kubernetes_executor_container_image="a"))
    waiting.refuse_no_image(given("yarn"))


def test_the_last_two_warnings_that_differ_are_shown_without_what_is_said_twice(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "folder_of_spark", lambda: tmp_path)
    assert process.last_warnings_of_its_log() == ""
    (tmp_path / "spark.log").write_text(
        "NOTE: Picked up JDK_JAVA_OPTIONS\n"
        "2026-11-26 22:10:15 WARN A: first\n"
        "2026-11-26 22:10:16 ERROR B: pods is forbidden Received status: Status(code=403)\n"
        "2026-11-26 22:10:20 WARN C: Max number of executor failures (4) reached \n"
        "2026-11-26 22:10:21 WARN C: Max number of executor failures (4) reached \n"
    )
    assert process.last_warnings_of_its_log() == "B: pods is forbidden | C: Max number of executor failures (4) reached"
    assert process.why_spark_stopped() == ""
    monkeypatch.setattr(process, "has_stopped_itself", lambda: True)
    assert "more than 4 executors failed" in process.why_spark_stopped()
