"""The keys of a table that changed since a commit, or that events since then should have changed.

If a table was right at that commit, and these keys are right now, then the whole table is right now: the row of any
other key is the same as then, and so are the source rows that it is computed from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable

from foldhouse.heads.head import Head, head_at
from foldhouse.kernel.plan import polars_type
from foldhouse.logic.declaration import is_another_text
from foldhouse.reading.changelog import changes_between
from foldhouse.refresh.rows.evaluate import evaluated_here
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.sources import PinnedSource
from foldhouse.refresh.work import evaluations_of
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.live import live_of
from foldhouse.values.deliveries import are_others
from foldhouse.values.window import Coverage, Position


def keys_since(
    logic: Logic, iceberg: IcebergTable, sources: Sequence[IcebergTable], since: int, upto: int
) -> pa.Table | None:
    """Return the keys whose rows, or whose source rows, differ between two commits of a table.

    Args:
        logic: of the table, with the columns that its sources have now.
        iceberg: the table.
        sources: in the order of the declaration.
        since: a commit.
        upto: a later commit.

    Returns:
        Each key once; `None` if the keys are unknown, because the table was folded under another declaration then, or
        its position of then is no longer in the history of a source. Any key may then have changed.
    """
    before, after = head_at(iceberg, since), head_at(iceberg, upto)
    if not _continues(before, after) or not _are_kept(sources, before.positions):
        return None
    stored = changes_between(iceberg, since, upto, net=True)
    names, kinds = logic.plan.key_names, {name: polars_type(kind) for name, kind in logic.plan.keys}
    keys = [_frame(stored.select(names), kinds), _frame(_computed(logic, sources, before, after), kinds)]
    return pl.concat(keys).unique().to_arrow()


def _continues(before: Head, after: Head) -> bool:
    """Whether two commits are folds of the same sources, under the same declaration."""
    is_same = before.definition_hash == after.definition_hash
    is_declared = bool(before.declaration) and before.declaration == after.declaration
    uuids = [{name: one.uuid for name, one in head.positions.items()} for head in (before, after)]
    shrank = not before.coverage.is_everything and after.coverage.is_everything
    is_other = (before.is_doubtful or after.is_doubtful) and is_another_text(before.declaration, after.declaration)
    is_same = (is_same or is_declared) and not is_other and not are_others(before.deliveries, after.deliveries)
    return before.is_folded and is_same and uuids[0] == uuids[1] and not shrank


def _are_kept(sources: Sequence[IcebergTable], positions: Mapping[str, Position]) -> bool:
    at = [(source, positions.get(".".join(source.name()))) for source in sources]
    return all(
        one is not None and (one.snapshot_id is None or snapshot_of(source, one.snapshot_id) is not None)
        for source, one in at
    )


def _computed(logic: Logic, sources: Sequence[IcebergTable], before: Head, after: Head) -> pa.Table:
    """Return the keys of the signed rows between two commits, of the days covered then and of those added since."""
    pinned = [
        PinnedSource(name, source, layout, live_of(source, after.positions[name].snapshot_id), after.positions[name])
        for source, layout in zip(sources, logic.layouts, strict=True)
        for name in [".".join(source.name())]
    ]
    then = [before.positions[one.name] for one in pinned]
    is_everything = before.coverage.is_everything or after.coverage.is_everything
    added = Coverage() if is_everything else after.coverage.minus(before.coverage)
    evaluations = evaluations_of(logic, pinned, before, then, added)
    return evaluated_here(logic, evaluations).select(logic.plan.key_names).unique().to_arrow()


def _frame(keys: pa.Table, kinds: Mapping[str, pl.DataType]) -> pl.DataFrame:
    frame = pl.from_arrow(keys)
    assert isinstance(frame, pl.DataFrame)
    return frame.cast(dict(kinds))  # type: ignore[arg-type]
