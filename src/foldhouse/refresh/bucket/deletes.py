"""The newest delete that a table has folded, as text in its summaries; events of absent keys are compared with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from foldhouse.values.metadata_names import NEWEST_DELETE
from foldhouse.values.stored import said

Sequenced = Sequence[tuple[str, pa.DataType]]
"""Sequence column -> type, in order."""


def sequence_to_json(sequence: tuple[Any, ...] | None, types: Sequenced) -> str | None:
    """Write a sequence as a JSON list of texts: ISO 8601 for times, hexadecimal for bytes."""
    if sequence is None:
        return None
    return json.dumps([_text(value, kind) for value, (_, kind) in zip(sequence, types, strict=True)])


def sequence_from_json(text: str | None, types: Sequenced) -> tuple[Any, ...] | None:
    """Read the sequence in a summary, as `sequence_to_json` wrote it; see `sequence_of_text`.

    Raises:
        ForeignCommit: foldhouse cannot have written the text.
    """
    if text is None:
        return None
    with said(NEWEST_DELETE, text):
        return sequence_of_text(text, types)


def sequence_of_text(text: str, types: Sequenced) -> tuple[Any, ...]:
    """Read a sequence with the present types: a column may have been widened since the text was written.

    Raises:
        ValueError, TypeError: the text is not a sequence. Arrow's errors are subclasses of these.
    """
    return tuple(_value(part, kind) for part, (_, kind) in zip(json.loads(text), types, strict=True))


def newest(sequences: Iterable[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """Return the greatest sequence, with NaN above every number; `None` if there is no sequence."""
    given = [sequence for sequence in sequences if sequence is not None]
    # only NaN differs from itself, so the pair (is NaN, value) sorts it last
    return max(given, key=lambda sequence: [(value != value, value) for value in sequence], default=None)


def _text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(pa.scalar(value, kind).cast(pa.string()).as_py())


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes.fromhex(text)
    return pa.scalar(text).cast(kind).as_py()
