"""The bounds that manifests have for columns and partitions: bytes, which any tool may have written."""

from __future__ import annotations

import struct
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType


def bound_of(kind: PrimitiveType, stored: bytes | None) -> Any:
    """Return a bound as a value of its type; `None` if there is none, or its bytes are none of that type.

    A text may be cut within a character. The bound of a column may be that of a type that it had before.
    """
    if stored is None:
        return None
    try:
        return from_bytes(kind, stored)
    except (struct.error, ValueError):  # a UnicodeDecodeError is a ValueError
        return None
