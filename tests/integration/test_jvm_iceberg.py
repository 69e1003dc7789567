"""Iceberg's own library, on a Spark it supports, reads what foldhouse writes, and foldhouse what it writes.

The other side is a process of its own (`tests/jvm_iceberg.py`) over the same catalog. Its packages and jars are not
ours and are fetched by no test: `python -m benchmarks.peers jvm` fetches them, and without them all of this is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from benchmarks import peers
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.live import live_slices
from foldhouse.values.change import CHANGE_COLUMNS
from tests.integration import test_other_readers as others

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.jvm_iceberg, pytest.mark.xdist_group("jvm_iceberg")]


class Reference:
    """The process of the reference implementation."""

    def __init__(self, lake: Path, environment: peers.Environment, folder: Path) -> None:
        variables = {**os.environ, **environment.variables, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
        self.said = (folder / "reference.log").open("w")
        self.process = subprocess.Popen(
            [environment.python, str(ROOT / "tests" / "jvm_iceberg.py"), str(lake)],
            env=variables,
            cwd=folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
        )
        self.rows_at = folder / "rows.parquet"
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the reference ended; what it said is in {self.said.name}"
        return json.loads(line)

    def run(self, sql: str, to: Path | None = None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"sql": sql, "to": str(to) if to else None}) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])

    def rows(self, sql: str) -> pa.Table:
        self.run(sql, self.rows_at)
        return pq.read_table(self.rows_at)

    def close(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.said.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fh.Lake]:
    opened = fh.Lake(open_local_catalog(tmp_path_factory.mktemp("reference") / "lake"), lambda: pytest.fail("no Spark"))
    others.prepare(opened)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def reference(lake: fh.Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    environment = peers.ready("jvm", peers.WORK)
    if environment is None:
        pytest.skip("Iceberg's own library is not on this machine; `python -m benchmarks.peers jvm` fetches it")
    folder = Path(str(lake.catalog.properties["uri"]).removeprefix("sqlite:///").partition("?")[0]).parent
    started = Reference(folder, environment, tmp_path_factory.mktemp("process"))
    yield started
    started.close()


@pytest.mark.parametrize("table", others.TABLES, ids=lambda table: table.name)
def test_it_reads_the_same_rows_now_and_then(lake: fh.Lake, reference: Reference, table: fh.Stream | fh.Table) -> None:
    for info in lake.history(table):
        read = reference.rows(f"SELECT * FROM foldhouse.{table.name} VERSION AS OF {info.id}")
        assert others.shown(read) == others.shown(lake.to_arrow(table, as_of=info.id))
    assert others.shown(reference.rows(f"SELECT * FROM foldhouse.{table.name}")) == others.shown(lake.to_arrow(table))


def test_it_reads_columns_that_came_widened_were_renamed_and_dropped(lake: fh.Lake, reference: Reference) -> None:
    first = fh.stream(
        "evolved.events", schema={"key": "long", "n": "int", "word": "string", "gone": "string"}, keys="key"
    )
    table = fh.table("evolved.sums", source=first, fold=fh.fold(n=fh.total("n"), word=fh.maximum("word")))
    schema = pa.schema([("key", pa.int64()), ("n", pa.int32()), ("word", pa.string()), ("gone", pa.string())])
    lake.append(
        first, pa.Table.from_pylist([{"key": k, "n": k, "word": f"w{k}", "gone": "x"} for k in range(9)], schema)
    )
    lake.refresh(table)
    now = fh.stream(
        "evolved.events", schema={"key": "long", "n": "long", "name": "string", "more": "double"}, keys="key"
    )
    lake.evolve(now, rename={"word": "name"}, drop=["gone"])
    schema = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("name", pa.string()), ("more", pa.float64())])
    rows = [{"key": k, "n": 2**40, "name": "ü", "more": k / 3} for k in range(5, 12)]
    lake.append(now, pa.Table.from_pylist(rows, schema))
    anew = fh.table("evolved.sums", source=now, fold=fh.fold(n=fh.total("n"), word=fh.maximum("name")))
    lake.rebuild(anew)
    for name in ("evolved.events", "evolved.sums"):
        assert others.shown(reference.rows(f"SELECT * FROM foldhouse.{name}")) == others.shown(lake.to_arrow(name))


@pytest.mark.heavy
def test_it_lists_every_snapshot_of_130_refreshes_and_reads_the_first_and_those_that_thinning_left(
    lake: fh.Lake, reference: Reference
) -> None:
    long = fh.stream("long.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
    newest = fh.table("long.newest", source=long, fold=fh.latest())
    for n in range(130):  # more than a table keeps files of metadata, and than manifests it merges
        lake.append(long, pa.table({"key": [n % 3], "n": [n]}))
        lake.refresh(newest)
    for table in (long, newest):
        listed = reference.rows(f"SELECT snapshot_id FROM foldhouse.{table.name}.snapshots ORDER BY committed_at")
        ids = [info.id for info in reversed(lake.history(table))]
        assert listed["snapshot_id"].to_pylist() == ids
        first = reference.rows(f"SELECT key, n FROM foldhouse.{table.name} VERSION AS OF {ids[0]}")
        assert first.to_pylist() == [{"key": 0, "n": 0}]
        tag = lake.load(table).manage_snapshots().create_tag(ids[100], "middle")
        tag.commit()
        lake.expire(table, older_than=timedelta(), in_use=timedelta(), keep_last=3)
        for info in lake.history(table):
            read = reference.rows(f"SELECT * FROM foldhouse.{table.name} VERSION AS OF {info.id}")
            assert others.shown(read) == others.shown(lake.to_arrow(table, as_of=info.id))
        lake.rollback(table, to=ids[100])
        assert others.shown(reference.rows(f"SELECT * FROM foldhouse.{table.name}")) == others.shown(
            lake.to_arrow(table)
        )
    commits = len(lake.history(long))
    reference.run("INSERT INTO foldhouse.long.events VALUES (7, 100), (8, 101)")
    assert len(lake.history(long)) == commits + 1  # what it wrote stands on all that was there
    assert lake.refresh(newest).rows_read == 2
    assert sorted(row["n"] for row in lake.to_arrow(newest).to_pylist()) == [98, 99, 100, 100, 101]


def test_it_reads_a_table_whose_times_are_a_year_ahead_and_one_whose_times_are_mended(
    lake: fh.Lake, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = fh.stream("ahead.events", schema={"n": "long"})
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("foldhouse.storage.clock.time", SimpleNamespace(time=lambda: time.time() + 365 * 86400))
        lake.append(ahead, pa.table({"n": [1]}))
    lake.append(ahead, pa.table({"n": [2]}))
    lake.rollback(ahead, to=lake.history(ahead)[-1].id)
    lake.append(ahead, pa.table({"n": [3]}))
    lake.expire(ahead, older_than=timedelta(), in_use=timedelta())
    assert reference.rows("SELECT n FROM foldhouse.ahead.events ORDER BY n")["n"].to_pylist() == [1, 3]
    assert lake.mend_clock(ahead) > timedelta(days=364)
    assert reference.rows("SELECT n FROM foldhouse.ahead.events ORDER BY n")["n"].to_pylist() == [1, 3]
    reference.run("INSERT INTO foldhouse.ahead.events VALUES (4)")
    assert sorted(lake.to_arrow(ahead)["n"].to_pylist()) == [1, 3, 4]


def test_it_reads_compressed_metadata(lake: fh.Lake, reference: Reference) -> None:
    packed = fh.stream("packed.events", schema={"n": "long"})
    lake.append(packed, pa.table({"n": [1]}))
    with lake.load(packed).transaction() as transaction:
        transaction.set_properties({"write.metadata.compression-codec": "gzip"})
    lake.append(packed, pa.table({"n": [2]}))
    assert lake.load(packed).metadata_location.endswith(".gz.metadata.json")
    assert reference.rows("SELECT n FROM foldhouse.packed.events ORDER BY n")["n"].to_pylist() == [1, 2]


def test_it_reads_only_the_rows_a_filter_leaves(lake: fh.Lake, reference: Reference) -> None:
    wanted = lake.to_arrow(others.wide).to_pylist()[0]
    key, day = wanted["key"], wanted["day"]
    read = reference.rows(f"SELECT * FROM foldhouse.{others.wide.name} WHERE key = '{key}' AND day = DATE '{day}'")
    assert others.shown(read) == [repr(wanted)]


def as_counted(changes: pa.Table) -> Counter[str]:
    order = [*sorted(set(changes.column_names) - set(CHANGE_COLUMNS)), *CHANGE_COLUMNS]
    return Counter(repr(row) for row in changes.select([c for c in order if c != "_state"]).to_pylist())


def test_its_changelog_view_agrees_with_changes_where_files_were_replaced(lake: fh.Lake, reference: Reference) -> None:
    head, *_, first = lake.history(others.events)
    reference.run(
        f"CALL foldhouse.system.create_changelog_view(table => '{others.events.name}', changelog_view => 'changelog', "
        f"options => map('start-snapshot-id', '{first.id}', 'end-snapshot-id', '{head.id}'))"
    )
    theirs = as_counted(reference.rows("SELECT * FROM changelog"))
    assert theirs == as_counted(lake.changes(others.events, after=first.id, upto=head.id))
    assert {"'INSERT'", "'DELETE'"} <= {word for row in theirs for word in row.split() for word in [word.rstrip(",")]}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_what_it_writes_is_read_and_folded(lake: fh.Lake, reference: Reference, mode: str) -> None:
    name = f"jvm.{mode.replace('-', '_')}"
    modes = ", ".join(f"'write.{what}.mode' = '{mode}'" for what in ("merge", "delete", "update"))
    reference.run("CREATE NAMESPACE IF NOT EXISTS foldhouse.jvm")
    reference.run(
        f"CREATE TABLE foldhouse.{name} (key bigint, day date, n int, amount decimal(12,2), tags array<string>) "
        f"USING iceberg PARTITIONED BY (bucket(3, key)) TBLPROPERTIES ('format-version' = '2', {modes})"
    )
    reference.run(
        f"INSERT INTO foldhouse.{name} SELECT /*+ COALESCE(1) */ id, date_add(DATE '2024-01-01', CAST(id % 5 AS int)), "
        "CAST(id AS int), CAST(id AS decimal(12,2)) / 4, array(CAST(id AS string)) FROM range(60)"
    )
    source = fh.stream(name, schema={"key": "long", "day": "date", "n": "int", "amount": "decimal(12,2)"}, keys="day")
    sums = fh.table(
        f"{name}_sums", source=source, fold=fh.fold(n=fh.total("n"), most=fh.maximum("amount"), rows=fh.count())
    )

    def agree() -> None:
        rows = reference.rows(f"SELECT * FROM foldhouse.{name}")
        assert others.shown(lake.to_arrow(name)) == others.shown(rows)
        lake.refresh(sums)
        by_day: dict[Any, list[Any]] = {}
        for row in rows.to_pylist():
            by_day.setdefault(row["day"], []).append(row)
        expected = {
            day: (sum(r["n"] for r in these), max(r["amount"] for r in these), len(these))
            for day, these in by_day.items()
        }
        found = {r["day"]: (r["n"], r["most"], r["rows"]) for r in lake.to_arrow(sums).to_pylist()}
        assert found == expected

    agree()
    reference.run(f"DELETE FROM foldhouse.{name} WHERE key % 7 = 3")
    agree()
    reference.run(
        f"MERGE INTO foldhouse.{name} AS t USING (SELECT id AS key FROM range(50, 70)) AS s ON t.key = s.key "
        "WHEN MATCHED AND t.n % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET n = -1 "
        "WHEN NOT MATCHED THEN INSERT (key, day, n, amount) VALUES (s.key, DATE '2024-01-09', 7, 1.25)"
    )
    agree()
    iceberg = lake.load(name)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    assert any(one.deletes for one in slices) == (mode == "merge-on-read")


def test_its_changelog_view_agrees_with_changes_where_buckets_were_written_anew(
    lake: fh.Lake, reference: Reference
) -> None:
    """It sees `_state` too, so every row here changes in what is published as well."""
    counted = fh.stream("anew.events", schema={"key": "long", "n": "long"}, keys="key")
    table = fh.table("anew.sums", source=counted, fold=fh.fold(n=fh.total("n"), most=fh.maximum("n")), buckets=2)
    for keys in (range(10), range(2, 13), range(12)):
        new = [{"key": key, "n": (key + 1) * len(keys)} for key in keys]
        lake.append(counted, pa.Table.from_pylist(new, pa.schema([("key", pa.int64()), ("n", pa.int64())])))
        lake.refresh(table)
    head, *_, first = lake.history(table)
    reference.run(
        f"CALL foldhouse.system.create_changelog_view(table => '{table.name}', changelog_view => 'updates', "
        f"options => map('start-snapshot-id', '{first.id}', 'end-snapshot-id', '{head.id}'), "
        "identifier_columns => array('key'))"
    )
    theirs = as_counted(reference.rows("SELECT * FROM updates"))
    assert theirs == as_counted(lake.changes(table, after=first.id, upto=head.id))
    assert len(theirs) > 30


def test_its_changelog_view_cannot_serve_delete_files_and_changes_can(lake: fh.Lake, reference: Reference) -> None:
    head, *_, first = lake.history(others.by_key)
    reference.run(
        f"CALL foldhouse.system.create_changelog_view(table => '{others.by_key.name}', changelog_view => 'none', "
        f"options => map('start-snapshot-id', '{first.id}', 'end-snapshot-id', '{head.id}'))"
    )
    with pytest.raises(RuntimeError, match="Delete files are currently not supported"):
        reference.rows("SELECT * FROM none")
    assert lake.changes(others.by_key, after=first.id, upto=head.id).num_rows


def test_deletion_vectors_are_refused_by_name(lake: fh.Lake, reference: Reference) -> None:
    reference.run("CREATE NAMESPACE IF NOT EXISTS foldhouse.jvm")
    reference.run(
        "CREATE TABLE foldhouse.jvm.third (key bigint) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    reference.run("INSERT INTO foldhouse.jvm.third SELECT /*+ COALESCE(1) */ id FROM range(60)")
    reference.run("DELETE FROM foldhouse.jvm.third WHERE key % 7 = 3")
    with pytest.raises(fh.Unsupported, match=r"jvm\.third contains deletes as PUFFIN"):
        lake.to_arrow("jvm.third")
