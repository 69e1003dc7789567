"""A stream with people in it and tables downstream; and a search for the bytes of one of them in a whole lake."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import foldhouse as fh

SUBJECT = "zoe.unforgettable@example.org"
OTHERS = ("ada@example.org", "bob@example.org", "cyd@example.org", "dee@example.org")

visits = fh.stream(
    "x.visits",
    schema={
        "email": "string",
        "alias": "string",
        "country": "string",
        "amount": "double",
        "version": "long",
        "at": "timestamp",
    },
    partition_by="day(at)",
)
by_person = fh.table(
    "x.by_person",
    source=visits,
    keys="email",
    sequence_by=["version", "alias"],
    fold=fh.fold(
        visits=fh.count(),
        total=fh.total("amount"),
        alias=fh.latest("alias"),
        aliases=fh.collect("alias"),
    ),
    buckets=2,
)
by_country = fh.table(
    "x.by_country",
    source=visits,
    keys="country",
    fold=fh.fold(
        visits=fh.count(),
        people=fh.distinct("email"),
        exactly=fh.distinct_exact("email"),
        first=fh.minimum("email"),
        last=fh.maximum("email"),
        best=fh.top(2, "email", by="amount"),
        total=fh.total("amount"),
    ),
)
by_visits = fh.table("x.by_visits", source=by_person, keys="visits", fold=fh.fold(people=fh.count()))
TABLES = (by_person, by_country, by_visits)


def visit(chance: random.Random, email: str, version: int) -> dict[str, Any]:
    return {
        "email": email,
        "alias": f"alias of {email} {chance.randint(0, 3)}",
        "country": chance.choice(("AT", "DE")),
        "amount": round(chance.uniform(-5, 50), 2),
        "version": version,
        "at": datetime(2024, 1, chance.randint(1, 3)) + timedelta(minutes=version),
    }


def events(lake: fh.Lake) -> list[dict[str, Any]]:
    return lake.to_arrow(visits).to_pylist()


def bag(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


def assert_law(lake: fh.Lake, given: list[dict[str, Any]]) -> None:
    """Compare the tables with what DuckDB computes from some events as a batch."""
    rows = pa.Table.from_pylist(given, lake.schema(visits))  # noqa: F841
    people = duckdb.sql(
        "SELECT email, count(*) AS visits, sum(amount) AS total, list_sort(list(alias)) AS aliases,"
        " arg_max(alias, (version, alias)) AS alias FROM rows GROUP BY email"
    ).fetchall()
    found = lake.to_arrow(by_person).to_pylist()
    assert sorted((r["email"], r["visits"], round(r["total"], 6), sorted(r["aliases"]), r["alias"]) for r in found) == [
        (email, n, round(total, 6), aliases, alias) for email, n, total, aliases, alias in sorted(people)
    ]
    countries = duckdb.sql(
        "SELECT country, count(*), count(DISTINCT email), min(email), max(email), sum(amount)"
        " FROM rows GROUP BY country"
    ).fetchall()
    found = lake.to_arrow(by_country).to_pylist()
    assert sorted(
        (r["country"], r["visits"], r["exactly"], r["first"], r["last"], round(r["total"], 6)) for r in found
    ) == sorted((*rest, round(total, 6)) for *rest, total in countries)
    assert all(r["people"] == r["exactly"] for r in found)  # the sketch is exact for a few
    tops = duckdb.sql(
        "SELECT country, email, amount FROM rows"
        " QUALIFY row_number() OVER (PARTITION BY country ORDER BY amount DESC) <= 2"
    ).fetchall()
    assert sorted((r["country"], one["amount"]) for r in found for one in r["best"]) == sorted(
        (country, amount) for country, _, amount in tops
    )
    visited = Counter(n for _, n, *_ in people)
    assert {r["visits"]: r["people"] for r in lake.to_arrow(by_visits).to_pylist()} == dict(visited)


# The search, with readers that are not ours


def mentions(folder: Path, wanted: str = SUBJECT) -> list[str]:
    """Every place in a lake that has the first bytes of a text: few enough to be left where Iceberg cuts bounds."""
    cut = wanted[:7].encode()
    return [f"{path.relative_to(folder)}: {where}" for path in files(folder) for where in _in_file(path, cut)]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _in_file(path: Path, wanted: bytes) -> Iterator[str]:
    raw = path.read_bytes()
    if wanted in str(path).encode():
        yield "path"
    if wanted in raw:
        yield "raw bytes"
    if raw[:2] == b"\x1f\x8b" and wanted in gzip.decompress(raw):
        yield "unpacked"
    if path.suffix == ".avro" and any(wanted in block for block in _avro_blocks(raw)):
        yield "avro block"
    if path.suffix == ".parquet":
        yield from (f"parquet {where}" for where in _in_parquet(path, wanted))


def _avro_blocks(raw: bytes) -> Iterator[bytes]:
    """The contents of the blocks of an Avro file, unpacked."""
    assert raw[:4] == b"Obj\1"
    assert b"avro.codec\x0edeflate" in raw
    at = 4

    def number() -> int:
        nonlocal at
        found, shift = 0, 0
        while True:
            byte = raw[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (found >> 1) ^ -(found & 1)

    while count := number():
        if count < 0:
            number()
        for _ in range(2 * abs(count)):
            length = number()
            at += length
    at += 16
    while at < len(raw):
        number()
        size = number()
        yield zlib.decompress(raw[at : at + size], -15)
        at += size + 16


def _in_parquet(path: Path, wanted: bytes) -> Iterator[str]:
    with pq.ParquetFile(path) as file:
        if wanted in _bytes(file.metadata.metadata or {}):
            yield "key-value metadata"
        for group in range(file.metadata.num_row_groups):
            for number in range(file.metadata.num_columns):
                said = file.metadata.row_group(group).column(number).statistics
                if said is not None and said.has_min_max and wanted in _bytes([said.min, said.max]):
                    yield "statistics"
        rows = file.read()
    if wanted in _bytes(rows.to_pylist()):
        yield "rows"
    for name in rows.column_names:  # sketches and whatever else is bytes
        if wanted in b"".join(bytes(b) for chunk in rows[name].chunks for b in chunk.buffers() if b is not None):
            yield f"buffers of {name}"


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b"\0".join(_bytes(one) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple):
        return b"\0".join(map(_bytes, value))
    if isinstance(value, str):
        try:
            return value.encode() + (_bytes(json.loads(value)) if value[:1] in ("{", "[") else b"")
        except ValueError:
            return value.encode()
    return str(value).encode()


def days(lake: fh.Lake) -> list[date]:
    return lake.days(visits)


KEY = {"email": SUBJECT}


def append(lake: fh.Lake, seed: int, *people: str) -> None:
    chance = random.Random(seed)
    lake.append(visits, [visit(chance, email, 10 * seed + place) for place, email in enumerate(people)])


def refresh(lake: fh.Lake) -> None:
    for table in TABLES:
        lake.refresh(table)


def forget(lake: fh.Lake, **options: Any) -> fh.Forgotten:
    options = {"reason": "request 17", "tables": TABLES, "dry_run": False, "alone": True, **options}
    return lake.forget(visits, KEY, **options)


def others(lake: fh.Lake) -> list[dict[str, Any]]:
    return [row for row in events(lake) if row["email"] != SUBJECT]


def assert_forgotten(lake: fh.Lake, folder: Path, kept: list[dict[str, Any]]) -> None:
    assert mentions(folder) == []
    assert bag(events(lake)) == bag(kept)
    assert_law(lake, kept)
