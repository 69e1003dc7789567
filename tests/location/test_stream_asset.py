"""What a function gives for the days of a stream may have any form that `append` takes."""

import itertools
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.dagster import LakeFolder, lake_resource, stream_asset
from foldhouse.dagster.quiet import without_beta_warnings
from tests.location.fakes import range_tags

DAYS = [date(2024, 3, 1), date(2024, 3, 2), date(2024, 3, 3)]
DATED = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-10", timezone="UTC")
events = fh.stream("sa.events", schema={"day": "date", "n": "long"}, partition_by="day")


def run(tmp_path: Path, given: Any) -> list[tuple[date, int]]:
    with without_beta_warnings():
        asset = stream_asset(events, given, partitions_def=DATED)
    resources = {"lake": lake_resource(LakeFolder(str(tmp_path / "lake")))}
    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([asset], instance=instance, resources=resources, tags=range_tags(DAYS))
    with closing(fh.Lake.local(tmp_path / "lake")) as lake:
        return sorted((row["day"], row["n"]) for row in lake.to_arrow(events).to_pylist())


def test_each_day_may_come_in_another_form(tmp_path: Path) -> None:
    forms = [
        [{"day": DAYS[0], "n": 1}],
        pl.DataFrame({"n": [2, 3], "day": [DAYS[1], DAYS[1]]}, schema_overrides={"n": pl.Int32}),
        [],
    ]
    assert run(tmp_path, lambda day: forms[DAYS.index(day)]) == [(DAYS[0], 1), (DAYS[1], 2), (DAYS[1], 3)]


@pytest.mark.parametrize(
    ("third", "said"),
    [
        (None, "sa.events: what was given for 2024-03-03 is None; an Arrow table, a Spark"),
        (pa.table({"day": [DAYS[2]]}), "2024-03-01 has day, n, 2024-03-03 has day; give each day the same columns"),
        (pa.table({"day": [DAYS[2]], "n": ["x"]}), "2024-03-01 to 2024-03-03 do not have the same types"),
    ],
)
def test_what_are_no_events_is_named_with_its_day_and_nothing_is_written(tmp_path: Path, third: Any, said: str) -> None:
    with pytest.raises(dg.Failure, match=said):
        run(tmp_path, lambda day: third if day == DAYS[2] else [{"day": day, "n": 1}])
    with closing(fh.Lake.local(tmp_path / "lake")) as lake:
        assert lake.tables() == []


def test_an_older_answer_never_stays_over_a_newer_one(tmp_path: Path) -> None:
    asked = []

    def given(day: date) -> list[dict[str, Any]]:
        asked.append(day)
        answer = [{"day": day, "n": len(asked)}]
        if len(asked) == 2:  # while this run has its answer, another one commits a newer one
            with closing(fh.Lake.local(tmp_path / "lake")) as other:
                other.replace(events, [{"day": DAYS[1], "n": 99}], partitions=[DAYS[1]])
        return answer

    assert run(tmp_path, given) == [(DAYS[0], 4), (DAYS[1], 5), (DAYS[2], 6)]
    assert asked == [*DAYS, *DAYS]


def test_a_day_that_others_replace_all_the_time_is_said(tmp_path: Path) -> None:
    count = itertools.count()

    def given(day: date) -> list[dict[str, Any]]:
        with closing(fh.Lake.local(tmp_path / "lake")) as other:
            other.replace(events, [{"day": day, "n": next(count)}], partitions=[day])
        return [{"day": day, "n": -1}]

    with pytest.raises(dg.Failure, match=r"sa\.events"):
        run(tmp_path, given)
    assert next(count) == 5 * len(DAYS)
    with closing(fh.Lake.local(tmp_path / "lake")) as lake:
        assert -1 not in lake.to_arrow(events)["n"].to_pylist()
