"""What Iceberg's materialized views are to say of a refresh, so that other engines can tell how fresh a table is.

The specification is not settled: this follows the draft of `format/view-spec.md` in pull request 11041 of
apache/iceberg as of the summer of 2026, and this is the one place that has to follow it on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from foldhouse.values.window import Position

REFRESH_STATE = "refresh-state"
"""The key in the snapshot summary, by the draft."""


def refresh_state(positions: Mapping[str, Position], definition_hash: str, started_ms: int) -> str:
    """The record of a refresh, as JSON.

        {"view-version-id": 1518301952, "refresh-start-timestamp-ms": 1709539200000, "source-states":
         [{"type": "table", "namespace": ["shop"], "name": "orders", "uuid": "...", "snapshot-id":
         6148331192489823102}]}

    A version of the definition is a number there, and only ever compared: these are the first 31 bits of our hash. A
    source that has no snapshot yet is left out, because the draft demands one.

    Args:
        positions: of each source, up to which the table is folded.
        definition_hash: of the declaration, in hexadecimal digits.
        started_ms: when the refresh began, in ms since 1970.
    """
    states = [
        {
            "type": "table",
            "namespace": name.split(".")[:-1],
            "name": name.rpartition(".")[2],
            "uuid": position.uuid,
            "snapshot-id": position.snapshot_id,
        }
        for name, position in positions.items()
        if position.snapshot_id is not None
    ]
    record = {
        "view-version-id": int(definition_hash[:8], 16) >> 1,
        "refresh-start-timestamp-ms": started_ms,
        "source-states": states,
    }
    return json.dumps(record, separators=(",", ":"))
