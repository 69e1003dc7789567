"""What Dagster keeps of a run, good or failed, contains no secret of the lake's catalog."""

from __future__ import annotations

import logging
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
import yaml

import foldhouse as fh
from foldhouse.dagster import LakeFolder, fold_asset, lake_resource

SECRETS = {
    "header.Authorization": "Bearer a-secret-in-a-header",
    "s3.secret-access-key": "a-secret-of-s3",
    "adls.sas-token": "sv=2024&sig=a-secret-of-azure",
    "note": "postgresql://db/lake?user=fold&password=a-secret-of-postgres",
}
TEXTS = ("a-secret-in-a-header", "a-secret-of-s3", "a-secret-of-azure", "a-secret-of-postgres")
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeFolder:
    given = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w", **SECRETS}
    (tmp_path / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"leaky": given}}))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    lake = fh.Lake.open("leaky")
    lake.append(events, pa.table({"key": ["a", "b"], "n": pa.array([1, 2], pa.int32())}))
    lake.close()
    return LakeFolder(catalog="leaky")


def run(folder: LakeFolder, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    resources = {"lake": lake_resource(folder)}
    return dg.materialize([fold_asset(totals)], resources=resources, instance=instance, raise_on_error=False)


def kept(instance: dg.DagsterInstance) -> str:
    """Return all that Dagster keeps: runs with their tags and configuration, and events with errors and metadata."""
    said = []
    for made in instance.get_runs():
        said.append(dg.serialize_value(made))
        said += [dg.serialize_value(one) for one in instance.all_logs(made.run_id)]
    return "\n".join(said)


def test_a_run_that_succeeds_and_one_that_fails_leave_no_secret(
    folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    def broken(self: SqlCatalog, *given: object, **named: object) -> None:
        cause = ValueError(f"sent {SECRETS}")
        raise RuntimeError(f"403 for {', '.join(TEXTS)}") from cause

    with dg.DagsterInstance.ephemeral() as instance, caplog.at_level(logging.DEBUG):
        assert run(folder, instance).success
        monkeypatch.setattr(SqlCatalog, "load_table", broken)
        assert not run(folder, instance).success
        found = kept(instance)
    assert "the catalog or the store failed: RuntimeError: 403 for ***, ***, ***, ***" in found
    for text in TEXTS:
        assert text not in found
        assert text not in caplog.text
