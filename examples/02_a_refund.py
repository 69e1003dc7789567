"""A refund on Thursday, and the Monday that it corrects. It is what `make demo` runs second.

    python examples/02_a_refund.py [--folder demo-refund]

The generated shop and the wallets of its sellers (assets/shop.py, assets/wallet.py), without Dagster: days land as
their events arrive, late, out of order and twice, and the tables are refreshed. Everything is made in one folder, from
scratch each time; a folder that this example did not make is left alone.
"""

from __future__ import annotations

import argparse
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from own_folder import made_anew
from rich.console import Console

import foldhouse as fh
from assets import shop, wallet
from examples import shop_days
from foldhouse.cli.changelog import print_changelog
from foldhouse.cli.output import Column, print_table

ROOT = Path(__file__).resolve().parent.parent
MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY = (date(2024, 3, 4) + timedelta(days=number) for number in range(5))
SOURCES = {
    shop.order_events: shop_days.order_events,
    shop.payments: shop_days.payments,
    wallet.movements: shop_days.movements,
}
TABLES = (*shop.TABLES, wallet.balances)
MONEY = ("revenue", "refunded", "orders", "customers")

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A refund on Thursday, and the Monday that it corrects.")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo-refund", help="where to make the lake, anew")
    folder = parser.parse_args().folder.resolve()
    marker = made_anew(folder)
    lake = fh.Lake.local(folder / "lake")
    console.print("foldhouse: a refund on Thursday, and the Monday that it corrects", style="bold")

    title("1. Monday to Wednesday of a shop land, as their events arrived")
    for day in (MONDAY, TUESDAY, WEDNESDAY):
        land(lake, day)
    fold(lake)
    show_tables(lake)

    title("2. On Thursday a refund arrives, for an order of Monday")
    wednesday = heads(lake)
    land(lake, THURSDAY)
    fold(lake)
    show_refund(lake, wednesday)

    title("3. An order is deleted, and events arrive a second time")
    show_deleted(lake, wednesday)
    deliver_again(lake)

    title("4. Thursday is taken back, and lands again")
    take_back(lake, wednesday)

    title("5. Somebody edits a balance behind the stream's back")
    edit_a_balance(lake)
    lake.close()
    marker.close()


def land(lake: fh.Lake, day: date) -> None:
    """Land the events that arrived on a day in each stream, replacing that day."""
    for stream, generated in SOURCES.items():
        lake.replace(stream, generated(day, MONDAY, shop.SEED), partitions=[day])


def fold(lake: fh.Lake) -> dict[str, fh.Refreshed]:
    """Refresh all tables, sources first."""
    return {table.name: lake.refresh(table) for table in TABLES}


def heads(lake: fh.Lake) -> dict[str, int]:
    """Name -> snapshot of each table and stream."""
    return {name: head.id for name in lake.tables() if (head := lake.head(name))}


def show_tables(lake: fh.Lake) -> None:
    """Print what there is, and what is believed about Monday."""
    rows = []
    for one in (*SOURCES, *TABLES):
        said = one.description.partition(";")[0].partition(",")[0].rstrip(".")
        rows.append({"name": one.name, "kind": lake.kind(one), "rows": lake.count(one), "what it says": said})
    columns = [Column("name"), Column("kind"), Column("rows", is_number=True)]
    print_table([*columns, Column("what it says")], rows)
    console.print(f"\nMonday, {MONDAY}, in shop.revenue_by_day:\n")
    print_table([Column("country"), *(Column(name, is_number=True) for name in MONEY)], monday(lake))


def show_refund(lake: fh.Lake, before: dict[str, int]) -> None:
    """Print the refund as it landed, and what the commit of Thursday says it changed."""
    events = lake.to_arrow(shop.order_events).filter(landed_on(THURSDAY))
    earlier = events.filter(pc.field("ordered_at").cast(pa.date32()) < pa.scalar(THURSDAY)).num_rows
    refund = refund_of_monday(lake)
    console.print(
        f"{events.num_rows} events arrived, {earlier} of them about orders of earlier days. One of them: order "
        f"{refund['order_id']}\nof {refund['ordered_at']:%A}, {refund['country']}, paid {refund['amount']}, "
        f"is refunded {refund['refunded']}.\n"
    )
    changes = lake.changes(shop.revenue_by_day, after=before[shop.revenue_by_day.name]).to_pylist()
    days = sorted({change["day"] for change in changes})
    others = ", ".join(f"{day:%A}" for day in days if day != MONDAY)
    console.print(f"What Thursday's commit of shop.revenue_by_day changed for Monday (it also changed {others}):\n")
    numbers = [Column(name, is_number=True) for name in MONEY]
    of_monday = [change for change in changes if change["day"] == MONDAY]
    print_changelog([Column("day"), Column("country"), *numbers], of_monday, keys=("day", "country"))
    (order,) = rows_of(lake, shop.order_payments, "order_id", refund["order_id"])
    console.print(
        f"\nshop.order_payments says of it: {order['status']}, {order['payments']} payments, "
        f"{order['paid']} of {order['amount']} is left."
    )


def show_deleted(lake: fh.Lake, before: dict[str, int]) -> None:
    """Print an order that was deleted on Thursday, before and after."""
    deleted = lake.to_arrow(shop.order_events).filter(landed_on(THURSDAY) & (pc.field("status") == "deleted"))
    order_id = deleted["order_id"][0].as_py()
    (then,) = rows_of(lake, shop.orders, "order_id", order_id, before[shop.orders.name])
    now = rows_of(lake, shop.orders, "order_id", order_id)
    console.print(f"Order {order_id} was {then['status']} on Wednesday, {then['amount']} of {then['country']}.")
    console.print(f"Its last event is a delete: {len(now)} rows in shop.orders, and an event that comes late brings it")
    console.print("back only if it happened after the delete.")


def deliver_again(lake: fh.Lake) -> None:
    """Land all that came on Thursday once more on Friday, and print that no table changed."""
    before, again = {table.name: lake.to_arrow(table) for table in TABLES}, 0
    for stream, generated in SOURCES.items():
        events = generated(THURSDAY, MONDAY, shop.SEED)
        later = pc.add(events["landed_at"], pa.scalar(timedelta(days=1), pa.duration("us")))
        events = events.set_column(events.schema.get_field_index("landed_at"), "landed_at", later)
        lake.replace(stream, events, partitions=[FRIDAY])
        again += events.num_rows
    done = fold(lake)
    written = sum(one.rows_written for one in done.values())
    same = sum(lake.to_arrow(name).equals(rows) for name, rows in before.items())
    console.print(
        f"\nAll {again} events of Thursday arrive once more on Friday: {written} rows were written, "
        f"{same} of {len(done)} tables hold what they held."
    )


def take_back(lake: fh.Lake, wednesday: dict[str, int]) -> None:
    """Roll the streams back to Wednesday, then land Thursday again, and print Monday each time."""
    refund = refund_of_monday(lake)
    rows = []

    def note(when: str) -> None:
        (row,) = [row for row in monday(lake) if row["country"] == refund["country"]]
        rows.append({f"Monday, {refund['country']}": when, **row})

    note("now")
    for stream in SOURCES:
        lake.rollback(stream, to=wednesday[stream.name])
    fold(lake)
    note("the streams rolled back")
    land(lake, THURSDAY)
    fold(lake)
    note("Thursday landed again")
    first = Column(f"Monday, {refund['country']}")
    print_table([first, *(Column(name, is_number=True) for name in MONEY)], rows)


def edit_a_balance(lake: fh.Lake) -> None:
    """Let another writer change a balance; print how the check finds it and the refresh refuses it."""
    good = lake.head(wallet.balances)
    console.print(f"{lake.count(wallet.balances)} wallets, {len(wallet.disagreements(lake))} of them disagree.")
    table = lake.catalog.load_table(wallet.balances.name)
    rows = table.scan().to_arrow().sort_by("account")
    place = rows.schema.get_field_index("recorded")
    richer = [balance + (100 if number == 0 else 0) for number, balance in enumerate(rows["recorded"].to_pylist())]
    table.overwrite(rows.set_column(place, rows.schema.field(place), pa.array(richer, rows.schema.field(place).type)))
    console.print("After another program wrote to wallet.balances, the check says:\n")
    for found in wallet.disagreements(lake):
        console.print(f"  {found}")
    try:
        lake.refresh(wallet.balances)
    except fh.ForeignCommit as refused:
        console.print(f"\nand the next refresh refuses: {refused}\n", markup=False)
    assert good is not None
    lake.rollback(wallet.balances, to=good.id)
    lake.refresh(wallet.balances)
    console.print(f"Rolled back: {len(wallet.disagreements(lake))} wallets disagree.")


def monday(lake: fh.Lake) -> list[dict[str, Any]]:
    """Monday in `shop.revenue_by_day`, by country."""
    rows = lake.to_arrow(shop.revenue_by_day).sort_by([("country", "ascending")])
    return rows.filter(pc.field("day") == pa.scalar(MONDAY)).to_pylist()


def refund_of_monday(lake: fh.Lake) -> dict[str, Any]:
    """The refund for an order of Monday that landed on Thursday."""
    events = lake.to_arrow(shop.order_events).filter(landed_on(THURSDAY) & (pc.field("status") == "refunded"))
    return next(event for event in events.to_pylist() if event["ordered_at"].date() == MONDAY)


def landed_on(day: date) -> pc.Expression:
    """Whether an event landed on a day."""
    return pc.field("landed_at").cast(pa.date32(), safe=False) == pa.scalar(day)


def rows_of(
    lake: fh.Lake, table: fh.Table, column: str, value: object, as_of: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a table with a value in a column."""
    return lake.to_arrow(table, as_of=as_of).filter(pc.field(column) == value).to_pylist()


def title(text: str) -> None:
    console.print(f"\n{text}\n", style="bold")


if __name__ == "__main__":
    try:
        main()
    except fh.FoldhouseError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
