"""The wallet in Dagster, without a JVM: a run over days, and the check that finds an edited balance."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import foldhouse as fh
from assets import wallet
from examples import shop_days
from foldhouse.dagster import fold_asset, stream_asset
from tests.location.fakes import failing, on_days, range_tags, tick_of

DAYS = [date(2010, 12, day) for day in range(6, 10)]
DAILY = dg.DailyPartitionsDefinition("2010-12-06", end_date="2010-12-13", timezone="UTC")
ASSETS = [*on_days([wallet.landed, wallet.folded], DAILY), wallet.balances_agree]


class Opened:
    """A lake as a resource."""

    def __init__(self, lake):
        self.lake = lake

    def open(self):
        return self.lake


def run(lake, asked=DAYS, assets=ASSETS, **options):
    return dg.materialize(assets, resources={"lake": Opened(lake)}, tags=range_tags(asked), **options)


def check_of(result):
    [evaluation] = result.get_asset_check_evaluations()
    return evaluation


def land(lake, rows):
    lake.replace(wallet.movements, rows, partitions=[DAYS[0]])


def monday():
    return shop_days.movements(DAYS[0], DAYS[0], wallet.SEED)


def with_value(rows, place, column, value):
    changed = [{**row, column: value} if number == place else row for number, row in enumerate(rows.to_pylist())]
    return pa.Table.from_pylist(changed, rows.schema)


def last_movement(rows):
    """The place of the last movement of some account in the order of events, and that movement."""
    ordered = sorted(enumerate(rows.to_pylist()), key=lambda one: (one[1]["moved_at"], one[1]["movement_id"]))
    return ordered[-1]


def test_the_job_takes_the_assets_and_their_check(defs):
    job = defs.resolve_job_def("wallet")
    assert {key.to_user_string() for key in job.asset_layer.selected_asset_keys} == {
        "wallet/movements",
        "wallet/balances",
    }
    assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} == {
        "balances_agree",
        "up_to_date",
        "gapless",
    }


@pytest.fixture(scope="module")
def defs():
    from definitions import defs

    return defs


def test_the_schedule_is_off_and_asks_for_the_day_before(defs):
    schedule = defs.resolve_schedule_def("wallet_daily")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    when = datetime.combine(date.today(), time(8), UTC)
    [request] = tick_of(schedule, defs, when).run_requests
    assert request.partition_key == str(when.date() - timedelta(days=1))


def test_days_land_are_folded_and_agree_and_a_second_run_commits_nothing(lake):
    assert check_of(run(lake)).passed
    heads = {name: lake.head(name) for name in lake.tables()}
    assert sorted(heads) == ["wallet.balances", "wallet.movements"]
    assert check_of(run(lake)).passed
    assert {name: lake.head(name) for name in lake.tables()} == heads


def test_a_movement_that_is_delivered_again_is_counted_once(lake):
    rows = monday()
    land(lake, rows)
    lake.refresh(wallet.balances)
    before = lake.to_arrow(wallet.balances)
    again = rows.slice(0, 5)
    lake.append(wallet.movements, again, batch_id="again")
    assert lake.refresh(wallet.balances).rows_written == 0
    assert lake.to_arrow(wallet.balances).equals(before)
    assert wallet.disagreements(lake) == []


def test_a_recorded_balance_that_was_edited_in_its_movement_is_found_with_both_figures(lake):
    rows = monday()
    place, last = last_movement(rows)
    land(lake, with_value(rows, place, "balance", last["balance"] + 100))
    asset = fold_asset(wallet.balances)
    evaluation = check_of(run(lake, [DAYS[0]], [asset, wallet.balances_agree]))
    assert not evaluation.passed
    said = f"{last['account']}: recorded {last['balance'] + 100}, its movements come to {last['balance']}"
    assert evaluation.description == said
    [found] = wallet.disagreements(lake)
    assert found == wallet.Disagreement(last["account"], last["balance"] + 100, last["balance"])


def test_a_movement_that_never_came_is_found(lake):
    rows = monday()
    _, last = last_movement(rows)
    land(lake, rows.filter((pc.field("account") != last["account"]) | (pc.field("balance") == last["balance"])))
    lake.refresh(wallet.balances)
    found = {one.account for one in wallet.disagreements(lake)}
    assert found == {last["account"]}


def edit(lake):
    """Another writer gives the first wallet a hundred more, past foldhouse."""
    table = lake.catalog.load_table(wallet.balances.name)
    rows = table.scan().to_arrow().sort_by("account")
    richer = [*rows["recorded"].to_pylist()]
    richer[0] += 100
    place = rows.schema.get_field_index("recorded")
    table.overwrite(rows.set_column(place, rows.schema.field(place), pa.array(richer, rows.schema.field(place).type)))
    return lake.head(wallet.balances)


@pytest.mark.slow
def test_a_balance_that_another_writer_edited_is_found_and_the_next_run_refuses_to_go_on(lake):
    run(lake)
    good = lake.head(wallet.balances)
    before = lake.to_arrow(wallet.balances).sort_by("account").to_pylist()[0]
    edited = edit(lake)
    assert [str(one) for one in wallet.disagreements(lake)] == [
        f"{before['account']}: recorded {before['recorded'] + 100}, its movements come to {before['moved']}"
    ]
    checked = dg.materialize(
        [wallet.folded, wallet.balances_agree],
        resources={"lake": Opened(lake)},
        selection=dg.AssetSelection.checks(wallet.balances_agree),
    )
    assert not check_of(checked).passed
    with failing(fh.ForeignCommit, match=rf"wallet\.balances is derived, but its snapshot {edited.id} \(") as said:
        run(lake)
    assert "is not foldhouse's; roll it back to snapshot" in str(said.value)
    lake.rollback(wallet.balances, to=good.id)
    assert check_of(run(lake)).passed
    assert lake.to_arrow(wallet.balances).sort_by("account").to_pylist()[0] == before


def test_rebuild_is_the_other_way_out(lake):
    run(lake)
    before = lake.to_arrow(wallet.balances)
    edit(lake)
    lake.rebuild(wallet.balances)
    assert lake.to_arrow(wallet.balances).sort_by("account").equals(before.sort_by("account"))
    assert wallet.disagreements(lake) == []


def test_the_check_says_a_wallet_without_any_figure_too(lake):
    rows = monday()
    first = rows.slice(0, 1)
    land(lake, with_value(first, 0, "balance", None))
    lake.refresh(wallet.balances)
    [found] = wallet.disagreements(lake)
    assert (found.recorded, found.moved) == (None, first["amount"][0].as_py())


def test_a_stream_without_days_cannot_be_an_asset_of_days():
    flat = fh.stream("wallet.flat", schema={"amount": "decimal(12,2)"})
    with pytest.raises(fh.DefinitionError, match=r"wallet\.flat has no partition_by"):
        stream_asset(flat, lambda day: None, partitions_def=DAILY)


def test_balances_are_exact(lake):
    run(lake)
    held = lake.to_arrow(wallet.balances)
    assert held.schema.field("recorded").type == pa.decimal128(12, 2)
    assert sum(held["moved"].to_pylist(), Decimal(0)) == sum(held["recorded"].to_pylist(), Decimal(0))
