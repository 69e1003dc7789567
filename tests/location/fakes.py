"""Stand-ins for the resources `lake` and `landing`, so that what Dagster sees is tested without a JVM."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog.noop import NoopCatalog

import foldhouse as fh
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat, Landing
from foldhouse.storage.catalog import CATALOG_NAME
from foldhouse.values.corrected import CommitFigures, Corrections
from foldhouse.values.landed import LandedDays
from foldhouse.values.results import Appended, PartitionCounts, Refreshed
from foldhouse.values.window import Coverage

DAILY = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-06-01", timezone="UTC")
FORMAT = CsvFormat((CsvColumn("Id", "id", "int", required=True),))

orders = fh.stream("shop.orders", schema={**FORMAT.types, "at": "timestamp"}, partition_by="day(at)", keys="id")
rejected = fh.stream("shop.rejected", schema=QUARANTINE_TYPES)
daily_orders = fh.table(
    "shop.daily_orders", source=orders, keys=["day"], fold=fh.fold(lines=fh.count()), partition_by="day"
)
customers = fh.table("shop.customers", source=orders, keys="id", fold=fh.fold(lines=fh.count()))


def on_days(
    assets: Iterable[dg.AssetsDefinition], partitions_def: dg.DailyPartitionsDefinition
) -> list[dg.AssetsDefinition]:
    """Return assets with other days, because those of the code location depend on the day of the test."""

    def moved(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(partitions_def=partitions_def if spec.partitions_def else None)

    return list(dg.map_asset_specs(moved, assets))


def days(first: int, last: int) -> list[date]:
    """Days of March 2024, both ends included."""
    return [date(2024, 3, 1) + timedelta(days=number - 1) for number in range(first, last + 1)]


@dataclass
class FakeLake:
    """Records what it is asked for, and is its own resource.

    Args:
        fails_at: the call (`replace shop.orders`, `backfill shop.daily_orders`) and the day at which it fails.
        unfit: a day whose events are refused, as of another day.
        late: a day that every backfill touches beside those it was asked for.
    """

    fails_at: tuple[str, date] | None = None
    unfit: date | None = None
    late: date | None = None
    calls: list[tuple[str, tuple[date, ...]]] = field(default_factory=list)
    catalog: NoopCatalog = field(default_factory=lambda: NoopCatalog(CATALOG_NAME))

    def open(self) -> "FakeLake":
        return self

    def replace(
        self,
        stream: fh.Stream,
        events: pa.Table,
        *,
        partitions: Iterable[date],
        summary: Mapping[str, str] | None = None,
        origins: Mapping[date, str] | None = None,
        seen: Mapping[date, str] | None = None,
    ) -> Appended:
        asked = self._called(f"replace {stream.name}", partitions)
        return Appended(stream.name, True, 11, partitions={day: PartitionCounts(5, 4, 3) for day in asked})

    def landed(self, stream: fh.Stream, days: Iterable[date] = ()) -> LandedDays:
        return LandedDays()

    def refresh(self, table: fh.Table) -> Refreshed:
        self._called(f"refresh {table.name}", ())
        return Refreshed(
            table.name, True, 2**62 + 1, {table.source.name: 11}, Coverage.everything(), rows=7, rows_read=9
        )

    def backfill(self, table: fh.Table, partitions: Iterable[date]) -> Refreshed:
        asked = self._called(f"backfill {table.name}", partitions)
        touched = [*asked, self.late] if self.late else asked
        return Refreshed(
            table=table.name,
            committed=True,
            snapshot_id=23,
            position={table.source.name: 11},
            coverage=Coverage.of(touched),
            rows=70,
            rows_read=9,
            files_read=len(asked),
            rows_written=100,
            partitions={day: PartitionCounts(day.day, 2, 1) for day in touched},
        )

    def uncovered(self, table: fh.Table, days: Iterable[date]) -> dict[str, list[date]]:
        return {}

    def figures(self, table: fh.Table) -> tuple[CommitFigures, ...]:
        return tuple(
            CommitFigures(n, datetime(2024, 3, 1, n, tzinfo=UTC), n, 1, 2, n / 10, n * 60) for n in range(1, 9)
        )

    def corrections(self, table: fh.Table, *, as_of: int, most: int) -> Corrections:
        return Corrections(table.name, as_of)

    def rows_by_day(self, table: fh.Table, days: Iterable[date]) -> dict[date, int]:
        return dict.fromkeys(days, 1)

    def computed_from(self, table: fh.Table) -> dict[str, tuple[tuple[str, str], ...]]:
        return {}

    def types(self, table: fh.Table) -> dict[str, str]:
        return {"day": "date", "lines": "long"}

    def _called(self, call: str, partitions: Iterable[date]) -> list[date]:
        asked = list(partitions)
        if self.fails_at and self.fails_at[0] == call and self.fails_at[1] in asked:
            raise fh.CommitConflict(f"{call} lost a race")
        if call == "replace shop.orders" and self.unfit in asked:
            raise fh.InvalidData("an event of another day")
        self.calls.append((call, tuple(asked)))
        return asked


@dataclass(frozen=True)
class FakeFolder:
    """A landing folder as a resource."""

    path: Path

    def open(self, format: CsvFormat) -> Landing:
        return Landing(self.path, format)

    def land(self, day: date, *lines: object) -> None:
        (self.path / f"{day}.csv").write_text("".join(f"{line}\n" for line in ("Id", *lines)))


def range_tags(asked: list[date]) -> dict[str, str]:
    """What Dagster puts on a run of a range of days."""
    return {
        "dagster/asset_partition_range_start": str(asked[0]),
        "dagster/asset_partition_range_end": str(asked[-1]),
    }


def started(requests: Iterable[dg.RunRequest] | None, keys: set[str]) -> list[dg.RunRequest]:
    """Return the requests that Dagster's daemon starts a run for: one for each run key, however long ago that was.

    Args:
        requests: what a sensor asks for.
        keys: the run keys of all runs so far; those of the requests are added.
    """
    found = [one for one in requests or [] if one.run_key is None or one.run_key not in keys]
    keys.update(one.run_key for one in found if one.run_key is not None)
    return found


REEXECUTED: dict[str, object] = {}
"""The resources of `reexecuted_job`, which Dagster makes anew by its name."""


def reexecuted_job() -> dg.JobDefinition:
    """A job over the landing asset that can be executed again from its failure."""
    from foldhouse.dagster import landing_asset

    asset = landing_asset(orders, rejected, FORMAT, partitions_def=DAILY)
    defs = dg.Definitions(
        assets=[asset], jobs=[dg.define_asset_job("shop")], resources=REEXECUTED, executor=dg.in_process_executor
    )
    return defs.resolve_job_def("shop")


@contextmanager
def failing(kind: type[Exception], match: str | None = None) -> Iterator[pytest.ExceptionInfo[dg.Failure]]:
    """Expect a step that fails with an error of ours, and says its message as its own."""
    with pytest.raises(dg.Failure, match=match) as found:
        yield found
    assert isinstance(found.value.__cause__, kind)
    assert found.value.description == str(found.value.__cause__)


def tick_of(schedule: dg.ScheduleDefinition, defs: dg.Definitions, when: datetime):
    """Return what a schedule asks for at a time, in a Dagster without runs."""
    repository = defs.get_repository_def()
    with dg.DagsterInstance.local_temp() as instance:
        return schedule.evaluate_tick(dg.build_schedule_context(instance, when, repository_def=repository))
