"""Days of a table with logic and several sources are folded again, and folded up to a moment, in Spark's tasks too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import duckdb
import pytest
from pyiceberg.expressions import EqualTo
from pyspark.sql import functions as F

import foldhouse as fh

pytestmark = pytest.mark.spark

sold = fh.stream(
    "rs.sold", schema={"id": "long", "shop": "string", "at": "timestamp", "n": "long"}, event_id="id", event_time="at"
)
shops = fh.stream("rs.shops", schema={"shop": "string", "land": "string", "opened": "timestamp"}, event_time="opened")
by_land = fh.table(
    "rs.by_land",
    source=[sold, shops],
    keys=["day", "land"],
    partition_by="day",
    rows=lambda sold, shops: sold.join(shops, "shop").withColumn("day", F.to_date("at")),
    fold=fh.fold(n=fh.total("n"), most=fh.maximum("n"), rows=fh.count()),
)
FIRST = datetime(2024, 3, 1)
WANTED = """
select cast("at" as date) as day, land, cast(sum(n) as bigint) as n, max(n) as most, count(*) as rows
from (select distinct * from sold) join shops using (shop) where "at" <= {last} and opened <= {last}
group by all order by all
"""


def land(lake: fh.Lake, batch: int) -> None:
    made = [
        {"id": one, "shop": f"s{one % 5}", "at": FIRST + timedelta(hours=7 * (one % 12)), "n": one % 17}
        for one in range(batch * 20, batch * 20 + 25)  # five of them are delivered again by the next batch
    ]
    lake.append(sold, made)


def rows_of(found: Any) -> list[dict[str, Any]]:
    return found.sort_by([("day", "ascending"), ("land", "ascending")]).to_pylist()


def asked(lake: fh.Lake, last: str = "'9999-01-01'") -> list[dict[str, Any]]:
    with duckdb.connect() as db:
        db.register("sold", lake.to_arrow(sold))
        db.register("shops", lake.to_arrow(shops))
        return db.sql(WANTED.format(last=f"timestamp {last}")).to_arrow_table().to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("in_process_rows", [-1, None], ids=["in tasks", "in process"])
def test_a_join_by_day_is_folded_again_and_up_to_a_moment(
    spark_lake: Callable[..., fh.Lake], in_process_rows: int | None
) -> None:
    lake = spark_lake(in_process_rows=in_process_rows)
    opened = [(f"s{one}", "north" if one % 2 else "south", FIRST + timedelta(hours=20 * one)) for one in range(5)]
    lake.append(shops, [{"shop": shop, "land": where, "opened": at} for shop, where, at in opened])
    for batch in range(3):
        land(lake, batch)
        lake.refresh(by_land)
    right = rows_of(lake.to_arrow(by_land))
    assert right == asked(lake)
    day = date(2024, 3, 2)
    lake.load(by_land).delete(EqualTo("day", day))
    with pytest.raises(fh.ForeignCommit):
        lake.refresh(by_land)
    lake.restate(by_land, [day])
    assert rows_of(lake.to_arrow(by_land)) == right
    moment = rows_of(lake.until(by_land, "2024-03-02T14:00:00"))
    assert moment == asked(lake, "'2024-03-02 14:00:00'")
    assert moment != right
