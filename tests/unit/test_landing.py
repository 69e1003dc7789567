"""The landing folder: what the lines of a day become, read by both ways."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from csv_oracle import lines_of_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from landing_days import DAY, HEADER, LINE, RETAIL, land, line_with, lines_of

from foldhouse.landing import QUARANTINE_SCHEMA, CsvColumn, CsvFormat, Landing, Limits
from foldhouse.landing.lines import LineReader, read_exactly, read_fast
from foldhouse.landing.records import Scanner


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


def read(content: bytes, piece: int = 2**20, format: CsvFormat = TEXT) -> tuple[dict[int, list[str]], dict[int, str]]:
    """Read what follows the header: line number -> fields of the good lines, and -> raw text of the malformed ones."""
    good: dict[int, list[str]] = {}
    bad: dict[int, str] = {}
    first = 1
    for lines in LineReader(format).read(content[at : at + piece] for at in range(0, len(content), piece)):
        assert lines.first == first
        first += lines.count
        good |= zip(lines.numbers, (list(row.values()) for row in lines.text.to_pylist()), strict=True)
        bad |= lines.raw(lines.malformed, format)
    assert sorted([*good, *bad]) == list(range(1, first))
    return good, bad


@given(rows=tables, line_end=st.sampled_from(["\n", "\r", "\r\n"]))
def test_what_the_csv_module_wrote_is_read_back_by_both_ways(rows: list[list[str]], line_end: str) -> None:
    body = as_body(rows, line_end)
    fast, exact = read_fast(body, TEXT, 1), read_exactly(body, TEXT, 1, is_final=True).lines
    assert fast is not None or not rows
    for lines in filter(None, (fast, exact)):
        assert [list(row.values()) for row in lines.text.to_pylist()] == rows
        assert list(lines.numbers) == list(range(1, len(rows) + 1))
    assert (exact.count, exact.malformed) == (len(rows), {})


AWKWARD = st.text(st.sampled_from(',,""\n\na \r'), max_size=60)


@given(text=AWKWARD)
@settings(max_examples=500)
def test_any_text_is_read_as_the_csv_module_reads_it(text: str) -> None:
    good, bad = read(text.encode())
    assert (good, bad) == lines_of_text(text, columns=3, longest=2**20)
    for fields in good.values():
        assert len(fields) == 3


@given(text=AWKWARD, longest=st.integers(1, 20), piece=st.integers(1, 30))
@settings(max_examples=500)
def test_any_text_is_read_the_same_however_it_is_cut_into_blocks(text: str, longest: int, piece: int) -> None:
    format = replace(TEXT, limits=Limits(line_bytes=longest))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foldhouse.landing.lines._BLOCK", piece)
        good, bad = read(text.encode(), piece, format)
    expected, wrong = lines_of_text(text, 3, longest)
    assert good == expected
    assert bad.keys() == wrong.keys()
    assert all(wrong[number].startswith(raw.partition("…")[0]) for number, raw in bad.items())


@given(text=AWKWARD)
def test_on_any_text_no_character_is_lost_but_line_ends(text: str) -> None:
    body = f"{text}\n".encode()
    exact = read_exactly(body, TEXT, 1, is_final=True).lines
    raw = exact.raw(range(1, exact.count + 1), TEXT)
    assert "".join(raw.values()).translate({10: None, 13: None}) == text.translate({10: None, 13: None})
    assert sorted([*exact.numbers, *exact.malformed]) == list(range(1, exact.count + 1))


LINES_WITH_WRONG_QUOTES = {
    "each opens a quote that is never closed": 'a","x\n',
    "each has text after a closing quote": '"a"b,c,d\n',
    "each opens a quote that the next one closes": 'a,"b\n',
    "each has three quotes": ',"""\n',
    "each closes a quote and opens another": '","\n',
    "each closes, opens, and has text after": '",""x,"\n',
}


@pytest.mark.parametrize("line", LINES_WITH_WRONG_QUOTES.values(), ids=LINES_WITH_WRONG_QUOTES)
@pytest.mark.parametrize("before", ["", '"', 'x"","y\n'])
@pytest.mark.parametrize("longest", [100, 2**30])
def test_no_character_is_looked_at_more_than_a_few_times(line: str, before: str, longest: int) -> None:
    text = (before + line * 3000).encode()
    scanner = Scanner(text, b",", longest, is_final=True)
    assert sum(1 for _ in scanner.records()) > 0
    assert scanner.scanned < 6 * len(text)


@given(
    lines=st.lists(st.text(st.sampled_from(',,"""a'), max_size=8), min_size=1, max_size=12), longest=st.integers(1, 400)
)
@settings(max_examples=300)
def test_whatever_line_repeats_no_character_is_looked_at_more_than_a_few_times(lines: list[str], longest: int) -> None:
    text = ("\n".join(lines) + "\n").encode() * 40
    scanner = Scanner(text, b",", longest, is_final=True)
    list(scanner.records())
    assert scanner.scanned <= 8 * len(text)


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
