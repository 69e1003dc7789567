"""Whether our table and a peer's hold the same rows, at any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb


def check_same_rows(ours: Path, theirs: Path, columns: Sequence[str]) -> None:
    """Compare two Parquet files as bags of rows.

    Args:
        ours: the columns by name.
        theirs: the same columns in the same order, whatever they are called.
        columns: which.

    Raises:
        AssertionError: with the number of rows that only one of them holds.
    """
    one, other = f"SELECT {', '.join(columns)} FROM '{ours}'", f"SELECT * FROM '{theirs}'"
    differing = f"SELECT count(*) FROM (({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one}))"
    with duckdb.connect() as connection:
        (count,) = connection.execute(differing).fetchone() or (None,)
    assert count == 0, f"{ours.name} and {theirs.name} differ in {count} rows"
