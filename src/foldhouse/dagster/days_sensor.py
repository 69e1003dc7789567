"""A sensor that has the page show days which came since it was loaded, whoever committed or landed a file.

| since the last look | the page |
|---|---|
| a day of the range, or the day after it while days arrive | shows it already |
| a day before the first, or after the last of a history | is asked to load the code location again |
| the page could not be asked | is asked at the next look |
"""

import json

import dagster as dg

from foldhouse.dagster.found_days import files_of, found_again, found_at_loading
from foldhouse.dagster.reload import reload_page
from foldhouse.dagster.short_cursor import texts_of
from foldhouse.values.definition import Stream


def days_sensor(name: str = "days", *, landed_in: Stream | None = None, every_seconds: int = 30) -> dg.SensorDefinition:
    """Make a sensor that follows the days of `found_days` and `stream_days`; it starts no run, and is on by default.

    Only `foldhouse dev` can be asked to load its page again. In a deployment, somebody clicks "Reload".

    Args:
        name: the sensor's name.
        landed_in: follow the files of this stream alone; by default, everything whose days were found.
        every_seconds: between two looks, at least.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=every_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Has the page show the days of streams and landing folders that came since it was loaded.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = found_again() if landed_in is None else found_again(files_of(landed_in))
        known = texts_of(context.cursor) or found_at_loading()
        changed = [name for name, days in found.items() if known.get(name) != days]
        if not changed:
            return dg.SensorResult(skip_reason=f"no days changed of {', '.join(found) or 'nothing'}")
        said = "; ".join(f"the days of {name} now go {found[name]}" for name in changed)
        if not reload_page():
            return dg.SensorResult(skip_reason=f"{said}; the page could not be asked to load them")
        return dg.SensorResult(skip_reason=f"{said}; the page loads them", cursor=json.dumps(dict(found)))

    return look
