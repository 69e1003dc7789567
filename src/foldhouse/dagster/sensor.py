"""A sensor that asks for exactly the days whose landing file is new or changed."""

import hashlib
import json
from collections.abc import Iterator
from datetime import date, timedelta

import dagster as dg

from foldhouse.dagster.resources import LandingFolder
from foldhouse.landing import CsvFormat

Seen = dict[str, str]
"""Day -> fingerprint of its file when a run was asked for it: the sensor's cursor."""


def landing_sensor(
    name: str,
    *,
    job_name: str,
    format: CsvFormat,
    partitions_def: dg.DailyPartitionsDefinition,
    every_seconds: int = 30,
    landing_resource_key: str = "landing",
) -> dg.SensorDefinition:
    """Make a sensor that asks for a run of a job for each range of days whose files are new or changed.

        first look, files of 1, 2, 3 and 5      -> runs for 1..3 and 5
        then 2 lands again                      -> a run for 2
        then the file of 3 is gone              -> nothing
        the cursor is lost                      -> runs for all files, which commit nothing

    What was consumed is known to the lake alone; the cursor only spares runs. A file that is gone is no correction, it
    may have been archived: its day stays as it is until somebody lands a file with the header alone, or runs the day by
    hand. A day that is no partition yet is asked for when it is one. No file is opened.

    Args:
        name: the sensor's name.
        job_name: the job to run, partitioned by day.
        format: what a file holds.
        partitions_def: the days that can be asked for.
        every_seconds: between two looks, at least.
        landing_resource_key: the resource that opens the folder, a `LandingFolder`.
    """

    @dg.sensor(
        name=name,
        job_name=job_name,
        minimum_interval_seconds=every_seconds,
        description="Asks for the days whose landing file is new or changed.",
        required_resource_keys={landing_resource_key},
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        folder: LandingFolder = getattr(context.resources, landing_resource_key)
        seen = _seen(context.cursor)
        found = {
            day.isoformat(): _short(fingerprint) for day, fingerprint in folder.open(format).fingerprints().items()
        }
        changed = {
            day: found[day]
            for day in sorted(found)
            if found[day] != seen.get(day) and partitions_def.has_partition_key(day)
        }
        if not changed:
            return dg.SensorResult(skip_reason=f"none of {len(found)} files is new or changed")
        requests = [_request(days, changed) for days in _ranges(list(changed))]
        return dg.SensorResult(run_requests=requests, cursor=json.dumps({**seen, **changed}))

    return look


def _seen(cursor: str | None) -> Seen:
    try:
        seen = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return seen if isinstance(seen, dict) else {}


def _short(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]


def _ranges(days: list[str]) -> Iterator[list[str]]:
    """Sorted days -> those that follow one another."""
    following: list[str] = []
    for day in days:
        if following and date.fromisoformat(day) - date.fromisoformat(following[-1]) > timedelta(days=1):
            yield following
            following = []
        following.append(day)
    yield following


def _request(days: list[str], fingerprints: Seen) -> dg.RunRequest:
    first, last = days[0], days[-1]
    # Dagster starts one run per run key, so a changed file needs another key.
    state = _short("".join(fingerprints[day] for day in days))
    if first == last:
        return dg.RunRequest(run_key=f"{first}:{state}", partition_key=first)
    return dg.RunRequest(
        run_key=f"{first}..{last}:{state}",
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
    )
