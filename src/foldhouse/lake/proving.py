"""What shows whether a table is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from foldhouse.audit.audit import Candidate, audited
from foldhouse.audit.others import load_others, pins_of
from foldhouse.calls.arguments import told
from foldhouse.errors import InvalidCall, UnknownTable
from foldhouse.heads.head import head_at
from foldhouse.lake.as_of import AsOf, in_history, snapshot_id_at
from foldhouse.lake.commits import checked_against, infos
from foldhouse.lake.opened import OpenLake
from foldhouse.proof.aligned import Ancestry
from foldhouse.proof.gapless import gapless
from foldhouse.proof.reconcile import Question, reconcile
from foldhouse.proof.verify import verify
from foldhouse.reading.trace import Tracer
from foldhouse.refresh.checked import auditor
from foldhouse.storage.history import snapshot_of
from foldhouse.values.definition import Source, Table
from foldhouse.values.gapless import Gapless
from foldhouse.values.given import shown
from foldhouse.values.proofs import Trace, Verified
from foldhouse.values.reconciled import Reconciled
from foldhouse.values.results import Checked


class Proving(OpenLake):
    """The methods of a lake that check tables, and tell the story of a key."""

    @told
    def audit(self, table: Table | str, *, as_of: AsOf = None) -> tuple[Checked, ...]:
        """Evaluate the checks of a table on all its rows, now or as of an earlier moment. Nothing is committed.

            lake.audit(balances, as_of="foldhouse-audit")   -> the rows that were not published

        Checks that read other tables read them as they are now, and sources of the table at the position of the
        checked snapshot. `against` of a result says at which snapshots.

        Returns:
            The results, in the order of the declaration.

        Raises:
            UnknownTable: the table, or one that a check reads, does not exist or has no rows yet.
            UnknownSnapshot: the table has no snapshot for `as_of`.
            DefinitionError: a check does not fit the columns of the table.
        """
        declared = self._declaration(table)
        iceberg = self.load(declared)
        snapshot_id = snapshot_id_at(iceberg, as_of)
        if snapshot_id is None:
            raise UnknownTable(f"{declared.name} was never folded; run `foldhouse refresh {declared.name}`")
        snapshot = snapshot_of(iceberg, snapshot_id)
        above = snapshot_of(iceberg, None if snapshot is None else snapshot.parent_snapshot_id)
        before = None if above is None else above.snapshot_id
        others = load_others(self.catalog, declared)
        pins = pins_of(others, head_at(iceberg, snapshot_id).positions) if others else {}
        candidate = Candidate(declared, iceberg, snapshot_id, before, others=others, pins=pins)
        return audited(auditor(self._workshop), candidate)

    @told
    def checked_against(self, table: Source | str, *, as_of: AsOf = None) -> dict[str, int | None]:
        """Return other table -> the snapshot at which the checks of a commit read it, as the commit recorded it.

            lake.checked_against(orders)                              -> {"shop.customers": 4711}
            lake.checked_against(orders, as_of="foldhouse-audit")     -> of the commit that failed

        It is empty if the checks read no other table, and for streams. `None` is a table that had no snapshot. The
        snapshots may have expired since.

        Raises:
            UnknownTable: no table has that name.
            UnknownSnapshot: the table has no snapshot for `as_of`.
        """
        iceberg = self.load(table)
        snapshot = snapshot_of(iceberg, snapshot_id_at(iceberg, as_of))
        return {} if snapshot is None else checked_against(infos([snapshot], ())[0])

    @told
    def verify(self, table: Table | str, *, share: float = 1.0, since: AsOf = None, search: bool = True) -> Verified:
        """Compare a table with what Spark computes, as a batch job, from all rows of its sources.

        Spark evaluates `rows` and its own aggregates over the sources as they were at the table's position. No code of
        the folds is used. If keys differ, the history of the table is searched by halves for the first commit at which
        they do, as far as the history of the sources is kept. The search reads the rows of these keys alone, if it is
        known which rows of the sources these are.

        Floats must agree up to the rounding of Spark's sums, and estimates within 10 %. Columns that Spark cannot
        compute are in `unproven`.

        Args:
            table: the declaration, or its name; see `refresh`.
            share: the share of the keys to compare, from 0 to 1; always the same ones. All rows of the
                sources are read for it, either way.
            since: a commit, tag or moment. Only keys are compared whose rows, or whose source rows, changed since then:
                if the table was right then, it is right now. A key that was wrong before and did not change is not
                found. All keys are compared if it is unknown which ones changed: the declaration was another one then,
                or the position of then is no longer in the history of a source.
            search: whether to search for the first wrong commit.

        Raises:
            UnknownTable: the table, or a source of it, does not exist.
            UnknownSnapshot: `since` is not in the history of the head, the table was never folded, or a position of it
                is no longer in the history of a source.
        """
        declared = self._declaration(table)
        iceberg = self.load(declared)
        after = None if since is None else in_history(iceberg, since)
        return verify(self._workshop, declared, iceberg, share, since=after, search=search)

    @told
    def reconcile(
        self,
        one: Source | str,
        other: Source | str,
        *,
        on: Iterable[str],
        columns: Mapping[str, str],
        tolerance: Decimal | int | str = 0,
        search: bool = True,
    ) -> Reconciled:
        """Compare the totals by key of two tables that must agree.

            lake.reconcile(balances, ledger, on=["account"], columns={"balance": "amount"})

        Both are read where they are folds of the same states of what they share: their common sources, or one of them
        if the other is folded from it. A table that is only behind is not called wrong: if both agree at the newest
        such place, the outcome is `None`, with `cannot tell` and the reason. Tables that share nothing are compared as
        they are now. If keys disagree, the commit at which they first did is searched for by halves.

        Args:
            one: a table or stream; a stream is taken as it is stored, with every delivery.
            other: another one.
            on: the key columns, which both have, with the same types.
            columns: column of `one` -> column of `other`; their totals by key must agree.
            tolerance: the difference that is still the same.
            search: whether to search for the first commit at which they disagree.

        Raises:
            UnknownTable: no table has that name.
            InvalidCall: a column does not exist, a key column is given twice, or totals cannot be compared.
        """
        keys = tuple(on)
        twice = [name for name in keys if keys.count(name) > 1]
        if twice:
            raise InvalidCall(f"the key column {shown(twice[0])} is given twice; give each column once")
        try:
            least = Decimal(str(tolerance)) or Decimal(0)  # one zero for all, such as 0e99, which Polars does not take
        except InvalidOperation:
            raise InvalidCall(f"the tolerance is {shown(tolerance)}; give a number of at least 0") from None
        question = Question(self.load(one), self.load(other), keys, columns, least)
        return reconcile(question, Ancestry(self._loader()), search=search)

    @told
    def gapless(self, table: Source | str) -> Gapless:
        """Prove from metadata that each commit of a table begins where the one below it ends.

        No window of a source was then folded twice, and none was skipped. Commits of other tools that changed rows are
        breaks. A rollback adds no commit, and a rebuild begins at nothing. What expired commits did is unknown, and
        counted. It needs no declaration and reads no rows; `verify` compares rows.

        Raises:
            UnknownTable: no table has that name.
            DefinitionError: it is a stream, or a table of another tool.
        """
        return gapless(self.load(table))

    @told
    def trace(self, table: Source | str, key: Mapping[str, Any]) -> Trace:
        """Return the story of a key: every commit that changed its rows, from the streams to the tables downstream.

            lake.trace(balances, {"customer": "ada"})

        Only what is stored is used, so no declaration is needed. Sources are followed by the columns of the key that
        they have under the same names; tables downstream by their own keys, if these are columns of the changed rows.
        What cannot be followed is in `untraced`, with the reason. Expired commits have no story.

        Args:
            table: a table or stream.
            key: column -> value.

        Raises:
            UnknownTable: no table has that name.
            InvalidData: a column that the table does not have, or a value of another type.
        """
        name = ".".join(self.load(table).name())
        return Tracer(self.tables(), self._loader()).trace(name, key)
