"""How tables are, and what a command would do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from pyiceberg.table import Table as IcebergTable

from foldhouse.calls.arguments import told
from foldhouse.heads.head import head_in, is_ours
from foldhouse.heads.row_count import row_count
from foldhouse.health.status import Statuses
from foldhouse.lake.as_of import AsOf, in_history
from foldhouse.lake.opened import OpenLake
from foldhouse.reading.changelog import changes_between
from foldhouse.refresh.plan import plan
from foldhouse.refresh.restate import plan_restate
from foldhouse.storage.clock import clock_ms
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.schema import Layout
from foldhouse.values.change import CHANGE_TYPE, DELETE, INSERT, UPDATE_AFTER
from foldhouse.values.definition import Source, Table
from foldhouse.values.plans import Planned, PlannedRestate, PlannedRollback
from foldhouse.values.proofs import SourceLag
from foldhouse.values.readable import html_table
from foldhouse.values.status import TableStatus
from foldhouse.values.window import Coverage


class Looking(OpenLake):
    """The methods of a lake that look at metadata before anything is done."""

    def _repr_html_(self) -> str:
        rows = ((one.table, one.kind, one.health, "" if one.rows is None else f"{one.rows:,}") for one in self.status())
        return html_table(repr(self), [("table", "kind", "health", "rows"), *rows])

    @told
    def lag(self, table: Source | str) -> tuple[SourceLag, ...]:
        """Return how far a table is behind each of its sources, and these behind theirs; empty for a stream.

        Raises:
            UnknownTable: no table has that name.
        """
        return self._lags().sources(".".join(self.load(table).name()))

    @told
    def lags(self) -> dict[str, tuple[SourceLag, ...]]:
        """Return the lag of every table and stream of the lake, by name; each history is read once."""
        lags = self._lags()
        return {name: lags.sources(name) for name in self.tables()}

    @told
    def status(self, names: Iterable[str] = ()) -> tuple[TableStatus, ...]:
        """Return the state of tables and streams: head, lag, checks, upkeep, health, and what to do about each.

        Only metadata is read. A table that cannot be read is `unreadable`, and does not hide the others.

        Args:
            names: the tables; by default all of the lake.

        Raises:
            UnknownTable: the lake has no table of one of the names.
        """
        every = self.tables()
        chosen = tuple(dict.fromkeys(names)) or tuple(every)
        for name in chosen:
            if name not in every:
                self.load(name)  # raises, with the names there are
        return Statuses(self.load, every, self.tuning, clock_ms()).of(chosen)

    @told
    def consumers(self, table: Source | str) -> list[str]:
        """Return the tables that are folded from a table or stream, directly or through others; the nearest first."""
        sources = {name: {one.name for one in lag} for name, lag in self.lags().items()}
        found = [table if isinstance(table, str) else table.name]
        for name in found:
            found += [one for one, above in sorted(sources.items()) if name in above and one not in found]
        return found[1:]

    @told
    def computed_from(self, table: Table | str) -> dict[str, tuple[tuple[str, str], ...]]:
        """Return the source columns from which the values of each published column are computed, as declared.

            lake.computed_from(revenue)["amount"]   -> (("shop.orders", "price"), ("shop.orders", "quantity"))

        They are read from Spark's plan of the logic. Columns that only decide which rows count, in filters, conditions
        of joins and `sequence_by`, are not among them. A column is left out if the plan below it is not understood.

        Raises:
            UnknownTable: a source does not exist yet.
        """
        declared = self._declaration(table)
        compiled = self._compile(declared, [Layout.of_head(self.load(one)) for one in declared.sources])
        names = [one.name for one in declared.sources]
        return {name: tuple((names[place], one) for place, one in of) for name, of in compiled.computed_from.items()}

    @told
    def plan(self, table: Table | str, partitions: Iterable[date] = ()) -> Planned:
        """Return what a refresh, or a backfill of some days, would read, and where it would run. Nothing is changed.

        Args:
            table: the declaration, or its name; see `refresh`.
            partitions: the days that must exist afterwards.

        Raises:
            UnknownTable, DefinitionChanged, SourceReplaced, ForeignCommit: as `refresh` would.
        """
        asked = Coverage.of(partitions)
        declared = self._declaration(table)
        return replace(plan(self._workshop, declared, asked or None), consumers=tuple(self.consumers(declared)))

    @told
    def plan_restate(self, table: Table | str, partitions: Iterable[date]) -> PlannedRestate:
        """Return what `restate` would read and replace, and the tables downstream. Nothing is changed.

        Args:
            table: the declaration, or its name; see `refresh`.
            partitions: the days.

        Raises:
            UnknownTable, DefinitionError, DefinitionChanged, ForeignCommit, InvalidData: as `restate` would.
        """
        declared = self._declaration(table)
        planned = plan_restate(self._workshop, declared, partitions)
        return replace(planned, consumers=tuple(self.consumers(declared)))

    @told
    def plan_rollback(self, table: Source | str, *, to: AsOf) -> PlannedRollback:
        """Return what `rollback` would undo. Nothing is changed.

        Raises:
            UnknownSnapshot: `to` is not in the history of the head.
        """
        iceberg = self.load(table)
        target = in_history(iceberg, to)
        head = iceberg.metadata.current_snapshot_id
        ids = [one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())]
        kinds = changes_between(iceberg, head, target, net=True)[CHANGE_TYPE].to_pylist()
        return PlannedRollback(
            table=".".join(iceberg.name()),
            snapshot_id=target,
            commits=ids.index(target),
            inserted=kinds.count(INSERT),
            deleted=kinds.count(DELETE),
            updated=kinds.count(UPDATE_AFTER),
            rows=row_count(iceberg, head),
            rows_then=row_count(iceberg, target),
            consumers=tuple(self.consumers(table)),
            expired=self._expired_at(iceberg, target),
        )

    def _expired_at(self, iceberg: IcebergTable, snapshot_id: int) -> tuple[str, ...]:
        """Return the sources in whose history the position of a commit is no longer."""
        snapshot = iceberg.snapshot_by_id(snapshot_id)
        if snapshot is None or not is_ours(snapshot):
            return ()
        at = {name: one.snapshot_id for name, one in head_in(snapshot).positions.items() if one.snapshot_id is not None}
        known = set(self.tables())
        return tuple(name for name, one in at.items() if name in known and snapshot_of(self.load(name), one) is None)
