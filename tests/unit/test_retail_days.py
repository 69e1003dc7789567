from __future__ import annotations

import csv
import gzip
import hashlib
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from assets.retail import FORMAT
from examples.retail_days import HEADER, Summary, correct_day, write_days
from foldhouse.landing import Landing
from tests.oracle import KEYS, assert_same, expected

MONDAY = date(2024, 3, 4)
DAY = date(2024, 3, 11)
RETAIL = replace(FORMAT, max_bad_share=0.01)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    folder = tmp_path_factory.mktemp("landing")
    return folder, write_days(folder, MONDAY, days=14, seed=7)


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[1:-1]


def test_the_same_seed_writes_the_same_bytes_whatever_days_are_written_with_it(
    written: tuple[Path, Summary], tmp_path: Path
) -> None:
    folder, _ = written
    write_days(tmp_path, DAY, days=2, seed=7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2024-03-11.csv", "2024-03-12.csv"]
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()


def test_the_bytes_of_a_seed_are_the_same_on_every_machine(written: tuple[Path, Summary]) -> None:
    digest = hashlib.sha256((written[0] / "2024-03-04.csv").read_bytes()).hexdigest()
    assert digest == "46443b576fe9f6f8878e2f6e252cdc3b5c9d9aa833f1e999f79767b99f9cf9fe"


def test_another_seed_writes_other_days(written: tuple[Path, Summary], tmp_path: Path) -> None:
    write_days(tmp_path, MONDAY, days=1, seed=8)
    assert (tmp_path / "2024-03-04.csv").read_bytes() != (written[0] / "2024-03-04.csv").read_bytes()


def test_two_weeks_have_twelve_files_and_none_on_a_saturday(written: tuple[Path, Summary]) -> None:
    folder, summary = written
    assert [path.name for path in sorted(folder.iterdir())] == [f"{day}.csv" for day in summary.days]
    assert len(summary.days) == 12
    assert all(day.weekday() != 5 for day in summary.days)


@pytest.mark.parametrize("seed", [7, 8, 9, 2024])
def test_days_look_like_those_of_the_wholesaler(tmp_path: Path, seed: int) -> None:
    summary = write_days(tmp_path, MONDAY, days=14, seed=seed)
    landing = Landing(tmp_path, RETAIL)
    landed = [landing.read(day) for day in landing.days()]
    events = pa.concat_tables([day.events for day in landed])
    assert all(1000 <= day.lines <= 1500 for day in landed)
    assert summary.lines == sum(day.lines for day in landed)
    assert summary.broken == sum(day.quarantined.num_rows for day in landed)
    assert all(0 < day.quarantined.num_rows < 0.01 * day.lines for day in landed)
    assert summary.without_customer == events["customer_id"].null_count
    assert 0.13 < summary.without_customer / summary.lines < 0.21
    rows = events.to_pylist()
    cancelled = [row for row in rows if row["invoice_no"].startswith("C")]
    assert len(cancelled) == summary.cancelled
    assert 0.015 < summary.cancelled / summary.lines < 0.04
    assert all(row["quantity"] < 0 and row["customer_id"] for row in cancelled)
    assert {len(row["invoice_no"].removeprefix("C")) for row in rows} == {6}
    countries = Counter(row["country"] for row in rows)
    assert len(countries) > 5
    assert 0.8 < countries["United Kingdom"] / len(rows) < 0.97
    assert 30 <= len({row["stock_code"] for row in rows}) <= 60
    assert any(row["description"] is None and row["unit_price"] == 0 for row in rows)


def test_every_way_of_being_broken_is_among_the_broken_lines(written: tuple[Path, Summary]) -> None:
    landing = Landing(written[0], RETAIL)
    reasons = " ".join(
        reason for day in landing.days() for reason in landing.read(day).quarantined["reason"].to_pylist()
    )
    for column in ("Quantity: ", "InvoiceDate: ", "UnitPrice: ", "StockCode: ", "columns: found 4", "columns: found 9"):
        assert column in reasons


def test_foldhouse_and_the_oracle_take_the_same_lines_for_events(written: tuple[Path, Summary]) -> None:
    landing = Landing(written[0], RETAIL)
    landed = [landing.read(day) for day in landing.days()]
    tables = expected(written[0])
    events = pa.concat_tables([day.events for day in landed])
    bad = pa.concat_tables([day.quarantined for day in landed]).select(["source_file", "line_number", "day"])
    assert_same(events, tables["retail.sales"], KEYS["retail.sales"])
    assert_same(bad, tables["retail.sales_quarantine"], KEYS["retail.sales_quarantine"])


def test_a_correction_removes_lines_changes_prices_and_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    write_days(tmp_path, DAY, days=1, seed=7)
    path = tmp_path / f"{DAY}.csv"
    before = lines_of(path)
    done = correct_day(tmp_path, DAY, seed=1, removed=10, repriced=15)
    assert (done.path, done.day, len(done.removed), len(done.repriced)) == (path, DAY, 10, 15)
    assert all(before[number - 1] == text for number, text in done.removed.items())
    changed = {change.line_number: change for change in done.repriced}
    assert not changed.keys() & done.removed.keys()
    after = iter(lines_of(path))
    for number, line in enumerate(before, start=1):
        if number in done.removed:
            continue
        found = next(after)
        if number in changed:
            was, now = next(csv.reader([line])), next(csv.reader([found]))
            change = changed[number]
            assert (was[1], was[5], now[5]) == (change.stock_code, change.before, change.after)
            assert [*was[:5], *was[6:]] == [*now[:5], *now[6:]]
            assert float(now[5]) != float(was[5])
            assert float(now[5]) > 0
        else:
            assert found == line
    assert next(after, None) is None
    assert path.read_text().split("\n")[0] == HEADER


def test_a_correction_is_the_same_for_a_seed_and_leaves_nothing_else_in_the_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_days(tmp_path / name, DAY, days=1, seed=7)
    assert correct_day(tmp_path / "one", DAY, seed=1).repriced == correct_day(tmp_path / "two", DAY, seed=1).repriced
    one, two = (list((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert one[0].read_bytes() == two[0].read_bytes()
    assert len(one) == 1


def test_a_compressed_day_stays_compressed_and_a_linked_one_is_not_written_through(tmp_path: Path) -> None:
    write_days(tmp_path, DAY, days=1, seed=7)
    real, landing = tmp_path / "real.csv.gz", tmp_path / "landing"
    landing.mkdir()
    real.write_bytes(gzip.compress((tmp_path / f"{DAY}.csv").read_bytes()))
    content = real.read_bytes()
    (landing / f"{DAY}.csv.gz").symlink_to(real)
    done = correct_day(landing, DAY, seed=1)
    assert real.read_bytes() == content
    assert done.path == landing / f"{DAY}.csv.gz"
    assert Landing(landing, RETAIL).read(DAY).lines == Landing(tmp_path, RETAIL).read(DAY).lines - 20


def test_a_day_without_a_file_or_with_too_few_lines_is_not_corrected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no file for 2024-03-11"):
        correct_day(tmp_path, DAY, seed=1)
    write_days(tmp_path, DAY, days=1, seed=7)
    with pytest.raises(ValueError, match=r"whole lines with a price, 5000 are to change; ask for fewer"):
        correct_day(tmp_path, DAY, seed=1, removed=2500, repriced=2500)
