"""Fixtures for all tests: one Spark session, lakes in temporary folders, and the year of invoices."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from py4j.protocol import Py4JError
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parent.parent
REMOTE = "FOLDHOUSE_TEST_REMOTE"
"""The environment variable that has the tests run on a Spark Connect server, or on a cluster, by its address."""
EVERY = "FOLDHOUSE_TEST_EVERY"
"""The environment variable that has every second, third, ... case of a test run, on a Connect server."""
for folder in (ROOT, ROOT / "tests", ROOT / "examples"):
    sys.path.insert(0, str(folder))
# Most JVMs of the tests live for seconds, and would spend most of that on optimising code for years of use. Without
# that, Java keeps 48 MB for compiled code, which thousands of queries fill; it then compiles no more.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m")

import foldhouse as fh  # noqa: E402
from foldhouse.storage.catalog import open_local_catalog  # noqa: E402

# A machine that is busy is no failure.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("steady")


class _ByFile(LoadFileScheduling):
    """The tests of a file in one process, as fixtures are shared; but long histories, which share nothing, in any."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if "::test_the_law_holds_over_many_histories[" in nodeid else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    return _ByFile(config, log)


_FIRST = ("integration", "laws", "location", "contract", "lake", "unit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the folders whose files take minutes: one that begins last keeps the other process waiting."""
    if os.environ.get(REMOTE, "").startswith("sc://"):
        left_out = {item for item in items if item.get_closest_marker("spark") and not _runs_over_connect(item)}
        left_out |= _all_but_every(int(os.environ.get(EVERY, 1)), [item for item in items if item not in left_out])
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: _FIRST.index(item.path.relative_to(ROOT / "tests").parts[0]))


def _runs_over_connect(item: pytest.Item) -> bool:
    """A test that is run once more on a Connect server: it uses the session of all tests, and any kind of session."""
    return "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("classic")


def _all_but_every(count: int, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return all cases of each test but every second, third, ... one; which one comes first differs between tests.

    Of a test with fewer cases, one may be kept, or none: that depends on its name.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for name, those in cases.items() for item in those[zlib.crc32(name.encode()) % count :: count]}
    return set(items) - kept


_OF_THE_TESTS = {"spark.driver.memory": "3g", "spark.buffer.pageSize": "4m", "spark.sql.shuffle.partitions": "2"}
"""One process runs thousands of jobs; each operator of each task takes a page, by default of 64 MB.

A shuffle has a task for each core: four would take longer by a quarter over few rows. Connect servers have four.
"""
_LAST: list[str] = []
"""The test of this process that used the session last."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail with the end of Spark's Java process, and the test that it ended in, instead of a refused connection."""
    if "spark" not in getattr(item, "fixturenames", ()):
        return
    from foldhouse.spark.process import how_java_ended

    if _LAST and (how := how_java_ended(within_seconds=0)):
        pytest.fail(f"{how} (in or after {_LAST[0]})", pytrace=False)
    _LAST[:] = [item.nodeid]


@pytest.fixture(scope="session", autouse=True)
def _compiled_in_a_folder_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No process of a test reads what one of another run compiled."""
    os.environ["FOLDHOUSE_COMPILED"] = str(tmp_path_factory.mktemp("compiled") / "compiled")


@pytest.fixture(scope="session")
def spark():
    """The one Spark session of the whole run; of each process, where it runs in two."""
    from foldhouse.spark.session import local_session, session_of

    remote = os.environ.get(REMOTE)
    session = session_of(remote) if remote else local_session("local[2]", **_OF_THE_TESTS)
    yield session
    with contextlib.suppress(ConnectionError, Py4JError):  # its Java process ended: the tests have said so
        session.stop()


def _no_spark():
    raise AssertionError("this test must not need a JVM")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[fh.Lake]:
    """A lake that must do without Spark."""
    opened = fh.Lake(open_local_catalog(tmp_path / "lake"), _no_spark)
    yield opened
    opened.close()


_KEPT: dict[Callable[[fh.Lake], object], Path] = {}
"""What prepares a lake -> where that lake is; a copy of it lies beside."""


@pytest.fixture
def kept_lake(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., fh.Lake]]:
    """Opens a lake as a function prepares it, which is called once: each time it is opened, the lake is put back.

    Metadata names files by whole paths, so that a lake can only be put back where it was: `lake` in the folder of the
    test is a link to it.
    """
    opened: list[fh.Lake] = []

    def open_lake(prepare: Callable[[fh.Lake], object]) -> fh.Lake:
        if prepare not in _KEPT:
            root = tmp_path_factory.mktemp("kept") / "lake"
            prepared = fh.Lake(open_local_catalog(root), _no_spark)
            prepare(prepared)
            prepared.close()
            shutil.copytree(root, root.with_name("copy"))
            _KEPT[prepare] = root
        root = _KEPT[prepare]
        shutil.rmtree(root)
        shutil.copytree(root.with_name("copy"), root)
        (tmp_path / "lake").unlink(missing_ok=True)
        (tmp_path / "lake").symlink_to(root)
        opened.append(fh.Lake(open_local_catalog(root), _no_spark))
        return opened[-1]

    yield open_lake
    for one in opened:
        one.close()


@pytest.fixture
def spark_lake(tmp_path: Path, spark) -> Iterator[Callable[..., fh.Lake]]:
    """Opens lakes over the shared session; `in_process_rows=0` sends every fold to Spark's tasks."""
    opened: list[fh.Lake] = []

    def open_lake(name: str = "lake", **options: Any) -> fh.Lake:
        catalog = open_local_catalog(tmp_path / name)
        opened.append(fh.Lake(catalog, lambda: spark, **options))
        return opened[-1]

    yield open_lake
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def retail_folder() -> Path:
    """The real year of invoices: 305 files, one a trading day."""
    folder = Path(os.environ.get("FOLDHOUSE_RETAIL", ROOT.parent / "shared" / "data" / "online-retail"))
    if not folder.is_dir():
        pytest.skip(f"the year of invoices is not at {folder}; set FOLDHOUSE_RETAIL to its folder")
    return folder
