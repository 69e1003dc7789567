"""What the page shows of a commit besides its numbers: charts, corrected rows, the command for the same snapshot."""

import re
from datetime import date, timedelta

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.memory import InMemoryCatalog

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.dagster import fold_asset
from tests.location.test_charts import drawn, names

DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-06-01", timezone="UTC")
FIRST = date(2024, 3, 1)
SECRET = "ann@example.org"
events = fh.stream(
    "p.events",
    schema={"id": "long", "email": "string", "at": "date", "amount": "long"},
    keys="id",
    sequence_by="amount",
    sensitive="email",
)
by_day = fh.table(
    "p.by_day",
    source=events,
    keys="at",
    partition_by="at",
    fold=fh.fold(amount=fh.total("amount"), people=fh.count(), contact=fh.maximum("email")),
)
people = fh.table("p.people", source=events, fold=fh.latest())
by_email = fh.table(
    "p.by_email",
    source=events,
    keys="email",
    fold=fh.fold(amount=fh.total("amount")),
    checks=[fh.between("amount", 0, 50)],
)


class Opener:
    def __init__(self, lake: fh.Lake) -> None:
        self._lake = lake

    def open(self) -> fh.Lake:
        return self._lake


def add(lake: fh.Lake, *rows: tuple[int, str, int, int]) -> None:
    found = [{"id": i, "email": email, "at": FIRST + timedelta(days=day), "amount": n} for i, email, day, n in rows]
    lake.append(events, found)


def run(lake: fh.Lake, table: fh.Table, *asked: str, **options):
    """The metadata of each materialization by its day, and the result."""
    days = (
        {"dagster/asset_partition_range_start": asked[0], "dagster/asset_partition_range_end": asked[-1]}
        if asked
        else {}
    )
    asset = fold_asset(table, partitions_def=DAYS if asked else None)
    result = dg.materialize([asset], resources={"lake": Opener(lake)}, tags=days, **options)
    told = [one.step_materialization_data.materialization for one in result.get_asset_materialization_events()]
    return {one.partition: {name: found.value for name, found in one.metadata.items()} for one in told}, result


def test_a_correction_shows_its_day_before_and_after_and_no_sensitive_value(lake):
    add(lake, (1, "bob@example.org", 0, 10), (2, SECRET, 1, 20))
    first, _ = run(lake, by_day, "2024-03-01", "2024-03-03")
    assert all("corrected" not in found for found in first.values())
    add(lake, (3, "zoe@example.org", 1, 5))
    told, _ = run(lake, by_day, "2024-03-03")
    assert sorted(told) == ["2024-03-02", "2024-03-03"]
    assert told["2024-03-03"]["commit"]["corrected_days"] == ["2024-03-02"]
    assert [dict(one.data) for one in told["2024-03-02"]["corrected"].records] == [
        {"key": "2024-03-02", "column": "amount", "before": "20", "after": "25"},
        {"key": "2024-03-02", "column": "people", "before": "1", "after": "2"},
        {"key": "2024-03-02", "column": "contact", "before": "(sensitive)", "after": "(sensitive)"},
    ]
    assert "corrected" not in told["2024-03-03"]
    assert "example.org" not in str(told)


def test_each_day_has_its_bars_and_the_newest_one_the_history(lake):
    for day in range(3):
        add(lake, *((day * 10 + number, SECRET, day, 1) for number in range(day + 1)))
        asked = str(FIRST + timedelta(days=day))
        told, _ = run(lake, by_day, asked)
    image = drawn(told["2024-03-03"]["rows_by_day"])
    assert names(image) == ["rows on 2024-03-03: 1; and the 23 days before"]
    heights = [int(one) for path in image.iter() for one in re.findall(r"v-(\d+)", path.get("d", ""))]
    assert heights[-4:] == [0, 22, 22, 22]
    assert names(drawn(told["2024-03-03"]["history"]))[0] == "3 rows, last 3 commits"


def test_a_day_without_a_day_before_it_hides_no_chart_of_the_others(lake):
    first = date.min - FIRST
    add(lake, (1, SECRET, 0, 1), (2, SECRET, first.days, 1))
    lake.backfill(by_day, [date.min, FIRST])
    add(lake, (3, SECRET, 0, 1), (4, SECRET, first.days, 1))
    told, _ = run(lake, by_day, str(FIRST))
    assert set(told) == {str(date.min), str(FIRST)}
    for of_day in told.values():
        assert of_day["dagster/partition_row_count"] == 1
        assert "rows_by_day" in of_day
    assert "2 rows" in told[str(FIRST)]["history"]


def test_a_whole_table_shows_its_history_and_what_it_corrected(lake):
    add(lake, (1, SECRET, 0, 10), (2, SECRET, 1, 20))
    run(lake, people)
    add(lake, (1, "new@example.org", 0, 30))
    told, _ = run(lake, people)
    assert len(names(drawn(told[None]["history"]))) == 3
    assert told[None]["rows_left_out"] == 0
    assert [dict(one.data) for one in told[None]["corrected"].records] == [
        {"key": "1", "column": "email", "before": "(sensitive)", "after": "(sensitive)"},
        {"key": "1", "column": "amount", "before": "10", "after": "30"},
    ]


def corrected(told: dict) -> list[tuple[str, ...]]:
    return [tuple(one.data.values()) for one in told["corrected"].records]


def test_rows_of_a_day_have_no_day_in_their_key_and_rows_that_are_not_shown_are_counted(lake):
    by_id = fh.table("p.by_id", source=events, keys=["at", "id"], partition_by="at", fold=fh.fold(n=fh.total("amount")))
    for _ in range(2):
        add(lake, *((number, SECRET, day, 10 + number) for day in (0, 1, 2) for number in range(90)))
        told, _ = run(lake, by_id, "2024-03-01", "2024-03-03")
    assert corrected(told["2024-03-02"])[:2] == [("0", "n", "10", "20"), ("1", "n", "11", "22")]
    for day in ("2024-03-01", "2024-03-02"):
        assert corrected(told[day])[20:] == [("...", "", "70 more of 90 rows", "")]
    # The page takes 200 rows of a commit, so that 20 of the last day are read.
    assert corrected(told["2024-03-03"])[-1] == ("...", "", "70 more of 90 rows", "")
    add(lake, (1, SECRET, 0, 5))
    told, _ = run(lake, by_id, "2024-03-01")
    assert corrected(told["2024-03-01"]) == [("1", "n", "22", "27")]


def test_a_day_of_which_no_row_is_read_says_so(lake):
    by_id = fh.table("p.by_id", source=events, keys=["at", "id"], partition_by="at", fold=fh.fold(n=fh.total("amount")))
    for _ in range(2):
        add(lake, *((number, SECRET, day, 10) for day in (0, 1) for number in range(250 if day == 0 else 3)))
        told, _ = run(lake, by_id, "2024-03-01", "2024-03-02")
    assert corrected(told["2024-03-02"]) == [("...", "", "3 more of 3 rows", "")]


def test_of_lists_only_the_elements_that_differ_are_shown(lake):
    best = fh.table(
        "p.best",
        source=events,
        keys="at",
        partition_by="at",
        fold=fh.fold(top=fh.top(12, "id", by="amount"), ids=fh.collect("id"), mails=fh.collect("email")),
    )
    add(lake, *((number, SECRET, 0, 1000 + number) for number in range(10, 20)))
    run(lake, best, "2024-03-01")
    add(lake, (99, SECRET, 0, 5000))
    told, _ = run(lake, best, "2024-03-01")
    assert corrected(told["2024-03-01"]) == [
        ("2024-03-01", "top", "10 unchanged", "99 amount=5000; 10 unchanged"),
        ("2024-03-01", "ids", "10 unchanged", "99; 10 unchanged"),
        ("2024-03-01", "mails", "(sensitive)", "(sensitive)"),
    ]


def test_the_command_shows_the_rows_of_the_commit(lake, tmp_path):
    add(lake, (1, SECRET, 0, 10))
    told, _ = run(lake, people)
    add(lake, (2, SECRET, 0, 10))
    run(lake, people)
    words = told[None]["show"].strip("`").split()
    assert words[0] == "foldhouse"
    done = CliRunner().invoke(main, [*words[1:], "--lake", str(tmp_path / "lake")])
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 2), done.output


def test_the_command_names_the_catalog_of_a_lake_that_is_no_folder(tmp_path):
    lake = fh.Lake(InMemoryCatalog("prod", warehouse=tmp_path.as_uri()), lambda: pytest.fail("no JVM is needed"))
    add(lake, (1, SECRET, 0, 10))
    told, _ = run(lake, people)
    lake.close()
    assert told[None]["show"].endswith(" --catalog prod`")


def test_a_failed_check_names_no_sensitive_value_on_the_page_nor_in_its_message(lake):
    add(lake, (1, SECRET, 0, 100))
    with dg.DagsterInstance.ephemeral() as instance:
        _, result = run(lake, by_email, instance=instance, raise_on_error=False)
        logged = instance.all_logs(result.run_id)
    assert not result.success
    events_of_run = [one.dagster_event for one in logged if one.dagster_event]
    [check] = [one for one in events_of_run if one.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    sample = check.asset_check_evaluation_data.metadata["sample"].value
    assert [dict(one.data) for one in sample.records] == [{"email": "(sensitive)", "amount": 100}]
    assert "between('amount', 0, 50)" in str(logged)
    assert SECRET not in str(logged)


def test_a_commit_whose_history_cannot_be_read_stays_a_success(lake, monkeypatch):
    add(lake, (1, SECRET, 0, 10))
    monkeypatch.setattr(fh.Lake, "figures", lambda *_: (_ for _ in ()).throw(fh.UnknownSnapshot("it was expired")))
    told, result = run(lake, people)
    assert result.success
    assert told[None]["history"] == "cannot be read: it was expired"
    assert told[None]["show"].startswith("`foldhouse show p.people --as-of ")


def test_rows_that_python_cannot_show_do_not_fail_the_run(lake):
    when = fh.stream("p.when", schema={"id": "long", "at": "timestamp"}, keys="id")
    last = fh.table("p.last", source=when, fold=fh.fold(at=fh.maximum("at")))
    for microseconds in (2**57, 2**58):  # the years 6538 and 11104
        at = pa.array([microseconds], pa.timestamp("us"))
        lake.append(when, pa.table({"id": pa.array([1], pa.int64()), "at": at}))
        told, result = run(lake, last)
    assert result.success
    assert "cannot be read" in told[None]["history"]


def test_a_changed_mark_needs_no_rebuild(lake):
    add(lake, (1, SECRET, 0, 10))
    lake.refresh(by_email)
    marked = fh.table("p.by_email", source=events, keys="email", fold=by_email.fold, sensitive=["amount"])
    add(lake, (1, SECRET, 0, 10))
    assert lake.refresh(marked).committed


@pytest.mark.parametrize("seconds", [0.0, 119.0, 7_300.0, 200_000.0])
def test_durations_have_units(seconds):
    from foldhouse.dagster.looks import _duration

    assert _duration(seconds) == {0.0: "0.00 s", 119.0: "119.00 s", 7_300.0: "2.0 h", 200_000.0: "2.3 d"}[seconds]
