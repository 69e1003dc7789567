"""Lakes in the troubles of the runbook: one function a section, found by the heading of the section.

Most use the project of `foldhouse init shop`, with three days of payments. Those of files use the job `retail`.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from string import Template
from types import ModuleType
from typing import Any

import corrupting
import polars as pl
import pytest
from expiring import Clock
from pyiceberg.io.pyarrow import PyArrowFile

import foldhouse as fh
from foldhouse.cli.template import FILES
from foldhouse.dagster.found_days import asking_for
from foldhouse.kernel import combine
from foldhouse.testing import FaultyCatalog

ROOT = Path(__file__).parent.parent
DAYS = [date(2024, 3, day) for day in (4, 5, 6)]
WITHOUT_COMMANDS = {"Keep tables up to date", "The Dagster page", "What each error means"}
WITHOUT_COMMANDS |= {"The catalog of a server is lost"}  # tests/contract/catalogs/test_lost_tables.py does what it says
_MODULES = ("shop", "definitions", "assets", "resources", "jobs")


@dataclass
class Place:
    """The folder of a section, as its commands find it.

    Args:
        folder: where they run.
        patch: undone after the section.
        names: what the Python of the section finds.
    """

    folder: Path
    patch: pytest.MonkeyPatch
    names: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def lake(self) -> Iterator[fh.Lake]:
        """The lake of the folder, for as long as a block."""
        lake = fh.Lake.local(self.folder / "lake")
        try:
            yield lake
        finally:
            lake.close()

    def forget_modules(self) -> dict[str, ModuleType]:
        """Have the next import read its file; return what was imported."""
        names = [name for name in sys.modules if name.partition(".")[0] in _MODULES]
        return {name: sys.modules.pop(name) for name in names}

    @contextmanager
    def with_own_modules(self) -> Iterator[None]:
        """Import from this folder for as long as a block; afterwards, what was imported before is back."""
        of_others = self.forget_modules()
        try:
            yield
        finally:
            self.forget_modules()
            sys.modules.update(of_others)

    def shop(self) -> ModuleType:
        """The declarations of the project."""
        importlib.invalidate_caches()
        # The commands run in this process and do not load it again; a process of its own is asked for its days first.
        with asking_for(DAYS[0], DAYS[-1]):
            return importlib.import_module("shop.payments")

    def declare(self, before: str, after: str) -> None:
        """Change the declarations."""
        path = self.folder / "shop" / "payments.py"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))
        self.forget_modules()


@dataclass(frozen=True)
class Trouble:
    """How the lake of a section is prepared."""

    prepare: Callable[[Place], None]
    needs_spark: bool


TROUBLES: dict[str, Trouble] = {}


def trouble(heading: str, *, spark: bool = False) -> Callable[[Callable[[Place], None]], Callable[[Place], None]]:
    """Name the section that a function prepares."""

    def named(prepare: Callable[[Place], None]) -> Callable[[Place], None]:
        assert heading not in TROUBLES
        TROUBLES[heading] = Trouble(prepare, spark)
        return prepare

    return named


def project(place: Place) -> None:
    """What `foldhouse init shop` writes, with README commands for the days from 2024-03-04 on."""
    given = {"name": "shop", "first": DAYS[0], "last": DAYS[-1]}
    for path, text in FILES.items():
        file = place.folder / Template(path).substitute(given)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(text).substitute(given))


def land(place: Place, *days: date) -> None:
    """Land days of payments, as the job does."""
    shop = place.shop()
    with place.lake() as lake:
        for day in days:
            lake.replace(shop.payments, shop.payments_of(day), partitions=[day])


def fold(place: Place, *days: date) -> None:
    """Fold what is new into every table."""
    shop = place.shop()
    with place.lake() as lake:
        lake.refresh(shop.balances)
        lake.backfill(shop.daily_revenue, days)
        lake.refresh(shop.loyalty)


def folded(place: Place) -> None:
    """A project of three days, all folded day by day."""
    project(place)
    for day in DAYS:
        land(place, day)
        fold(place, day)


def pay(place: Place, customer: str, amount: str, *, day: date = DAYS[-1], number: int = 100) -> None:
    """Append one payment."""
    paid = {"day": day, "payment_id": f"{day}-{number}", "paid_at": datetime(day.year, day.month, day.day, 9)}
    with place.lake() as lake:
        lake.append(place.shop().payments, [{**paid, "customer": customer, "amount": Decimal(amount)}])


@trouble("First look")
def _first_look(place: Place) -> None:
    folded(place)
    pay(place, "ada", "9.00")


@trouble("A table is behind")
def _behind(place: Place) -> None:
    project(place)
    land(place, DAYS[0])
    fold(place, DAYS[0])
    land(place, *DAYS[1:])


@trouble("A run was killed")
def _killed(place: Place) -> None:
    project(place)
    land(place, *DAYS[:2])
    fold(place, *DAYS[:2])
    land(place, DAYS[2])
    with place.lake() as lake:  # the run got as far as one of three tables
        lake.refresh(place.shop().balances)
        _left_by_a_killed_run(place, lake)


def _left_by_a_killed_run(place: Place, lake: fh.Lake) -> None:
    before = set((place.folder / "lake" / "warehouse").rglob("*.parquet"))
    killed = fh.Lake(FaultyCatalog(lake.catalog).fails_before(KeyboardInterrupt()), lambda: lake.spark)
    with pytest.raises(KeyboardInterrupt):
        killed.refresh(place.shop().loyalty)
    then = time.time() - 2 * 86_400
    for path in set((place.folder / "lake" / "warehouse").rglob("*.parquet")) - before:
        os.utime(path, (then, then))


@trouble("Events were landed twice")
def _twice(place: Place) -> None:
    project(place)
    place.declare('    event_id="payment_id",\n', "")
    land(place, *DAYS[:2])
    fold(place, *DAYS[:2])
    shop = place.shop()
    with place.lake() as lake:
        for _ in range(2):
            lake.append(shop.payments, shop.payments_of(DAYS[2]))
    fold(place, DAYS[2])


@trouble("A check fails")
def _check_fails(place: Place) -> None:
    project(place)
    place.declare('fh.between("payments", 1)', 'fh.between("balance", 0)')
    for day in DAYS[:2]:
        land(place, day)
        fold(place, day)
    for number, (customer, amount) in enumerate({"ada": 1, "bob": -99_999, "cleo": 1, "dan": 1}.items(), 100):
        pay(place, customer, f"{amount}.00", day=DAYS[1], number=number)


@trouble("A table looks wrong", spark=True)
def _wrong(place: Place) -> None:
    with_a_fault(place)


@trouble("Two tables must agree")
def _disagree(place: Place) -> None:
    with_a_fault(place)


@trouble("A table must not move")
def _must_not_move(place: Place) -> None:
    project(place)
    land(place, *DAYS[:2])
    fold(place, *DAYS[:2])
    land(place, DAYS[2])


@trouble("A state must be kept")
def _kept(place: Place) -> None:
    folded(place)


def with_a_fault(place: Place) -> None:
    """A project of three days; the balance of one customer is wrong since the second."""
    project(place)
    real = combine._counted

    def losing(plan: Any, joined: Any) -> Any:
        after, vanished = real(plan, joined)
        if "balance" not in after.columns or "customer" not in after.columns:
            return after, vanished
        cent = pl.when(pl.col("customer") == "bob").then(pl.col("balance") + 1).otherwise(pl.col("balance"))
        return after.with_columns(cent.cast(after.schema["balance"]).alias("balance")), vanished

    for number, day in enumerate(DAYS):
        land(place, day)
        with pytest.MonkeyPatch.context() as patch:
            if number == 1:  # a fault of our own, in one of three commits
                patch.setattr(combine, "_counted", losing)
            fold(place, day)


@trouble("A table must go back")
def _back(place: Place) -> None:
    folded(place)


@trouble("A declaration was changed")
def _changed(place: Place) -> None:
    folded(place)
    place.declare(
        "payments=fh.count(), last_paid_at", 'payments=fh.count(), largest=fh.maximum("amount"), last_paid_at'
    )
    land(place, date(2024, 3, 7))


@trouble("A source was rolled back")
def _source_back(place: Place) -> None:
    folded(place)
    shop = place.shop()
    with place.lake() as lake:
        lake.rollback(shop.payments, to=lake.history(shop.payments)[1].id)


@trouble("A source was dropped and created again")
def _source_replaced(place: Place) -> None:
    folded(place)
    with place.lake() as lake:
        lake.catalog.purge_table("shop.payments")
    land(place, *DAYS)


@trouble("Somebody else committed")
def _foreign(place: Place) -> None:
    folded(place)
    with place.lake() as lake:
        rows = lake.load("shop.balances").scan(limit=1).to_arrow()
        lake.catalog.load_table("shop.balances").append(rows)
    land(place, date(2024, 3, 7))


@trouble("Another process commits to the same table")
def _two_writers(place: Place) -> None:
    folded(place)
    pay(place, "ada", "9.00")


@trouble("History is gone")
def _history_gone(place: Place) -> None:
    folded(place)
    pay(place, "ada", "9.00")
    with place.lake() as lake:
        iceberg = lake.load("shop.payments")
        gone = [one.snapshot_id for one in iceberg.snapshots()][:-1]
        iceberg.maintenance.expire_snapshots().by_ids(gone).commit()


@trouble("A clock was wrong")
def _clock(place: Place) -> None:
    folded(place)

    with pytest.MonkeyPatch.context() as patch:
        Clock(patch, datetime.now(UTC) + timedelta(days=1))
        pay(place, "ada", "9.00")


@trouble("The catalog is lost")
def _lost(place: Place) -> None:
    folded(place)
    for path in (place.folder / "lake").glob("catalog.db*"):
        path.unlink()


@trouble("A file of the lake is damaged")
def _damaged(place: Place) -> None:
    folded(place)
    with place.lake() as lake:
        (task,) = lake.load("shop.balances").scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-100])
    corrupting.forget()


@trouble("The disk is full")
def _full(place: Place) -> None:
    folded(place)
    land(place, date(2024, 3, 7))
    dump = place.folder / "dump.sql"
    dump.write_text("what somebody left on the disk")
    create = PyArrowFile.create

    def full(file: PyArrowFile, overwrite: bool = False) -> Any:
        if dump.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.location)
        return create(file, overwrite)

    place.patch.setattr(PyArrowFile, "create", full)


@trouble("Spark does not start, or dies")
def _no_java(place: Place) -> None:
    folded(place)


@trouble("A stream gets a new column")
def _column(place: Place) -> None:
    folded(place)
    place.declare(
        '        "amount": "decimal(12,2)",\n', '        "price": "decimal(12,2)",\n        "note": "string",\n'
    )
    place.declare('"amount": Decimal', '"note": None, "price": Decimal')
    place.declare("pa.decimal128(12, 2)]", "pa.string(), pa.decimal128(12, 2)]")
    place.declare('fh.total("amount")', 'fh.total("price")')
    place.names |= {"fh": fh}


@trouble("The lake grows, or has many small files")
def _small_files(place: Place) -> None:
    project(place)
    # Within one hour, whatever the time is: a state at a full hour would be kept.
    clock = Clock(place.patch, datetime.now(UTC).replace(minute=10, second=0, microsecond=0) + timedelta(hours=1))
    for number in range(12):
        clock.forward(seconds=1)
        pay(place, "ada", "1.00", number=number)
        with place.lake() as lake:
            lake.refresh(place.shop().balances)
    clock.forward(days=3)  # for the commands


@trouble("A person asks to be forgotten")
def _forgotten(place: Place) -> None:
    folded(place)


@trouble("A table is read much more often than it is changed")
def _copy_on_write(place: Place) -> None:
    folded(place)
    place.names |= {"fh": fh}


def retail(place: Place, *days: str) -> None:
    """This repository's job on a landing folder with a few lines a day; the first days are folded."""
    (place.folder / "landing").mkdir()
    text = (ROOT / "workspace.yaml").read_text()
    (place.folder / "workspace.yaml").write_text(text.replace("directory: .", f"directory: {ROOT}"))
    place.patch.setenv("FOLDHOUSE_LANDING", str(place.folder / "landing"))
    for day in days:
        sold(place, day, "22423,REGENCY CAKESTAND,3", "21080,PAPER NAPKINS,12")


HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"


def sold(place: Place, day: str, *lines: str, name: str | None = None) -> None:
    """Write the file of a day: stock code, description and quantity of each line, each at 1.00."""
    rows = [f"{500100 + n},{line},{day} 09:{n:02}:00,1.00,{17850 + n},France" for n, line in enumerate(lines)]
    (place.folder / "landing" / f"{name or day}.csv").write_text("\n".join([HEADER, *rows, ""]))


def backfilled(place: Place, first: str, last: str) -> None:
    """Run the job on days, as `foldhouse backfill` does."""
    from foldhouse.dagster import run_in_foreground

    place.patch.setenv("FOLDHOUSE_LAKE", str(place.folder / "lake"))
    run_in_foreground("retail", date.fromisoformat(first), date.fromisoformat(last))
    place.patch.delenv("FOLDHOUSE_LAKE")


@trouble("A file was wrong", spark=True)
def _file_wrong(place: Place) -> None:
    retail(place, "2024-03-11", "2024-03-12")
    backfilled(place, "2024-03-11", "2024-03-12")
    sold(place, "2024-03-12", "22423,REGENCY CAKESTAND,1", "21080,PAPER NAPKINS,12")


@trouble("A file cannot be read", spark=True)
def _unreadable(place: Place) -> None:
    retail(place, "2024-03-11", "2024-03-12", "2024-03-13")
    good = place.folder / "landing" / "2024-03-12.csv"
    good.rename(place.folder / "2024-03-12.csv")
    good.write_text("invoice;product\n")


@trouble("Lines are bad", spark=True)
def _bad_lines(place: Place) -> None:
    retail(place)
    lines = [f"2242{n % 10},CAKESTAND {n},1" for n in range(9)]
    sold(place, "2024-03-11", *lines * 3, "21080,PAPER NAPKINS,a dozen")
