"""Reports committed days to Dagster, even if the run fails later, and to listeners in this process."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from typing import Any

import dagster as dg

from foldhouse.dagster.calendar_days import days_of_keys
from foldhouse.dagster.event_log import in_one_batch
from foldhouse.errors import InvalidCall

Metadata = Mapping[str, Any]
"""Name -> value, as Dagster takes metadata."""

OnPartition = Callable[[str, date | None], None]
"""Called with the name of a table or stream and a committed day of it; `None` for one that is not partitioned."""

CHANGES_ALONE = {"foldhouse/reports": "changed days alone"}
"""The tag of a run whose day was only asked for because a run must have one; see `reports_changes_alone`."""

COVERED_ALONE = {"foldhouse/folds": "days that the sources cover"}
"""The tag of a run of several tables: each leaves out the days that its source does not cover, instead of failing."""

# Dagster reports every day of a range as materialized once its step ends well, unless its output has this key.
_REPORTED_ALREADY = {"__source_asset_observation__": True}

_listener: ContextVar[OnPartition | None] = ContextVar("on_partition", default=None)


def key_of(name: str) -> dg.AssetKey:
    """The asset key of a table or stream: `retail.products` -> `retail/products`."""
    return dg.AssetKey(name.split("."))


def materialization(name: str, metadata: Metadata, day: str | None = None) -> dg.AssetMaterialization:
    """Return the event of a commit; its snapshot is the data version, by which Dagster tells what is out of date.

    Args:
        name: a table or stream.
        metadata: of the commit; without `snapshot_id`, the event has a version of Dagster's.
        day: the partition, if it has days.
    """
    tags = {"dagster/data_version": metadata["snapshot_id"]} if "snapshot_id" in metadata else None
    return dg.AssetMaterialization(key_of(name), partition=day, metadata=metadata, tags=tags)


def group_of(name: str) -> str:
    """The group of a table or stream where none is named, its namespace: `retail.products` -> `retail`."""
    return name.rpartition(".")[0].replace(".", "_")


def days_of(context: dg.AssetExecutionContext) -> list[date]:
    """Return the days of a partitioned run, in order.

    Raises:
        InvalidCall: the run has none, though its asset has.
    """
    return days_of_keys(_keys_of(context))


def _keys_of(context: dg.AssetExecutionContext) -> Sequence[str]:
    if not (context.has_partition_key or context.has_partition_key_range):
        names = ", ".join(sorted(".".join(key.path) for key in context.selected_asset_keys))
        raise InvalidCall(
            f"{names}: the run has no day, but what it materializes is partitioned by day; launch it for a day or a "
            "range, as the page does, or give it the tag dagster/partition"
        )
    keys: Sequence[str] = context.partition_keys
    return keys


def reports_changes_alone(context: dg.AssetExecutionContext) -> bool:
    """Whether a run reports the days that changed, and not the day it was asked for.

    A run that was started again reports its day too: the page shows it as failed, and would do so for ever.
    """
    return context.run.parent_run_id is None and CHANGES_ALONE.items() <= context.run.tags.items()


def leaves_out_uncovered(context: dg.AssetExecutionContext) -> bool:
    """Whether a run leaves out days that a source does not cover yet, instead of failing."""
    return COVERED_ALONE.items() <= context.run.tags.items()


class DayReport:
    """The days that a run has committed, by asset, with their metadata.

    | a run that commits its days | they are on the page |
    |---|---|
    | together | when the step ends; Dagster writes them in one transaction |
    | in several parts | after each part, while the run goes on |
    | and fails | at once, so that what is committed is green |
    | and has the tag `CHANGES_ALONE` | when the step ends, without days that did not change |
    """

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context = context
        self._asked = frozenset(_keys_of(context))
        self._committed: dict[tuple[str, str], Metadata] = {}
        self._hands_over = True

    def parts(self, parts: Iterable[list[date]]) -> Iterator[list[date]]:
        """Yield parts of the run's days; of several, each is reported as soon as it is committed."""
        several = list(parts)
        for days in several:
            yield days
            if len(several) > 1:
                self.hand_over_nothing()
                self.write()

    def committed(self, name: str, day: date, metadata: Metadata) -> None:
        """Record that a day of a table or stream is committed."""
        self._committed[name, day.isoformat()] = metadata
        if day.isoformat() in self._asked:
            tell(name, day)

    def hand_over_nothing(self) -> None:
        """Report every committed day here, because Dagster would report all days of the run again, or too many."""
        self._hands_over = False

    @property
    def output_metadata(self) -> Metadata:
        """The metadata of the step's output: Dagster reports no day of an output with `_REPORTED_ALREADY`."""
        return {} if self._hands_over else _REPORTED_ALREADY

    def hand_over(self) -> None:
        """Let Dagster report the run's own days at the end of the step, and report other changed days here."""
        if not self._hands_over:
            self.write()
            return
        for (name, day), metadata in self._committed.items():
            if day in self._asked:
                self._context.add_asset_metadata(metadata, asset_key=key_of(name), partition_key=day)
            else:
                self._write(name, day, metadata)

    def write(self) -> None:
        """Report every committed day that is not reported yet."""
        with in_one_batch(self._context.instance):
            for (name, day), metadata in self._committed.items():
                self._write(name, day, metadata)
        self._committed.clear()

    def _write(self, name: str, day: str, metadata: Metadata) -> None:
        self._context.log_event(materialization(name, metadata, day))


@contextmanager
def reporting_days(context: dg.AssetExecutionContext) -> Iterator[DayReport]:
    """Report the days committed inside, also those committed before a failure.

    A process that is killed writes nothing; the next run finds the days it committed to be there, and reports them.
    """
    report = DayReport(context)
    try:
        yield report
    # Also for Ctrl-C and an interrupted run: days that are committed are reported.
    except BaseException:
        report.write()
        raise
    report.hand_over()


def tell(name: str, day: date | None) -> None:
    """Tell the listener, if there is one, what was committed."""
    if listener := _listener.get():
        listener(name, day)


@contextmanager
def listening(listener: OnPartition | None) -> Iterator[None]:
    """Call `listener` for every commit of this process within the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
