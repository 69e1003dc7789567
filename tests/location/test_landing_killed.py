"""A landing is killed between its commit and its second look at the file; the sensor sees it, the next run mends it.

This file is also the process that is killed: started as a script, it lands the third day and stops after its commit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from foldhouse.dagster import land_days as landing
from tests.location.test_landed_files import FORMAT, Shop, orders, rejected

THIRD = date(2024, 3, 3)


class _Report:
    def committed(self, *about: object) -> None:
        """Nobody reads it."""


def _stop(at: str) -> None:
    """Say that the moment came, and wait to be killed."""
    print(at, flush=True)
    sys.stdin.readline()
    os._exit(1)


def land_until(folder: Path, moment: str) -> None:
    """Land the third day; stop after the file was read, and for good at a moment."""
    shop = Shop(folder)
    land, replace = landing._Reading._commit, shop.lake.replace
    commits: list[str] = []

    def committed(self: object, landed: object) -> None:
        print("read", flush=True)
        sys.stdin.readline()
        land(self, landed)  # type: ignore[arg-type]

    def replaced(stream: object, *args: object, **kwargs: object) -> object:
        done = replace(stream, *args, **kwargs)  # type: ignore[arg-type]
        commits.append(stream.name)  # type: ignore[attr-defined]
        if moment == f"committed {commits[-1]}":
            _stop(moment)
        return done

    shop.lake.replace = replaced  # type: ignore[method-assign]
    landing._Reading._commit = committed  # type: ignore[method-assign]
    landing._Reading.changed = lambda self, days: _stop("second look") or set()  # type: ignore[method-assign]
    target = landing.LandingTarget(shop.lake, shop.folder.open(FORMAT), orders, rejected)
    landing.land_days(target, [THIRD], _Report())  # type: ignore[arg-type]


@pytest.fixture
def shop(tmp_path):
    """Two days that landed, and a sensor that has seen that."""
    shop = Shop(tmp_path)
    shop.write(3, 1, "x")
    shop.write(4, 1)
    shop.land(3, 4)
    assert shop.look() == []
    yield shop
    shop.lake.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "keeps_its_time"),
    [
        (f"committed {rejected.name}", True),
        (f"committed {orders.name}", False),
        ("second look", False),
        ("second look", True),
    ],
)
def test_a_landing_that_is_killed_before_its_second_look_is_mended_by_the_sensor(shop, moment, keeps_its_time):
    """The older content is read; the newer one, which the day holds, is put back; the older one is committed."""
    file = shop.folder.path / f"{THIRD}.csv"
    newer, when = file.read_text(), file.stat()
    shop.write(3, 5, 6, "y", "z")
    process = subprocess.Popen(
        [sys.executable, __file__, str(shop.tmp_path), moment],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "read\n"
        file.write_text(newer)
        if keeps_its_time:  # as `cp -p`, `rsync -t` and a restored backup have it
            os.utime(file, ns=(when.st_atime_ns, when.st_mtime_ns))
        shop.land(3, 3)  # has nothing to commit
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{moment}\n"
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    is_older = moment != f"committed {rejected.name}"
    assert ((3, 5) in shop.rows()) == is_older, "only what was committed last is the older content"
    assert shop.look() == ["3"], "the sensor that saw the newer content land asks for its day again"
    shop.land(3, 3)
    assert shop.rows() == [(3, 1), (4, 1)]
    assert shop.lake.to_arrow(rejected)["raw"].to_pylist() == ["x,2024-03-03 08:00:00"]
    assert shop.look() == []
    shop.cursor = None
    # Only the quarantine was committed again, so the stream's proof is about files that are gone: one run too many.
    assert shop.look() == ([] if is_older else ["3"])
    shop.land(3, 3)
    assert shop.rows() == [(3, 1), (4, 1)]


if __name__ == "__main__":
    land_until(Path(sys.argv[1]), sys.argv[2])
