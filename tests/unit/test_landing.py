"""The landing folder: what the lines of a day become, read by both ways."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from landing_days import DAY, HEADER, LINE, RETAIL, land, line_with, lines_of

from foldhouse.landing import QUARANTINE_SCHEMA, CsvColumn, CsvFormat, Landing
from foldhouse.landing.lines import read_exactly, read_fast


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
