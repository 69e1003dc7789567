"""`reconcile_check` in runs of Dagster: two tables that agree, that do not, and of which one is only behind."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import fold_asset, reconcile_check

moves = fh.stream("r.moves", schema={"account": "string", "amount": "decimal(12,2)"})
balances = fh.table("r.balances", source=moves, keys="account", fold=fh.fold(balance=fh.total("amount")))
ledger = fh.table("r.ledger", source=moves, keys="account", fold=fh.fold(booked=fh.total("amount"), lines=fh.count()))
agrees = reconcile_check(balances, ledger, on=["account"], columns={"balance": "booked"})


class Opened:
    """A lake as a resource."""

    def __init__(self, lake: fh.Lake) -> None:
        self.lake = lake

    def open(self) -> fh.Lake:
        return self.lake


def run(lake: fh.Lake, *tables: fh.Table) -> dg.AssetCheckEvaluation:
    """Run the assets of some tables, and the check."""
    selection = dg.AssetSelection.assets(*(dg.AssetKey(one.name.split(".")) for one in tables)).without_checks()
    done = dg.materialize(
        [fold_asset(balances), fold_asset(ledger), agrees],
        resources={"lake": Opened(lake)},
        selection=selection | dg.AssetSelection.checks(agrees),
    )
    [evaluation] = done.get_asset_check_evaluations()
    return evaluation


def append(lake: fh.Lake, **amounts: str) -> None:
    lake.append(moves, [{"account": account, "amount": Decimal(amount)} for account, amount in amounts.items()])


@pytest.fixture
def kept(lake: fh.Lake) -> fh.Lake:
    append(lake, ada="10.00", bob="5.00")
    return lake


def test_tables_that_agree_pass(kept: fh.Lake) -> None:
    found = run(kept, balances, ledger)
    assert (found.check_name, found.asset_key.to_user_string()) == ("agrees_with_r_ledger", "r/balances")
    assert found.passed
    assert found.description is not None
    assert found.description.endswith("agree in 2 keys")


def test_a_table_that_was_edited_fails_with_both_figures_and_the_commit(kept: fh.Lake) -> None:
    run(kept, balances, ledger)
    iceberg = kept.load(ledger)
    rows: list[dict[str, Any]] = iceberg.scan().to_arrow().to_pylist()
    schema = iceberg.scan().to_arrow().schema
    edited = [{**row, "booked": row["booked"] + (row["account"] == "bob")} for row in rows]
    iceberg.overwrite(type(iceberg.scan().to_arrow()).from_pylist(edited, schema))
    head = kept.head(ledger)
    found = run(kept)
    assert not found.passed
    assert head is not None
    assert found.description is not None
    assert found.description.startswith("1 key disagrees between r.balances@")
    assert found.description.endswith(f"of {ledger.name}")
    [record] = found.metadata["disagreements"].records  # type: ignore[union-attr]  # that of ada agrees
    assert record.data == {"key": "account=bob", "r.balances": "balance=5.00", "r.ledger": "booked=6.00"}


def test_a_table_that_is_only_behind_is_not_called_wrong(kept: fh.Lake) -> None:
    run(kept, balances, ledger)
    append(kept, bob="1.00")
    found = run(kept, balances)
    assert found.passed
    assert found.description is not None
    assert found.description.startswith("cannot tell: r.ledger is behind in r.moves")


def test_a_table_that_was_never_folded_is_not_called_wrong(kept: fh.Lake) -> None:
    found = run(kept, balances)
    assert found.passed
    assert found.description == "cannot tell: r.ledger has no commit yet"


def test_a_check_that_cannot_be_evaluated_says_why_first(kept: fh.Lake) -> None:
    wrong = reconcile_check(balances, ledger, on=["nosuch"], columns={"balance": "booked"})
    for table in (balances, ledger):
        kept.refresh(table)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [fold_asset(balances), wrong], resources={"lake": Opened(kept)}, instance=instance, raise_on_error=False
        )
    [failure] = [event for event in done.all_events if event.event_type_value == "STEP_FAILURE"]
    data = failure.step_failure_data.user_failure_data
    assert data is not None
    assert str(data.description).startswith("r.balances has no column nosuch")
