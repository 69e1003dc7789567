"""Rows that another writer put into a table go no further, however its commit is disguised."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.refresh.window.changed import pieces_between
from foldhouse.storage.commit import FileChanges, commit, is_bound
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout
from foldhouse.values.metadata_names import COMMIT

ev = fh.stream("s.ev", schema={"k": "string", "n": "long"})
FOLD = fh.fold(n=fh.total("n"))
by_key = fh.table("s.by_key", source=ev, keys="k", fold=FOLD)
second = fh.table("s.second", source=by_key, keys="k", fold=FOLD)
third = fh.table("s.third", source=second, keys="k", fold=FOLD)


def events(*values: int) -> pa.Table:
    return pa.table({"k": [str(value % 3) for value in values], "n": pa.array(values, pa.int64())})


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    lake.append(ev, events(1, 2, 3))
    for table in (by_key, second, third):
        lake.refresh(table)
    return lake


def said(lake: fh.Lake, table: fh.Table) -> dict[str, str]:
    head = lake.head(table)
    assert head is not None
    return {name: text for name, text in head.summary.items() if name.startswith("foldhouse.")}


def overwrite(lake: fh.Lake, table: fh.Table, properties: dict[str, str]) -> None:
    """As pyiceberg does it: all rows with 100 more, and what it is told for the summary."""
    iceberg = lake.load(table)
    rows = iceberg.scan().to_arrow()
    more = pa.array([n + 100 for n in rows["n"].to_pylist()], pa.int64())
    iceberg.overwrite(
        rows.set_column(rows.column_names.index("n"), rows.schema.field("n"), more),
        AlwaysTrue(),
        snapshot_properties=properties,
    )


def replace(
    lake: fh.Lake,
    table: fh.Table | fh.Stream,
    properties: dict[str, str],
    keep: int | None = None,
    changed: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> None:
    """All files as one, said to be a `replace`; of the rows only the first few, if a number is given."""
    iceberg = lake.load(table)
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    rows = pa.concat_tables([read_piece(layout, piece) for piece in pieces_of(slices)]).slice(0, keep)
    gone = frozenset(path for one in slices for path in (one.file.path, *one.deletes))
    added = [write_data_file(layout, Partition(()), changed(rows))]
    commit(lake.catalog, iceberg, FileChanges(added, gone, Operation.REPLACE), properties)


@pytest.mark.parametrize("is_copied", [False, True], ids=["as it is", "with our summary"])
def test_a_foreign_commit_is_refused_by_the_table_and_by_those_folded_from_it(shop: fh.Lake, is_copied: bool) -> None:
    ours = shop.head(by_key)
    assert ours is not None
    overwrite(shop, by_key, said(shop, by_key) if is_copied else {})
    shop.append(ev, events(4))
    for table, act in ((by_key, shop.refresh), (second, shop.refresh), (second, shop.rebuild)):
        with pytest.raises(fh.ForeignCommit, match=f"^s.by_key is derived.*roll it back to snapshot {ours.id}"):
            act(table)
    with pytest.raises(fh.ForeignCommit):
        shop.compact(by_key)
    assert not shop.refresh(third).committed  # what it is folded from is right at its own position
    shop.rollback(by_key, to=ours.id)
    for table in (by_key, second, third):
        shop.refresh(table)
        assert sorted(shop.to_arrow(table)["n"].to_pylist()) == [2, 3, 5]


def test_a_foreign_commit_further_up_stops_the_chain_where_it_is(shop: fh.Lake) -> None:
    overwrite(shop, second, {})
    with pytest.raises(fh.ForeignCommit, match=r"s.second is derived"):
        shop.refresh(third)
    shop.rebuild(second)
    shop.refresh(third)
    assert sorted(shop.to_arrow(third)["n"].to_pylist()) == [1, 2, 3]


def test_a_first_fold_over_a_foreign_commit_is_refused(lake: fh.Lake) -> None:
    lake.append(ev, events(1, 2, 3))
    lake.refresh(by_key)
    overwrite(lake, by_key, said(lake, by_key))
    with pytest.raises(fh.ForeignCommit, match=r"it repeats what an earlier commit of foldhouse said"):
        lake.refresh(second)
    assert lake.tables() == ["s.by_key", "s.ev"]


@pytest.mark.parametrize("is_copied", [False, True], ids=["as it is", "with our summary"])
def test_a_compaction_by_others_passes_all_along_the_chain(shop: fh.Lake, is_copied: bool) -> None:
    for number in (4, 5, 6):
        shop.append(ev, events(number))
        shop.refresh(by_key)
        replace(shop, by_key, said(shop, by_key) if is_copied else {})
        shop.refresh(second)
    shop.refresh(third)
    assert sorted(shop.to_arrow(third)["n"].to_pylist()) == [5, 7, 9]


def test_a_replace_that_loses_a_row_is_no_compaction(shop: fh.Lake) -> None:
    replace(shop, by_key, said(shop, by_key), keep=2)
    for table in (by_key, second):
        with pytest.raises(fh.ForeignCommit, match=r"s.by_key"):
            shop.refresh(table)


OTHER_ROWS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "another value": lambda rows: rows.set_column(
        rows.column_names.index("n"), rows.schema.field("n"), pa.array([1, 2, 4], pa.int64())
    ),
    "one row twice": lambda rows: rows.take([0, 1, 1]),
    "another state": lambda rows: rows.drop(["_state"]).append_column(
        rows.schema.field("_state"), rows["_state"].take(pa.array([0, 1, None]))
    ),
}


@pytest.mark.parametrize("what", OTHER_ROWS)
def test_a_replace_by_as_many_other_rows_is_no_compaction(shop: fh.Lake, what: str) -> None:
    ours = shop.head(by_key)
    assert ours is not None
    replace(shop, by_key, {}, changed=OTHER_ROWS[what])
    shop.append(ev, events(4))
    for table in (by_key, second):
        with pytest.raises(fh.ForeignCommit, match=r"s.by_key is derived, but its snapshot .* \(replace by"):
            shop.refresh(table)
    shop.rollback(by_key, to=ours.id)
    for table in (by_key, second, third):
        shop.refresh(table)
        assert sorted(shop.to_arrow(table)["n"].to_pylist()) == [2, 3, 5]


def test_the_rows_of_a_compaction_by_others_may_be_in_another_order(shop: fh.Lake) -> None:
    replace(shop, by_key, {}, changed=lambda rows: rows.take([2, 0, 1]))
    shop.append(ev, events(4))
    for table in (by_key, second):
        shop.refresh(table)
        assert sorted(shop.to_arrow(table)["n"].to_pylist()) == [2, 3, 5]


def test_a_replace_of_a_stream_that_repeats_our_summary_is_read_like_any_other(shop: fh.Lake) -> None:
    """A window over one of our compactions does not read what it wrote; one over this has to."""
    shop.append(ev, events(4))
    shop.compact(ev, min_files=1)
    before = shop.head(ev)
    assert before is not None
    replace(shop, ev, said(shop, by_key) | {"foldhouse.commit": before.summary[COMMIT]}, keep=3)
    after = shop.head(ev)
    assert after is not None
    pieces = pieces_between(shop.load(ev), before.id, after.id)
    assert sum(piece.file.rows * piece.weight for piece in pieces) == -1
    shop.refresh(by_key)
    assert sum(shop.to_arrow(by_key)["n"].to_pylist()) == sum(shop.to_arrow(ev)["n"].to_pylist())


def test_our_own_commits_pass_after_expiry_rollback_compaction_and_publication(shop: fh.Lake) -> None:
    for number in (4, 5, 6):
        shop.append(ev, events(number))
        shop.refresh(by_key)
    old = shop.history(by_key)[1].id
    shop.rollback(by_key, to=old)
    shop.refresh(by_key)
    shop.compact(by_key, min_files=1)
    shop.rebuild(by_key, publish=False)
    shop.publish(by_key)
    iceberg = shop.load(by_key)
    gone = [one.snapshot_id for one in iceberg.snapshots() if one.snapshot_id != iceberg.metadata.current_snapshot_id]
    iceberg.maintenance.expire_snapshots().by_ids(gone).commit()  # as another tool does it: the parent's id goes, too
    head = shop.load(by_key).current_snapshot()
    assert head is not None
    assert is_bound(head)
    assert not shop.refresh(by_key).committed
    for table in (second, third):
        shop.rebuild(table)
        assert sorted(shop.to_arrow(table)["n"].to_pylist()) == [5, 7, 9]


def test_a_summary_is_bound_to_its_snapshot(shop: fh.Lake) -> None:
    head = shop.load(by_key).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary[COMMIT] == f"{head.snapshot_id} on nothing at {head.sequence_number}"
    assert is_bound(head)
    assert is_bound(head.model_copy(update={"parent_snapshot_id": None}))
    for other in ({"snapshot_id": 5}, {"parent_snapshot_id": 5}, {"sequence_number": 5}):
        assert not is_bound(head.model_copy(update=other))
    info = shop.head(by_key)
    assert info is not None
    assert position_of(info) == {"s.ev": shop.history(ev)[0].id}


def test_a_branch_that_somebody_else_committed_to_is_not_published(shop: fh.Lake) -> None:
    shop.rebuild(by_key, publish=False)
    rebuilt = said(shop, by_key) | {"foldhouse.rebuilt-in-spec": "0"}
    iceberg = shop.load(by_key)
    with iceberg.manage_snapshots() as change:
        change.remove_branch("foldhouse-rebuild")
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    rows = pa.concat_tables([read_piece(layout, piece) for piece in pieces_of(slices)]).slice(0, 1)
    added = [write_data_file(layout, Partition(()), rows)]
    commit(shop.catalog, shop.load(by_key), FileChanges(added), rebuilt, branch="foldhouse-rebuild")
    with pytest.raises(fh.ForeignCommit):
        shop.publish(by_key)
    assert shop.count(by_key) == 3
