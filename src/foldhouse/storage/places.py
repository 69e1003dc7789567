"""The allowed places of a table's files: below its location, whatever its metadata contains.

The metadata of a table is data that others can write. It chooses neither code nor places outside of the table. The file
system and the location provider come from the catalog's configuration. Paths that lead elsewhere are refused by name,
and no file outside of the table is deleted because metadata references it.
"""

from __future__ import annotations

import os
import re
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
# Matches the beginning of `/w/t`, `file:/w/t` and `file:///w/t`.
ON_DISK = re.compile(r"^(file:)?/+")


def is_on_disk(path: str) -> bool:
    """Whether a path is on this machine's disk."""
    return ON_DISK.match(path) is not None


def is_below(path: str, folder: str) -> bool:
    """Whether a path leads to something below a folder, as the file system resolves both.

        file:/w/t/data/a    file:///w/t    -> yes
        /w/t/../u/a         file:///w/t    -> no
        s3://b/t/../u/a     s3://b/t       -> no: an object store treats `..` as a name, other programs do not

    Symbolic links on the way are followed, except in the last part of the path.
    """
    inside, outside = _parts(path), _parts(folder, is_folder=True)
    if inside is None or outside is None:
        return False
    return len(inside) > len(outside) and inside[: len(outside)] == outside


def places_of(location: str, properties: Mapping[str, str], configuration: Mapping[str, str]) -> LocationProvider:
    """Return the location provider for new files of a table.

    Args:
        location: the table's location, from its metadata.
        properties: the table's properties. Paths below the location are used; a location provider is not loaded.
        configuration: of the catalog; it contains the warehouse, and may name a location provider.

    Raises:
        Unsupported: the location is outside of a local warehouse, or a path of the properties outside of the location.
    """
    warehouse = configuration.get(WAREHOUSE, "")
    if _is_local(warehouse) and not is_below(location, warehouse):
        raise Unsupported(
            f"a table is at {location!r}, outside of the warehouse {warehouse} of this lake; foldhouse reads it, but "
            "does not write or delete anything there. Create it again in this lake, or open the lake it belongs to"
        )
    for name in _PATHS:
        path = properties.get(name)
        # `/x` stands for a file in the folder: the folder may be the location too.
        if path and not is_below(f"{path.rstrip('/')}/x", location):
            raise Unsupported(
                f"{name}={path!r} is not below the table's location {location}, and foldhouse writes nothing outside "
                f"of it; unset the property {name}, or set it to a folder below the location"
            )
    chosen = {name: text for name, text in properties.items() if name != _PROVIDER}
    if _PROVIDER in configuration:
        chosen[_PROVIDER] = configuration[_PROVIDER]
    try:
        return load_location_provider(location, chosen)
    except ValueError as failure:
        raise Unsupported(
            f"the location provider for the table at {location} cannot be loaded: {failure}; correct the catalog's "
            f"{_PROVIDER}"
        ) from failure


def places(iceberg: IcebergTable) -> LocationProvider:
    """Return the location provider for new files of a loaded table; see `places_of`."""
    return places_of(iceberg.location(), iceberg.properties, iceberg.io.properties)


def is_its_own(iceberg: IcebergTable, path: str) -> bool:
    """Whether a path may be deleted: it is below the table's location, which is within a local warehouse if any."""
    warehouse = str(iceberg.io.properties.get(WAREHOUSE, ""))
    is_at_home = not _is_local(warehouse) or is_below(iceberg.location(), warehouse)
    return is_at_home and is_below(path, iceberg.location())


def _is_local(warehouse: str) -> bool:
    """Whether a warehouse is a local folder; the warehouse of a catalog server may be only a name."""
    return warehouse.startswith((f"{_LOCAL}:", "/"))


def _parts(path: str, *, is_folder: bool = False) -> tuple[str, ...] | None:
    """Return the scheme and names of a path, after following local symbolic links; `None` if it is not a path."""
    # os.path.realpath raises ValueError for a NUL.
    if not path or "\0" in path:
        return None
    try:
        scheme, _, plain = PyArrowFileIO.parse_location(path)
    except ValueError:
        return None
    if scheme != _LOCAL:
        names = plain.strip("/").split("/")
        return None if {"", ".", ".."} & set(names) else (_ALIASES.get(scheme, scheme), *names)
    if not plain.startswith("/"):  # file://host/path, which the file system would treat as relative
        return None
    above, _, last = plain.rstrip("/").rpartition("/")
    if last in ("", ".", "..") and not is_folder:
        return None
    real = os.path.realpath(plain) if is_folder else os.path.join(os.path.realpath(above or "/"), last)
    return (_LOCAL, *real.strip("/").split("/"))
