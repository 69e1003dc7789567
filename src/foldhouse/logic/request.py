"""The request of a Connect client: the protobuf messages that it sends to the server for a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from foldhouse.logic.functions import words

LINEAR = words("""
    project filter subquery_alias to_df with_columns with_columns_renamed drop hint to_schema repartition
    repartition_by_expression sort fill_na drop_na replace set_op local_relation cached_local_relation
    chunked_cached_local_relation
""")
LEAVES = words("local_relation cached_local_relation chunked_cached_local_relation range")


def remote_plan(rows: DataFrame) -> Any:
    """Return the request that the client sends to the server for a DataFrame."""
    session: Any = rows.sparkSession
    asked: Any = rows
    return asked._plan.to_proto(session.client)


def of_relation(message: Any) -> Iterator[Any]:
    """Yield all messages in a protobuf message, without relations and what is in these."""
    for one in parts(message):
        if one.DESCRIPTOR.name != "Relation":
            yield one
            yield from of_relation(one)


def messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it."""
    yield message
    for one in parts(message):
        yield from messages(one)


def parts(message: Any) -> Iterator[Any]:
    """Yield the messages directly in a protobuf message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            yield from (one for one in value.values() if hasattr(one, "ListFields"))
        else:
            yield from value if field.is_repeated else [value]


def relations(plan: Any) -> Iterator[tuple[str, Any]]:
    """Yield the kind and the content of each relation."""
    for message in messages(plan):
        if message.DESCRIPTOR.name == "Relation":
            kind = message.WhichOneof("rel_type")
            yield kind, getattr(message, kind)


def is_source(relation: Any) -> bool:
    """Whether an alias is that of a source's frame."""
    return bool(relation.alias.startswith("__source_")) and relation.input.WhichOneof("rel_type") in LEAVES


def own_leaves(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield the kind and the content of each leaf that is not the frame of a source."""
    if message.DESCRIPTOR.name == "Relation":
        kind = message.WhichOneof("rel_type")
        relation = getattr(message, kind)
        if kind == "subquery_alias" and is_source(relation):
            return
        if kind in LEAVES:
            yield kind, relation
    for one in parts(message):
        yield from own_leaves(one)


def texts(message: Any) -> Iterator[tuple[str, str]]:
    """Yield every text in a message and the messages in it, each with the name of its field."""
    for field, value in message.ListFields():
        given = [*value.keys(), *value.values()] if hasattr(value, "items") else value if field.is_repeated else [value]
        for one in given:
            if isinstance(one, str):
                yield f"{message.DESCRIPTOR.name}.{field.name}", one
            elif hasattr(one, "ListFields"):
                yield from texts(one)
