"""The version of foldhouse's own format in which a table is written; a newer one is refused before anything is read.

| `foldhouse.format` of a table | this version |
|---|---|
| absent | reads and writes it: format 1, of a version that did not name it |
| up to `NEWEST` | reads and writes it |
| above `NEWEST`, or no number | refuses it: rows could be read wrongly, and a commit could lose something |
"""

from __future__ import annotations

from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import Unsupported
from foldhouse.values.given import shown
from foldhouse.values.metadata_names import FORMAT

NEWEST = 1
"""The newest format that this version knows, and the one in which it writes new tables."""


def check_format(iceberg: IcebergTable) -> IcebergTable:
    """Return a table whose format is known.

    Raises:
        Unsupported: a newer foldhouse wrote the table.
    """
    told = iceberg.properties.get(FORMAT, "1")
    if told.isascii() and told.isdigit() and 1 <= int(told[:9]) <= NEWEST:
        return iceberg
    raise Unsupported(
        f"{'.'.join(iceberg.name())} is written in format {shown(told)} by a newer foldhouse; this one knows formats "
        f"up to {NEWEST}, and neither reads nor writes the table. Upgrade foldhouse wherever it runs"
    )
