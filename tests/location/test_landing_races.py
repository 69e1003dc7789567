"""Two landings of one day at the same time: the older content of its file never stays. No JVM is started."""

from datetime import date

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.landing import Landing
from tests.location.fakes import days, failing
from tests.location.test_landed_files import Shop, orders, rejected

THIRD = date(2024, 3, 3)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    for day in (2, 3, 4):
        shop.write(day, 1)
    shop.land(2, 4)
    yield shop
    shop.lake.close()


def meanwhile(monkeypatch, method, act, *, times=1):
    """Act after a landing read the third day, or before it commits; the landings of `act` itself are left alone."""
    owner, name = method
    original, left = getattr(owner, name), [times]

    def disturbed(self, *args, **kwargs):
        is_read = name == "read"
        wanted = args[0] == THIRD if is_read else args[0].name == orders.name
        found = original(self, *args, **kwargs) if is_read else None
        if wanted and left[0]:
            left[0] -= 1
            act()
        return found if is_read else original(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, disturbed)


READ, COMMIT = (Landing, "read"), (fh.Lake, "replace")


@pytest.mark.parametrize("moment", [READ, COMMIT])
@pytest.mark.parametrize("newer", [("7",), ("7", "x"), ()])
def test_a_landing_that_read_the_older_file_does_not_overwrite_the_newer_one(shop, monkeypatch, moment, newer):
    def corrected():
        shop.write(3, *newer)
        shop.land(3, 3)

    shop.write(3, 5, "y")
    meanwhile(monkeypatch, moment, corrected)
    shop.land(2, 4)
    assert shop.rows() == sorted([(2, 1), *((3, int(one)) for one in newer if one != "x"), (4, 1)])
    assert shop.lake.to_arrow(rejected).num_rows == newer.count("x")
    assert shop.look() == []  # the lake is proven to hold the files


def test_nor_does_it_where_the_newer_file_is_what_the_day_held_before(shop, monkeypatch):
    shop.write(3, 5)
    meanwhile(monkeypatch, READ, lambda: (shop.write(3, 1), shop.land(3, 3)))  # this landing has nothing to commit
    shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 1), (4, 1)]


def test_nor_on_the_first_landing_of_a_day_that_had_no_file_yet(shop, monkeypatch):
    (shop.folder.path / f"{THIRD}.csv").unlink()
    meanwhile(monkeypatch, READ, lambda: (shop.write(3, 7), shop.land(3, 3)))
    shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 7), (4, 1)]


def test_a_file_that_changed_while_its_day_landed_lands_again_in_the_same_run(shop, monkeypatch):
    shop.write(3, 5)
    meanwhile(monkeypatch, READ, lambda: shop.write(3, 7))
    shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 7), (4, 1)]


def test_a_file_that_was_landed_and_archived_meanwhile_keeps_its_day(shop, monkeypatch):
    def landed_and_archived():
        shop.write(3, 7)
        shop.land(3, 3)
        (shop.folder.path / f"{THIRD}.csv").unlink()

    shop.write(3, 5)
    meanwhile(monkeypatch, READ, landed_and_archived)
    with failing(fh.DaysNotLanded, match="2024-03-03: its day or its file was changed"):
        shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 7), (4, 1)]


def test_a_file_that_is_archived_while_it_lands_keeps_its_day(shop, monkeypatch):
    shop.write(3, 5)
    meanwhile(monkeypatch, READ, (shop.folder.path / f"{THIRD}.csv").unlink)
    shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 5), (4, 1)]


def test_a_file_that_changes_whenever_it_is_landed_fails_its_day_alone(shop, monkeypatch):
    ids = iter(range(100, 200))
    shop.write(2, 8)
    meanwhile(monkeypatch, READ, lambda: shop.write(3, next(ids)), times=50)
    with failing(fh.DaysNotLanded, match=r"2024-03-03: its file.*was changed each of the 5 times"):
        shop.land(2, 4)
    assert (2, 8) in shop.rows()


def test_replace_refuses_days_that_changed_since_they_were_looked_at(shop):
    lake, events = shop.lake, shop.lake.to_arrow(orders)
    seen = lake.landed(orders, days(3, 5)).states
    lake.append(orders, events.slice(1, 1))
    with pytest.raises(fh.DaysChanged, match="2024-03-03") as refused:
        lake.replace(orders, events.slice(0, 0), partitions=days(3, 5), seen=seen)
    assert refused.value.days == (THIRD,)
    assert len(shop.rows()) == 4
    assert lake.replace(orders, events.slice(0, 0), partitions=days(4, 5), seen=seen).committed


def test_a_run_of_dagster_reports_a_day_that_it_read_again_once(shop, monkeypatch):
    events = []
    shop.write(3, 5)
    meanwhile(monkeypatch, READ, lambda: shop.write(3, 7))
    original = dg.materialize
    monkeypatch.setattr(
        dg, "materialize", lambda *args, **kwargs: events.append(original(*args, **kwargs)) or events[0]
    )
    shop.land(2, 4)
    told = [one.partition for one in events[0].get_asset_materialization_events() if one.asset_key.path[-1] == "orders"]
    assert sorted(told) == ["2024-03-02", "2024-03-03", "2024-03-04"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_that_vanishes_before_it_is_read_does_not_empty_its_day(shop, monkeypatch, is_first):
    file, original, readings = shop.folder.path / f"{THIRD}.csv", Landing.read, []

    def read(self, day):
        if day != THIRD:
            return original(self, day)
        readings.append(day)
        if is_first or len(readings) == 2:
            file.unlink()
            return original(self, day)
        found = original(self, day)
        shop.write(3, 7)  # so that it is read again
        return found

    monkeypatch.setattr(Landing, "read", read)
    shop.write(3, 5)
    with failing(fh.DaysNotLanded, match="2024-03-03: its day or its file was changed"):
        shop.land(2, 4)
    assert (3, 1 if is_first else 5) in shop.rows()


def test_a_file_that_still_holds_a_forgotten_subject_is_refused_if_it_lands_again(shop):
    """Whoever lands it: by a run of the day, or because the file was touched; its day alone is red."""
    shop.write(3, 5, 6)
    shop.land(3, 3)
    assert shop.lake.forget(orders, {"id": 5}, reason="request 17", alone=True, dry_run=False).is_done
    shop.write(3, 5, 6)
    shop.write(4, 8)
    with failing(fh.DaysNotLanded, match=r"1 events of 2024-03-03 \(lines 1\) were removed by the forget"):
        shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 6), (4, 8)]
    shop.write(3, 6)
    shop.land(2, 4)
    assert shop.rows() == [(2, 1), (3, 6), (4, 8)]
