"""An open lake: its catalog, its Spark session, and the tables by name."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import SparkSession

from foldhouse.calls.arguments import told
from foldhouse.errors import CorruptCatalog, DefinitionError, InvalidCall, UnknownTable
from foldhouse.logic.closed import closed_digest
from foldhouse.logic.compiled import Compiled, compile_as_kept, compile_table, differs_from_kept
from foldhouse.logic.declaration import declaration
from foldhouse.logic.kept import Kept, Said
from foldhouse.logic.plan_text import analyse_first_plan
from foldhouse.reading.lag import Lags
from foldhouse.refresh.workshop import Workshop
from foldhouse.spark.active import make_active
from foldhouse.spark.alive import is_alive, put_away
from foldhouse.spark.folders import make_folders_again
from foldhouse.spark.session import all_settings, in_utc
from foldhouse.spark.starter import is_as_begun, is_running, promised
from foldhouse.storage import log
from foldhouse.storage.catalog import is_in_warehouse, table_names
from foldhouse.storage.clock import clock_ms
from foldhouse.storage.guarded import guarded
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.storage.secrets import without_secrets
from foldhouse.values.definition import Source, Table
from foldhouse.values.tuning import DEFAULT, Tuning, tuned


@dataclass(frozen=True)
class _AsKept:
    """A declaration that was compiled by what Spark said in an earlier process, and its digest then."""

    table: Table
    sources: Sequence[Layout]
    compiled: Compiled
    digest: str

    @property
    def revoked(self) -> threading.Event:
        """Set if Spark says something else."""
        assert self.compiled.revoked is not None
        return self.compiled.revoked


def _says_the_same(one: Compiled, other: Compiled) -> bool:
    return one.definition_hash == other.definition_hash and one.logic == other.logic


_Declared = tuple[int, date, tuple[str, ...], str]
"""The id of a declaration, the day, the schemas of its sources, and its digest."""


class OpenLake:
    """What every method of a lake needs; see `Lake`."""

    def __init__(
        self,
        catalog: Catalog,
        session: Callable[[], SparkSession],
        *,
        in_process_rows: int | None = None,
        tuning: Tuning = DEFAULT,
        run_id: str | None = None,
    ) -> None:
        log.set_up()
        self.catalog = guarded(catalog)
        self._start = session
        self._session: SparkSession | None = None
        self._early: Future[SparkSession] | None = None
        self._early_in = 0
        self._compiled: dict[_Declared, Compiled] = {}
        self._compiled_under: dict[_Declared, Mapping[str, str]] = {}
        self._kept = Kept(lambda: promised(session))
        self._as_kept: dict[_Declared, _AsKept] = {}
        self._confirming = threading.RLock()
        self.tuning = tuned(tuning, in_process_rows=in_process_rows)
        self.run_id = run_id or str(uuid4())
        self._declared: dict[str, Table] = {}

    def __repr__(self) -> str:
        """Return one line, without any credentials of the catalog."""
        warehouse = without_secrets(str(self.catalog.properties.get("warehouse", "")), self.catalog.properties)
        return f"Lake(catalog={self.catalog.name!r}, warehouse={warehouse!r})"

    def _declaration(self, table: Table | str) -> Table:
        """Return the declaration of a table: the one given, or for a name, the last one that this lake was given.

        Raises:
            DefinitionError: the lake was not given one of that name.
        """
        if isinstance(table, Table):
            self._declared[table.name] = table
            return table
        if table not in self._declared:
            raise DefinitionError(
                f"the declaration of {table} is not known: this lake was not given it yet. Pass what fh.table(...) "
                f"returned, or run `foldhouse refresh {table}` in the project that declares it"
            )
        return self._declared[table]

    def close(self) -> None:
        """Close the catalog's connections. The Spark session stays open, because other code may share it."""
        self.catalog.close()

    @property
    def in_process_rows(self) -> int:
        """The number of source rows up to which a window is folded in this process; see `Lake`."""
        return self.tuning.in_process_rows

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at the first use, and started again if it died."""
        if (early := self._early) is not None:
            if self._early_in != os.getpid():
                raise InvalidCall(
                    f"the process {os.getpid()} was forked while Spark started in {self._early_in}, and does not have "
                    "the thread that starts it. Start processes by `spawn`, or fork before `start_spark_early`"
                )
            self._early = None
            self._session = early.result()
            make_active(self._session)
        if self._session is not None and not is_alive(self._session):
            put_away(self._session)
            self._session = None
        if self._session is None:
            self._session = self._start()
        self._confirm_kept(self._session)
        make_folders_again(self._session)
        return self._session

    def start_spark_early(self, tables: Sequence[Table] = ()) -> None:
        """Start the Spark session in a thread, beside other work of this process; `spark` waits for it.

        It is not started for tables that an earlier process has compiled: their refreshes may need none.

        If it cannot be started, the first use of `spark` raises the error. A process that ends before does not wait for
        it, and its Java process ends by itself, because its standard input is closed.
        """
        if self._session is not None or self._early is not None:
            return
        if tables and all(map(self._kept.has_any, tables)):
            return
        early: Future[SparkSession] = Future()

        def start() -> None:
            try:
                session = self._start()
                with contextlib.suppress(Exception):  # it only saves time
                    analyse_first_plan(session)
                early.set_result(session)
            except BaseException as failure:
                early.set_exception(failure)

        self._early, self._early_in = early, os.getpid()
        threading.Thread(target=start, name="foldhouse-spark", daemon=True).start()

    @told
    def tables(self) -> list[str]:
        """Return the names of all tables and streams of the lake, sorted."""
        return table_names(self.catalog)

    @told
    def kind(self, table: Source | str) -> str:
        """Return `stream`, `table`, or `foreign` for a table that foldhouse did not create."""
        return kind_of(self.load(table))

    @told
    def load(self, table: Source | str) -> IcebergTable:
        """Return the pyiceberg table of a declaration or a name.

        Raises:
            UnknownTable: the table does not exist; the message lists the tables that do.
            CorruptCatalog: the catalog has the name, but cannot open it.
        """
        name = table if isinstance(table, str) else table.name
        try:
            return self.catalog.load_table(name)
        except (NoSuchTableError, ValueError):
            known = self.tables()
        try:
            return self.catalog.load_table(name)  # another process may have created it since
        except (NoSuchTableError, ValueError) as failure:
            if name in known:  # the table's row in the catalog cannot be used
                raise CorruptCatalog(
                    f"the catalog is damaged: it knows {name}, but cannot open it ({failure}). Restore "
                    "`catalog.db` from a backup, or move it away and run `foldhouse register`"
                ) from failure
            lost = is_in_warehouse(self.catalog, name)
            way = f"; its files are in the warehouse, run `foldhouse register {name}` to register them" if lost else ""
            raise UnknownTable(
                f"there is no table {name} in the lake; choose from {', '.join(known) or '(no tables yet)'}{way}"
            ) from None

    def _lags(self) -> Lags:
        return Lags(self._loader(), clock_ms())

    def _loader(self) -> Callable[[str], IcebergTable | None]:
        names = frozenset(self.tables())

        def loaded(name: str) -> IcebergTable | None:
            try:
                return self.load(name) if name in names else None
            except UnknownTable:  # dropped since the names were listed
                return None

        return loaded

    @property
    def _workshop(self) -> Workshop:
        return Workshop(self.catalog, lambda: self.spark, self._compile, self.tuning, self.run_id)

    def _compile(self, table: Table, sources: Sequence[Layout]) -> Compiled:
        # Compiled again each day, so that a definition that depends on the current day counts as changed, and after
        # a value changed that its functions read, because Spark calls them again. Empty if that cannot be known.
        text = declaration(table, "this process")
        # The compiled declaration keeps the table alive, so no other table gets its id.
        key = (id(table), datetime.now(UTC).date(), tuple(source.schema_json for source in sources), text)
        if not text or key not in self._compiled or self._has_other_settings(key):
            self._compiled[key] = compiled = self._compile_now(key, table, sources)
            if compiled.settings is not None and self._session is not None:
                self._compiled_under[key] = all_settings(self._session)
        return self._compiled[key]

    def _compile_now(self, key: _Declared, table: Table, sources: Sequence[Layout]) -> Compiled:
        """Compile a declaration; without Spark, if an earlier process kept what it says and this one has no session."""
        earlier = self._as_kept.pop(key, None)
        if self._session is None and self._early is None and not is_running():
            digest = closed_digest(table)
            as_kept = compile_as_kept(table, sources, self._kept)
            if as_kept is not None:
                self._as_kept[key] = _AsKept(table, sources, as_kept, digest)
                return as_kept

        def keep(said: Said) -> None:
            if is_as_begun(self.spark, self._kept.promised()):  # other settings may be those of this process alone
                self._kept.keep(table, sources, said)

        compiled = compile_table(table, sources, lambda: self.spark, keep)
        if earlier is not None and not _says_the_same(compiled, earlier.compiled):
            earlier.revoked.set()  # another thread may be about to evaluate it
        return compiled

    def _confirm_kept(self, session: SparkSession) -> None:
        """Compile again what was compiled without Spark, before Spark evaluates a row of it.

        Raises:
            DefinitionError: Spark says something else than it did in the process that kept it. It is compiled by Spark
                from then on.
        """
        with self._confirming:
            differing: list[Table] = []
            while self._as_kept:
                key, one = next(iter(self._as_kept.items()))
                has_changed = closed_digest(one.table) != one.digest  # its next refresh compiles it anyway
                if has_changed or not self._is_confirmed(key, one, session):
                    one.revoked.set()
                    self._compiled.pop(key, None)
                    if not has_changed:
                        self._kept.forget(one.table, one.sources)
                        differing.append(one.table)
                self._as_kept.pop(key, None)
        if differing:
            raise differs_from_kept(differing)

    def _is_confirmed(self, key: _Declared, one: _AsKept, session: SparkSession) -> bool:
        """Whether Spark says the same of a declaration; if so, what it says now is used from then on."""
        again = compile_table(one.table, one.sources, lambda: session)
        if not _says_the_same(again, one.compiled):
            return False
        self._compiled[key], self._compiled_under[key] = again, all_settings(session)
        return True

    def _has_other_settings(self, key: _Declared) -> bool:
        """Whether the session has other settings than it had when a declaration was compiled.

        Others may set them while the lake is open, and a session that was started again has those of its start. All
        of them count: `rows` is called again for each evaluation, and parses its expressions by some of them.
        """
        compiled, as_kept = self._compiled[key], self._as_kept.get(key)
        if as_kept is not None:
            return is_running() or closed_digest(as_kept.table) != as_kept.digest
        if compiled.settings is None or self._session is None:
            return False
        if not is_alive(self._session):
            return compiled.direct is None  # direct logic needs no session
        return all_settings(in_utc(self._session)) != self._compiled_under.get(key)
