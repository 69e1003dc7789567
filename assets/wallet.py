"""The wallets of the shop's sellers: each movement records the balance after it, and adding them up checks it."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import dagster as dg

import foldhouse as fh
from examples import shop_days
from foldhouse.dagster import fold_asset, stream_asset
from resources.landing import generated_days, opened

SEED = 70

movements = fh.stream(
    "wallet.movements",
    schema={
        "movement_id": "string",
        "account": "string",
        "kind": "string",
        "amount": "decimal(12,2)",
        "balance": "decimal(12,2)",
        "moved_at": "timestamp",
        "landed_at": "timestamp",
    },
    keys="account",
    sequence_by=["moved_at", "movement_id"],
    event_time="moved_at",
    event_id="movement_id",
    partition_by="day(landed_at)",
    description="What came into each wallet, and went out of it (negative), with the balance recorded after it.",
)

balances = fh.table(
    "wallet.balances",
    source=movements,
    fold=fh.fold(
        recorded=fh.latest("balance"),
        moved=fh.total("amount"),
        movements=fh.count(),
        last_moved_at=fh.maximum("moved_at"),
    ),
    description="What each wallet holds, twice: as it was last recorded, and as its movements add up.",
)


@dataclass(frozen=True)
class Disagreement:
    """A wallet whose recorded balance is not what its movements add up to; `None` where there is no figure at all."""

    account: str
    recorded: Decimal | None
    moved: Decimal | None

    def __str__(self) -> str:
        return f"{self.account}: recorded {self.recorded}, its movements come to {self.moved}"


def disagreements(lake: fh.Lake) -> list[Disagreement]:
    """The wallets whose two figures differ, by account: none where every balance is what it was recorded to be.

    A movement that is still on its way makes them differ as well, for as long as it is missing.

    Args:
        lake: one that holds `wallet.balances`; no Spark is started.
    """
    held = lake.to_arrow(balances).select(["account", "recorded", "moved"]).sort_by("account").to_pylist()
    return [Disagreement(**row) for row in held if row["recorded"] != row["moved"]]


OPENED: date = opened()

days = generated_days(movements)
landed = stream_asset(movements, lambda day: shop_days.movements(day, OPENED, SEED), partitions_def=days)
folded = fold_asset(balances)


@dg.asset_check(
    asset=folded,
    required_resource_keys={"lake"},
    description="The recorded balance of each wallet is what its movements add up to.",
)
def balances_agree(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Fail where a balance was edited: in the table, or in a movement before it landed."""
    found = disagreements(context.resources.lake.open())
    return dg.AssetCheckResult(
        passed=not found,
        description="; ".join(map(str, found)),
        metadata={"wrong_wallets": len(found), "wallets": ", ".join(one.account for one in found) or "none"},
    )
