"""Which deliveries of a stream are one event, and which of them counts: the part of a definition that streams declare.

event_id="payment_id", sequence_by="version"   -> {"shop.payments": {"event_id": ["payment_id"], "by": ["version"]}}
no event_id                                    -> {}
"""

from __future__ import annotations

import json

from foldhouse.values.definition import Stream, Table


def deciding(stream: Stream) -> tuple[str, ...]:
    """Return the declared columns by which a delivery is the last one of its event, most significant first."""
    return stream.sequence_by or ((stream.event_time,) if stream.event_time else ())


def deliveries_of(table: Table) -> str:
    """Return the text to store with a commit of a table."""
    streams = [one for one in table.sources if isinstance(one, Stream) and one.event_id]
    found = {one.name: {"event_id": sorted(one.event_id), "by": deciding(one)} for one in streams}
    return json.dumps(found, sort_keys=True)


def are_others(stored: str | None, declared: str | None) -> bool:
    """Whether two commits count other deliveries; false if a commit of an earlier release does not say."""
    return None not in (stored, declared) and stored != declared


def changed(stored: str, table: Table) -> str:
    """Return in words how the stored text of a table differs from its declaration."""
    before, after = _in_words(stored), _in_words(deliveries_of(table))
    names = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    none = "no event_id"
    return "; ".join(f"deliveries of {name}: {before.get(name, none)} -> {after.get(name, none)}" for name in names)


def _in_words(text: str) -> dict[str, str]:
    """Return stream -> which deliveries are one event; without those that cannot be read."""
    try:
        held = json.loads(text)
        return {str(name): _words(one["event_id"], one["by"]) for name, one in held.items()}
    except (ValueError, AttributeError, KeyError, TypeError):
        return {}


def _words(event_id: list[str], by: list[str]) -> str:
    last = f", the last by {', '.join(map(str, by))}" if by else ""
    return f"event_id {', '.join(map(str, event_id))}{last}"
