"""Removes secrets from the errors that leave a call of a lake or a task of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from foldhouse.errors import FoldhouseError, StorageError
from foldhouse.storage.credentials import held_secrets
from foldhouse.storage.secrets import cut, without_secrets

T = TypeVar("T")
AGAIN = "A commit is whole or absent: run it again; a commit that landed is not repeated"


def hiding_secrets(configuration: Mapping[str, Any], call: Callable[[], T]) -> T:
    """Call a function, and remove secrets from the errors that it raises: of a configuration, and those held in memory.

    An error that contains a secret, or whose cause does, loses its cause, because a traceback prints it. If it is of
    another library, it becomes a `StorageError`.
    """
    try:
        return call()
    except Exception as failure:
        secret = {**configuration, "held": held_secrets()}
        said = [_shown(failure), *map(_shown, _behind(failure))]
        if all(without_secrets(one, secret) == one for one in said):
            raise
        hidden = _hidden(failure, secret)
    raise hidden  # neither within `except` nor by a context manager, which make what was raised its context


def _hidden(failure: Exception, secret: Mapping[str, Any]) -> FoldhouseError:
    """Return an error without any cause, and without some secrets."""
    if not isinstance(failure, FoldhouseError):
        said = f"{type(failure).__name__}: {cut(str(failure))}"
        return StorageError(without_secrets(f"the catalog or the store failed: {said}. {AGAIN}", secret))
    failure.args = tuple(without_secrets(str(one), secret) for one in failure.args)
    if hasattr(failure, "__notes__"):
        failure.__notes__ = [without_secrets(str(one), secret) for one in failure.__notes__]
    failure.__cause__ = failure.__context__ = None
    return failure


def _shown(failure: BaseException) -> str:
    """Return every text of an error that a traceback or a log may print."""
    try:
        return "\n".join([str(failure), repr(failure), *map(str, getattr(failure, "__notes__", ()))])
    except ConnectionError:  # Py4J asks Java for the text, and Java has ended
        return type(failure).__name__


def _behind(failure: BaseException) -> Iterator[BaseException]:
    """Yield the errors that led to an error, each once: an error can be among its own causes."""
    seen = {id(failure)}
    waiting = [failure.__cause__, failure.__context__]
    while waiting:
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += [found.__cause__, found.__context__]
