"""Spark's own connector for S3, by the recipe of docs/production.md, and half of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import catalog_servers
import pytest
from contract.catalogs.conftest import Servers

pytestmark = pytest.mark.heavy
# Its own process, because Spark's settings are those of a process.
_WORK = """
import logging, sys, pyarrow as pa, foldhouse as fh
logging.getLogger("foldhouse").setLevel(logging.INFO)
logging.basicConfig(stream=sys.stdout)
events = fh.stream("c.events", schema={"key": "string", "n": "int"}, keys="key", sequence_by="n")
latest = fh.table("c.latest", source=events, fold=fh.latest())
joined = fh.table("c.joined", source=events, keys="n", rows=lambda one: one.selectExpr("n % 5 AS n", "1 AS m"),
                  fold=fh.fold(m=fh.total("m")))
lake = fh.Lake.open("c", master="local[2]", in_process_rows=0)
for batch in range(3):
    numbers = range(batch * 100, batch * 100 + 100)
    lake.append(events, pa.table({"key": [f"k{n % 70}" for n in numbers], "n": pa.array(numbers, pa.int32())}))
    lake.refresh(latest)
    lake.refresh(joined)
for name in ("c.events", "c.latest", "c.joined"):
    by_spark = sorted(map(str, (row.asDict() for row in lake.read(name).collect())))
    assert by_spark == sorted(map(str, lake.to_arrow(name).to_pylist())), name
assert lake.verify(latest).wrong == 0
print("done", flush=True)
lake.spark.stop()
"""
_READ = """
import pyarrow as pa, foldhouse as fh
events = fh.stream("c.events", schema={"n": "int"})
lake = fh.Lake.open("c", master="local[1]")
lake.append(events, pa.table({"n": pa.array([1], pa.int32())}))
lake.read(events).collect()
"""


def run(work: str, servers: Servers, tmp_path: Path, jars: list[Path]) -> subprocess.CompletedProcess[str]:
    given = servers.configuration("Postgres and S3", tmp_path)
    told = {f"PYICEBERG_CATALOG__C__{k.upper().replace('.', '__').replace('-', '_')}": v for k, v in given.items()}
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": given["s3.endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": given["s3.region"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{k} {v}\n" for k, v in settings.items()))
    keys = {"AWS_ACCESS_KEY_ID": catalog_servers.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": catalog_servers.SECRET_KEY}
    return subprocess.run(
        [sys.executable, "-c", work],
        env={**os.environ, **told, **keys, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_spark_reads_tables_of_s3_with_its_own_connector(servers: Servers, tmp_path: Path) -> None:
    done = run(_WORK, servers, tmp_path, servers.s3a())
    assert done.stdout.endswith("done\n"), done.stderr[-3000:]
    assert done.stdout.count("Spark reads s3:// with its own connector") == 1
    assert "with Arrow" not in done.stdout
    assert catalog_servers.SECRET_KEY not in done.stdout + done.stderr


def test_half_a_connector_is_one_error(servers: Servers, tmp_path: Path) -> None:
    done = run(_READ, servers, tmp_path, [])
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("foldhouse.errors.ConfigurationError: "), last
    assert "half a connector for s3://: org.apache.hadoop.fs.s3a.S3AFileSystem is missing" in last
