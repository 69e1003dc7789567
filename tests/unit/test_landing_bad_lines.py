"""Lines that cannot be events: set aside with their place and reason, up to a share."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from landing_days import DAY, HEADER, LINE, RETAIL, land, lenient, line_with, lines_of

from foldhouse.errors import TooManyBadLines
from foldhouse.landing import Limits


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


def test_a_line_is_as_readable_beside_a_bad_line_as_alone(tmp_path: Path) -> None:
    room = Limits().line_bytes - len(line_with("Description", ""))
    long, longest = (line_with("Description", "x" * characters) for characters in (room + 1, room))
    for lines in ([LINE, long], [LINE, long, "a,b"]):
        landed = land(tmp_path, lines_of(*lines))
        assert landed.events["line_number"].to_pylist() == [1]
        assert landed.quarantined["reason"][0].as_py() == "line: found 1,048,577 bytes, expected at most 1,048,576"
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
