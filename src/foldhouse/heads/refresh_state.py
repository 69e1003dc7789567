"""The refresh state of Iceberg's materialized views, by which other engines can see how fresh a table is.

The specification is not final. This module follows the draft of `format/view-spec.md` in pull request 11041 of
apache/iceberg as of the summer of 2026. If the draft changes, only this module must change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.table.snapshots import Snapshot

from foldhouse.values.window import Position

REFRESH_STATE = "refresh-state"
"""The key in the snapshot summary, according to the draft."""
_STARTED = "refresh-start-timestamp-ms"


def refresh_state(positions: Mapping[str, Position], definition_hash: str, started_ms: int) -> str:
    """Return the record of a refresh as JSON.

        {"view-version-id": 1518301952, "refresh-start-timestamp-ms": 1709539200000, "source-states":
         [{"type": "table", "namespace": ["shop"], "name": "orders", "uuid": "...", "snapshot-id":
         6148331192489823102}]}

    The draft's version of a view is a number that is only compared, so the first 31 bits of the definition's hash are
    used. A source without a snapshot is not listed, because the draft demands a snapshot id.

    Args:
        positions: per source, the position up to which the table is folded.
        definition_hash: of the definition, in hexadecimal digits.
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
        _STARTED: started_ms,
        "source-states": states,
    }
    return json.dumps(record, separators=(",", ":"))


def took_seconds(snapshot: Snapshot) -> float | None:
    """Return how long the refresh of a commit took; `None` if its summary does not have the beginning."""
    said = "" if snapshot.summary is None else snapshot.summary.additional_properties.get(REFRESH_STATE, "")
    try:
        started_ms = json.loads(said)[_STARTED]
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(started_ms, int):
        return None
    return max(0.0, (snapshot.timestamp_ms - started_ms) / 1000)
