"""A forced rule holds wherever a bucket is folded; else the histories would run under the one rule there is."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from laws.rules import RULES, rule_of

import foldhouse as fh
from foldhouse.storage.live import live_slices

events = fh.stream("law.events", schema={"k": "long", "seq": "long"}, keys="k", sequence_by="seq")
table = fh.table("law.table", source=events, fold=fh.latest())
FILES = {
    # after three refreshes and after four, each but the first of one row: data files, delete files
    "as it is": ((3, 2), (1, 0)),
    "every touched file is written anew": ((1, 0), (1, 0)),
    "nothing is ever written anew": ((3, 2), (4, 3)),
    "small files and deletes are merged at once": ((2, 1), (2, 1)),
    "copy-on-write": ((1, 0), (1, 0)),
}


def files_of(lake: fh.Lake) -> tuple[int, int]:
    iceberg = lake.load(table)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    return len(slices), len({path for one in slices for path in one.deletes})


def append(lake: fh.Lake, number: int) -> None:
    keys = [number] if number else range(20)
    lake.append(events, pa.table({"k": keys, "seq": [number] * len(keys)}))


def refresh_three_times(lake: fh.Lake, rule: str) -> None:
    for number in range(3):
        append(lake, number)
        lake.refresh(table)
    assert files_of(lake) == FILES[rule][0]
    append(lake, 3)


@pytest.mark.parametrize("rule", RULES)
def test_a_forced_rule_holds_in_this_process(lake: fh.Lake, rule: str) -> None:
    with rule_of(list(RULES).index(rule), lake):
        refresh_three_times(lake, rule)
        lake.refresh(table)
    assert files_of(lake) == FILES[rule][1]


@pytest.mark.spark
@pytest.mark.parametrize("rule", RULES)
def test_a_forced_rule_holds_in_the_workers_of_spark(spark_lake: Callable[..., fh.Lake], rule: str) -> None:
    lake, in_workers = spark_lake(), spark_lake(in_process_rows=-1)
    with rule_of(list(RULES).index(rule), lake, in_workers):
        refresh_three_times(lake, rule)
        in_workers.refresh(table)
    assert files_of(lake) == FILES[rule][1]
