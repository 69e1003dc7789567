"""Hostile arguments of a lake are answered or refused with an error of ours; nothing hangs, and memory stays small."""

from __future__ import annotations

import contextlib
import itertools
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
import pytest

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog

MOST_GROWTH_MB = 500
PARTS = 8


def _no_spark() -> None:
    raise fh.FoldhouseError("these calls need no JVM")


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "linux" else 2**20)


def _forget_peak() -> None:
    """Let this process's highest memory be what it has now, where the system can: other tests ran in it before."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _outcomes(folder: Path, calls: Iterator[hostile.Call]) -> tuple[int, list[str]]:
    raw, number = [], 0
    lake = fh.Lake(open_local_catalog(folder / "lake"), _no_spark)  # type: ignore[arg-type]
    lake.append(hostile.events, hostile.ROWS)
    lake.refresh(hostile.totals)
    for call in calls:
        number += 1
        try:
            call(lake)
        except fh.FoldhouseError:
            continue
        except Exception as failure:
            raw.append(f"{type(failure).__name__}: {failure} from {str(call.__defaults__)[:200]}")
    lake.close()
    return number, raw


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", [hostile.declarations, hostile.calls])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_call_ends_in_a_raw_error(kind: Callable[[], Iterator[hostile.Call]], part: int, tmp_path: Path) -> None:
    _forget_peak()
    before = _peak_mb()
    number, raw = _outcomes(tmp_path, itertools.islice(kind(), part, None, PARTS))
    assert raw == []
    assert number > 100
    assert _peak_mb() - before < MOST_GROWTH_MB


def test_a_wrong_signature_is_a_type_error_as_everywhere_in_python(lake: fh.Lake) -> None:
    with pytest.raises(TypeError):
        lake.to_arrow()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        lake.to_arrow("a.b", nonsense=1)  # type: ignore[call-arg]


GARBAGE = [
    "",
    "garbage",
    "[]",
    "null",
    "-1",
    '{"h.events": null}',
    '{"h.events": {"uuid": 1, "snapshot": "x"}}',
    "9" * 400,
]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    "key",
    ["foldhouse.position", "foldhouse.coverage", "foldhouse.definition", "foldhouse.rows", "foldhouse.null-key-rows",
     "foldhouse.null-sequence-rows", "foldhouse.deleted-upto"],
)  # fmt: skip
def test_garbage_in_our_own_summary_is_refused_by_name(key: str, garbage: str, lake: fh.Lake) -> None:
    from pyiceberg.table.snapshots import Operation

    from foldhouse.storage.commit import FileChanges, commit

    lake.append(hostile.events, hostile.ROWS)
    lake.refresh(hostile.totals)
    iceberg = lake.load(hostile.totals)
    before = {k: v for k, v in lake.head(hostile.totals).summary.items() if k.startswith("foldhouse.")}  # type: ignore[union-attr]
    commit(lake.catalog, iceberg, FileChanges(operation=Operation.OVERWRITE), {**before, key: garbage})
    lake.append(hostile.events, hostile.ROWS)
    for call in (lake.refresh, lake.count, lake.compact, lake.expire, lake.rebuild):
        try:
            call(hostile.totals)  # type: ignore[operator]
        except fh.FoldhouseError:
            continue
