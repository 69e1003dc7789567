"""The schedule that asks for yesterday, and for days of mornings that were missed and of runs that failed."""

from datetime import datetime

import dagster as dg
import pytest

from jobs.mornings import each_morning

RANGE_END = "dagster/asset_partition_range_end"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2010-12-02T06:00:00", "2010-12-01"),
        ("2011-12-10T06:00:00", "2011-12-09"),
        ("2024-03-01T06:00:00", "2024-02-29"),
    ],
)
def test_the_schedule_asks_for_the_day_before(now, expected, records):
    request = tick(dg.DailyPartitionsDefinition("2010-12-01", end_offset=1, timezone="UTC"), now, records)
    assert (request.partition_key, request.run_key) == (expected, expected)


def test_the_schedule_skips_a_day_that_is_no_partition_and_says_how_to_go_on_after_a_pause(records):
    days = dg.DailyPartitionsDefinition("2010-12-01", end_date="2010-12-20", timezone="UTC")
    skipped = tick(days, "2011-03-01T06:00:00", records)
    assert skipped.skip_message == (
        "2011-02-28 is not among the days of this deployment, which end on 2010-12-19; land that day and those after "
        "it first, by hand or by `foldhouse backfill`"
    )
    begins = dg.DailyPartitionsDefinition("2010-12-01", timezone="UTC")
    assert (
        tick(begins, "2010-12-01T06:00:00", records).skip_message
        == "2010-11-30 is not among the days of this deployment"
    )


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        ([{"dagster/partition": "2024-02-07"}], "2024-02-08..2024-02-29"),
        ([{"dagster/asset_partition_range_start": "2024-01-01", RANGE_END: "2024-02-27"}], "2024-02-28..2024-02-29"),
        ([{"dagster/partition": "2024-02-28"}], None),
        ([{"dagster/partition": "2024-02-29"}], None),
        # The newest run is of an old day, because somebody started it again.
        ([{"dagster/partition": "2024-02-28"}, {"dagster/partition": "2024-02-01"}], None),
        # Days before the first partition are not asked for.
        ([{"dagster/partition": "2009-01-01"}], "2024-01-01..2024-02-29"),
    ],
)
def test_the_schedule_asks_for_the_days_of_the_mornings_that_were_missed(asked_for, expected, records, request):
    """A daemon that was stopped makes up the last morning alone: the days before it were lost."""
    job = f"job_{abs(hash(request.node.name))}"
    for tags in asked_for:
        records.add_run(dg.DagsterRun(job_name=job, tags={"dagster/schedule_name": f"{job}_daily", **tags}))
    asked = tick(dg.DailyPartitionsDefinition("2024-01-01", timezone="UTC"), "2024-03-01T06:00:00", records, job)
    if expected is None:
        assert (asked.run_key, asked.partition_key) == ("2024-02-29", "2024-02-29")
        return
    assert asked.run_key == expected
    first, last = (asked.tags[one] for one in ("dagster/asset_partition_range_start", RANGE_END))
    assert f"{first}..{last}" == expected
    assert asked.tags["dagster/priority"] == "1"


GOOD, BAD, GONE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("2024-02-26", GOOD), ("2024-02-27", BAD), ("2024-02-28", GONE)], "2024-02-27..2024-02-29"),
        ([("2024-02-27", BAD)], "2024-02-27..2024-02-29"),  # no run of it was ever good
        # Somebody started the failed run again.
        ([("2024-02-27", GOOD), ("2024-02-28", BAD), ("2024-02-28", GOOD)], None),
        # Somebody started a good one of an older day again.
        ([("2024-02-27", GOOD), ("2024-02-28", BAD), ("2024-02-01", GOOD)], "2024-02-28..2024-02-29"),
        ([("2024-02-27", GOOD), ("2024-02-28", dg.DagsterRunStatus.STARTED)], None),
        # It was still going when the next morning asked for the next day, and failed after that.
        ([("2024-02-26", GOOD), ("2024-02-27", BAD), ("2024-02-28", GOOD)], "2024-02-27..2024-02-29"),
        ([("2024-02-27", BAD), ("2024-02-28", GOOD), ("2024-02-27", GOOD)], None),
    ],
)
def test_the_schedule_asks_again_for_the_days_of_runs_that_did_not_do_their_work(runs, expected, records, request):
    job = f"job_{abs(hash(request.node.name))}"
    for day, status in runs:
        tags = {"dagster/schedule_name": f"{job}_daily", "dagster/partition": day}
        records.add_run(dg.DagsterRun(job_name=job, status=status, tags=tags))
    asked = tick(dg.DailyPartitionsDefinition("2024-01-01", timezone="UTC"), "2024-03-01T06:00:00", records, job)
    assert asked.run_key == (expected or "2024-02-29")


@pytest.mark.parametrize(
    ("failing", "expected"),
    [(["sales__every_day_landed"], "2024-02-29"), (["sums", "sales__every_day_landed"], "2024-02-28..2024-02-29")],
)
def test_a_day_whose_file_cannot_be_read_is_not_asked_for_each_morning(failing, expected, records):
    """The run fails at its end, after the other days have landed and the tables are folded."""

    def fails(name):
        @dg.op(name=name)
        def step():
            raise dg.Failure(name)

        return step

    @dg.job(name=f"of_{len(failing)}", executor_def=dg.in_process_executor)
    def of_the_morning():
        for name in failing:
            fails(name)()

    tags = {"dagster/schedule_name": f"{of_the_morning.name}_daily", "dagster/partition": "2024-02-28"}
    assert not of_the_morning.execute_in_process(instance=records, tags=tags, raise_on_error=False).success
    days = dg.DailyPartitionsDefinition("2024-01-01", timezone="UTC")
    assert tick(days, "2024-03-01T06:00:00", records, of_the_morning.name).run_key == expected


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("records"))) as instance:
        yield instance


def tick(days, now, records, job="retail"):
    when = datetime.fromisoformat(f"{now}+00:00")
    return each_morning(job, 6, days)(dg.build_schedule_context(records, scheduled_execution_time=when))
