"""The words that say how much history is kept, and what a year of them comes to."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

import foldhouse as fh
from foldhouse.storage.history import HeadSince
from foldhouse.upkeep.retention import kept_of
from foldhouse.values.keep import DEFAULT, parse

WEEKLY = "hourly for 1 day, weekly for ever"
HOUR = 3_600_000
DAY = 24 * HOUR
START = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)


def thinned(log: list[HeadSince], text: str, now_ms: int) -> list[HeadSince]:
    """The log once what the policy does not keep is removed, with its gaps, as an expiry leaves it."""
    kept = kept_of(log, parse(text), now_ms) | {log[-1].snapshot_id}
    found: list[HeadSince] = []
    for one in log:
        stays = one if one.snapshot_id in kept else HeadSince(one.since_ms, None)
        if stays.snapshot_id is not None or not found or found[-1].snapshot_id is not None:
            found.append(stays)
    return found


def known(log: list[HeadSince]) -> int:
    return sum(one.snapshot_id is not None for one in log)


@pytest.mark.heavy
def test_ninety_days_of_five_second_refreshes_thinned_each_day_list_under_2000_snapshots() -> None:
    log: list[HeadSince] = []
    most = count = 0
    for day in range(90):
        begin = START + day * DAY
        log += [HeadSince(begin + n * 5_000, count + n) for n in range(17_280)]
        count += 17_280
        log = thinned(log, DEFAULT, begin + DAY - 1)
        most = max(most, known(log))
    assert count == 90 * 17_280
    assert most < 2_000
    assert known(log) == 720 + 168 + 83  # the last hour, the full hours of a week, the midnights before


@pytest.mark.parametrize("seed", range(20))
def test_thinning_often_keeps_what_thinning_once_keeps(seed: int) -> None:
    chance = random.Random(seed)
    text = chance.choice(
        [DEFAULT, "every 10 minutes for 5 hours, every 2 hours for 2 days", "hourly for 1 day, weekly for ever"]
    )
    moments = sorted(chance.sample(range(START, START + 30 * DAY), 3_000))
    whole = [HeadSince(at, number) for number, at in enumerate(moments)]
    log: list[HeadSince] = []
    for one in whole:
        log.append(one)
        if chance.random() < 0.01:
            log = thinned(log, text, one.since_ms + chance.randrange(10 * HOUR))
    end = moments[-1] + DAY
    assert thinned(log, text, end) == thinned(whole, text, end)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_is_the_head_of_every_full_hour_of_the_span(seed: int) -> None:
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(START, START + 3 * DAY), 200))
    log = [HeadSince(at, number) for number, at in enumerate(moments)]
    now = START + 3 * DAY + 1
    kept = kept_of(log, parse("hourly for 2 days"), now)
    hours = range(START + DAY + HOUR, START + 3 * DAY + 1, HOUR)
    heads = {
        max((one for one in log if one.since_ms <= hour), key=lambda one: one.since_ms).snapshot_id for hour in hours
    }
    assert kept == heads


def test_a_week_begins_on_monday_and_a_day_at_midnight() -> None:
    sunday = int(datetime(2024, 3, 3, 12, tzinfo=UTC).timestamp() * 1000)
    log = [HeadSince(sunday, 1), HeadSince(sunday + DAY, 2), HeadSince(sunday + 2 * DAY, 3)]
    assert kept_of(log, parse("weekly for ever"), sunday + 3 * DAY) == {1}
    assert kept_of(log, parse("daily for ever"), sunday + 3 * DAY) == {1, 2, 3}


@pytest.mark.parametrize(
    "text",
    [
        "all for 1 hour",
        "all for ever",
        "daily for 30 days",
        "every 15 minutes for 2 days, daily for 1 year",
        DEFAULT,
        " hourly for 1 week ",
    ],
)
def test_what_people_write_is_read(text: str) -> None:
    assert parse(text).clauses


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no ' for '"),
        ("all", "has no ' for '"),
        ("all for 1 hour,", "has no ' for '"),
        ("everything for 1 hour", "is not how often"),
        ("All for 1 hour", "is not how often"),
        ("every 7 minutes for 1 hour", "does not divide an hour"),
        ("every 0 minutes for 1 hour", "does not divide an hour"),
        ("every 5 hours for 1 week", "does not divide a day"),
        ("all for 0 hours", "is not how long"),
        ("all for -1 hours", "is not how long"),
        ("all for 1 month", "is not how long"),
        ("all for one hour", "is not how long"),
        ("all for 1 hour, all for 2 hours", "is coarser"),
        ("daily for 1 week, hourly for 1 year", "is coarser"),
        ("every 20 minutes for 1 day, every 30 minutes for 1 week", "by a whole number"),
        ("all for 1 week, hourly for 1 day", "reaches further back"),
        ("all for 1 hour; daily for 1 week", "is not how long"),
        ("all for ever, daily for ever", "reaches further back"),
        ("all for \u0661 hour", "is not how long"),
        ("every \u0662 hours for 1 week", "is not how often"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_part_that_is_wrong(text: str, why: str) -> None:
    with pytest.raises(fh.InvalidProperty, match=why):
        parse(text)


def test_the_oldest_kept_state_is_no_older_than_the_last_span() -> None:
    log = [HeadSince(START + n * DAY + 1, n) for n in range(800)]
    now = START + 800 * DAY
    kept = kept_of(log, parse(DEFAULT), now)
    assert min(kept) in range(434, 437)
    assert timedelta(milliseconds=now - log[min(kept)].since_ms) < timedelta(days=367)
