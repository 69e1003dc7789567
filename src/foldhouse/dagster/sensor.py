"""A sensor that asks for exactly the days whose landing file is new or changed."""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta

import dagster as dg

from foldhouse.dagster.calendar_days import check_are_days
from foldhouse.dagster.found_days import beyond
from foldhouse.dagster.landed_files import LandedFiles
from foldhouse.dagster.queue import CORRECTION, LIVE, PRIORITY
from foldhouse.dagster.reload import reload_page
from foldhouse.dagster.resources import LakeOpener, LandingFolder
from foldhouse.dagster.short_cursor import cursor_of, state_of, texts_of
from foldhouse.errors import LostTables
from foldhouse.landing import CsvFormat
from foldhouse.values.definition import Stream, Table

Seen = dict[str, str]
"""The sensor's state: day -> fingerprint of its file when a run was asked for it.

`<fingerprint>=<digest>` if no run was needed, because a file with this digest had landed.
"""
_OUTSIDE = "outside"
"""The entry of the state with the days of files that are no partitions."""
_LAKE = "lake"
"""The entry of the state with the lake, both stored streams and their newest commits at the last look."""
_NO_DAYS = {_OUTSIDE, _LAKE}


def landing_sensor(
    name: str,
    *,
    job_name: str,
    format: CsvFormat,
    partitions_def: dg.DailyPartitionsDefinition,
    stream: Stream | None = None,
    quarantine: Stream | None = None,
    tables: Sequence[Table] = (),
    reloads_page: bool = False,
    every_seconds: int = 30,
    landing_resource_key: str = "landing",
    lake_resource_key: str = "lake",
) -> dg.SensorDefinition:
    """Make a sensor that asks for a run of a job for each range of days whose files are new or changed.

        first look, files of 1, 2, 3 and 5      -> runs for 1..3 and 5; with `stream`, one run for 1..5
        then 2 lands again, and 6 is new        -> a run for 2, of a higher priority, and a run for 6
        then the file of 3 is gone              -> nothing
        the cursor is lost                      -> with `quarantine`, runs for what has not landed; else for all files

    What was consumed is known to the lake alone; the cursor only spares runs. With `quarantine`, a new or changed file
    is compared with what landed, by anyone, and gets no run if the lake is proven to hold it: see `LandedFiles`. The
    sensor starts over if it finds another lake, or one of both streams was dropped or created again. Only files that
    may have landed are opened. A file that is gone is no correction, it may have been archived: its day stays as it is
    until somebody lands a file with the header alone, or runs the day by hand. A day that is no partition yet is asked
    for when it is one; the tick names it until then.

    Args:
        name: the sensor's name.
        job_name: the job to run, partitioned by day.
        format: what a file holds.
        partitions_def: the days that can be asked for.
        stream: the stream that the files land in. Days without a file and without an event in it, such as holidays, are
            then part of a range, so that a year is one run. Without it, each such day begins another run.
        quarantine: the stream that the bad lines land in; used with `stream`.
        tables: tables that the job folds; a landed day that one of them does not cover still gets a run.
        reloads_page: whether the page is asked to load the code location again when a file is for a day before or after
            all days that were asked for; for partitions of `found_days`, which are found at loading.
        every_seconds: between two looks, at least.
        landing_resource_key: the resource that opens the folder, a `LandingFolder`.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`; used with `stream`.

    Raises:
        DefinitionError: a partition is not one day.
    """
    check_are_days(name, partitions_def)

    @dg.sensor(
        name=name,
        job_name=job_name,
        minimum_interval_seconds=every_seconds,
        description="Asks for the days whose landing file is new or changed.",
        required_resource_keys={landing_resource_key, *([lake_resource_key] if stream else [])},
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        folder: LandingFolder = getattr(context.resources, landing_resource_key)
        seen = texts_of(state_of(context))
        landing = folder.open(format)
        found = {day.isoformat(): _short(fingerprint) for day, fingerprint in landing.fingerprints().items()}
        lake = getattr(context.resources, lake_resource_key).open() if stream and quarantine and found else None
        files = LandedFiles(lake, landing, stream, quarantine, tables) if lake and stream and quarantine else None
        landed_since: set[str] = set()
        if files is not None:
            seen, landed_since = _followed(seen, files)
        outside = [day for day in found if not partitions_def.has_partition_key(day)]
        if reloads_page:
            if _is_news(seen, found, outside):
                reload_page()
            seen[_OUTSIDE] = ",".join(outside)
        changed = {
            day: found[day]
            for day in sorted(found)
            if (found[day] != _fingerprint(seen, day) or day in landed_since) and partitions_def.has_partition_key(day)
        }
        landed, waiting = _landed(files, changed, seen) if files and changed else ({}, set())
        changed = {day: fingerprint for day, fingerprint in changed.items() if day not in {*landed, *waiting}}
        seen_now = {**seen, **landed}
        if not changed:
            why = _nothing(found, outside, landed, waiting)
            return dg.SensorResult(
                skip_reason=why, cursor=cursor_of(context, json.dumps(seen_now)) if seen_now else None
            )
        corrected = [day for day in changed if day in seen]
        new = [day for day in changed if day not in seen]
        taken: set[str] | None = None
        if stream is not None:
            opener: LakeOpener = getattr(context.resources, lake_resource_key)
            taken = {*found, *(day.isoformat() for day in opener.open().days(stream))}
        # Dagster starts runs of a higher priority first: a correction does not wait behind a year of new files.
        requests = [_request(days, priority=CORRECTION) for days in _ranges(corrected, taken)]
        requests += [_request(days, priority=LIVE) for days in _ranges(new, taken)]
        cursor = cursor_of(context, json.dumps({**seen_now, **changed}))
        return dg.SensorResult(run_requests=requests, cursor=cursor)

    return look


def _is_news(seen: Seen, found: Seen, outside: list[str]) -> bool:
    """Whether there are files for days that the page may not know: since the last look, or beyond all earlier days."""
    further = beyond((day for day in found if day not in seen), (day for day in seen if day not in _NO_DAYS))
    return bool(set(further) - set(outside)) or bool(set(outside) - set(seen.get(_OUTSIDE, "").split(",")))


def _followed(seen: Seen, files: LandedFiles) -> tuple[Seen, set[str]]:
    """Return the state with the lake as it is now, and the days without a run that somebody landed since.

    The second is for a file that was put back while a landing of the other file was under way.

    Raises:
        LostTables: the stream is in an older state than at the last look. Days that landed since then would be lost.
    """
    events, bad = files.heads()
    now = [_short(repr(files.lake)), events.table_id, str(events.sequence), str(bad.sequence), bad.table_id]
    was = seen[_LAKE].split(":") if _LAKE in seen else now
    was += now[4:] if len(was) == 4 else []  # an earlier version did not know the quarantine
    is_known = (
        len(was) == 5
        and was[0] == now[0]
        and all(one in ("", other) for one, other in ((was[1], now[1]), (was[4], now[4])))
        and all(map(str.isdigit, was[2:4]))
    )
    if not is_known:
        seen, was = {_OUTSIDE: seen[_OUTSIDE]} if _OUTSIDE in seen else {}, now
    if was[1] == now[1] and events.sequence < int(was[2]):
        raise LostTables(
            f"{files.stream.name} is at commit {events.sequence}, but this sensor has seen its commit {was[2]}: the "
            "catalog was restored from an older backup. No run was asked for. Run `foldhouse doctor`: it says which "
            "tables are behind, and how to move them forward. If the older state is meant, reset this sensor's cursor"
        )
    unasked = {day for day, value in seen.items() if day not in _NO_DAYS and "=" in value}
    since = events.since(int(was[2])) | bad.since(int(was[3]))
    return {**seen, _LAKE: ":".join(now)}, unasked & {day.isoformat() for day in since}


def _landed(files: LandedFiles, changed: Seen, seen: Seen) -> tuple[Seen, set[str]]:
    """Return the entries of the state of days that need no run, and the days to be looked at next time."""
    known = {
        date.fromisoformat(day): seen[day].partition("=")[2]
        for day, fingerprint in changed.items()
        if "=" in seen.get(day, "") and _fingerprint(seen, day) == fingerprint
    }
    compared = files.compare(map(date.fromisoformat, changed), known)
    landed = {str(day): f"{changed[str(day)]}={digest}" for day, digest in compared.landed.items()}
    return landed, {str(day) for day in compared.waiting}


def _fingerprint(seen: Seen, day: str) -> str:
    return seen.get(day, "").partition("=")[0]


def _nothing(found: Seen, outside: list[str], landed: Collection[str], waiting: Collection[str]) -> str:
    said = f"none of {len(found)} files is new or changed"
    if landed:
        said = f"{said} since it landed; {len(landed)} were compared with the lake"
    if waiting:
        said = f"{said}; {len(waiting)} are compared at the next look"
    if not outside:
        return said
    more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
    return f"{said}, and the day {outside[0]}{more} with a file is no partition (yet)"


def _short(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]


def _ranges(days: list[str], taken: set[str] | None) -> Iterator[list[str]]:
    """Divide sorted days into ranges; the days between two days of one range are not taken, if that is known."""
    following: list[str] = []
    for day in days:
        if following and not all(_is_free(one, taken) for one in _between(following[-1], day)):
            yield following
            following = []
        following.append(day)
    if following:
        yield following


def _between(one: str, other: str) -> Iterator[str]:
    first, last = date.fromisoformat(one), date.fromisoformat(other)
    return ((first + timedelta(days=n)).isoformat() for n in range(1, (last - first).days))


def _is_free(day: str, taken: set[str] | None) -> bool:
    return taken is not None and day not in taken


def _request(days: list[str], *, priority: str) -> dg.RunRequest:
    """Return the request for a range of days, without a run key: Dagster never starts a second run for the same key.

    The sensor would ask in vain for files that it asked for before, such as after a rollback or when its cursor is
    reset, and then take them for seen.
    """
    first, last = days[0], days[-1]
    asked = first if first == last else f"{first}..{last}"
    tags = {"foldhouse/files": str(len(days)), "foldhouse/days": asked, PRIORITY: priority}
    if first == last:
        return dg.RunRequest(partition_key=first, tags=tags)
    whole = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return dg.RunRequest(tags={**tags, **whole})
