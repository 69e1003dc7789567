"""`foldhouse warm`: Java maps the archive that it wrote, and starts without one that is broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foldhouse.spark.class_archive import archive_file
from tests.conftest import ROOT

_STARTED = """
from pyspark import SparkContext
from foldhouse.spark.session import local_session
rows = local_session("local[1]").range(3).count()
with open(f"/proc/{SparkContext._gateway.proc.pid}/maps") as maps:
    print(rows, "foldhouse/spark-" in maps.read())
"""


@pytest.mark.heavy
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_java_maps_the_archive_and_starts_without_a_broken_one(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = archive_file()
    assert made is not None
    archive = cache / "foldhouse" / made.name
    if made.is_file():  # by `foldhouse warm`, as in CI, where making it once more takes most of a minute
        archive.parent.mkdir(mode=0o700, parents=True)
        shutil.copy2(made, archive)
    else:
        said = json.loads(run(str(Path(sys.executable).with_name("foldhouse")), "warm", "--json"))
        assert said == {"archive": str(archive), "bytes": archive.stat().st_size}
    assert archive.stat().st_mode & 0o777 == 0o600
    assert run("-c", _STARTED) == "3 True\n"
    with archive.open("r+b") as broken:
        broken.seek(archive.stat().st_size // 2)
        broken.write(os.urandom(2**20))
    assert run("-c", _STARTED) == "3 False\n"
