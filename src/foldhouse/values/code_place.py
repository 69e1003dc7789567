"""The line of the user's code in which an error arose, for messages."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

_OURS = Path(__file__).parents[1]
_IMPORTING = Path(importlib.__file__).parent


def place_of(failure: BaseException) -> str:
    """Return the line of the user's code in which a failure arose, as ` (FILE, line N)`; empty if there is none.

    If the failure arose in a library, it is the line that called the library.
    """
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if _is_of_a_file(frame.filename)]
    own = [frame for frame in frames if "-packages" not in frame.filename] or frames
    if isinstance(failure, SyntaxError) or not own:  # its own message has the place
        return ""
    return f" ({own[-1].filename}, line {own[-1].lineno})"


def _is_of_a_file(name: str) -> bool:
    """Whether code is of a file that is neither of foldhouse nor of Python's own import."""
    return not name.startswith("<") and not {_OURS, _IMPORTING} & set(Path(name).parents)
