"""An oracle for landing files: their lines, read with Python's own `csv`, `gzip`, `decimal` and `datetime`.

It uses no code of foldhouse. Its time grows with the square of the number of bad lines.
"""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation, localcontext

_PHYSICAL_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_END = re.compile(r"(?:\r\n|\r|\n)\Z")
_SHOWS_NOTHING = {"\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u2800", "\u3164", "\uffa0"}
_SHOWS_NOTHING |= {chr(at) for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F)) for at in range(first, last + 1)}

Fields = list[str]


def lines_of_text(text: str, columns: int, longest: int) -> tuple[dict[int, Fields], dict[int, str]]:
    """Line number -> fields of the lines that have as many as they should, and -> raw text of the others.

    Args:
        text: what follows the header.
        columns: how many fields a line should have.
        longest: the bytes of the longest line that is read as one.
    """
    physical = _PHYSICAL_LINE.findall(text)
    good: dict[int, Fields] = {}
    bad: dict[int, str] = {}
    at, number = 0, 0
    csv.field_size_limit(2**30)
    while at < len(physical):
        reader = csv.reader(physical[at:], strict=True)
        try:
            fields, used = next(reader), reader.line_num
        except csv.Error:
            fields, used = None, 1
        raw = _LINE_END.sub("", "".join(physical[at : at + used]))
        if fields is None or len(raw.encode()) > longest:
            fields, used, raw = None, 1, _LINE_END.sub("", physical[at])
        at += used
        if fields == [] or not raw:
            continue
        number += 1
        if fields is not None and len(fields) == columns:
            good[number] = fields
        else:
            bad[number] = raw
    return good, bad


def content_of(stored: bytes, is_gzip: bool) -> bytes:
    """The uncompressed bytes of a file; raises what `gzip` raises."""
    return gzip.decompress(stored) if is_gzip else stored


def invoice(fields: Sequence[str], day: date) -> Mapping[str, object] | None:
    """The event that a line of the retail format is, or None for a line that cannot be one."""
    invoice_no, stock_code, description, quantity, invoiced_at, unit_price, customer_id, country = fields
    at, price = _time(invoiced_at), _price(unit_price)
    if _is_blank(invoice_no) or _is_blank(stock_code) or price is None or at is None or at.date() != day:
        return None
    if not re.fullmatch("-?[0-9]+", quantity) or not -(2**31) <= _whole(quantity) < 2**31:
        return None
    return {
        "invoice_no": invoice_no,
        "stock_code": stock_code,
        "description": description or None,
        "quantity": _whole(quantity),
        "invoiced_at": at,
        "unit_price": price,
        "customer_id": re.sub(r"\A([0-9]+)\.0\Z", r"\1", customer_id) or None,
        "country": country or None,
    }


def _is_blank(text: str) -> bool:
    return all(unicodedata.category(one) in ("Cc", "Cf", "Zs", "Zl", "Zp") or one in _SHOWS_NOTHING for one in text)


def _whole(text: str) -> int:
    digits = text.lstrip("-").lstrip("0") or "0"
    return int(("-" if text.startswith("-") else "") + digits[:30])


def _time(text: str) -> datetime | None:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}", text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _price(text: str) -> Decimal | None:
    if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)", text):
        return None
    with localcontext() as context:
        context.prec = 10_000
        try:
            price = Decimal(text).quantize(Decimal("0.0001"))
        except InvalidOperation:
            return None
        return price if price == Decimal(text) and abs(price) < 10**8 else None
