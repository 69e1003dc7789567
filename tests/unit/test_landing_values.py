"""The values of a line: each type by its rule, exact or not at all."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from landing_days import land, reason_for, value_of

from foldhouse.errors import DefinitionError
from foldhouse.landing import CsvColumn, CsvFormat, Landing, replaced


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("2.55", "2.5500"),
        ("0.001", "0.0010"),
        ("-11062.06", "-11062.0600"),
        ("7", "7.0000"),
        ("7.", "7.0000"),
        (".5", "0.5000"),
        ("-.5", "-0.5000"),
        ("0.12340000", "0.1234"),
        ("1." + "0" * 60, "1.0000"),
        ("0" * 60 + "1.5", "1.5000"),
        ("99999999.9999", "99999999.9999"),
        ("100.10", "100.1000"),
        ("0.1", "0.1000"),
        ("-0", "0.0000"),
    ],
)
def test_a_price_is_exact(tmp_path: Path, text: str, price: str) -> None:
    assert value_of(tmp_path, "UnitPrice", "unit_price", text) == Decimal(price)


@pytest.mark.parametrize(
    "text",
    ["1e-3", "1E5", "0.00001", "2.55001", "100000000", "2,55", "£2", " 2", "2 ", "+2", "-", ".", "nan", "inf", "٣"],
)
def test_a_price_that_would_not_be_exact_is_quarantined(tmp_path: Path, text: str) -> None:
    assert reason_for(tmp_path, "UnitPrice", text) == (
        f"UnitPrice: found {text!r}, expected a number of at most 8 digits before and 4 after the point, no exponent"
    )


@pytest.mark.parametrize(("text", "quantity"), [("-12", -12), ("007", 7), ("2147483647", 2**31 - 1), ("-0", 0)])
def test_a_quantity_is_a_whole_number(tmp_path: Path, text: str, quantity: int) -> None:
    assert value_of(tmp_path, "Quantity", "quantity", text) == quantity


@pytest.mark.parametrize("text", ["six", "6.0", "1e3", "2147483648", "0x10", " 6", "+6", "1_000", "", "6\n", "--6"])
def test_a_quantity_that_is_no_whole_number_of_32_bits_is_quarantined(tmp_path: Path, text: str) -> None:
    expected = f"Quantity: found {text!r}, expected a whole number from -2147483648 to 2147483647"
    assert reason_for(tmp_path, "Quantity", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "2011-11-23 08:26:00",
        "2011-11-21 23:59:59",
        "2011-11-22",
        "2011-11-22T08:26:00",
        "2011-11-22 08:26",
        "2011-11-22 08:26:00.5",
        "2011-11-22 08:26:00Z",
        "2011-11-22 24:00:00",
        "2011-11-31 08:26:00",
        "22/11/2011 08:26",
        "0000-01-01 00:00:00",
        "",
    ],
)
def test_a_time_must_be_one_and_on_the_day_of_its_file(tmp_path: Path, text: str) -> None:
    expected = f"InvoiceDate: found {text!r}, expected a time as YYYY-MM-DD HH:MM:SS on 2011-11-22"
    assert reason_for(tmp_path, "InvoiceDate", text) == expected


def test_the_first_and_the_last_second_are_on_the_day_of_their_file_also_before_1970(tmp_path: Path) -> None:
    day = date(1969, 12, 31)
    times = ["1969-12-31 00:00:00", "1969-12-31 23:59:59", "1970-01-01 00:00:00", "1969-12-30 23:59:59"]
    (tmp_path / f"{day}.csv").write_text("\n".join(["at", *times]))
    format = CsvFormat((CsvColumn("at", "at", "timestamp", required=True),), day="at", max_bad_share=1)
    landed = Landing(tmp_path, format).read(day)
    assert landed.events["line_number"].to_pylist() == [1, 2]
    assert landed.quarantined["line_number"].to_pylist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "customer"), [("17850.0", "17850"), ("17850", "17850"), ("", None), ("X-1.0", "X-1.0")]
)
def test_a_customer_loses_the_point_a_spreadsheet_gave_it(tmp_path: Path, text: str, customer: str | None) -> None:
    assert value_of(tmp_path, "CustomerID", "customer_id", text) == customer


@pytest.mark.parametrize(
    ("text", "described"), [("", None), (" ", " "), ("  A  B ", "  A  B "), ("NULL", "NULL"), ("é", "é")]
)
def test_a_description_keeps_its_white_space_and_is_null_only_where_empty(
    tmp_path: Path, text: str, described: str | None
) -> None:
    assert value_of(tmp_path, "Description", "description", text) == described


def test_an_empty_country_is_null(tmp_path: Path) -> None:
    assert value_of(tmp_path, "Country", "country", "") is None


@pytest.mark.parametrize("source", ["InvoiceNo", "StockCode"])
@pytest.mark.parametrize("text", ["", "  ", "\t"])
def test_a_required_text_is_not_empty_nor_blank(tmp_path: Path, source: str, text: str) -> None:
    assert reason_for(tmp_path, source, text) == f"{source}: found {text!r}, expected text that is not blank"


def test_every_other_type_is_read_and_refused_by_its_rule(tmp_path: Path) -> None:
    format = CsvFormat(
        (
            CsvColumn("l", "l", "long"),
            CsvColumn("d", "d", "double"),
            CsvColumn("b", "b", "boolean"),
            CsvColumn("on", "on", "date"),
        ),
        max_bad_share=1,
    )
    landed = land(tmp_path, "l,d,b,on\n9223372036854775807,-1.5e3,true,2012-02-29\n,,,\n1,nan,yes,2011-02-29\n", format)
    assert landed.events.drop_columns(["source_file"]).to_pylist() == [
        {"l": 2**63 - 1, "d": -1500.0, "b": True, "on": date(2012, 2, 29), "line_number": 1},
        {"l": None, "d": None, "b": None, "on": None, "line_number": 2},
    ]
    assert landed.quarantined["reason"].to_pylist() == [
        "d: found 'nan', expected a number; b: found 'yes', expected true or false; "
        "on: found '2011-02-29', expected a date as YYYY-MM-DD"
    ]


def test_clean_comes_before_the_type_and_says_what_it_expects(tmp_path: Path) -> None:
    format = CsvFormat(
        (
            CsvColumn(
                source="when",
                name="at",
                type="timestamp",
                clean=replaced(r"^(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d)$", r"\3-\2-\1 \4:00"),
                expected="DD/MM/YYYY HH:MM",
            ),
            CsvColumn("n", "n", "int", clean=replaced("^-$", "")),
        ),
        max_bad_share=1,
    )
    landed = land(tmp_path, "when,n\n22/11/2011 08:26,-\n22/13/2011 08:26,1\n", format)
    assert landed.events.select(["at", "n"]).to_pylist() == [{"at": datetime(2011, 11, 22, 8, 26), "n": None}]
    assert landed.quarantined["reason"].to_pylist() == ["when: found '22/13/2011 08:26', expected DD/MM/YYYY HH:MM"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": (CsvColumn("a", "x"), CsvColumn("b", "x"))}, "names x twice"),
        ({"columns": (CsvColumn("a", "x"), CsvColumn("a", "y"))}, "names a twice"),
        ({"columns": (CsvColumn("a", "line_number"),)}, "names line_number twice"),
        ({"columns": ()}, "has no columns"),
        ({"columns": (CsvColumn("a", "x", "date"),), "day": "x"}, "day='x' is not a required date or timestamp column"),
        ({"columns": (CsvColumn("a", "x"),), "day": "y"}, "day='y' is not"),
        ({"columns": (CsvColumn("a", "x"),), "max_bad_share": 5}, "max_bad_share=5 is not a share"),
        ({"columns": (CsvColumn("a", "x"),), "delimiter": "||"}, "delimiter='||' cannot stand between fields"),
    ],
)
def test_a_format_that_cannot_be_read_is_refused_where_it_is_declared(change: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        CsvFormat(**change)  # type: ignore[arg-type]
    assert message in str(refused.value)


@pytest.mark.parametrize("type", ["varchar", "decimal", "decimal(39,1)", "decimal(4,5)", "decimal(0,0)", "timestamptz"])
def test_a_type_that_no_text_is_read_as_is_refused_where_it_is_declared(type: str) -> None:
    with pytest.raises(DefinitionError, match=r"a CSV column cannot be read as '.*'; use"):
        CsvColumn("a", "a", type)
