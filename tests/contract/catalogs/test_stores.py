"""Tables in a store, read and folded in Spark's tasks, with credentials that are sent nowhere."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import catalog_servers
import pyarrow as pa
import pytest
from contract.catalogs.conftest import STORED, Servers, configure

import foldhouse as fh
from foldhouse.storage.configured import open_catalog
from foldhouse.storage.credentials import Credentials, separated
from foldhouse.storage.schema import Layout

SECRET = catalog_servers.SECRET_KEY
TESTS = Path(catalog_servers.__file__).parent
# Its own process, so that the workers of its Spark have the configuration that a deployment gives them.
_WORK = """
import sys, logging, pyarrow as pa, foldhouse as fh
from sent_to_tasks import check_no_secret
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[1])
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, rows=lambda one: one.where("n % 3 >= 0"),
                  fold=fh.fold(n=fh.total("n"), rows=fh.count()))
lake = fh.Lake.open("c", master="local[2]", in_process_rows=0)
for batch in range(2):
    keys = [str(n % 7) for n in range(1000)]
    lake.append(events, pa.table({"key": keys, "n": pa.array(range(1000), pa.int32())}))
    lake.refresh(totals)
assert lake.verify(totals).wrong == 0
names = fh.stream("c.names", schema={"key": "string", "name": "string"})
named = fh.table("c.named", source=[events, names], rows=lambda events, names: events.join(names, "key"), keys="name",
                 fold=fh.fold(n=fh.total("n")))
lake.append(names, pa.table({"key": ["1", "2"], "name": ["one", "two"]}))
lake.refresh(named)
lake.append(names, pa.table({"key": ["3"], "name": ["two"]}))
lake.refresh(named)
by_key = {row["key"]: row["n"] for row in lake.to_arrow(totals).to_pylist()}
assert {row["name"]: row["n"] for row in lake.to_arrow(named).to_pylist()} == {
    "one": by_key["1"], "two": by_key["2"] + by_key["3"]}
rows = {row["key"]: row["n"] for row in lake.read(totals).collect()}
assert rows == {str(k): 2 * sum(n for n in range(1000) if n % 7 == k) for k in range(7)}, rows
check_no_secret(sys.argv[2], lake)
print("done")
lake.spark.stop()
"""


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["Postgres and S3", "REST and S3", *STORED])
def test_spark_folds_and_reads_tables_in_a_store_and_no_task_is_sent_the_secret(
    servers: Servers, tmp_path: Path, name: str
) -> None:
    given = servers.configuration(name, tmp_path)
    told = {f"PYICEBERG_CATALOG__C__{k.upper().replace('.', '__').replace('-', '_')}": v for k, v in given.items()}
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(log), SECRET],
        env={**os.environ, **told, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.endswith("done\n"), done.stderr[-3000:]
    assert SECRET not in done.stderr
    assert SECRET not in log.read_text()


_OPENS = """
import sys, foldhouse as fh
print("ready", flush=True)
sys.stdin.readline()
lake = fh.Lake.open("c")
lake.append(fh.stream("c.events", schema={"n": "int"}), [{"n": int(sys.argv[1])}])
"""


@pytest.mark.heavy
def test_eight_processes_open_a_new_catalog_on_postgres_at_once(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, "c", servers.configuration("Postgres and files", tmp_path))
    command = [sys.executable, "-c", _OPENS]
    running = [
        subprocess.Popen(
            [*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for n in range(8)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    try:
        said = [one.communicate(timeout=300)[1] for one in running]
    finally:
        for one in running:  # one that is left over would make the next tests fail, too
            if one.poll() is None:
                one.kill()
                one.communicate()
    assert [one.returncode for one in running] == [0] * 8, said
    lake = fh.Lake.open("c")
    assert sorted(lake.to_arrow("c.events")["n"].to_pylist()) == list(range(8))
    lake.close()


def test_a_layout_is_pickled_without_its_credentials_and_finds_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w", "s3.secret-access-key": SECRET}
    configure(monkeypatch, "c", given)
    lake = fh.Lake(open_catalog("c"), lambda: pytest.fail("no JVM is needed"))
    events = fh.stream("c.events", schema={"n": "int"})
    lake.append(events, pa.table({"n": pa.array([1], pa.int32())}))
    layout = Layout.of(lake.load(events))
    sent = pickle.dumps(layout)
    assert SECRET.encode() not in sent
    assert SECRET not in repr(layout)
    assert pickle.loads(sent).io.properties["s3.secret-access-key"] == SECRET
    assert pickle.loads(sent) == layout == Layout.of(lake.load(events))
    lake.close()


def test_another_process_takes_the_credentials_from_its_own_configuration_or_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = Credentials("c", ("s3.secret-access-key",), "a token of another process")
    with pytest.raises(fh.StorageError, match=r"has no s3\.secret-access-key of catalog c.*not sent with tasks"):
        elsewhere.values()
    configure(monkeypatch, "c", {"s3.secret-access-key": SECRET, "uri": "sqlite:///nowhere.db"})
    assert elsewhere.values() == {"s3.secret-access-key": SECRET}


def test_the_address_of_a_catalog_is_not_sent_if_it_has_a_password() -> None:
    given = {"uri": "postgresql://fold:pass-word@db/x", "warehouse": "s3://b", "s3.region": "eu"}
    assert separated("c", given) == ({"warehouse": "s3://b", "s3.region": "eu"}, Credentials())
