"""What keeps a lake small: tags and branches, compaction, expiry, and forgetting a subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from foldhouse.calls.arguments import told
from foldhouse.calls.declared import with_sources
from foldhouse.errors import InvalidData, UnknownSnapshot
from foldhouse.forget.forget import forget, plan_of, planned
from foldhouse.lake.as_of import AsOf, snapshot_id_at
from foldhouse.lake.opened import OpenLake
from foldhouse.storage.branch import check_can_be_dropped, drop
from foldhouse.storage.clock import ahead_ms, clock_ms, mend
from foldhouse.storage.races import until_won
from foldhouse.storage.tags import Tag, drop_tag, set_tag, tags_of
from foldhouse.upkeep.compact import compact
from foldhouse.upkeep.expire import expire_history
from foldhouse.upkeep.orphans import find_orphans
from foldhouse.upkeep.retention import Keeping, could_go
from foldhouse.values.age import OlderThan, moment_before
from foldhouse.values.definition import Source, Table
from foldhouse.values.forgotten import Forgotten
from foldhouse.values.keep import parse as parse_keep
from foldhouse.values.metadata_names import FORGETTING
from foldhouse.values.tuning import tuned
from foldhouse.values.upkeep import Compacted, Expired, Orphans

IN_USE = timedelta(hours=1)
ORPHANS_AFTER = timedelta(days=1)
ORPHANS_LEAST = timedelta(hours=1)


class Upkeep(OpenLake):
    """The methods of a lake that change files and history, but no row, except `forget`."""

    @told
    def tag(
        self, table: Source | str, tag: str, *, at: AsOf = None, keep: timedelta | None = None, move: bool = False
    ) -> Tag:
        """Name a snapshot by a tag of Iceberg. Expiry keeps tagged snapshots, and `as_of` takes the tag.

            lake.tag(revenue, "closed-2024-03", at="2024-04-02T06:00:00Z")

        A second call with the same tag and snapshot changes nothing.

        Args:
            table: a table or stream.
            tag: the name: a letter, then letters, digits, `_`, `.` and `-`. Names with `foldhouse` are reserved.
            at: the snapshot, by default the head.
            keep: for how long from now an expiry keeps the tag; by default as long as the table's properties say, which
                is for ever unless `history.expire.max-ref-age-ms` is set.
            move: whether a tag of that name at another snapshot is moved.

        Raises:
            InvalidCall: the name cannot be a tag, or is one of another snapshot and `move` is false.
            UnknownSnapshot: the table has no snapshot for `at`.
        """

        def attempt() -> Tag:
            iceberg = self.load(table)
            snapshot_id = snapshot_id_at(iceberg, at)
            if snapshot_id is None:
                raise UnknownSnapshot(f"{'.'.join(iceberg.name())} has no snapshot yet, so there is nothing to tag")
            return set_tag(self.catalog, iceberg, tag, snapshot_id, keep, clock_ms(), move=move)

        return until_won(attempt)

    @told
    def untag(self, table: Source | str, tag: str) -> Tag:
        """Drop a tag; return what it was. Its snapshot stays until an expiry removes it.

        Raises:
            UnknownSnapshot: the table has no such tag.
            InvalidCall: the name is reserved, or that of a branch.
        """
        return until_won(lambda: drop_tag(self.catalog, self.load(table), tag))

    @told
    def drop_branch(self, table: Source | str, branch: str, *, dry_run: bool = False) -> int:
        """Drop a branch, such as `foldhouse-rebuild` or `foldhouse-audit`; return the id of the snapshot it was at.

        The snapshot stays until an expiry removes it. An audit that runs at that moment fails, and can be run again.

        Args:
            table: a table or stream.
            branch: its name.
            dry_run: only check that the branch can be dropped, and change nothing.

        Raises:
            UnknownSnapshot: the table has no such branch.
            InvalidCall: it is `main`, or the name is that of a tag.
        """
        if dry_run:
            return check_can_be_dropped(self.load(table), branch)
        return until_won(lambda: drop(self.catalog, self.load(table), branch))

    @told
    def tags(self, table: Source | str) -> tuple[Tag, ...]:
        """Return the tags of a table or stream, sorted by name, with those that keep the positions of consumers."""
        return tags_of(self.load(table))

    @told
    def compact(
        self, table: Source | str, *, target_bytes: int | None = None, min_files: int | None = None
    ) -> Compacted:
        """Rewrite small and much-deleted files of a table or stream, in one commit that changes no row.

        The files of a partition are rewritten if they are many and small, or if more than a fifth of their rows is
        deleted. If no file is worth it, nothing is committed. Consumers see no change. A table that was rolled back to
        before a rebuild with other columns is left as it is.

        Args:
            table: a table or stream.
            target_bytes: the target size of a file, compressed; files of three quarters of it are left alone. By
                default the property `write.target-file-size-bytes`, or 128 MiB.
            min_files: with fewer data and delete files, a partition is not rewritten for their number alone; by
                default 5.

        Raises:
            UnknownTable, ForeignCommit, Unsupported: see `foldhouse.errors`.
        """
        tuning = tuned(self.tuning, compacted_files=min_files)
        return compact(self.catalog, lambda: self.load(table), target_bytes, self.run_id, tuning)

    @told
    def expire(
        self,
        table: Source | str,
        *,
        older_than: OlderThan = None,
        keep_last: int | None = None,
        keep: str | None = None,
        in_use: timedelta = IN_USE,
    ) -> Expired:
        """Remove old snapshots of a table or stream, and the files that only they reference.

        The table's properties determine which snapshots are kept: `foldhouse.history.keep`, by default `all for 1 hour,
        hourly for 1 week, daily for 1 year`, and Iceberg's `history.expire.max-snapshot-age-ms`,
        `min-snapshots-to-keep` and `max-ref-age-ms`. Arguments override them. Some snapshots are kept however old they
        are: the head, tags and branches, and the positions of the table's consumers. A tag
        `foldhouse.position.<table>` protects each position. Changes across removed snapshots are those between the
        kept ones.

        Crash-safe: the removal is one commit, and files are deleted after it. If there is nothing to remove, nothing is
        committed. Nothing outside the table's location is deleted.

        Args:
            table: a table or stream.
            older_than: remove all snapshots that stopped being the head before this moment, or this long ago (`"7d"`,
                `timedelta(days=7)`), and no others.
            keep_last: keep so many of the newest commits, including the head.
            keep: a policy such as `hourly for 1 day`, instead of the table's.
            in_use: keep snapshots that were the head within this time, because a running refresh or reader may use
                them. No refresh that runs at the same time may take longer.

        Raises:
            UnknownTable, Unsupported, InvalidProperty: see `foldhouse.errors`.
            CommitConflict: other writers won every race; nothing was removed.
        """
        if keep is not None and older_than is not None:
            raise InvalidData(f"keep={keep!r} and older_than={older_than!r} both choose snapshots by age; give one")
        now = datetime.fromtimestamp(clock_ms() / 1000, UTC)
        since = None if older_than is None else min(moment_before(older_than, now), now - in_use)
        keeping = Keeping(
            since_ms=None if since is None else int(since.timestamp() * 1000),
            last=keep_last,
            now_ms=int(now.timestamp() * 1000),
            in_use_ms=in_use // timedelta(milliseconds=1),
            keep=None if keep is None else parse_keep(keep),
        )
        return until_won(lambda: expire_history(self.catalog, lambda: self.load(table), keeping))

    @told
    def orphans(self, table: Source | str, *, older_than: OlderThan = ORPHANS_AFTER, delete: bool = False) -> Orphans:
        """Find the files below a table's location that nothing references, such as those of killed runs.

        Files are deleted only with `delete`. Nothing outside the location is listed, and no symbolic link is followed.

        Args:
            table: a table or stream.
            older_than: only files that were last written before this moment, or this long ago; at least one hour. A
                running commit references its files only at its end, so this must be longer than any run takes.
            delete: whether to delete the orphans.

        Raises:
            UnknownTable: there is no such table.
            Unsupported: another table has the same location, or the table's files cannot be listed.
            InvalidData: `older_than` is less than an hour ago.
        """
        now = datetime.fromtimestamp(clock_ms() / 1000, UTC)
        before = moment_before(ORPHANS_AFTER if older_than is None else older_than, now)
        if now - before < ORPHANS_LEAST:
            raise InvalidData(
                f"older_than={older_than!r}: files younger than an hour may belong to a running commit; give an "
                "hour or more"
            )
        return find_orphans(self.catalog, lambda: self.load(table), before, delete=delete)

    @told
    def forget(
        self,
        stream: Source | str,
        key: Mapping[str, Any],
        *,
        reason: str,
        tables: Iterable[Table] = (),
        alone: bool = False,
        dry_run: bool = True,
    ) -> Forgotten:
        """Remove a subject's events from a stream, all tables downstream, their history and the files, for good.

            lake.forget(payments, {"customer_id": 42}, reason="request 2024-117", tables=[balances], dry_run=False)

        The stream's files are rewritten without the subject, and each table downstream is folded again from the
        beginning. Then the history before is removed from all of them at once: snapshots, tags, branches and files.
        Time travel begins at the forget afterwards. A reader, or a refresh of another process, that still uses an
        older snapshot fails, because its files are gone.

        Crash-safe: running it again finishes. `is_done` is true only if nothing of the subject was found afterwards;
        else `remaining` says what is left. `outside` says what is not reached. The summaries of the commits have the
        reason, the time and the number of events, not the key.

        Args:
            stream: a stream that foldhouse writes.
            key: column -> value; the subject's events are those that have all of the values.
            reason: stored with the commits; it must not contain the key. Give the number of a request.
            tables: the declarations of all tables downstream; declared sources of these tables count too.
            alone: whether nobody else writes to the lake now. Files of killed runs are then deleted at once; otherwise
                only once they are an hour old, because they may belong to a running commit.
            dry_run: only return the plan, and change nothing.

        Raises:
            InvalidData: the stream does not have a column of the key, or a value does not fit its type.
            UnknownTable: a table downstream has no declaration among `tables`; nothing was changed.
            DefinitionError, DefinitionChanged, SourceReplaced, ForeignCommit, Unsupported: the stream, or a table
                downstream, could not be restated; nothing was changed.
            ChecksFailed: a blocking check of a table fails without the subject; it is not done.
            CommitConflict: other writers won every race; it is not done.
        """
        name = stream if isinstance(stream, str) else stream.name
        work = planned(self._workshop, self.load, name, key, reason, with_sources(tables))
        return plan_of(work) if dry_run else forget(work, alone=alone)

    @told
    def mend_clock(self, table: Source | str) -> timedelta:
        """Move the times of a table that are ahead of this machine's clock back to now.

        Use it after a commit by a machine whose clock was wrong; correct this machine's clock first. It makes one
        commit without a snapshot, and changes no row. Time travel to a moment since the last correct commit is refused,
        because the true times are unknown.

        Returns:
            How far the table was ahead. If it was not ahead, zero, and nothing was committed.

        Raises:
            Unsupported: the catalog is on a server.
        """
        return timedelta(milliseconds=until_won(lambda: mend(self.catalog, self.load(table))))

    @told
    def upkeep(self, table: Source | str) -> tuple[str, ...]:
        """Return what a table needs: an overdue expiry, times ahead of the clock to correct, or a forget to end."""
        iceberg = self.load(table)
        found = []
        going = could_go(iceberg, clock_ms())
        if going >= self.tuning.overdue_snapshots:
            found.append(f"foldhouse expire is overdue: {going:,} of {len(iceberg.snapshots()):,} snapshots can go")
        ahead = timedelta(milliseconds=ahead_ms(iceberg.metadata))
        if ahead:
            found.append(f"its times are {ahead} ahead of this clock: foldhouse mend-clock")
        if FORGETTING in iceberg.properties:
            found.append("a forget has begun and is not done; run it again: foldhouse forget")
        return tuple(found)
