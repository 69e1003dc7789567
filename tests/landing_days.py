"""One day of the landing folder, written and read, for tests of landing."""

from __future__ import annotations

import csv
import io
from datetime import date
from pathlib import Path

from assets.retail import FORMAT
from foldhouse.landing import CsvFormat, Landed, Landing

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
