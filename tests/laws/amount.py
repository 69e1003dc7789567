"""How many random histories the tests run: CI some, `make laws` more."""

from __future__ import annotations

import os

HISTORIES = int(os.environ.get("FOLDHOUSE_LAW_HISTORIES", "48"))
"""Histories of the law in memory. The other random tests run a share of them."""

IS_THOROUGH = HISTORIES >= 500
"""Whether a test leaves nothing out to save time."""
