"""Where the files of a table may be: below its location, whatever its metadata says.

The metadata of a table is data, which others write. It chooses neither code nor a place outside of the table: the file
system and the location provider come from the catalog's configuration, paths that lead elsewhere are refused by name,
and no file outside of the table is deleted because metadata names it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyiceberg.io import WAREHOUSE
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider

from foldhouse.errors import Unsupported

_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
_PATHS = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_LOCAL = "file"


def is_below(path: str, folder: str) -> bool:
    """Whether a path leads to something below a folder, as the file system reads both.

        file:/w/t/data/a    file:///w/t    -> yes
        /w/t/../u/a         file:///w/t    -> no
        s3://b/t/../u/a     s3://b/t       -> no: a store takes `..` for a name, and others do not

    Symbolic links on the way are followed; the last part is taken as it is.
    """
    inside, outside = _parts(path), _parts(folder, is_folder=True)
    if inside is None or outside is None:
        return False
    return len(inside) > len(outside) and inside[: len(outside)] == outside


def places_of(location: str, properties: Mapping[str, str], configuration: Mapping[str, str]) -> LocationProvider:
    """What gives new files of a table their places.

    Args:
        location: the table's, as its metadata says.
        properties: the table's. Paths below the location are honoured; a location provider it names is not loaded.
        configuration: the catalog's, which may name a location provider, and the warehouse.

    Raises:
        Unsupported: the location is outside of a local warehouse, or a path of the properties outside of the location.
    """
    warehouse = configuration.get(WAREHOUSE, "")
    if _is_local(warehouse) and not is_below(location, warehouse):
        raise Unsupported(
            f"a table is at {location!r}, outside of the warehouse {warehouse} of this lake; foldhouse reads it, and "
            "neither writes nor deletes anything there. Create it again within the lake, or open the lake it belongs to"
        )
    for name in _PATHS:
        path = properties.get(name)
        if path and not is_below(f"{path.rstrip('/')}/x", location):
            raise Unsupported(
                f"{name}={path!r} is not below the table's location {location}, and foldhouse writes nothing outside "
                f"of it; unset the property {name}, or name a folder below the location"
            )
    chosen = {name: text for name, text in properties.items() if name != _PROVIDER}
    if _PROVIDER in configuration:
        chosen[_PROVIDER] = configuration[_PROVIDER]
    try:
        return load_location_provider(location, chosen)
    except ValueError as failure:
        raise Unsupported(f"files of the table at {location} cannot be given a place: {failure}") from failure


def places(iceberg: IcebergTable) -> LocationProvider:
    """What gives new files of a loaded table their places; see `places_of`."""
    return places_of(iceberg.location(), iceberg.properties, iceberg.io.properties)


def is_its_own(iceberg: IcebergTable, path: str) -> bool:
    """Whether a path is below the table's location, and that within a local warehouse: only then may it be deleted."""
    warehouse = str(iceberg.io.properties.get(WAREHOUSE, ""))
    is_at_home = not _is_local(warehouse) or is_below(iceberg.location(), warehouse)
    return is_at_home and is_below(path, iceberg.location())


def _is_local(warehouse: str) -> bool:
    """Whether a warehouse is a folder; that of a catalog server may be a mere name."""
    return warehouse.startswith((f"{_LOCAL}:", "/"))


def _parts(path: str, *, is_folder: bool = False) -> tuple[str, ...] | None:
    """Scheme and names; of a local path those that symbolic links lead to. `None` for what is no path."""
    if not path or "\0" in path:
        return None
    try:
        scheme, _, plain = PyArrowFileIO.parse_location(path)
    except ValueError:
        return None
    if scheme != _LOCAL:
        names = plain.strip("/").split("/")
        return None if {"", ".", ".."} & set(names) else (_ALIASES.get(scheme, scheme), *names)
    if not plain.startswith("/"):  # file://host/path, which the file system would take for a relative one
        return None
    above, _, last = plain.rstrip("/").rpartition("/")
    if last in ("", ".", "..") and not is_folder:
        return None
    real = os.path.realpath(plain) if is_folder else os.path.join(os.path.realpath(above or "/"), last)
    return (_LOCAL, *real.strip("/").split("/"))
