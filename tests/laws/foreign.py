"""Steps of a history: another tool changes how the stream is stored, but none of its events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from laws.batches import DAYS, EMPTY, random_batch
from laws.history import History
from laws.ledger import THEIRS, fields_of
from laws.tables import refresh
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import BucketTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.types import ListType, StringType

import foldhouse as fh

_SPECS: list[tuple[str, Transform[Any, Any]]] = [
    ("at", HourTransform()),
    ("k", IdentityTransform()),
    ("seq", BucketTransform(3)),
    ("word", IdentityTransform()),
]


def partition_the_stream(history: History) -> None:
    """Files of other partitions come between ours: read like any other, while ours are refused."""
    if history.head(history.stream.name) is None:
        return
    name, lake, chance = history.stream.name, history.lake, history.chance
    ours = [(field.name, field.source_id, field.transform) for field in lake.load(name).spec().fields]
    column, transform = chance.choice(_SPECS)
    history.tell(f"{transform} of {column}")
    with lake.load(name).update_spec() as spec:
        for field, _, _ in ours:
            spec.remove_field(field)
        spec.add_field(column, transform, f"spec_{len(lake.load(name).specs())}")
    for _ in range(chance.randint(0, 2)):
        _append(history)
    refresh(history)
    history.ledger.check_step()
    with pytest.raises(fh.DefinitionError, match="but stored partitioned by"):
        lake.append(history.stream, a_row(history))
    theirs, schema = lake.load(name).spec(), lake.load(name).schema()
    with lake.load(name).update_spec() as spec:
        for field in theirs.fields:
            spec.remove_field(field.name)
        for field, source_id, transform in ours:
            spec.add_field(schema.find_column_name(source_id) or "", transform, field)


def a_row(history: History) -> pa.Table:
    """At least one event."""
    batch = EMPTY
    while not batch.num_rows:
        batch = random_batch(history.chance, EMPTY)
    return batch


def store_the_stream_differently(history: History) -> None:
    """A sort order, properties, and the order of its columns; then the other tool appends."""
    if history.head(history.stream.name) is None:
        return
    iceberg, chance = history.lake.load(history.stream.name), history.chance
    with iceberg.update_sort_order() as order:
        order.desc(chance.choice(["k", "at", "seq"]), IdentityTransform(), chance.choice(list(NullOrder)))
    with history.lake.load(history.stream.name).transaction() as change:
        change.set_properties(
            {
                "write.parquet.compression-codec": chance.choice(["zstd", "gzip", "snappy"]),
                "write.parquet.row-group-limit": chance.choice(["1", "2", "1000"]),
                "commit.manifest-merge.enabled": chance.choice(["true", "false"]),
                "commit.manifest.min-count-to-merge": "2",
                "write.metadata.metrics.default": chance.choice(["none", "counts", "truncate(1)", "full"]),
            }
        )
    with history.lake.load(history.stream.name).update_schema() as update:
        update.move_before(*chance.sample(EMPTY.column_names, 2))
    _append(history)


def add_a_column_and_drop_it(history: History) -> None:
    """Some files have a column that the stream no longer has; nothing is folded from it."""
    if history.head(history.stream.name) is None or history.stream.event_id:
        return  # deliveries of an event are compared by all columns, so their tables would have to be rebuilt
    load = history.lake.load
    with load(history.stream.name).update_schema() as update:
        update.add_column(THEIRS, ListType(1, StringType(), element_required=False))
        update.move_first(THEIRS)
    rows = a_row(history)
    held, iceberg = history.held(), load(history.stream.name)
    theirs = pa.array([["x"]] * rows.num_rows, pa.list_(pa.string()))
    history.put(lambda: iceberg.append(rows.append_column(THEIRS, theirs)), pa.concat_tables([held, rows]))
    if history.chance.random() < 0.5:
        refresh(history)
    with load(history.stream.name).update_schema() as update:
        update.delete_column(THEIRS)


def add_a_file(history: History) -> None:
    """A file of one day comes as another tool wrote it: without field ids, its columns in an order of their own."""
    chance, lake, name = history.chance, history.lake, history.stream.name
    rows = random_batch(chance, EMPTY, chance.choice(DAYS))
    if history.head(name) is None or not history.is_by_day() or not rows.num_rows:
        return
    iceberg = lake.load(name)
    if iceberg.properties.get("write.metadata.metrics.default") in ("none", "counts"):
        return  # it would come into the partition of no day, and then no day can be replaced; see test_undated_files
    path = f"{iceberg.location()}/data/theirs-{iceberg.metadata.last_sequence_number}.parquet"
    with iceberg.io.new_output(path).create(overwrite=True) as file:
        columns = chance.sample(rows.column_names, len(rows.column_names))
        pq.write_table(rows.select(columns), file, row_group_size=chance.choice([1, 2, 1000]))
    history.put(lambda: iceberg.add_files([path]), pa.concat_tables([history.held(), rows]))


def move_fields(history: History) -> None:
    """The fields of a struct change places; a table that is ordered by them has to be rebuilt, any other goes on."""
    if history.head(history.stream.name) is None or history.has_spark:
        return  # `rows` hand on the struct, and their plans say its fields
    order = fields_of(history.lake.load(history.stream.name).schema())
    history.tell(f"{order[1]} before {order[0]}")
    with history.lake.load(history.stream.name).update_schema() as update:
        update.move_before(("box", order[1]), ("box", order[0]))
    for _ in range(history.chance.randint(0, 1)):
        _append(history)
    if history.chance.random() < 0.7:
        refresh(history)


def _append(history: History) -> None:
    rows, iceberg = a_row(history), history.lake.load(history.stream.name)
    history.put(lambda: iceberg.append(rows), pa.concat_tables([history.held(), rows]))
