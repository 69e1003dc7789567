"""What Spark says when a job fails, as errors of our own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException

from foldhouse import errors

_OURS = re.compile(r"foldhouse\.errors\.(\w+): (.+)")


@contextlib.contextmanager
def in_our_words(name: str) -> Iterator[None]:
    """Raise what a Spark job fails with as an error of ours.

    Args:
        name: the table that is folded.

    Raises:
        FoldhouseError: the one a task raised.
        InvalidData: the rows cannot be computed: a cast that fails, a division by zero, an overflow.
    """
    try:
        yield
    except PySparkException as failure:
        said = str(failure)
        ours = _OURS.findall(said)
        if ours:
            kind, message = ours[-1]
            raise getattr(errors, kind, errors.FoldhouseError)(f"{name}: {message}") from failure
        condition = failure.getCondition() if hasattr(failure, "getCondition") else None
        first = (said.strip().splitlines() or ["no message"])[0]
        what = f"{condition}: {first}" if condition and condition not in first else first
        raise errors.InvalidData(
            f"{name}: Spark could not compute its rows: {what}. Nothing was written; correct the declaration, "
            "or the events it cannot take"
        ) from failure
