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


@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        ("decimal(4,4)", ["0", ".5", "0.1234", "-.12340", "000.1"], ["1", "1.0", ".12345", ".", "-", "0.00001"]),
        (
            "decimal(4,0)",
            ["9999", "1.", "1.000", "-0012", ".0"],
            ["10000", "1.5", ".5", ".", "\uff11", "\u22121", "0x10"],
        ),
        (
            "decimal(38,0)",
            ["9" * 38, "0" * 400 + "1"],
            ["9" * 39, "9" * 200, "9" * 400, f"-{'9' * 400}.5", "1.2.3", "1_000"],
        ),
        ("decimal(38,38)", ["." + "9" * 38, "0." + "0" * 37 + "1"], ["." + "9" * 39, "1"]),
    ],
)
def test_a_decimal_fits_its_digits_exactly_or_is_quarantined(
    tmp_path: Path, type: str, good: list[str], bad: list[str]
) -> None:
    format = CsvFormat((CsvColumn("n", "n", type, required=True),), max_bad_share=1)
    landed = land(tmp_path, "\n".join(["n", *good, *bad]), format)
    assert landed.events["n"].to_pylist() == [Decimal(text) for text in good]
    assert landed.quarantined["raw"].to_pylist() == bad


BLANK = ["\u00a0", "\u2007", "\u202f", "\u3000", "\u1680", "\u2028", "\u200b", "\ufeff", "\u00ad", "\u202e", "\u2060"]
BLANK += ["\x01", "\x1b", "\x7f", "\x85", "\x9b", "\u3164", "\u115f", "\uffa0", "\u2800", "\ufe0f", "\u00a0\u200b \t"]


@pytest.mark.parametrize("source", ["InvoiceNo", "StockCode"])
@pytest.mark.parametrize("text", BLANK, ids=ascii)
def test_a_required_text_that_shows_nothing_is_quarantined(tmp_path: Path, source: str, text: str) -> None:
    reason = reason_for(tmp_path, source, text)
    assert reason == f"{source}: found {text!r}, expected text that is not blank"
    assert reason.isprintable()


@pytest.mark.parametrize(
    "text", ["\u00a0A", "e\u0301", "\u200bA\u200b", "\U0001f469\u200d\U0001f469", "=1+1", "\x1b[31mA"]
)
def test_a_required_text_that_shows_something_is_kept_as_it_is(tmp_path: Path, text: str) -> None:
    assert value_of(tmp_path, "StockCode", "stock_code", text) == text


def test_a_required_text_of_which_cleaning_leaves_nothing_is_quarantined(tmp_path: Path) -> None:
    format = CsvFormat((CsvColumn("a", "a", required=True, clean=replaced("x", "\u00a0")),), max_bad_share=1)
    landed = land(tmp_path, "a\nx\ny\n", format)
    assert landed.events["a"].to_pylist() == ["y"]


@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        ("int", {"007": 7}, ["\u0661", "\uff11", "1_000", "1 ", "\u00a01", "9" * 400, "1e2", "0x1", "NaN"]),
        ("long", {"-9223372036854775808": -(2**63)}, ["9223372036854775808", "9" * 400, "\u0661"]),
        (
            "double",
            {"1e-400": 0.0, "1e308": 1e308, "-0": 0.0},
            ["1e400", "-1e400", "9" * 400, "NaN", "inf", "0x1p3", "+1"],
        ),
        (
            "date",
            {"0001-01-01": date(1, 1, 1), "9999-12-31": date(9999, 12, 31)},
            ["0000-01-01", "2011-02-30", "2011-13-01"],
        ),
        (
            "date",
            {"2012-02-29": date(2012, 2, 29)},
            ["2011-02-29", "1900-02-29", "2011-1-1", "\u0662011-01-01", "10000-01-01"],
        ),
        (
            "timestamp",
            {"9999-12-31 23:59:59": datetime(9999, 12, 31, 23, 59, 59), "0001-01-01 00:00:00": datetime(1, 1, 1)},
            ["2011-01-01 24:00:00", "2011-01-01 23:59:60", "2011-01-01 00:00:00Z", "2011-01-01 00:00:00+00"],
        ),
        ("boolean", {"true": True}, ["True", "1", "yes", "\uff54rue"]),
    ],
)
def test_a_value_at_the_edge_of_its_type_is_exact_or_quarantined(
    tmp_path: Path, type: str, good: dict[str, object], bad: list[str]
) -> None:
    format = CsvFormat((CsvColumn("n", "n", type, required=True),), max_bad_share=1)
    landed = land(tmp_path, "\n".join(["n", *good, *bad]), format)
    assert landed.events["n"].to_pylist() == list(good.values())
    assert landed.quarantined["raw"].to_pylist() == bad


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
