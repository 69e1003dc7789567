"""Keeps a long state of a sensor in Dagster's records, because Dagster stores the cursor again with each tick.

| the state | the cursor |
|---|---|
| up to 1,000 characters | is the state |
| longer | names one of two places in Dagster's records, and the digest of the state there |
| longer, and this Dagster keeps no records for sensors | is the state |
| longer, and somebody tries the sensor on the page | is the state: with any cursor, this changes no record |

A tick writes to the place that its cursor does not name. So if the tick fails afterwards, the next one finds the state
of the cursor that counts. A state that does not have the digest of the cursor is lost: somebody set an old cursor.
"""

import hashlib
import json
from typing import Protocol, cast

import dagster as dg

_LONGEST = 1_000
_MARK = "in records:"


class _Records(Protocol):
    """Dagster's store of keys and values, in which its own daemon keeps cursors."""

    def get_cursor_values(self, keys: set[str]) -> dict[str, str]: ...

    def set_cursor_values(self, pairs: dict[str, str]) -> None: ...


def texts_of(state: str | None) -> dict[str, str]:
    """Parse a state of texts by name; return none for a state that somebody damaged, so that the sensor starts over."""
    try:
        found = json.loads(state or "{}")
    except (ValueError, RecursionError):
        return {}
    is_known = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    return found if is_known else {}


def state_of(context: dg.SensorEvaluationContext) -> str | None:
    """Return the state that the last tick of a sensor left: `None` if there is none, or if it is lost."""
    cursor = context.cursor
    if cursor is None or not cursor.startswith(_MARK):
        return cursor
    place, _, digest = cursor.removeprefix(_MARK).partition(":")
    key = _key(context, place)
    records = _records(context)
    state = None if records is None else records.get_cursor_values({key}).get(key)
    if state is None or _digest(state) != digest:
        context.log.warning("the state of this sensor is lost, so it starts over; its cursor was %s", cursor)
        return None
    return state


def cursor_of(context: dg.SensorEvaluationContext, state: str) -> str:
    """Return the cursor with which the next tick finds a state."""
    records = _records(context) if len(state) > _LONGEST else None
    if records is None:
        return state
    last = context.cursor or ""
    if last.startswith(_MARK) and last.endswith(f":{_digest(state)}") and state_of(context) == state:
        return last
    if _is_tried(context):
        return state
    place = "2" if last.startswith(f"{_MARK}1:") else "1"
    try:
        records.set_cursor_values({_key(context, place): state})
    except NotImplementedError:
        return state
    return f"{_MARK}{place}:{_digest(state)}"


def _is_tried(context: dg.SensorEvaluationContext) -> bool:
    """Whether the page or the terminal evaluates the sensor: the daemon knows its last tick, or since when it is on.

    After `dagster sensor cursor`, the daemon knows neither for one tick, which then keeps its state in the cursor.
    """
    return context.last_tick_completion_time is None and context.last_sensor_start_time is None


def _records(context: dg.SensorEvaluationContext) -> _Records | None:
    try:
        return cast(_Records | None, context.instance.daemon_cursor_storage)
    except (dg.DagsterInvariantViolationError, NotImplementedError):  # a test's context without an instance
        return None


def _key(context: dg.SensorEvaluationContext, place: str) -> str:
    location = context.code_location_origin.location_name if context.code_location_origin else ""
    return f"foldhouse/sensor/{location}/{context.repository_name or ''}/{context.sensor_name}/{place}"


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()[:16]
