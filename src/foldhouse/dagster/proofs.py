"""Proofs as asset checks: a table is what a batch job of Spark computes from all rows of its sources."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import dagster as dg

from foldhouse.dagster.again import in_words
from foldhouse.dagster.own_steps import known
from foldhouse.dagster.report import key_of
from foldhouse.dagster.resources import LakeOpener
from foldhouse.lake import Lake
from foldhouse.values.definition import Source, Table
from foldhouse.values.gapless import Gapless
from foldhouse.values.proofs import Verified
from foldhouse.values.reconciled import Disagreement, Reconciled
from foldhouse.values.sensitive import HIDDEN, is_sensitive, without_sensitive

EQUALS_BATCH = "equals_batch"
GAPLESS = "gapless"


def proof_check(table: Table, *, share: float = 1.0, lake_resource_key: str = "lake") -> dg.AssetChecksDefinition:
    """Make the asset check `equals_batch` of a table, as `Lake.verify` compares it.

        proof_check(customers, share=0.1)   -> a tenth of the customers, always the same ones

    A failed check names the wrong keys, and the first commit and run at which they were wrong. It reads all rows of the
    sources, and runs whenever the asset does; for a check of its own cadence, select it in a job of its own.

    Args:
        table: the declaration.
        share: the share of the keys to compare.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """

    def outcome(lake: Lake) -> dict[str, Any]:
        found = lake.verify(table, share=share)
        return {"passed": found.passed, "description": _said(found), "metadata": _metadata(table, found)}

    known(table, EQUALS_BATCH, outcome)

    @dg.asset_check(
        asset=key_of(table.name),
        name=EQUALS_BATCH,
        description="The table is what Spark computes, as a batch job, from all rows of its sources at its position.",
        required_resource_keys={lake_resource_key},
    )
    @in_words
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        return dg.AssetCheckResult(**outcome(opener.open()))

    return check


def gapless_check(table: Table, *, lake_resource_key: str = "lake") -> dg.AssetChecksDefinition:
    """Make the asset check `gapless` of a table, as `Lake.gapless` proves it from metadata; it reads no rows.

    Args:
        table: the declaration.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """

    def outcome(lake: Lake) -> dict[str, Any]:
        return _gapless(lake.gapless(table))

    known(table, GAPLESS, outcome)

    @dg.asset_check(
        asset=key_of(table.name),
        name=GAPLESS,
        description="Each commit begins where the one below it ends: no window is folded twice, and none is skipped.",
        required_resource_keys={lake_resource_key},
    )
    @in_words
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        return dg.AssetCheckResult(**outcome(opener.open()))

    return check


def _gapless(found: Gapless) -> dict[str, Any]:
    """Return the outcome of the check, as results and evaluations take it."""
    counts = {"commits": found.commits, "unrecorded": found.unrecorded, "mended": found.mended}
    counts |= {"spans_expired": found.spans_expired}
    said = "; ".join(f"snapshot {one.snapshot_id}: {one.reason}" for one in found.breaks)
    said = said or ("1 commit" if found.commits == 1 else f"{found.commits:,} commits in one chain")
    return {"passed": found.passed, "description": said, "metadata": {**counts, "broken": found.broken}}


def reconcile_check(
    one: Table,
    other: Source,
    *,
    on: Sequence[str],
    columns: Mapping[str, str],
    tolerance: Decimal | int | str = 0,
    lake_resource_key: str = "lake",
) -> dg.AssetChecksDefinition:
    """Make an asset check of `one`: its totals by key agree with those of another table, see `Lake.reconcile`.

    A table that is only behind, or was never folded, does not fail the check; the description then says that it cannot
    be told.

    Args:
        one: the declaration of the table that has the check.
        other: the declaration of the table or stream to compare it with.
        on: the key columns.
        columns: column of `one` -> column of `other`.
        tolerance: the difference that is still the same.
        lake_resource_key: the resource that opens the lake, a `LakeOpener`.
    """
    name = f"agrees_with_{other.name.replace('.', '_')}"

    def outcome(lake: Lake) -> dict[str, Any]:
        absent = [each.name for each in (one, other) if lake.head(each) is None]
        if absent:
            return {"passed": True, "description": f"cannot tell: {' and '.join(absent)} has no commit yet"}
        return _agreement(one, other, columns, lake.reconcile(one, other, on=on, columns=columns, tolerance=tolerance))

    known(one, name, outcome)

    @dg.asset_check(
        asset=key_of(one.name),
        name=name,
        additional_deps=[key_of(other.name)],
        description=f"The totals of {', '.join(columns)} by {', '.join(on)} are those of {other.name}.",
        required_resource_keys={lake_resource_key},
    )
    @in_words
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        opener: LakeOpener = getattr(context.resources, lake_resource_key)
        return dg.AssetCheckResult(**outcome(opener.open()))

    return check


def _agreement(one: Table, other: Source, columns: Mapping[str, str], found: Reconciled) -> dict[str, Any]:
    """Return the outcome of the check, as results and evaluations take it."""
    said, first = found.said, found.first
    if first is not None:
        said += f"; first at snapshot {first.snapshot_id} of {first.table}"
    shown = [_both(one, other, columns, each) for each in found.disagreements]
    metadata: dict[str, Any] = {"wrong_keys": found.wrong, "keys": found.keys}
    if shown:
        metadata["disagreements"] = dg.MetadataValue.table(shown)
    return {"passed": found.passed is not False, "description": said, "metadata": metadata}


def _said(found: Verified) -> str:
    if found.passed:
        compared = "every key is" if found.share == 1 else f"the keys compared, a share of {found.share:g}, are"
        return f"{compared} what Spark computes, at snapshot {found.snapshot_id}"
    first = found.first_wrong
    keys = "1 key is wrong" if found.wrong == 1 else f"{found.wrong:,} keys are wrong"
    if first is None:
        return keys
    by = f"run {first.run_id}" if first.is_ours else "another tool than foldhouse"
    return f"{keys}, first at snapshot {first.snapshot_id} by {by}"


def _metadata(table: Table, found: Verified) -> dict[str, dg.MetadataValue]:
    metadata: dict[str, dg.MetadataValue] = {
        "snapshot_id": dg.MetadataValue.text(str(found.snapshot_id)),
        "wrong_keys": dg.MetadataValue.int(found.wrong),
        "columns": dg.MetadataValue.text(", ".join(found.columns)),
        "seconds": dg.MetadataValue.float(round(found.seconds, 3)),
    }
    if found.share != 1:
        metadata["share"] = dg.MetadataValue.float(found.share)
    if found.unproven:
        metadata["unproven"] = dg.MetadataValue.text(", ".join(found.unproven))
    first = found.first_wrong
    if first is not None:
        metadata["first_wrong_snapshot_id"] = dg.MetadataValue.text(str(first.snapshot_id))
        metadata["last_right_snapshot_id"] = dg.MetadataValue.text(str(first.last_right or "none that can be computed"))
        if first.run_id is not None:
            metadata["first_wrong_run"] = dg.MetadataValue.text(first.run_id)
    if found.differences:
        records = [
            dg.TableRecord({name: _shown(table, getattr(one, name)) for name in ("key", "found", "expected")})
            for one in found.differences
        ]
        metadata["differences"] = dg.MetadataValue.table(records)
    return metadata


def _shown(table: Table, row: Mapping[str, Any] | None) -> str:
    """Return a row as text, without the values of sensitive columns."""
    return _text(None if row is None else without_sensitive(table, row))


def _text(row: Mapping[str, Any] | None) -> str:
    return "no row" if row is None else ", ".join(f"{name}={value}" for name, value in row.items())


def _both(one: Table, other: Source, columns: Mapping[str, str], found: Disagreement) -> dg.TableRecord:
    """Return a key and its totals in both tables; a value that is sensitive in either table is left out."""

    def shown(row: Mapping[str, Any] | None) -> str:
        if row is None:
            return _text(None)
        hidden = {name for name in row if is_sensitive(one, name) or is_sensitive(other, columns.get(name, name))}
        return _text({name: HIDDEN if name in hidden else value for name, value in row.items()})

    return dg.TableRecord({"key": shown(found.key), one.name: shown(found.one), other.name: shown(found.other)})
