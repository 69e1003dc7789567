"""What a person at a prompt or in a notebook sees: values in a line or a small table, names, and progress."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

import foldhouse as fh
from foldhouse.calls import progress

payments = fh.stream(
    "seen.payments",
    schema={"id": "string", "customer": "string", "amount": "decimal(12,2)", "at": "timestamp"},
    event_id="id",
)
balances = fh.table(
    "seen.balances",
    source=payments,
    keys="customer",
    fold=fh.fold(balance=fh.total("amount"), payments=fh.count()),
    checks=[fh.not_null("balance")],
)
ADA: list[dict[str, Any]] = [{"id": "1", "customer": "ada", "amount": Decimal("1.50"), "at": datetime(2024, 3, 4)}]


@pytest.fixture
def folded(lake: fh.Lake) -> fh.Lake:
    lake.append(payments, ADA)
    lake.refresh(balances)
    return lake


def test_declarations_are_a_line_that_a_person_reads() -> None:
    assert repr(payments) == (
        "Stream(name=seen.payments, columns=id string, customer string, amount decimal(12,2), at timestamp, "
        "event_id=id)"
    )
    assert repr(balances) == (
        "Table(name=seen.balances, source=seen.payments, keys=customer, "
        "fold=fold(balance=total('amount'), payments=count()), checks=not_null_balance)"
    )
    assert "<tr><th>keys</th><td>customer</td></tr>" in balances._repr_html_()


def test_a_lake_is_a_table_of_its_tables_in_a_notebook(folded: fh.Lake) -> None:
    html = folded._repr_html_()
    assert "<tr><th>seen.balances</th><td>table</td><td>fine</td><td>1</td></tr>" in html
    assert "<tr><th>seen.payments</th><td>stream</td><td>fine</td><td>1</td></tr>" in html


def test_ids_are_shown_without_separators(folded: fh.Lake) -> None:
    (lag,) = folded.lag(balances)
    head = folded.head(payments)
    assert head is not None
    assert f"position={head.id}," in repr(lag)
    assert repr(head).startswith(f"SnapshotInfo(id={head.id}, committed_at=")
    shown = repr(folded.history(balances)[0])
    assert "\n" not in shown
    assert len(shown) < 200


def test_a_name_will_do_once_the_lake_was_given_the_declaration(folded: fh.Lake) -> None:
    folded.append(payments, [{**ADA[0], "id": "2"}])
    assert folded.plan("seen.balances").has_news
    assert folded.refresh("seen.balances").committed
    assert folded.audit("seen.balances")[0].passed
    assert folded.rebuild("seen.balances").rows == 1


def test_a_name_without_a_declaration_says_what_to_pass(lake: fh.Lake) -> None:
    with pytest.raises(fh.DefinitionError, match=r"declaration of seen\.balances is not known.*Pass what fh\.table"):
        lake.refresh("seen.balances")


@pytest.mark.parametrize("query", ["CREATE TABLE x AS SELECT 1", "SELECT 1; SELECT 2", "DELETE FROM seen.balances", ""])
def test_sql_that_is_not_one_select_is_refused(folded: fh.Lake, query: Any) -> None:
    with pytest.raises(fh.InvalidData, match="is not one SELECT"):
        folded.sql(query)


def test_sql_reads_tables_by_their_names(folded: fh.Lake) -> None:
    found = folded.sql(f"""
        WITH b AS (FROM seen.balances) -- {"a long query " * 100}
        SELECT customer, balance FROM b
    """)
    assert found.to_pylist() == [{"customer": "ada", "balance": Decimal("1.50")}]


def test_a_long_call_is_shown_to_a_person_who_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.01)
    with progress.shown_if_long("refresh seen.balances"), progress.shown_if_long("load seen.balances"):
        time.sleep(0.1)
    shown = capsys.readouterr().err
    assert shown.startswith("\rrefresh seen.balances: 0 s")
    assert "\rrefresh seen.balances: took " in shown
    assert "load" not in shown


def test_a_short_call_shows_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with progress.shown_if_long("count"):
        pass
    assert capsys.readouterr().err == ""


def test_a_script_is_shown_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    with progress.shown_if_long("refresh"):
        time.sleep(0.02)
    assert capsys.readouterr().err == ""
