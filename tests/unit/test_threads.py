"""Work on many items in threads: results in order, and the failure of the first item that failed."""

from __future__ import annotations

import os
import threading
import time

import pytest

from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import OF_A_STORE, ahead, fitting, for_each, in_threads


def test_results_are_in_the_order_of_the_items() -> None:
    def slowly(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    assert in_threads(slowly, range(50), at_once=4) == [item * item for item in range(50)]
    assert in_threads(slowly, [], at_once=4) == []


def test_the_failure_of_the_first_item_that_failed_is_raised_and_no_further_item_begins() -> None:
    done = set()

    def work(item: int) -> int:
        if item in (3, 4):
            time.sleep(0.02 if item == 3 else 0)  # the later one fails first
            raise ValueError(f"item {item}")
        done.add(item)
        time.sleep(0.001)
        return item

    with pytest.raises(ValueError, match="item 3"):
        in_threads(work, range(1000), at_once=3)
    assert len(done) < 100


def test_no_more_threads_work_than_allowed() -> None:
    names = set()

    def work(item: int) -> None:
        names.add(threading.current_thread().name)
        time.sleep(0.001)

    in_threads(work, range(30), at_once=2)
    assert len(names) <= 2


def test_files_of_a_store_wait_together_and_those_on_disk_come_one_after_another() -> None:
    together = threading.Barrier(OF_A_STORE)

    def waits(item: int) -> int:
        together.wait(timeout=60)
        return -item

    numbers = list(range(OF_A_STORE))
    assert for_each("s3://warehouse/t", waits, numbers) == [-item for item in numbers]
    here = threading.get_ident()
    for place in ("/w/t", "file:/w/t", "file:///w/t"):
        assert set(for_each(place, lambda _: threading.get_ident(), numbers)) == {here}


@pytest.mark.parametrize(
    ("location", "sizes", "expected"),
    [
        ("file:///w/t", [1] * 100, "cores"),
        ("s3://w/t", [1] * 100, OF_A_STORE),
        ("s3://w/t", [], OF_A_STORE),
        ("s3://w/t", [0, 0], OF_A_STORE),
        ("s3://w/t", [1, 64 << 20], 4),
        ("s3://w/t", [1 << 40], "cores"),
    ],
)
def test_large_files_of_a_store_are_fewer_at_once(
    monkeypatch: pytest.MonkeyPatch, location: str, sizes: list[int], expected: int | str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    layout = Layout("{}", "{}", location, (), ())
    assert layout.files_at_once(iter(sizes)) == (2 if expected == "cores" else expected)


def test_few_large_files_or_many_small_ones_fit() -> None:
    assert fitting([], 100) == fitting([0], 100) == fitting([1, 2], 100) == OF_A_STORE
    assert fitting([1, 10], 100) == 10
    assert fitting([60], 100) == fitting([10_000], 100) == 1


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_results_come_in_order_while_the_next_ones_are_made(at_once: int) -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return -item

    results = ahead(work, range(20), at_once)
    assert begun == []  # nothing begins before it is asked for
    assert next(results) == 0
    assert len(begun) <= min(at_once + 1, 20)
    assert list(results) == [-item for item in range(1, 20)]
    assert list(ahead(work, [], at_once)) == []


def test_items_are_worked_on_at_once_and_no_more_than_that() -> None:
    together, lock, under_way = threading.Barrier(3), threading.Lock(), [0, 0]

    def work(item: int) -> int:
        with lock:
            under_way[0] += 1
            under_way[1] = max(under_way)
        together.wait(timeout=60)
        with lock:
            under_way[0] -= 1
        return item

    assert list(ahead(work, range(9), 3)) == list(range(9))
    assert under_way == [0, 3]


def test_an_error_comes_in_the_place_of_its_item_and_nothing_begins_after_the_end() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 2:
            raise OSError("the third")
        return item

    results, before = ahead(work, range(1_000), 2), set(threading.enumerate())
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="the third"):
        next(results)
    assert set(threading.enumerate()) <= before
    assert len(begun) <= 5
    results = ahead(work, range(10, 1_000), 4)
    assert next(results) == 10
    results.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before
    assert len(begun) <= 15
