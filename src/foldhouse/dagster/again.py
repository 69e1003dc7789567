"""Steps that could not reach the lake are tried again, where a deployment asks for that.

| a step fails because | with FOLDHOUSE_RETRIES=3 |
|---|---|
| the catalog, the store or Spark cannot be used, or another writer was faster | tried again after 10, 20 and 40 s |
| of anything else: a check, a declaration, a file | failed at once, because it would fail again |

Without the variable, a step fails at once: somebody at a terminal should not wait for a minute.

A step that fails says the message of the error first. Of an error that it does not know, Dagster shows its own stack
trace, and the message below it, where the page cuts it off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import dagster as dg

from foldhouse.errors import CannotStart, CommitConflict, ConfigurationError, FoldhouseError, SparkLost, StorageError
from foldhouse.storage.log import failed

RETRIES = "FOLDHOUSE_RETRIES"
_FIRST_WAIT_SECONDS = 10
_WITH_RUN = (dg.OpExecutionContext, dg.AssetCheckExecutionContext)
P = ParamSpec("P")
T = TypeVar("T")
_AGAIN = (CannotStart, CommitConflict, SparkLost, StorageError)  # CannotStart: of a Connect server that is away


@contextmanager
def trying_again(context: dg.OpExecutionContext | dg.AssetExecutionContext, name: str) -> Iterator[None]:
    """Ask Dagster to try the step again if the lake cannot be used now. What was committed is not repeated.

    Args:
        context: of the step.
        name: of the table or stream, for the log.
    """
    try:
        yield
    except FoldhouseError as failure:
        failed("step", failure, table=name, run_id=context.run.run_id)
        most = _retries() if isinstance(failure, _AGAIN) else 0
        if not most:
            raise dg.Failure(description=str(failure)) from failure
        wait = _FIRST_WAIT_SECONDS * 2**context.retry_number
        raise dg.RetryRequested(max_retries=most, seconds_to_wait=wait) from failure


def in_words(body: Callable[P, T]) -> Callable[P, T]:
    """Have a step that fails with an error of ours log it, and say its message first."""

    @wraps(body)
    def said(*given: P.args, **named: P.kwargs) -> T:
        try:
            return body(*given, **named)
        except FoldhouseError as failure:
            run = next((one.run for one in given if isinstance(one, _WITH_RUN)), None)
            failed("step", failure, run_id=None if run is None else run.run_id)
            raise dg.Failure(description=str(failure)) from failure

    return said


def _retries() -> int:
    text = os.environ.get(RETRIES, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise ConfigurationError(f"{RETRIES} is {text!r}; set it to a whole number, such as 3")
    return int(text)
