"""A stream and a chain of three tables, as `foldhouse follow --declared-in benchmarks.followed` keeps it up to date."""

from __future__ import annotations

import foldhouse as fh

EVENTS = fh.stream("followed.events", schema={"sensor": "long", "room": "long", "floor": "long", "value": "long"})
BY_SENSOR = fh.table(
    "followed.by_sensor",
    source=EVENTS,
    keys=["sensor", "room", "floor"],
    fold=fh.fold(events=fh.count(), value=fh.total("value"), largest=fh.maximum("value")),
)
BY_ROOM = fh.table(
    "followed.by_room",
    source=BY_SENSOR,
    keys=["room", "floor"],
    fold=fh.fold(events=fh.total("events"), value=fh.total("value")),
)
BY_FLOOR = fh.table(
    "followed.by_floor",
    source=BY_ROOM,
    keys="floor",
    fold=fh.fold(events=fh.total("events"), value=fh.total("value")),
)
CHAIN = (BY_SENSOR, BY_ROOM, BY_FLOOR)
