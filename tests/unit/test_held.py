"""Looking up keys and positions in the files of a bucket, however these are ordered."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldhouse.refresh.bucket.read import _is_left, _Wanted
from foldhouse.values.tuning import DEFAULT

KEYS = st.lists(st.integers(-20, 20), max_size=60)


@given(KEYS, st.sets(st.integers(-25, 25)), st.sampled_from(["as written", "ascending", "each once"]))
def test_the_rows_of_wanted_keys_are_found_in_files_of_any_order(held: list[int], wanted: set[int], order: str) -> None:
    if order != "as written":
        held = sorted(held if order == "ascending" else set(held))
    found = _Wanted.of(pl.DataFrame({"k": list(wanted)}, schema={"k": pl.Int64}), ["k"])
    expected = [place for place, key in enumerate(held) if key in wanted]
    for kind in (pa.int64(), pa.int32()):
        assert found.places(pa.table({"k": pa.array(held, kind)})).tolist() == expected
    texts = _Wanted.of(pl.DataFrame({"k": list(map(str, wanted))}, schema={"k": pl.String}), ["k"])
    assert texts.places(pa.table({"k": pa.array(map(str, held), pa.string())})).tolist() == expected


@pytest.mark.parametrize("key", [-(2**63), 2**63 - 1, 0])
def test_a_key_at_the_end_of_its_type_is_found_or_not(key: int) -> None:
    wanted = _Wanted.of(pl.DataFrame({"k": [key]}), ["k"])
    assert wanted.places(pa.table({"k": [-(2**63), 5, 2**63 - 1]})).tolist() == [
        place for place, held in enumerate((-(2**63), 5, 2**63 - 1)) if held == key
    ]


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300), min_size=1))
def test_positions_that_are_gone_are_told_from_those_that_are_left(positions: set[int], gone: set[int]) -> None:
    given_, away = np.array(sorted(positions), np.int64), np.array(sorted(gone), np.int64)
    assert _is_left(given_, away, DEFAULT).tolist() == [place not in gone for place in sorted(positions)]
