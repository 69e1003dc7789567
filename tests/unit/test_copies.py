"""Copies of a session with further settings."""

from __future__ import annotations

from typing import Any

import pytest

from foldhouse.spark import copies


class Session:
    """A session, and the JVM's object of it; its copies note what other threads could take while they are made."""

    def __init__(self) -> None:
        self._jsparkSession, self.settings = self, dict[str, str]()
        self.there: list[int] = []

    def cloneSession(self) -> Copy:  # noqa: N802  # as Spark calls it
        return Copy(self)


class Copy:
    def __init__(self, of: Session) -> None:
        self.of, self.given = of, dict[str, str]()

    def conf(self) -> Copy:
        return self

    def set(self, name: str, value: str) -> None:
        self.of.there.append(len(copies._COPIES[self.of][1]))  # type: ignore[index]
        self.given[name] = value


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(copies, "all_settings", lambda session: dict(session.settings))
    return Session()


def test_no_other_thread_can_take_a_copy_that_does_not_have_its_settings_yet(session: Any) -> None:
    made = copies.copy_of(session, {"a": "1", "b": "2"})
    assert made.given == {"a": "1", "b": "2"}
    assert session.there == [0, 0]


def test_a_copy_is_made_again_once_a_setting_changed(session: Any) -> None:
    made = copies.copy_of(session, {"a": "1"})
    assert copies.copy_of(session, {"a": "1"}) is made
    assert copies.copy_of(session, {"a": "2"}) is not made
    session.settings["x"] = "y"
    assert copies.copy_of(session, {"a": "1"}) is not made
