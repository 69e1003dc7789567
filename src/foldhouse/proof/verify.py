"""Compare a table with a batch job over all rows of its sources, and find the first commit where the two differ.

Both are read at one snapshot of the table and at the position that its commit recorded, so later events do not matter.
If keys differ, the history of the table is searched by halves: at each commit, only these keys are computed again, from
their own rows of the sources.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame

from foldhouse.errors import UnknownSnapshot
from foldhouse.heads.head import is_ours
from foldhouse.logic.compiled import Compiled
from foldhouse.proof.aggregates import aggregates_of
from foldhouse.proof.batch import HAVE, WANT, Wanted, batch, compared, pieces_at, side_of, source_rows, stored_rows
from foldhouse.proof.bisect import oldest_wrong
from foldhouse.proof.of_keys import KeyRows
from foldhouse.proof.since import keys_since
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.workshop import Workshop
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.deliveries import are_others
from foldhouse.values.metadata_names import COVERAGE, DECLARATION, DEFINITION, DELIVERIES, POSITION, RUN_ID
from foldhouse.values.proofs import Difference, FirstWrong, Verified
from foldhouse.values.window import Coverage, Position, positions_from_json

SHOWN = 20
_FOLLOWED = 1_000
"""Keys that are followed through the history: more would make each step as dear as the whole table."""

_PICKED = 100_000
"""Keys whose source rows are picked for Spark; for more of them, it reads the sources in full."""


@dataclass(frozen=True)
class _Commit:
    """A commit of the table with the position that it has: its own, or that of the last commit of ours before it."""

    snapshot: Snapshot
    positions: dict[str, Position]
    coverage: Coverage

    @property
    def id(self) -> int:
        """The id of its snapshot."""
        return self.snapshot.snapshot_id


@dataclass(frozen=True)
class _Proof:
    """A table, its sources, and everything that computes it again."""

    workshop: Workshop
    table: Table
    iceberg: IcebergTable
    sources: Sequence[IcebergTable]

    def layouts(self, commit: _Commit) -> tuple[Layout, ...]:
        """Return the columns of the sources that a commit was folded with."""
        names = [source.name for source in self.table.sources]
        return tuple(
            Layout.at(source, commit.positions[name]) for name, source in zip(names, self.sources, strict=True)
        )

    def compiled(self, commit: _Commit) -> Compiled:
        """Return the declaration, compiled against the columns that the sources had at a commit."""
        return self.workshop.compiled(self.table, self.layouts(commit))

    def logic(self, commit: _Commit) -> Logic:
        """Return the logic of the table, over the columns that the sources had at a commit."""
        return Logic(self.compiled(commit), self.layouts(commit), self.workshop.session, self.workshop.tuning)

    def positions(self, commit: _Commit) -> list[int | None]:
        """Return the snapshot of each source that a commit has folded."""
        return [commit.positions[source.name].snapshot_id for source in self.table.sources]

    def wrong(self, commit: _Commit, wanted: Wanted, rows: KeyRows | None = None) -> DataFrame:
        """Return the keys that differ at a commit, as `compared` does.

        Args:
            commit: of the table.
            wanted: the keys to compare.
            rows: reads the source rows of these keys; all rows of the sources are read without it.
        """
        session, compiled = self.workshop.session(), self.compiled(commit)
        layouts, positions = self.layouts(commit), self.positions(commit)
        if rows is None:
            places = zip(self.table.sources, layouts, self.sources, positions, strict=True)
            frames = [source_rows(session, source, one, pieces_at(table, at)) for source, one, table, at in places]
        else:
            frames = rows.of(self.logic(commit), self.sources, positions)
        keys = compiled.plan.key_names
        names = [*keys, *aggregates_of(compiled.plan, compiled.fold)]
        have = stored_rows(session, self.iceberg, commit.id, names, keys, wanted)
        return compared(have, batch(compiled, frames, commit.coverage, wanted), keys)


def verify(
    workshop: Workshop, table: Table, iceberg: IcebergTable, share: float, *, since: int | None, search: bool
) -> Verified:
    """Compare a table with Spark's batch answer; see `Lake.verify`."""
    started = time.monotonic()
    sources = [workshop.catalog.load_table(source.name) for source in table.sources]
    proof = _Proof(workshop, table, iceberg, sources)
    with translating_spark_errors(table.name):
        commits = _commits(proof)
        head = next(commits)
        if reason := _unreadable(proof, head):
            raise UnknownSnapshot(f"{table.name} cannot be verified: {reason}")
        compiled = proof.compiled(head)
        keys = None if since is None else keys_since(proof.logic(head), iceberg, sources, since, head.id)
        rows = None if keys is None or keys.num_rows > _PICKED else KeyRows(keys)
        wrong = proof.wrong(head, Wanted(share, keys), rows).persist()
        try:
            count = wrong.count()
            differing = wrong.limit(_FOLLOWED).toArrow()
        finally:
            wrong.unpersist()
        aggregates = aggregates_of(compiled.plan, compiled.fold)
        columns = tuple(name for name in compiled.plan.outputs if name in aggregates)
        first = None
        if count and search:
            first = _first_wrong(proof, head, commits, differing)
    return Verified(
        table=table.name,
        snapshot_id=head.id,
        position={name: one.snapshot_id for name, one in head.positions.items()},
        share=share,
        since=since,
        keys_since=None if keys is None else keys.num_rows,
        columns=columns,
        unproven=tuple(name for name in compiled.plan.outputs if name not in columns),
        estimated=tuple(name for name in columns if aggregates[name].is_estimate),
        wrong=count,
        differences=_differences(compiled, differing),
        first_wrong=first,
        seconds=time.monotonic() - started,
    )


def _keys(compiled: Compiled, rows: pa.Table) -> pa.Table:
    return rows.select(compiled.plan.key_names).combine_chunks()


def _commits(proof: _Proof) -> Iterator[_Commit]:
    """Yield the commits of the table that its present definition made, newest first, with foreign ones among them."""
    behind = list(lineage(proof.iceberg, proof.iceberg.current_snapshot()))
    ours = [one for one in behind if is_ours(one)]
    if not ours:
        raise UnknownSnapshot(f"{proof.table.name} was never folded; run `foldhouse backfill`, or lake.refresh(...)")
    definition, deliveries = _definition(ours[0]), _deliveries(ours[0])
    for place, one in enumerate(behind):
        said = next((older for older in behind[place:] if is_ours(older)), None)
        if said is None or _definition(said) != definition or said.summary is None:
            return
        if are_others(_deliveries(said), deliveries):
            return
        summary = said.summary.additional_properties
        yield _Commit(one, positions_from_json(summary[POSITION]), Coverage.parse(summary[COVERAGE]))


def _definition(snapshot: Snapshot) -> tuple[str | None, str | None]:
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    said = summary.get(DECLARATION)
    return (said, None) if said else (None, summary.get(DEFINITION))


def _deliveries(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(DELIVERIES)


def _unreadable(proof: _Proof, commit: _Commit) -> str:
    """Return why a commit cannot be computed again; empty if it can."""
    for source, iceberg in zip(proof.table.sources, proof.sources, strict=True):
        position = commit.positions.get(source.name)
        if position is None:
            return f"its commit {commit.id} has no position in {source.name}; the declaration has other sources"
        if position.uuid != str(iceberg.metadata.table_uuid):
            return f"{source.name} was dropped and created again since; run `foldhouse rebuild {proof.table.name}`"
        if position.snapshot_id is not None and snapshot_of(iceberg, position.snapshot_id) is None:
            return f"its position {position.snapshot_id} is no longer in the history of {source.name}"
    return ""


def _first_wrong(proof: _Proof, head: _Commit, older: Iterator[_Commit], differing: pa.Table) -> FirstWrong:
    """Find the commit from which on some keys are wrong, in as many steps as the number of commits has bits.

    Args:
        proof: of the table.
        head: the commit that is wrong.
        older: the commits before it, newest first.
        differing: the keys that differ at the head, with both sides.
    """
    commits = [head]
    for one in older:
        if _unreadable(proof, one):
            break
        commits.append(one)
    keys = _keys(proof.compiled(head), differing)
    rows, seen = KeyRows(keys), {0: differing}

    def is_wrong(place: int) -> bool:
        seen[place] = proof.wrong(commits[place], Wanted(keys=keys), rows).limit(SHOWN).toArrow()
        return bool(seen[place].num_rows)

    wrong = oldest_wrong(len(commits), is_wrong)
    found = commits[wrong]
    summary = {} if found.snapshot.summary is None else found.snapshot.summary.additional_properties
    return FirstWrong(
        snapshot_id=found.id,
        committed_at=datetime.fromtimestamp(found.snapshot.timestamp_ms / 1000, UTC),
        is_ours=is_ours(found.snapshot),
        run_id=summary.get(RUN_ID) if is_ours(found.snapshot) else None,
        last_right=commits[wrong + 1].id if wrong + 1 < len(commits) else None,
        differences=_differences(proof.compiled(found), seen[wrong]),
        steps=len(seen) - 1,
        source_rows_read=rows.rows_read,
    )


def _differences(compiled: Compiled, rows: pa.Table) -> tuple[Difference, ...]:
    keys = compiled.plan.key_names
    names = [name for name in compiled.plan.outputs if side_of(HAVE, name) in rows.column_names]
    return tuple(
        Difference(
            {name: row[name] for name in keys},
            *({name: row[side_of(side, name)] for name in names} if row[side] else None for side in (HAVE, WANT)),
        )
        for row in rows.slice(0, SHOWN).to_pylist()
    )
