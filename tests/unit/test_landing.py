"""The landing folder: which files are days, what each line becomes, and what is set aside or refused."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets.retail import FORMAT
from foldhouse.errors import DefinitionError, LandingError, TooManyBadLines, UnreadableFile
from foldhouse.landing import QUARANTINE_SCHEMA, CsvColumn, CsvFormat, Landed, Landing, replaced
from foldhouse.landing.lines import read_exactly, read_fast

DAY = date(2011, 11, 22)

RETAIL = FORMAT
HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
LINE = "536365,85123A,WHITE LANTERN,6,2011-11-22 08:26:00,2.55,17850.0,United Kingdom"


def lenient(**changes: object) -> CsvFormat:
    """The retail format, in which every line may be bad."""
    return CsvFormat(**{"columns": RETAIL.columns, "day": RETAIL.day, "max_bad_share": 1.0, **changes})  # type: ignore[arg-type]


def land(folder: Path, text: str | bytes, format: CsvFormat | None = None) -> Landed:
    """Write the file of a day and read it."""
    content = text.encode() if isinstance(text, str) else text
    (folder / f"{DAY}.csv").write_bytes(content)
    return Landing(folder, format or lenient()).read(DAY)


def lines_of(*lines: str) -> str:
    return "\n".join([HEADER, *lines, ""])


def line_with(column: str, text: str) -> str:
    fields = dict(zip(HEADER.split(","), LINE.split(","), strict=True)) | {column: text}
    written = io.StringIO()
    csv.writer(written).writerow(fields.values())
    return written.getvalue().removesuffix("\r\n")


def value_of(folder: Path, source: str, name: str, text: str) -> object:
    """Return what the text becomes; a line that was quarantined fails the test."""
    landed = land(folder, lines_of(line_with(source, text)))
    assert landed.quarantined.to_pylist() == []
    return landed.events[name].to_pylist()[0]


def reason_for(folder: Path, source: str, text: str) -> str:
    """Return why the line was quarantined."""
    landed = land(folder, lines_of(LINE, line_with(source, text)))
    assert landed.events["line_number"].to_pylist() == [1]
    assert landed.quarantined["raw"].to_pylist() == [line_with(source, text)]
    return str(landed.quarantined["reason"][0])


# -- a day that lands ------------------------------------------------------------------------------------------------


def test_a_line_becomes_a_typed_event_with_its_place(tmp_path: Path) -> None:
    landed = land(tmp_path, lines_of(LINE), RETAIL)
    assert landed.events.schema == RETAIL.schema
    assert landed.events.to_pylist() == [
        {
            "invoice_no": "536365",
            "stock_code": "85123A",
            "description": "WHITE LANTERN",
            "quantity": 6,
            "invoiced_at": datetime(2011, 11, 22, 8, 26),
            "unit_price": Decimal("2.5500"),
            "customer_id": "17850",
            "country": "United Kingdom",
            "source_file": "2011-11-22.csv",
            "line_number": 1,
        }
    ]
    assert landed.quarantined.schema == QUARANTINE_SCHEMA
    assert (landed.quarantined.num_rows, landed.lines) == (0, 1)


def test_the_types_of_a_format_are_those_a_stream_is_declared_with() -> None:
    assert RETAIL.types == {
        "invoice_no": "string",
        "stock_code": "string",
        "description": "string",
        "quantity": "int",
        "invoiced_at": "timestamp",
        "unit_price": "decimal(12,4)",
        "customer_id": "string",
        "country": "string",
        "source_file": "string",
        "line_number": "int",
    }
    assert RETAIL.schema.field("unit_price").type == pa.decimal128(12, 4)


def test_equal_lines_are_different_events(tmp_path: Path) -> None:
    assert land(tmp_path, lines_of(LINE, LINE, LINE)).events["line_number"].to_pylist() == [1, 2, 3]


def test_a_header_alone_is_a_day_without_events(tmp_path: Path) -> None:
    for text in (HEADER, f"{HEADER}\n", f"{HEADER}\r\n\r\n"):
        landed = land(tmp_path, text)
        assert (landed.events.num_rows, landed.quarantined.num_rows, landed.lines) == (0, 0, 0)
        assert landed.events.schema == RETAIL.schema
        assert landed.digest != ""


def test_a_day_without_a_file_is_a_day_without_events(tmp_path: Path) -> None:
    landed = Landing(tmp_path, RETAIL).read(DAY)
    assert (landed.events.num_rows, landed.quarantined.num_rows, landed.lines, landed.digest) == (0, 0, 0, "")
    assert landed.events.schema == RETAIL.schema
    assert Landing(tmp_path, RETAIL).path(DAY) is None


def test_a_day_reads_the_same_compressed_or_not_with_any_line_ends_and_any_mark(tmp_path: Path) -> None:
    text = lines_of(LINE, line_with("Description", 'SIZE 7", RED'), LINE)
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(text.encode()))
    compressed = Landing(tmp_path, RETAIL).read(DAY)
    (tmp_path / f"{DAY}.csv.gz").unlink()
    plain = land(tmp_path, text)
    assert compressed.events.equals(plain.events)
    assert compressed.digest == plain.digest == hashlib.sha256(text.encode()).hexdigest()
    for variant in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), text.rstrip("\n"), "\ufeff" + text):
        assert land(tmp_path, variant).events.equals(plain.events)


def test_a_gzip_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    members = gzip.compress(f"{HEADER}\n{LINE}\n".encode()) + gzip.compress(f"{LINE}\n".encode())
    (tmp_path / f"{DAY}.csv.gz").write_bytes(members)
    assert Landing(tmp_path, RETAIL).read(DAY).lines == 2


def test_quoted_fields_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    described = 'a, b\nc "d"\r\ne'
    landed = land(tmp_path, lines_of(LINE, line_with("Description", described), LINE), RETAIL)
    assert landed.events["description"].to_pylist() == ["WHITE LANTERN", described, "WHITE LANTERN"]
    assert landed.events["line_number"].to_pylist() == [1, 2, 3]


def test_a_quote_inside_an_unquoted_field_is_a_character(tmp_path: Path) -> None:
    landed = land(tmp_path, lines_of(LINE.replace("WHITE LANTERN", 'FRAME 7" WHITE'), LINE), RETAIL)
    assert landed.events["description"].to_pylist() == ['FRAME 7" WHITE', "WHITE LANTERN"]


def test_empty_lines_do_not_count(tmp_path: Path) -> None:
    landed = land(tmp_path, f"{HEADER}\n\n{LINE}\n\r\n\n{LINE}\n\n")
    assert landed.events["line_number"].to_pylist() == [1, 2]
    assert landed.lines == 2


def test_a_header_may_be_quoted(tmp_path: Path) -> None:
    quoted = ",".join(f'"{name}"' for name in HEADER.split(","))
    assert land(tmp_path, f"{quoted}\n{LINE}\n").lines == 1


def test_another_delimiter_is_declared(tmp_path: Path) -> None:
    format = CsvFormat((CsvColumn("a", "a"), CsvColumn("b", "b", "int")), delimiter=";")
    landed = land(tmp_path, 'a;b\n"x;y";1\nx,y;2\n', format)
    assert landed.events.select(["a", "b"]).to_pylist() == [{"a": "x;y", "b": 1}, {"a": "x,y", "b": 2}]


# -- values ----------------------------------------------------------------------------------------------------------


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


# -- lines that cannot be events -------------------------------------------------------------------------------------


def test_a_bad_line_is_set_aside_with_its_place_its_reasons_and_its_raw_text(tmp_path: Path) -> None:
    bad = '536366,,"A, ""B""\nC",six,2011-11-22 08:28:00,1.85,17850.0,United Kingdom'
    landed = land(tmp_path, f"{HEADER}\r\n{LINE}\r\n{bad}\r\n{LINE}\r\n")
    assert landed.quarantined.to_pylist() == [
        {
            "source_file": "2011-11-22.csv",
            "line_number": 2,
            "reason": "StockCode: found '', expected text that is not blank; "
            "Quantity: found 'six', expected a whole number from -2147483648 to 2147483647",
            "raw": bad,
            "day": DAY,
        }
    ]
    assert landed.events["line_number"].to_pylist() == [1, 3]
    assert landed.lines == 3


@pytest.mark.parametrize(
    ("bad", "found"), [("536366,22633,HAND WARMER", 3), (f"{LINE},and more", 9), ("   ", 1), (",,,,,,,,", 9)]
)
def test_a_line_with_another_number_of_columns_is_set_aside(tmp_path: Path, bad: str, found: int) -> None:
    landed = land(tmp_path, lines_of(LINE, bad, LINE))
    assert landed.events["line_number"].to_pylist() == [1, 3]
    assert landed.quarantined.select(["line_number", "reason", "raw"]).to_pylist() == [
        {"line_number": 2, "reason": f"columns: found {found}, expected 8", "raw": bad}
    ]


@pytest.mark.parametrize("description", ['"WHITE" LANTERN', '"WHITE LANTERN', '"WHITE """ LANTERN'])
@pytest.mark.parametrize("after", ["", '"A, B"', '"FRAME 7"""'])
def test_a_stray_quote_takes_no_other_line_with_it(tmp_path: Path, description: str, after: str) -> None:
    bad = LINE.replace("WHITE LANTERN", description)
    landed = land(tmp_path, lines_of(LINE, bad, LINE, LINE.replace("WHITE LANTERN", after), LINE))
    assert landed.events["line_number"].to_pylist() == [1, 3, 4, 5]
    assert landed.quarantined["raw"].to_pylist() == [bad]
    assert str(landed.quarantined["reason"][0]).startswith("quotes: found ")


def test_a_file_that_breaks_off_inside_a_quoted_field_loses_its_last_line_alone(tmp_path: Path) -> None:
    landed = land(tmp_path, lines_of(LINE, LINE) + '536366,22633,"HAND WAR')
    assert (landed.events.num_rows, landed.quarantined["line_number"].to_pylist()) == (2, [3])


def test_a_long_value_is_cut_in_the_reason_and_whole_in_the_raw_text(tmp_path: Path) -> None:
    bad = line_with("Quantity", "6" * 1000)
    landed = land(tmp_path, lines_of(LINE, bad))
    assert landed.quarantined["raw"].to_pylist() == [bad]
    assert "666…'" in str(landed.quarantined["reason"][0])
    assert len(str(landed.quarantined["reason"][0])) < 200


def test_a_field_is_as_readable_beside_a_bad_line_as_alone(tmp_path: Path) -> None:
    long = line_with("Description", "x" * (csv.field_size_limit() + 1))
    for lines in ([LINE, long], [LINE, long, "a,b"]):
        assert land(tmp_path, lines_of(*lines)).events["line_number"].to_pylist() == [1]
    longest = line_with("Description", "x" * csv.field_size_limit())
    for lines in ([LINE, longest], [LINE, longest, "a,b"]):
        assert land(tmp_path, lines_of(*lines)).events["line_number"].to_pylist() == [1, 2]


def test_bad_lines_up_to_the_share_land_and_one_more_does_not(tmp_path: Path) -> None:
    bad = line_with("Quantity", "six")
    assert land(tmp_path, lines_of(*[LINE] * 95, *[bad] * 5), RETAIL).quarantined.num_rows == 5
    with pytest.raises(TooManyBadLines) as refused:
        land(tmp_path, lines_of(*[LINE] * 94, *[bad] * 5, line_with("UnitPrice", "x")), RETAIL)
    message = str(refused.value)
    assert "2011-11-22.csv: 6 of 100 lines (6.00%) cannot be events, the limit is 5.00%; correct the file" in message
    assert "line 95: Quantity: found 'six'" in message
    assert "line 97: " in message
    assert "line 98: " not in message
    assert "Nothing of it was landed" in message


def test_the_share_of_bad_lines_is_configurable(tmp_path: Path) -> None:
    bad = line_with("Quantity", "six")
    assert land(tmp_path, lines_of(LINE, bad), lenient(max_bad_share=0.5)).quarantined.num_rows == 1
    with pytest.raises(TooManyBadLines, match=r"1 of 1,000 lines \(0.10%\) cannot be events, the limit is 0.00%"):
        land(tmp_path, lines_of(*[LINE] * 999, bad), lenient(max_bad_share=0))


def test_many_bad_values_among_many_good_ones_are_each_found(tmp_path: Path) -> None:
    prices = ["0.00001" if at % 7 == 0 else f"{at}.5" for at in range(3000)]
    landed = land(tmp_path, lines_of(*(line_with("UnitPrice", price) for price in prices)))
    assert landed.quarantined["line_number"].to_pylist() == [at + 1 for at in range(3000) if at % 7 == 0]
    assert landed.events["unit_price"].to_pylist() == [Decimal(price) for price in prices if price != "0.00001"]


# -- files that cannot be read ---------------------------------------------------------------------------------------


def test_another_header_is_refused_with_what_was_found_and_expected(tmp_path: Path) -> None:
    for header in ("InvoiceNo,StockCode", HEADER.lower(), f"{HEADER},More", "", '"InvoiceNo', HEADER.replace(",", ";")):
        with pytest.raises(UnreadableFile) as refused:
            land(tmp_path, f"{header}\n{LINE}\n")
        assert f"2011-11-22.csv has the header {header!r}, expected {HEADER!r}; correct" in str(refused.value)
        assert str(refused.value).endswith("Nothing of it was landed")


def test_columns_in_another_order_are_another_header(tmp_path: Path) -> None:
    swapped = HEADER.replace("InvoiceNo,StockCode", "StockCode,InvoiceNo")
    with pytest.raises(UnreadableFile, match="has the header 'StockCode,InvoiceNo"):
        land(tmp_path, f"{swapped}\n{LINE}\n")


@pytest.mark.parametrize("keep", [5, 12, 40, -9, -1])
def test_a_truncated_gzip_is_refused(tmp_path: Path, keep: int) -> None:
    whole = gzip.compress(lines_of(*[line_with("Quantity", str(at)) for at in range(500)]).encode())
    (tmp_path / f"{DAY}.csv.gz").write_bytes(whole[:keep])
    with pytest.raises(
        UnreadableFile, match=r"2011-11-22.csv.gz is a truncated or corrupt gzip .*land it again, whole"
    ):
        Landing(tmp_path, RETAIL).read(DAY)


def test_a_corrupt_gzip_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(lines_of(*[line_with("Quantity", str(at)) for at in range(500)]).encode()))
    for at in (len(content) // 2, len(content) - 6):
        damaged = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
        (tmp_path / f"{DAY}.csv.gz").write_bytes(damaged)
        with pytest.raises(UnreadableFile, match="is a truncated or corrupt gzip"):
            Landing(tmp_path, RETAIL).read(DAY)
    (tmp_path / f"{DAY}.csv.gz").write_bytes(bytes(content) + b"more")
    with pytest.raises(UnreadableFile, match="is a truncated or corrupt gzip"):
        Landing(tmp_path, RETAIL).read(DAY)


def test_a_name_that_lies_about_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv is gzip where CSV was expected; .*name it .csv.gz"):
        land(tmp_path, gzip.compress(lines_of(LINE).encode()))
    (tmp_path / f"{DAY}.csv").rename(tmp_path / f"{DAY}.csv.gz")
    (tmp_path / f"{DAY}.csv.gz").write_text(lines_of(LINE))
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv.gz is not gzip; compress it, or name it .csv"):
        Landing(tmp_path, RETAIL).read(DAY)


def test_an_empty_file_is_refused_compressed_or_not(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv is empty; .*header alone"):
        land(tmp_path, b"")
    (tmp_path / f"{DAY}.csv").unlink()
    for content in (b"", gzip.compress(b"")):
        (tmp_path / f"{DAY}.csv.gz").write_bytes(content)
        with pytest.raises(UnreadableFile, match=r"2011-11-22.csv.gz is empty"):
            Landing(tmp_path, RETAIL).read(DAY)


def test_another_encoding_is_refused_with_the_place_of_its_first_byte(tmp_path: Path) -> None:
    text = lines_of(LINE, line_with("Description", "£ LANTERN"))
    offset = text.index("£")
    with pytest.raises(
        UnreadableFile, match=rf"is not UTF-8: byte 0xa3 at byte offset {offset}, line 3; save it as UTF-8"
    ):
        land(tmp_path, text.encode("latin-1"))
    with pytest.raises(UnreadableFile, match="is UTF-16; save it as UTF-8"):
        land(tmp_path, text.encode("utf-16"))
    with pytest.raises(UnreadableFile, match="has a NUL byte at byte offset 1, line 1"):
        land(tmp_path, text.encode("utf-16-le"))


def test_a_nul_byte_is_refused_with_its_place(tmp_path: Path) -> None:
    text = lines_of(LINE, line_with("Description", "WHITE\0LANTERN"))
    with pytest.raises(UnreadableFile, match=rf"has a NUL byte at byte offset {text.index(chr(0))}, line 3"):
        land(tmp_path, text)


def test_two_files_for_a_day_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(lines_of(LINE).encode()))
    with pytest.raises(UnreadableFile, match=r"holds 2011-11-22.csv and 2011-11-22.csv.gz for one day; remove the one"):
        land(tmp_path, lines_of(LINE))
    landing = Landing(tmp_path, RETAIL)
    assert landing.days() == [DAY]
    assert list(landing.fingerprints()) == [DAY]


def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{DAY}.csv").mkdir()
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv is a directory"):
        Landing(tmp_path, RETAIL).read(DAY)


def test_a_link_to_nothing_is_an_unreadable_file_and_no_empty_day(tmp_path: Path) -> None:
    (tmp_path / f"{DAY}.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv cannot be read \(No such file or directory\)"):
        Landing(tmp_path, RETAIL).read(DAY)
    assert Landing(tmp_path, RETAIL).fingerprints() == {}


def test_a_folder_that_is_not_there_is_no_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for missing in ("gone", "file"):
        landing = Landing(tmp_path / missing, RETAIL)
        for look in (landing.days, landing.fingerprints, lambda: landing.path(DAY), lambda: landing.read(DAY)):  # noqa: B023
            with pytest.raises(LandingError, match=rf"landing folder .*{missing} cannot be listed \(.*\); create it"):
                look()


def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDHOUSE_LANDING", str(tmp_path))
    assert Landing.from_environment(RETAIL) == Landing(tmp_path, RETAIL)
    monkeypatch.setenv("FOLDHOUSE_LANDING", "")
    with pytest.raises(LandingError, match="FOLDHOUSE_LANDING is not set; set it to the folder"):
        Landing.from_environment(RETAIL)
    with pytest.raises(LandingError, match="ELSEWHERE is not set"):
        Landing.from_environment(RETAIL, "ELSEWHERE")


# -- days and fingerprints -------------------------------------------------------------------------------------------


def test_days_are_the_files_named_for_one(tmp_path: Path) -> None:
    for name in (
        "2011-11-23.csv",
        "2011-11-22.csv.gz",
        "2011-02-30.csv",
        "2011-11-24.csv.tmp",
        "x2011-11-25.csv",
        "a.txt",
    ):
        (tmp_path / name).write_text("")
    landing = Landing(tmp_path, RETAIL)
    assert landing.days() == [date(2011, 11, 22), date(2011, 11, 23)]
    assert list(landing.fingerprints()) == landing.days()
    assert landing.path(date(2011, 11, 22)) == tmp_path / "2011-11-22.csv.gz"
    assert landing.path(date(2011, 11, 24)) is None


def test_a_fingerprint_stays_while_nothing_changes_and_is_of_its_own_file(tmp_path: Path) -> None:
    other = tmp_path / "2011-11-23.csv"
    land(tmp_path, lines_of(LINE))
    other.write_text(lines_of(LINE))
    landing = Landing(tmp_path, RETAIL)
    before = landing.fingerprints()
    assert landing.fingerprints() == before
    other.write_text(lines_of(LINE, LINE))
    after = landing.fingerprints()
    assert after[DAY] == before[DAY]
    assert after[date(2011, 11, 23)] != before[date(2011, 11, 23)]


def test_a_file_replaced_by_one_of_the_same_length_and_times_has_another_fingerprint(tmp_path: Path) -> None:
    land(tmp_path, lines_of(LINE))
    path = tmp_path / f"{DAY}.csv"
    landing, times = Landing(tmp_path, RETAIL), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    before = landing.fingerprints()
    replacement = tmp_path / "arriving"
    replacement.write_text(lines_of(LINE.replace("WHITE", "BLACK")))
    os.utime(replacement, ns=times)
    replacement.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (len(lines_of(LINE)), times[1])
    assert landing.fingerprints() != before


def test_a_file_compressed_in_its_place_has_another_fingerprint_and_the_same_digest(tmp_path: Path) -> None:
    plain, landing = land(tmp_path, lines_of(LINE)), Landing(tmp_path, RETAIL)
    before = landing.fingerprints()
    (tmp_path / f"{DAY}.csv").unlink()
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(lines_of(LINE).encode()))
    assert landing.fingerprints() != before
    assert landing.read(DAY).digest == plain.digest


# -- declarations ----------------------------------------------------------------------------------------------------


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


# -- laws ------------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
TEXT = CsvFormat(tuple(CsvColumn(name, name) for name in NAMES), max_bad_share=1)
fields = st.text(st.sampled_from(',"\n\r;ab é\u2028\x0b'), max_size=6)
tables = st.lists(st.lists(fields, min_size=3, max_size=3), max_size=8)


def as_body(rows: list[list[str]], line_end: str) -> bytes:
    """Return what follows the header; the writer quotes a lone line end only where everything is quoted."""
    written = io.StringIO()
    quoting: Literal[0, 1] = csv.QUOTE_MINIMAL if line_end == "\r\n" else csv.QUOTE_ALL
    csv.writer(written, lineterminator=line_end, quoting=quoting).writerows(rows)
    return f"{line_end}{written.getvalue()}".encode()


@given(rows=tables, line_end=st.sampled_from(["\n", "\r", "\r\n"]))
def test_what_the_csv_module_wrote_is_read_back_by_both_ways(rows: list[list[str]], line_end: str) -> None:
    body = as_body(rows, line_end)
    fast, exact = read_fast(body, TEXT), read_exactly(body, TEXT)
    assert fast is not None
    for read in (fast, exact):
        assert [list(row.values()) for row in read.text.to_pylist()] == rows
        assert list(read.numbers) == list(range(1, len(rows) + 1))
    assert (exact.count, exact.malformed) == (len(rows), {})


@given(text=st.text(st.sampled_from(',,""\n\na \r'), max_size=40))
@settings(max_examples=500)
def test_on_any_text_the_fast_way_agrees_with_the_exact_one_or_leaves_it_to_it(text: str) -> None:
    body = f"\n{text}".encode()
    fast, exact = read_fast(body, TEXT), read_exactly(body, TEXT)
    if fast is not None:
        assert exact.malformed == {}
        assert fast.text.to_pylist() == exact.text.to_pylist()
        assert (list(fast.numbers), fast.count) == (list(exact.numbers), exact.count)
    for line, fields_of_line in zip(exact.numbers, exact.text.to_pylist(), strict=True):
        assert next(csv.reader(io.StringIO(exact.raw[line - 1], newline=""))) == list(fields_of_line.values())


@given(text=st.text(st.sampled_from(',,""\n\na \r'), max_size=40))
def test_on_any_text_no_character_is_lost_but_line_ends(text: str) -> None:
    exact = read_exactly(f"\n{text}".encode(), TEXT)
    assert "".join(exact.raw).translate({10: None, 13: None}) == text.translate({10: None, 13: None})
    assert sorted([*exact.numbers, *exact.malformed]) == list(range(1, exact.count + 1))


@given(
    prices=st.lists(
        st.decimals(-(10**7), 10**7, allow_nan=False, places=5) | st.decimals(-100, 100, places=2), max_size=40
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_every_price_is_read_as_python_reads_it_or_quarantined(tmp_path: Path, prices: list[Decimal]) -> None:
    format = CsvFormat((CsvColumn("p", "p", "decimal(12,4)", required=True),), max_bad_share=1)
    landed = land(tmp_path, "\n".join(["p", *(f"{price:f}" for price in prices)]), format)
    kept = [price for price in prices if price == price.quantize(Decimal("0.0001"))]
    assert landed.events["p"].to_pylist() == kept
    assert landed.quarantined.num_rows == len(prices) - len(kept)


# -- the year --------------------------------------------------------------------------------------------------------


@pytest.mark.retail
def test_the_year_of_invoices_lands_whole_and_exact() -> None:
    beside = Path(__file__).resolve().parents[3] / "shared" / "data" / "online-retail"
    folder = Path(os.environ.get("FOLDHOUSE_RETAIL") or beside)
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there; set FOLDHOUSE_RETAIL to the folder of the Online Retail files")
    landing = Landing(folder, RETAIL)
    assert len(landing.days()) == 305
    landed = [landing.read(day) for day in landing.days()]
    events = pa.concat_tables([day.events for day in landed])
    assert (events.num_rows, sum(day.quarantined.num_rows for day in landed)) == (541_909, 0)
    amounts = pc.multiply(events["quantity"].cast(pa.decimal128(10, 0)), events["unit_price"])
    assert pc.sum(amounts).as_py() == Decimal("9747747.9340")
    assert events["customer_id"].null_count == 135_080
    assert events["description"].null_count == 1_454
