"""The state of every table as OpenMetrics text, which Prometheus and its like read.

    # TYPE foldhouse_table_rows gauge
    # HELP foldhouse_table_rows Rows of the head.
    foldhouse_table_rows{table="shop.orders",kind="table"} 4
    # EOF

Labels have names of tables, sources and jobs, and words of foldhouse; no value of a column, no path and no error, which
could contain one. See https://github.com/prometheus/OpenMetrics, version 1.0.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from foldhouse.values import status as states
from foldhouse.values.status import TableStatus

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
GAUGE, INFO, STATESET = "gauge", "info", "stateset"
_UNITS = ("seconds", "bytes")
_HEALTHS = (
    states.FINE,
    states.BEHIND,
    states.PAUSED,
    states.REBUILD_WAITING,
    states.CLOCK_AHEAD,
    states.FOREIGN_COMMIT,
    states.FAILED_CHECKS,
    states.UNREADABLE,
)


@dataclass(frozen=True)
class Sample:
    """One number.

    Args:
        labels: name -> value.
        value: the number; a sample without one is left out.
        suffix: of the sample's name, such as `_info`.
    """

    labels: Mapping[str, str]
    value: float | None
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """The samples of one name.

    Args:
        name: with its unit at the end, if it has one.
        type: of OpenMetrics.
        help: one sentence.
        samples: in the order in which they are printed.
    """

    name: str
    type: str
    help: str
    samples: tuple[Sample, ...]


_NUMBERS: tuple[tuple[str, str, Callable[[TableStatus], float | None]], ...] = (
    ("rows", "Rows of the head.", lambda one: one.rows),
    ("committed_timestamp_seconds", "When the head became the head, in seconds since 1970.", lambda one: _when(one)),
    ("snapshots", "Snapshots that the metadata lists.", lambda one: one.snapshots),
    ("snapshots_to_expire", "Snapshots that `expire` may remove.", lambda one: one.snapshots_to_expire),
    ("data_files", "Data files of the head.", lambda one: one.data_files),
    ("delete_files", "Delete files of the head.", lambda one: one.delete_files),
    ("files_to_compact", "Files that `compact` would replace.", lambda one: one.files_to_compact),
    ("size_bytes", "Size of the files of the head.", lambda one: one.bytes),
    ("refresh_rows_read", "Source rows that the newest refresh read.", lambda one: one.rows_read),
    ("refresh_seconds", "How long the newest refresh took.", lambda one: one.refresh_seconds),
    (
        "wrong",
        "1 if the table is unreadable, failed its checks or has a foreign commit.",
        lambda one: int(one.is_wrong),
    ),
)


def families(version: str, found: Sequence[TableStatus]) -> list[Family]:
    """Return the families of the tables of a lake.

    Args:
        version: of foldhouse.
        found: the states of the tables.
    """
    build = Family("foldhouse_build", INFO, "The foldhouse that looked.", (Sample({"version": version}, 1, "_info"),))
    return [build, *(_numbers(*one, found) for one in _NUMBERS), *_lags(found), _health(found)]


def _numbers(
    name: str, help: str, number: Callable[[TableStatus], float | None], found: Sequence[TableStatus]
) -> Family:
    samples = tuple(
        Sample({"table": one.table, **({"kind": one.kind} if one.kind else {})}, number(one))
        for one in found
        if one.kind or name == "wrong"  # of a table that cannot be read, nothing else is known
    )
    return Family(f"foldhouse_table_{name}", GAUGE, help, samples)


def _when(one: TableStatus) -> float | None:
    return None if one.committed_at is None else one.committed_at.timestamp()


def _lags(found: Sequence[TableStatus]) -> list[Family]:
    sources = [(one.table, source) for one in found if one.kind == "table" for source in one.sources]
    of = [({"table": table, "source": source.name}, source) for table, source in sources]
    return [
        Family(
            "foldhouse_table_lag_commits",
            GAUGE,
            "Commits of the source that are not folded; NaN if the position is not in its history.",
            tuple(Sample(labels, _or_nan(one.commits_behind)) for labels, one in of),
        ),
        Family(
            "foldhouse_table_lag_rows",
            GAUGE,
            "Rows that these commits added.",
            tuple(Sample(labels, _or_nan(one.rows_behind)) for labels, one in of),
        ),
        Family(
            "foldhouse_table_lag_seconds",
            GAUGE,
            "How long the oldest of these commits has been waiting.",
            tuple(Sample(labels, _or_nan(one.seconds_behind)) for labels, one in of),
        ),
    ]


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _health(found: Sequence[TableStatus]) -> Family:
    name = "foldhouse_table_health"
    samples = [
        Sample({"table": one.table, name: state}, int(one.health == state)) for one in found for state in _HEALTHS
    ]
    return Family(name, STATESET, "The most serious state that applies.", tuple(samples))


def text_of(families: Iterable[Family]) -> str:
    """Return families as OpenMetrics text; a family without a number is left out."""
    lines = []
    for family in families:
        samples = [one for one in family.samples if one.value is not None]
        if not samples:
            continue
        lines.append(f"# TYPE {family.name} {family.type}")
        unit = family.name.rpartition("_")[2]
        if unit in _UNITS:
            lines.append(f"# UNIT {family.name} {unit}")
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines += [f"{family.name}{one.suffix}{_labels(one.labels)} {_number(one.value)}" for one in samples]
    return "\n".join([*lines, "# EOF\n"])


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float | None) -> str:
    assert value is not None
    return "NaN" if math.isnan(value) else repr(int(value)) if float(value).is_integer() else repr(float(value))
