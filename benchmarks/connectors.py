"""Two ways in which Spark's tasks read S3: Arrow, which needs no connector, and Hadoop's s3a.

Two processes with a Spark of their own take turns on the same files of one S3, moto on this machine. Each reads the
whole stream, folds it from the beginning, and refreshes its table by changes. The logic is one that only Spark
evaluates, and every fold is in its tasks, so that all events are read in one of the two ways. moto has no latency of a
network; it answers one request after another, in Python.

    python -m benchmarks.connectors NAME     one of the two processes, driven by lines of its standard input
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.contenders import sql
from benchmarks.contenders.foldhouse_refresh import TABLES, events
from benchmarks.events import batches
from benchmarks.histories import ROOT, Steps

WAYS = ("arrow", "s3a")
_CATALOG = "BENCH"
_CONNECTOR = {
    "arrow": "Spark's tasks read s3:// with Arrow",
    "s3a": "Spark reads s3:// with its own connector",
}


def table_of(way: str) -> fh.Table:
    """Return the table of a way, with logic that only Spark evaluates."""
    return fh.table(
        f"bench.by_{way}",
        source=events,
        buckets=4,
        rows=lambda given: given.where("xxhash64(key) <> 0"),
        fold=TABLES["latest"].fold,
    )


def turns(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Read, fold and refresh in turns; both have to hold the same rows."""
    given = batches(work / "data", rows, changes, "uniform", rounds + 1)
    with _served(folder) as variables, contextlib.ExitStack() as stack:
        lake = fh.Lake.open(_CATALOG.lower())
        stack.callback(lake.close)
        for part in sorted(given.base.glob("*.parquet")):
            lake.append(events, pq.read_table(part))
        ways = {way: stack.enter_context(_process(way, folder, variables)) for way in WAYS}
        for number, batch in enumerate(given.changes[: rounds + 1]):
            lake.append(events, pq.read_table(batch))
            for name, one in ways.items():
                for what in ("refresh", "rebuild", "read"):
                    is_timed = number > 0  # the first warms up the process
                    with steps(f"{name}_{what}") if is_timed else contextlib.nullcontext():
                        _ask(one, what)
        found = [lake.to_arrow(table_of(way)).sort_by("key") for way in WAYS]
        assert found[0].equals(found[1]), "the two tables differ"
        files = [task.file.file_size_in_bytes for task in lake.load(events).scan().plan_files()]
        said = {name: _ask(one, "how") for name, one in ways.items()}
        assert said == _CONNECTOR, said
    return {"files": len(files), "source_bytes": sum(files)}


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[dict[str, str]]:
    """Start S3, and configure a catalog in a file for this process and, by the variables, for others."""
    sys.path.insert(0, str(ROOT / "tests"))
    import catalog_servers

    with contextlib.ExitStack() as stack:
        s3 = stack.enter_context(catalog_servers.s3())
        place = {"uri": f"sqlite:///{folder}/bench.db", "warehouse": f"s3://{catalog_servers.BUCKET}/bench"}
        variables = {
            f"PYICEBERG_CATALOG__{_CATALOG}__{name.upper().replace('.', '__').replace('-', '_')}": text
            for name, text in {**s3, **place}.items()
        }
        settings = {
            "spark.jars": ",".join(map(str, catalog_servers.s3a())),
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": s3["s3.endpoint"],
            "spark.hadoop.fs.s3a.endpoint.region": s3["s3.region"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
        for way, told in (("arrow", {}), ("s3a", settings)):
            (folder / way).mkdir()
            text = "".join(f"{name} {value}\n" for name, value in told.items())
            (folder / way / "spark-defaults.conf").write_text(text)
        keys = {"AWS_ACCESS_KEY_ID": s3["s3.access-key-id"], "AWS_SECRET_ACCESS_KEY": s3["s3.secret-access-key"]}
        for name, text in {**variables, **keys}.items():
            os.environ[name] = text
            stack.callback(os.environ.pop, name, None)
        yield {**variables, **keys}


@contextlib.contextmanager
def _process(way: str, folder: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **variables, "SPARK_CONF_DIR": str(folder / way), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmarks.connectors", way]
    with (folder / f"{way}.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield process
    finally:
        process.communicate(timeout=60)  # its standard input is closed, which ends it
        if process.returncode:
            print((folder / f"{way}.log").read_text()[-3000:], file=sys.stderr)


def _ask(process: subprocess.Popen[str], what: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended while it did {what}")
    found: str = json.loads(line)
    return found


def missing() -> str:
    """Return what the suite needs and is not here; nothing if it can run."""
    sys.path.insert(0, str(ROOT / "tests"))
    import catalog_servers

    try:
        catalog_servers.s3a()
    except catalog_servers.Missing as needed:
        return str(needed)
    return catalog_servers.missing()


def main(way: str) -> None:
    """Do what each line says, with a Spark of this process."""
    import logging

    said: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("foldhouse.spark").addHandler(handler)
    logging.getLogger("foldhouse.spark").setLevel(logging.INFO)
    lake, table = fh.Lake.open(_CATALOG.lower(), master="local[2]", in_process_rows=0), table_of(way)
    for line in sys.stdin:
        answer = ""
        match line.strip():
            case "refresh":
                lake.refresh(table)
            case "rebuild":
                lake.rebuild(table)
            case "read":
                frame = lake.read(events)
                frame.selectExpr("count(*)", *(sql.summed(name) for name in sql.COLUMNS["latest"])).first()
            case "how":
                answer = next(text for text in _CONNECTOR.values() if any(one.startswith(text) for one in said))
        print(json.dumps(answer), flush=True)
    lake.spark.stop()
    lake.close()


if __name__ == "__main__":
    main(sys.argv[1])
