from __future__ import annotations

import gzip
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.oracle import APPROXIMATE, KEYS, assert_same, expected

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
FIRST = """\
100001,A,RED BAG,2,2024-03-04 08:00:00,1.5,1.0,United Kingdom
100001,B,"BLUE, ""BIG"" BAG",10,2024-03-04 08:00:00,0.25,1.0,United Kingdom
C100002,A,RED BAG,-1,2024-03-04 09:00:00,1.5,1.0,United Kingdom
100003,A,RED BAG,4,2024-03-04 10:00:00,1.25,,United Kingdom

100004,C,,3,2024-03-04 10:00:00,0.0,,
100005,D,SCARF,1,2024-03-04 11:00:00,9.9999,2.0,France
"""
NAN = float("nan")
SECOND = """\
100006,A,RED BAG NEW,1,2024-03-05 08:00:00,1.75,2.0,France
100006,A,,1,2024-03-05 09:00:00,1.85,2.0,France
100006,A,RED BAG FREE,1,2024-03-05 09:00:00,0.0,2.0,France
100007,,NO CODE,1,2024-03-05 09:00:00,1.0,2.0,France
 ,A,NO INVOICE,1,2024-03-05 09:00:00,1.0,2.0,France
100007,A,NO NUMBER,1.0,2024-03-05 09:00:00,1.0,2.0,France
100007,A,TOO BIG,2147483648,2024-03-05 09:00:00,1.0,2.0,France
100007,A,OTHER DAY,1,2024-03-04 09:00:00,1.0,2.0,France
100007,A,NO HOUR,1,2024-03-05 24:00:00,1.0,2.0,France
100007,A,TOO FINE,1,2024-03-05 09:00:00,0.00001,2.0,France
100007,A,EXPONENT,1,2024-03-05 09:00:00,1e-3,2.0,France
100007,A,TOO FEW,1
100007,A,TOO,MANY,1,2024-03-05 09:00:00,1.0,2.0,France
100008,B,BLUE BAG,7,2024-03-05 10:00:00,0.2500000,3,EIRE
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "2024-03-04.csv").write_text(f"{HEADER}\n{FIRST}")
    (tmp_path / "2024-03-05.csv.gz").write_bytes(gzip.compress(f"{HEADER}\n{SECOND}".replace("\n", "\r\n").encode()))
    (tmp_path / "2024-03-06.csv").write_text(f"{HEADER}\n")
    return tmp_path


def test_every_event_has_its_line_number_and_bad_lines_are_none(folder: Path) -> None:
    tables = expected(folder)
    sales = tables["retail.sales"].to_pylist()
    assert [(row["source_file"][:10], row["line_number"]) for row in sales] == [
        *[("2024-03-04", number) for number in (1, 2, 3, 4, 5, 6)],
        *[("2024-03-05", number) for number in (1, 2, 3, 14)],
    ]
    assert tables["retail.sales_quarantine"]["line_number"].to_pylist() == list(range(4, 14))
    assert sales[1] == {
        "invoice_no": "100001",
        "stock_code": "B",
        "description": 'BLUE, "BIG" BAG',
        "quantity": 10,
        "invoiced_at": datetime(2024, 3, 4, 8),
        "unit_price": Decimal("0.2500"),
        "customer_id": "1",
        "country": "United Kingdom",
        "source_file": "2024-03-04.csv",
        "line_number": 2,
    }
    assert (sales[4]["description"], sales[4]["customer_id"], sales[4]["country"]) == (None, None, None)


def test_a_product_is_its_latest_line_with_a_description_and_a_price(folder: Path) -> None:
    assert expected(folder)["retail.products"].to_pylist() == [
        {
            "stock_code": "A",
            "description": "RED BAG NEW",
            "unit_price": Decimal("1.7500"),
            "last_sold_at": datetime(2024, 3, 5, 8),
        },
        {
            "stock_code": "B",
            "description": "BLUE BAG",
            "unit_price": Decimal("0.2500"),
            "last_sold_at": datetime(2024, 3, 5, 10),
        },
        {
            "stock_code": "D",
            "description": "SCARF",
            "unit_price": Decimal("9.9999"),
            "last_sold_at": datetime(2024, 3, 4, 11),
        },
    ]


def test_of_two_lines_at_one_time_the_one_further_down_is_the_latest(tmp_path: Path) -> None:
    lines = [f"1,A,LINE {number},1,2024-03-04 08:00:00,{number}.5,," for number in range(1, 12)]
    (tmp_path / "2024-03-04.csv").write_text("\n".join([HEADER, *lines]))
    assert expected(tmp_path)["retail.products"]["description"].to_pylist() == ["LINE 11"]


def test_revenue_is_exact_a_day_and_country_and_no_country_is_no_key(folder: Path) -> None:
    found = [tuple(row.values()) for row in expected(folder)["retail.daily_revenue"].to_pylist()]
    assert found == [
        (date(2024, 3, 4), "France", Decimal("9.9999"), Decimal("0.0000"), 1, 1, 1),
        (date(2024, 3, 4), "United Kingdom", Decimal("9.0000"), Decimal("-1.5000"), 4, 3, 1),
        (date(2024, 3, 5), "EIRE", Decimal("1.7500"), Decimal("0.0000"), 1, 1, 1),
        (date(2024, 3, 5), "France", Decimal("3.6000"), Decimal("0.0000"), 3, 1, 1),
    ]


def test_customers_hold_what_they_bought_and_when_and_the_unknown_are_none(folder: Path) -> None:
    found = [tuple(row.values()) for row in expected(folder)["retail.customers"].to_pylist()]
    assert found == [
        ("1", Decimal("4.0000"), 11, 3, datetime(2024, 3, 4, 8), datetime(2024, 3, 4, 9)),
        ("2", Decimal("13.5999"), 4, 4, datetime(2024, 3, 4, 11), datetime(2024, 3, 5, 9)),
        ("3", Decimal("1.7500"), 7, 1, datetime(2024, 3, 5, 10), datetime(2024, 3, 5, 10)),
    ]


def test_the_best_sellers_of_a_day_are_ten_and_ties_go_by_stock_code(tmp_path: Path) -> None:
    lines = [f"1,{code},X,5,2024-03-04 08:00:00,1,," for code in "mlkjihgfedcb"] + ["1,z,X,9,2024-03-04 08:00:00,1,,"]
    (tmp_path / "2024-03-04.csv").write_text("\n".join([HEADER, *lines]))
    tables = expected(tmp_path)
    assert tables["retail.best_sellers"].to_pylist() == [
        {
            "day": date(2024, 3, 4),
            "products": [{"stock_code": "z", "units": 9}, *({"stock_code": code, "units": 5} for code in "bcdefghij")],
        }
    ]
    assert tables["retail.daily_products"].num_rows == 13


def test_days_outside_of_the_range_are_not_looked_at(folder: Path) -> None:
    assert expected(folder, first=date(2024, 3, 5))["retail.sales"].num_rows == 4
    assert expected(folder, last=date(2024, 3, 4))["retail.sales"].num_rows == 6
    for table in expected(folder, first=date(2024, 3, 6)).values():
        assert table.num_rows == 0


def test_the_first_and_last_lines_of_a_long_file_keep_their_numbers(tmp_path: Path) -> None:
    lines = [f"{number},A,X,1,2024-03-04 08:00:00,1,," for number in range(1, 300_001)]
    (tmp_path / "2024-03-04.csv").write_text("\n".join([HEADER, *lines]))
    sales = expected(tmp_path)["retail.sales"]
    assert sales["invoice_no"].to_pylist() == [str(number) for number in sales["line_number"].to_pylist()]
    assert sales.num_rows == 300_000


# -- the comparer ----------------------------------------------------------------------------------------------------

REVENUE = pa.table(
    {
        "day": pa.array([date(2024, 3, 4), date(2024, 3, 5), None], pa.date32()),
        "revenue": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(12, 2)),
        "customers": pa.array([100, 3, 0], pa.int64()),
    }
)


def test_a_table_is_the_same_in_any_order_of_rows_and_columns_and_with_wider_types() -> None:
    same = REVENUE.select(["customers", "revenue", "day"]).take([2, 0, 1])
    same = same.set_column(0, "customers", same["customers"].cast(pa.int16()))
    same = same.set_column(1, "revenue", same["revenue"].cast(pa.decimal128(38, 4)))
    assert_same(same, REVENUE, keys=["day"])
    assert_same(REVENUE, same, keys=["day"])


def test_lists_of_structs_are_the_same_with_other_inner_names_and_widths() -> None:
    item = {"stock_code": "A", "units": 3}
    narrow = pa.list_(pa.field("element", pa.struct([("stock_code", pa.string()), ("units", pa.int32())])))
    wide = pa.list_(pa.field("l", pa.struct([("stock_code", pa.string()), ("units", pa.int64())])))
    actual = pa.table({"day": [1], "products": pa.array([[item]], narrow)})
    assert_same(actual, pa.table({"day": [1], "products": pa.array([[item]], wide)}), keys=["day"])
    large = pa.large_list(pa.struct([("stock_code", pa.large_string()), ("units", pa.int64())]))
    actual = pa.table({"day": [1], "products": pa.array([[item]], large)})
    assert_same(actual, pa.table({"day": [1], "products": pa.array([[item]], wide)}), keys=["day"])


def test_a_different_value_shows_its_key_its_column_and_both_rows() -> None:
    other = REVENUE.set_column(1, "revenue", pa.array([Decimal("1.50"), Decimal("2.26"), None], pa.decimal128(12, 2)))
    with pytest.raises(AssertionError) as refused:
        assert_same(other, REVENUE, keys=["day"])
    assert str(refused.value) == (
        "3 rows, expected 3\n"
        "1 keys: different; the first 1:\n"
        "  (datetime.date(2024, 3, 5),)\n"
        "    in revenue\n"
        "    expected {'day': datetime.date(2024, 3, 5), 'revenue': Decimal('2.25'), 'customers': 3}\n"
        "    found    {'day': datetime.date(2024, 3, 5), 'revenue': Decimal('2.26'), 'customers': 3}"
    )


def test_a_finer_decimal_that_differs_below_the_expected_scale_is_different() -> None:
    finer = REVENUE.set_column(1, "revenue", pa.array([Decimal("1.5001"), Decimal("2.25"), None], pa.decimal128(12, 4)))
    with pytest.raises(AssertionError, match="different"):
        assert_same(finer, REVENUE, keys=["day"])


def test_missing_unexpected_and_doubled_keys_are_told_apart() -> None:
    with pytest.raises(AssertionError, match=r"2 rows, expected 3\n1 keys: missing; the first 1:\n  \(None,\)"):
        assert_same(REVENUE.slice(0, 2), REVENUE, keys=["day"])
    with pytest.raises(AssertionError, match=r"3 rows, expected 1\n2 keys: not expected; the first 2:"):
        assert_same(REVENUE, REVENUE.slice(0, 1), keys=["day"])
    with pytest.raises(AssertionError, match=r"4 rows, expected 3\n1 keys: rows share a key; the first 1:"):
        assert_same(pa.concat_tables([REVENUE, REVENUE.slice(0, 1)]), REVENUE, keys=["day"])


def test_a_null_is_not_zero() -> None:
    zeros = REVENUE.set_column(
        1, "revenue", pa.array([Decimal("1.5"), Decimal("2.25"), Decimal(0)], pa.decimal128(12, 2))
    )
    with pytest.raises(AssertionError, match="in revenue"):
        assert_same(zeros, REVENUE, keys=["day"])


def test_nan_equals_nan_and_one_zero_the_other_but_no_float_another() -> None:
    one, other = (pa.table({"k": [1, 2, 3], "x": values}) for values in ([NAN, 0.0, 1.5], [-NAN, -0.0, 1.5]))
    assert_same(one, other, ["k"])
    for value in (1.0, None, -1.5):
        with pytest.raises(AssertionError, match="in x"):
            assert_same(pa.table({"k": [1, 2, 3], "x": pa.array([NAN, 0.0, value], pa.float64())}), other, ["k"])
    with pytest.raises(AssertionError, match="in x"):
        assert_same(pa.table({"k": [1, 2, 3], "x": [0.0, 0.0, 1.5]}), other, ["k"])


@pytest.mark.parametrize(
    ("customers", "near"), [([103, 3, 0], True), ([97, 4, 1], True), ([104, 3, 0], False), ([100, 5, 0], False)]
)
def test_an_approximate_column_may_differ_by_its_share_or_by_one(customers: list[int], near: bool) -> None:
    actual = REVENUE.set_column(2, "customers", pa.array(customers))
    if near:
        assert_same(actual, REVENUE, keys=["day"], approximate={"customers": 0.03})
    else:
        with pytest.raises(AssertionError, match="in customers"):
            assert_same(actual, REVENUE, keys=["day"], approximate={"customers": 0.03})
    with pytest.raises(AssertionError, match="in customers"):
        assert_same(actual, REVENUE, keys=["day"])


def test_other_columns_and_other_kinds_of_columns_are_refused_by_name() -> None:
    with pytest.raises(AssertionError, match=r"columns differ: missing \['customers'\], not expected \['_state'\]"):
        assert_same(REVENUE.rename_columns(["day", "revenue", "_state"]), REVENUE, keys=["day"])
    text = REVENUE.set_column(2, "customers", pa.array(["100", "3", "0"]))
    with pytest.raises(AssertionError, match="column customers is string, expected int64"):
        assert_same(text, REVENUE, keys=["day"])


def test_every_expected_table_has_keys_that_identify_its_rows(folder: Path) -> None:
    tables = expected(folder)
    assert tables.keys() == KEYS.keys()
    for name, table in tables.items():
        assert_same(table, table, KEYS[name], APPROXIMATE.get(name))
        keys = [tuple(row.values()) for row in table.select(KEYS[name]).to_pylist()]
        assert len(set(keys)) == len(keys)
