"""What a table holds, now and then."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import DataFrame

from foldhouse.calls.arguments import told
from foldhouse.errors import UnknownTable
from foldhouse.heads.head import Head, last_head
from foldhouse.heads.kinds import check_stream
from foldhouse.heads.row_count import row_count
from foldhouse.lake.as_of import AsOf, snapshot_id_at
from foldhouse.lake.commits import SnapshotInfo, infos
from foldhouse.lake.opened import OpenLake
from foldhouse.lake.until import Moment, Until, folded_until
from foldhouse.reading.changelog import changes_between, published, read_rows
from foldhouse.reading.corrected import corrections_of, latest_figures
from foldhouse.reading.frames import Query, answered, polars_of, relation_of
from foldhouse.reading.left_out import quarantined
from foldhouse.refresh.by_day import partition_days, partition_rows
from foldhouse.refresh.new_days import new_days
from foldhouse.refresh.rows.logic import Logic
from foldhouse.spark.source import frame_of
from foldhouse.storage.history import heads, lineage
from foldhouse.storage.live import live_slices, pieces_of
from foldhouse.storage.schema import Layout, type_texts
from foldhouse.streams.landed import landed_days
from foldhouse.values.corrected import CommitFigures, Corrections
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.landed import LandedDays
from foldhouse.values.window import Coverage

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_MOST_COMPARED = 100_000
"""Changed files with more rows than this are not read to show what a commit changed."""


class Reading(OpenLake):
    """The methods of a lake that return rows, commits and columns."""

    @told
    def read(self, table: Source | str, *, as_of: AsOf = None) -> DataFrame:
        """Return the rows of a table or stream as a Spark DataFrame, now or as of an earlier moment.

        Raises:
            UnknownTable: no table has that name.
            UnknownSnapshot: the table has no snapshot for `as_of`, or it is a moment in the future.
        """
        iceberg = self.load(table)
        snapshot_id = snapshot_id_at(iceberg, as_of)
        layout = Layout.of_head(iceberg) if as_of is None else Layout.of(iceberg, snapshot_id)
        slices = live_slices(iceberg, snapshot_id)
        return frame_of(self.spark, layout, published(layout), pieces_of(slices.values()))

    @told
    def to_arrow(self, table: Source | str, *, as_of: AsOf = None) -> pa.Table:
        """Return the rows of a table or stream as an Arrow table, without starting Spark; see `read`."""
        iceberg = self.load(table)
        return read_rows(iceberg, None if as_of is None else snapshot_id_at(iceberg, as_of))

    @told
    def until(self, table: Source | str, moment: Moment, *, column: str | None = None, as_of: AsOf = None) -> pa.Table:
        """Return a table as the fold of the events up to a moment of event time, now or as it was believed earlier.

            lake.until(balances, "2024-03-04")                       -> what happened up to the end of that day
            lake.until(balances, "2024-03-04", as_of="2024-03-05")   -> of it, what was known a day later

        The events of its streams are read at the table's position and folded again, in a private temporary folder. So
        it costs as much as a rebuild, and `as_of` alone costs less. Events at the moment are included; an event without
        a time is not. Of an event that was delivered several times, the last delivery counts, and so does its time.

        Args:
            table: the declaration, or its name; see `refresh`. The result of a stream is its events, each once.
            moment: a time (UTC if it has no zone), or a day, which is meant to its end.
            column: the column with the time, in the streams that have it. By default, the `event_time` of a stream,
                else the column of its `partition_by`.
            as_of: the moment of a commit; see `read`.

        Raises:
            InvalidCall: a stream has no column of event time, none has `column`, or the moment does not fit its type.
            UnknownSnapshot: there is no snapshot for `as_of`, or a position is no longer in the history of a source.
            DefinitionChanged: the table was folded under another declaration then.
            DefinitionError: a column that the declaration reads had another name at the position.
        """
        declared = table if isinstance(table, Stream) else self._declaration(table)
        return folded_until(self.load, self._workshop, declared, Until.of(moment, column), as_of)

    @told
    def to_polars(self, table: Source | str, *, as_of: AsOf = None) -> pl.DataFrame:
        """Return the rows of a table or stream as a Polars frame; see `read`."""
        return polars_of(self.to_arrow(table, as_of=as_of))

    @told
    def to_pandas(self, table: Source | str, *, as_of: AsOf = None) -> pd.DataFrame:
        """Return the rows of a table or stream as a pandas frame; see `read`."""
        return self.to_arrow(table, as_of=as_of).to_pandas()

    @told
    def to_duckdb(self, table: Source | str, *, as_of: AsOf = None) -> Any:
        """Return the rows of a table or stream as a relation of DuckDB, if that is installed; see `read`."""
        return relation_of(self.to_arrow(table, as_of=as_of))

    @told
    def sql(self, query: Query) -> pa.Table:
        """Answer a query over the tables and streams of the lake with DuckDB, if that is installed.

            lake.sql("SELECT country, sum(revenue) FROM shop.revenue_by_day GROUP BY ALL")

        Args:
            query: a SELECT that names tables as `namespace.table`; each is read whole, as of now.

        Raises:
            InvalidData: DuckDB refuses the query.
            Unsupported: DuckDB is not installed.
        """
        return answered(query, self.tables(), self.to_arrow)

    @told
    def changes(self, table: Source | str, *, after: AsOf, upto: AsOf = None, net: bool = False) -> pa.Table:
        """Return the changes in `(after, upto]` as an Arrow table, without starting Spark.

        Either moment may be the earlier one. If `after` is newer than `upto`, or was rolled back, its commits are
        undone, the newest first, under their own snapshot ids.

        Args:
            table: a table or stream.
            after: the moment before the changes; 0 for the beginning.
            upto: the moment after the changes; now by default.
            net: whether to return only the difference between the two moments, instead of commit by commit.

        Returns:
            The columns of the table at `upto` with `_change_type`, `_change_ordinal` and `_commit_snapshot_id`. Rows of
            before a rebuild have null in columns that it added.

        Raises:
            UnknownTable: no table has that name.
            UnknownSnapshot: a moment has no snapshot, or lies in the future; or `net` is false, and the history between
                them was expired.
        """
        iceberg = self.load(table)
        begin = None if after in (0, "0") else snapshot_id_at(iceberg, after)
        return changes_between(iceberg, begin, snapshot_id_at(iceberg, upto), net=net)

    @told
    def quarantined(self, table: Table) -> pa.Table:
        """Return the rows that were left out of a table.

        A row is left out if a key is null or, for an ordered fold, a part of `sequence_by` is null. The rows are read
        from the sources at the table's position.

        Raises:
            UnknownTable: the table, or a source of it, does not exist.
        """
        sources = [self.load(source) for source in table.sources]
        layouts = tuple(Layout.of_head(source) for source in sources)
        logic = Logic(self._compile(table, layouts), layouts, lambda: self.spark, self.tuning)
        return quarantined(self.load(table), sources, logic)

    @told
    def history(self, table: Source | str) -> list[SnapshotInfo]:
        """Return the commits in the lineage of the head, newest first, as far as they are kept."""
        iceberg = self.load(table)
        return infos(lineage(iceberg, iceberg.current_snapshot()), heads(iceberg.metadata))

    @told
    def head(self, table: Source | str) -> SnapshotInfo | None:
        """Return the newest commit; `None` for a table that does not exist or has no commit."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        snapshot = iceberg.current_snapshot()
        return None if snapshot is None else infos([snapshot], heads(iceberg.metadata)[-1:])[0]

    @told
    def count(self, table: Source | str, *, as_of: AsOf = None) -> int:
        """Return the number of rows, now or as of an earlier moment, without reading them.

        Raises:
            UnknownSnapshot: the table has no snapshot for `as_of`.
        """
        iceberg = self.load(table)
        return row_count(iceberg, snapshot_id_at(iceberg, as_of))

    @told
    def days(self, table: Source | str) -> list[date]:
        """Return the days of which a stream or table that is partitioned by day has rows, in order.

        A day that does not exist yet has none; so has every day of a table that does not exist, or has no days.
        """
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return []
        return partition_days(iceberg)

    @told
    def landed(self, stream: Stream | str, days: Iterable[date] = ()) -> LandedDays:
        """Return whether days of a stream still have the events of the origins given to `replace`.

            lake.landed(orders, days).holds(day, digest)    # True only if the day's rows are proven to be these

        No rows are read. A stream that does not exist yet holds no day.
        """
        try:
            iceberg = check_stream(self.load(stream))
        except UnknownTable:
            return LandedDays()
        return landed_days(iceberg, days)

    @told
    def rows_by_day(self, table: Source | str, days: Iterable[date]) -> dict[date, int]:
        """Return the number of rows now of some days of a stream or table that is partitioned by day.

        A day without rows has 0. No rows are read.
        """
        return partition_rows(self.load(table), days)

    @told
    def corrections(self, table: Source | str, *, as_of: AsOf = None, most: int = 20) -> Corrections:
        """Return the first published rows that the newest commit of a moment changed or removed, before and after it.

        Args:
            table: the table.
            as_of: the commit, or a moment; by default the head.
            most: how many rows to return; all are counted. If the commit changed files with more than 100,000 rows,
                they are not read, and `total` is `None`.

        Raises:
            UnknownSnapshot: the table has no snapshot for `as_of`.
        """
        iceberg = self.load(table)
        return corrections_of(iceberg, snapshot_id_at(iceberg, as_of), most=most, most_rows_read=_MOST_COMPARED)

    @told
    def figures(self, table: Table | str, *, commits: int = 24) -> tuple[CommitFigures, ...]:
        """Return rows, lag and duration of the latest commits of a table, the oldest first."""
        return latest_figures(self.load(table), self._loaded_if_there, commits)

    def _loaded_if_there(self, name: str) -> IcebergTable | None:
        try:
            return self.load(name)
        except UnknownTable:
            return None

    @told
    def covered(self, table: Table | str, days: Iterable[date]) -> list[date]:
        """Return those of some days that a table covers, in order, by the last commit of foldhouse."""
        try:
            coverage = last_head(self.load(table)).coverage
        except UnknownTable:
            return []
        return sorted({day for day in days if day in coverage})

    @told
    def new_days(self, table: Table) -> list[date]:
        """Return the days that a table with `partition_by` could be extended by, in order.

        These are the days of its sources after its last one, with gaps of up to 31 days between them; all of them,
        before its first fold. Of the days between its first and its last one, those count of which a source got its
        first rows since the table's position. Other days were left out on purpose. A table that covers everything has
        none, because a refresh adds its days.
        """
        if table.partition_by is None:
            return []
        try:
            head = last_head(self.load(table))
        except UnknownTable:
            head = Head()
        if head.coverage.is_everything:
            return []
        sources = {one.name: self._loaded(one) for one in table.sources}
        return new_days(head.coverage, head.positions, sources, self._coverages(table))

    @told
    def uncovered(self, table: Table, days: Iterable[date]) -> dict[str, list[date]]:
        """Return source -> those of some days that it does not cover, if each day of the table is made of its day.

            lake.uncovered(best_sellers, [march_4, march_5])   -> {"retail.daily_products": [march_5]}

        A backfill of such a day folds no rows, although there may be events. Streams cover everything. So does a source
        of whose days the plan does not prove that they are the days of the table.

        Raises:
            UnknownTable: a source does not exist yet.
        """
        stored = [self.load(source) for source in table.sources]
        compiled = self._compile(table, [Layout.of_head(one) for one in stored])
        origin = compiled.origins.get(table.partition_by or "")
        if origin is None:
            return {}
        source = table.sources[compiled.shape.source(origin.place)]
        coverage = self._coverages(table).get(source.name)
        if coverage is None or source.partition_by != origin.column:
            return {}
        missing = sorted({day for day in days if day not in coverage})
        return {source.name: missing} if missing else {}

    def _coverages(self, table: Table) -> dict[str, Coverage]:
        """Return the coverage of each source of a table that is a table with days, by name."""
        names = [one.name for one in table.sources if isinstance(one, Table) and one.partition_by is not None]
        stored = {name: self._loaded_if_there(name) for name in names}
        return {name: last_head(one).coverage for name, one in stored.items() if one is not None}

    def _loaded(self, source: Source) -> IcebergTable | None:
        try:
            return self.load(source)
        except UnknownTable:
            return None

    @told
    def schema(self, table: Source | str) -> pa.Schema | None:
        """Return the columns without `_state` and `_batch_id`; `None` for a table that does not exist yet."""
        try:
            layout = Layout.of_head(self.load(table))
        except UnknownTable:
            return None
        return pa.schema([layout.arrow.field(name).remove_metadata() for name in published(layout)])

    @told
    def types(self, table: Source | str) -> dict[str, str] | None:
        """Return published column -> Iceberg type as it is declared; `None` for a table that does not exist yet."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        layout = Layout.of_head(iceberg)
        fields = type_texts(layout.schema)
        return {name: fields[name] for name in published(layout)}
