"""Results as a person reads them: a line, and a small table in a notebook."""

from datetime import date

from foldhouse.values.results import Appended, PartitionCounts, Refreshed
from foldhouse.values.upkeep import Expired
from foldhouse.values.window import Coverage

REFRESHED = Refreshed(
    "shop.<totals>",
    True,
    7_123_456_789_012_345_678,
    {"shop.orders": 5},
    Coverage.of([date(2024, 3, 4), date(2024, 3, 5)]),
    rows_read=1_234_567,
    rows=42,
    partitions={date(2024, 3, 4): PartitionCounts(1, 2, 3)},
    seconds=0.0512,
)


def test_a_result_is_a_line_without_what_is_zero_or_empty() -> None:
    assert repr(REFRESHED) == (
        "Refreshed(table=shop.<totals>, committed=True, snapshot_id=7123456789012345678, position={'shop.orders': 5}, "
        "coverage=2024-03-04..2024-03-05, rows_read=1,234,567, rows=42, partitions=1, seconds=0.05)"
    )
    assert repr(Appended("shop.orders", False, None)) == "Appended(table=shop.orders, committed=False)"
    assert (
        repr(Expired("t", True, tags_dropped=("a", "b")))
        == "Expired(table=t, committed=True, tags_dropped=('a', 'b'), seconds=0.00)"
    )


def test_in_a_notebook_it_is_a_small_table_in_which_no_name_is_markup() -> None:
    shown = REFRESHED._repr_html_()
    assert shown.startswith("<table><caption>Refreshed</caption><tr><th>table</th><td>shop.&lt;totals&gt;</td></tr>")
    assert "<tr><th>rows_read</th><td>1,234,567</td></tr>" in shown
    assert "files_read" not in shown


def test_results_are_compared_by_all_fields_shown_or_not() -> None:
    assert Appended("t", True, 1, rows_added=0) == Appended("t", True, 1)
    assert Appended("t", True, 1, rows_added=3) != Appended("t", True, 1)
