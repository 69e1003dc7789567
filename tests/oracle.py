"""The expected rows of the retail tables, computed by DuckDB from the raw CSV files, and a readable comparison.

It uses no code of foldhouse: the files, the rules for bad lines and the folds are written a second time, in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import foldhouse as fh
from foldhouse.lake import position_of

KEYS: dict[str, list[str]] = {
    "retail.sales": ["source_file", "line_number"],
    "retail.sales_quarantine": ["source_file", "line_number"],
    "retail.products": ["stock_code"],
    "retail.daily_revenue": ["day", "country"],
    "retail.customers": ["customer_id"],
    "retail.daily_products": ["day", "stock_code"],
    "retail.best_sellers": ["day"],
}
APPROXIMATE = {"retail.daily_revenue": {"customers": 0.03}}
"""table -> column -> share by which it may differ, as `assert_same` takes it."""

_COLUMNS = 8
_READ_COLUMNS = 16  # more than a line should have, so that a line with too many is seen and not an error
_SHOWN_KEYS = 3

_LINES = """
create table lines (source_file varchar, day date, line_number integer, {columns});
"""
_READ = """
insert into lines
select '{day}.csv', date '{day}', row_number() over (), *
from read_csv(
    '{path}', columns = {{{columns}}}, header = false, skip = 1, auto_detect = false, null_padding = true,
    nullstr = '\x01', delim = ',', quote = '"', escape = '"', parallel = false
);
"""
_SALES = r"""
create table judged as
select
    source_file, line_number, day,
    c1 as invoice_no,
    c2 as stock_code,
    nullif(c3, '') as description,
    case when regexp_full_match(c4, '-?[0-9]+') then try_cast(c4 as integer) end as quantity,
    case when regexp_full_match(c5, '\d{4}-\d\d-\d\d ([01]\d|2[0-3]):\d\d:\d\d') then try_cast(c5 as timestamp) end
        as invoiced_at,
    case
        when regexp_full_match(c6, '-?([0-9]+\.?[0-9]*|\.[0-9]+)')
            and try_cast(c6 as decimal(12, 4)) = try_cast(c6 as decimal(38, 18))
        then try_cast(c6 as decimal(12, 4))
    end as unit_price,
    nullif(regexp_replace(c7, '^([0-9]+)\.0$', '\1'), '') as customer_id,
    nullif(c8, '') as country,
    coalesce(
        c8 is not null and c9 is null and regexp_matches(c1, '\S') and regexp_matches(c2, '\S')
            and quantity is not null and unit_price is not null and cast(invoiced_at as date) = day,
        false
    ) as good
from lines;

create table sales as
select *, cast(quantity as decimal(10, 0)) * unit_price as amount from judged where good;
"""
_TABLES = {
    "retail.sales": """
        select invoice_no, stock_code, description, quantity, invoiced_at, unit_price, customer_id, country,
            source_file, line_number
        from sales
        order by source_file, line_number
    """,
    "retail.sales_quarantine": """
        select source_file, line_number, day from judged where not good order by source_file, line_number
    """,
    "retail.products": """
        select stock_code, description, unit_price, invoiced_at as last_sold_at
        from sales
        where description is not null and unit_price > 0
        qualify row_number() over (
            partition by stock_code order by invoiced_at desc, source_file desc, line_number desc
        ) = 1
        order by stock_code
    """,
    "retail.daily_revenue": """
        select day, country,
            sum(amount) as revenue,
            sum(case when amount < 0 then amount else 0 end) as refunds,
            count(*) as lines,
            count(distinct invoice_no) as invoices,
            count(distinct customer_id) as customers
        from sales
        where country is not null
        group by day, country
        order by day, country
    """,
    "retail.customers": """
        select customer_id,
            sum(amount) as balance,
            cast(sum(quantity) as bigint) as units,
            count(*) as lines,
            min(invoiced_at) as first_seen_at,
            max(invoiced_at) as last_seen_at
        from sales
        where customer_id is not null
        group by customer_id
        order by customer_id
    """,
    "retail.daily_products": """
        select day, stock_code, cast(sum(quantity) as bigint) as units, sum(amount) as revenue
        from sales
        group by day, stock_code
        order by day, stock_code
    """,
    "retail.best_sellers": """
        with units as (
            select day, stock_code, cast(sum(quantity) as bigint) as units from sales group by day, stock_code
        ), ranked as (
            select *, row_number() over (partition by day order by units desc, stock_code) as place from units
        )
        select day, list({'stock_code': stock_code, 'units': units} order by place) as products
        from ranked
        where place <= 10
        group by day
        order by day
    """,
}


def expected(folder: Path, first: date | None = None, last: date | None = None) -> dict[str, pa.Table]:
    """Return what each table must hold after the days of a landing folder, sorted by its keys.

    Args:
        folder: files `YYYY-MM-DD.csv` or `.csv.gz` in the Online Retail format; their quotes must be well-formed.
        first: the first day, included; from the beginning where there is none.
        last: the last day, included; to the end where there is none.

    Returns:
        table name -> rows, for the names in `KEYS`; of the quarantine the place of a line, not the reason's words.
    """
    names = [f"c{at}" for at in range(1, _READ_COLUMNS + 1)]
    with duckdb.connect() as oracle:
        oracle.execute("set preserve_insertion_order = true; set threads = 1")
        oracle.execute(_LINES.format(columns=", ".join(f"{name} varchar" for name in names)))
        for path in sorted([*folder.glob("????-??-??.csv"), *folder.glob("????-??-??.csv.gz")]):
            day = date.fromisoformat(path.name[:10])
            if (first is None or first <= day) and (last is None or day <= last):
                columns = ", ".join(f"'{name}': 'varchar'" for name in names)
                oracle.execute(_READ.format(day=day, path=str(path).replace("'", "''"), columns=columns))
        oracle.execute(_SALES)
        return {name: oracle.sql(query).to_arrow_table() for name, query in _TABLES.items()}


def folded_at_its_position(
    lake: fh.Lake, table: fh.Table, sql: str, views: str = "", arranged: Callable[[pa.Table], pa.Table] = lambda it: it
) -> pa.Table:
    """What DuckDB makes of the sources of a table, each as it was at the position that the table says.

    Args:
        lake: gives the rows of the sources.
        table: has been refreshed.
        sql: the query, over the sources by the last words of their names.
        views: what is defined before.
        arranged: puts the rows of a source in another order.
    """
    head = lake.head(table)
    assert head is not None
    with duckdb.connect() as oracle:
        for source in table.sources:
            rows = lake.to_arrow(source, as_of=position_of(head)[source.name])
            oracle.register(source.name.split(".")[1], arranged(rows))
        if views:
            oracle.execute(views)
        return oracle.sql(sql).to_arrow_table()


def assert_same(
    actual: pa.Table, expected: pa.Table, keys: Sequence[str], approximate: Mapping[str, float] | None = None
) -> None:
    """Assert that two tables hold the same rows, whatever their order and the order of their columns.

    Types are compared by what they hold: an `int` equals a `bigint`, `1.50` equals `1.5000`, a large string a string.
    NaN equals NaN.

    Args:
        actual: what was folded.
        expected: what the oracle says.
        keys: the columns that identify a row; null is a key like any other.
        approximate: column -> share by which the actual value may differ; off by one is always near enough.

    Raises:
        AssertionError: with the first keys that are missing, not expected, doubled or different, and both rows.
    """
    missing_columns = sorted(set(expected.column_names) - set(actual.column_names))
    more_columns = sorted(set(actual.column_names) - set(expected.column_names))
    if missing_columns or more_columns:
        raise AssertionError(f"columns differ: missing {missing_columns}, not expected {more_columns}")
    order = [(key, "ascending") for key in keys]
    want = _plain(expected).sort_by(order)
    have = _cast(_plain(actual.select(expected.column_names)), want.schema).sort_by(order)
    if have.num_rows == want.num_rows and all(
        _same_column(have[name], want[name], (approximate or {}).get(name)) for name in want.column_names
    ):
        return
    raise AssertionError(_differences(have.to_pylist(), want.to_pylist(), keys, approximate or {}))


def _plain(table: pa.Table) -> pa.Table:
    """Widen integers and decimals, so that types that hold the same values are the same."""
    fields = []
    for field in table.schema:
        type = field.type
        if pa.types.is_integer(type):
            type = pa.int64()
        elif pa.types.is_decimal(type):
            type = pa.decimal128(38, type.scale)
        elif pa.types.is_large_string(type) or pa.types.is_string_view(type):
            type = pa.string()
        elif pa.types.is_timestamp(type) and type.tz is None:
            type = pa.timestamp("us")
        fields.append(pa.field(field.name, type))
    return table.cast(pa.schema(fields)).combine_chunks()


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        found = table.schema.field(field.name).type
        if pa.types.is_decimal(field.type) and pa.types.is_decimal(found):
            scale = max(field.type.scale, found.scale)
            column = table[field.name].cast(pa.decimal128(38, scale))
        elif _kind(found) != _kind(field.type):
            raise AssertionError(f"column {field.name} is {found}, expected {field.type}")
        else:
            column = table[field.name].cast(field.type)
        table = table.set_column(table.schema.get_field_index(field.name), field.name, column)
    return table


def _kind(type: pa.DataType) -> str:
    """Say what a type holds, up to the width of its numbers and the names inside Arrow's lists."""
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return f"list<{_kind(type.value_type)}>"
    if pa.types.is_struct(type):
        return "struct<" + ", ".join(f"{field.name}: {_kind(field.type)}" for field in type) + ">"
    if pa.types.is_integer(type):
        return "integer"
    return "string" if pa.types.is_large_string(type) else str(type)


def _same_column(have: pa.ChunkedArray, want: pa.ChunkedArray, share: float | None) -> bool:
    if pa.types.is_decimal(have.type):
        want = want.cast(have.type)
    if share is None and pa.types.is_floating(have.type):
        return all(_same_value(*pair, None) for pair in zip(have.to_pylist(), want.to_pylist(), strict=True))
    if share is None:
        return bool(have.equals(want))
    return all(_near(one, other, share) for one, other in zip(have.to_pylist(), want.to_pylist(), strict=True))


def _near(have: float | None, want: float | None, share: float) -> bool:
    if have is None or want is None:
        return have is want
    return abs(have - want) <= max(1, share * abs(want))


def _differences(
    have: list[dict[str, Any]], want: list[dict[str, Any]], keys: Sequence[str], approximate: Mapping[str, float]
) -> str:
    """Say which keys differ, the first of each kind with both rows."""
    have_by, want_by = _by_key(have, keys), _by_key(want, keys)
    said = [f"{len(have)} rows, expected {len(want)}"]
    said += _doubled("rows share a key", have, keys) + _doubled("expected rows share a key", want, keys)
    missing = [key for key in want_by if key not in have_by]
    extra = [key for key in have_by if key not in want_by]
    said += _some("missing", missing, lambda key: [f"expected {want_by[key]}"])
    said += _some("not expected", extra, lambda key: [f"found    {have_by[key]}"])
    differing = {
        key: [name for name in row if not _same_value(have_by[key][name], row[name], approximate.get(name))]
        for key, row in want_by.items()
        if key in have_by
    }
    different = [key for key, names in differing.items() if names]
    said += _some(
        "different",
        different,
        lambda key: [f"in {', '.join(differing[key])}", f"expected {want_by[key]}", f"found    {have_by[key]}"],
    )
    return "\n".join(said)


def _by_key(rows: list[dict[str, Any]], keys: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[key] for key in keys): row for row in rows}


def _doubled(what: str, rows: list[dict[str, Any]], keys: Sequence[str]) -> list[str]:
    seen: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        seen.setdefault(tuple(row[key] for key in keys), []).append(row)
    doubled = [key for key, found in seen.items() if len(found) > 1]
    return _some(what, doubled, lambda key: [str(row) for row in seen[key]])


def _some(what: str, found: list[tuple[Any, ...]], rows: Any) -> list[str]:
    if not found:
        return []
    said = [f"{len(found)} keys: {what}; the first {min(len(found), _SHOWN_KEYS)}:"]
    for key in found[:_SHOWN_KEYS]:
        said += [f"  {key}", *(f"    {row}" for row in rows(key))]
    return said


def _same_value(have: Any, want: Any, share: float | None) -> bool:
    if share is not None:
        return _near(have, want, share)
    are_nan = isinstance(have, float) and isinstance(want, float) and math.isnan(have) and math.isnan(want)
    return are_nan or bool(have == want)
