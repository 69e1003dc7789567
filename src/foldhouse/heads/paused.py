"""Pauses a table, so that no refresh starts on it, and resumes it.

The pause is one table property, so it survives rollbacks, rebuilds and every process. A refresh that began before the
pause may still commit once.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate

from foldhouse.errors import Paused
from foldhouse.heads.kinds import check_folded
from foldhouse.storage.swap import swap
from foldhouse.values.metadata_names import PAUSED
from foldhouse.values.pause import Pause, parse, to_json


def pause_of(iceberg: IcebergTable) -> Pause | None:
    """Return the pause of a table; `None` if it is not paused.

    Raises:
        ForeignCommit: another tool wrote the property.
    """
    text = iceberg.properties.get(PAUSED)
    return None if text is None else parse(text)


def check_not_paused(iceberg: IcebergTable) -> None:
    """Refuse to refresh a paused table.

    Raises:
        Paused: it is paused; nothing was written.
    """
    pause = pause_of(iceberg)
    if pause is not None:
        name = ".".join(iceberg.name())
        raise Paused(
            f"{name} is {pause}; nothing was folded. `foldhouse resume {name}` lets it be refreshed again", pause
        )


def pause(catalog: Catalog, iceberg: IcebergTable, wanted: Pause) -> Pause:
    """Pause a table; a pause that is there already keeps its beginning and gets the new reason.

    Raises:
        DefinitionError: it is a stream, or a table of another tool.
        CommitConflict: the table was dropped, or created again, at the same time.
    """
    held = pause_of(check_folded(iceberg))
    if held is not None:
        if held.reason == wanted.reason:
            return held
        wanted = Pause(held.since_ms, wanted.by, wanted.reason)
    text = to_json(wanted)
    swap(
        catalog,
        iceberg,
        (AssertTableUUID(uuid=iceberg.metadata.table_uuid),),
        (SetPropertiesUpdate(updates={PAUSED: text}),),
        lambda now: now.properties.get(PAUSED) == text,
        "the pause",
    )
    return wanted


def resume(catalog: Catalog, iceberg: IcebergTable) -> bool:
    """End the pause of a table, whoever wrote it; return whether there was one.

    Raises:
        DefinitionError: it is a stream, or a table of another tool.
        CommitConflict: the table was dropped, or created again, at the same time.
    """
    if PAUSED not in check_folded(iceberg).properties:
        return False
    swap(
        catalog,
        iceberg,
        (AssertTableUUID(uuid=iceberg.metadata.table_uuid),),
        (RemovePropertiesUpdate(removals=[PAUSED]),),
        lambda now: PAUSED not in now.properties,
        "the end of the pause",
    )
    return True
