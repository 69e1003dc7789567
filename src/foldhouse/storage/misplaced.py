"""Refuses delete files that are of another partition than the data file that they delete from.

By Iceberg's specification, such a delete file deletes nothing. Iceberg's own library and pyiceberg look a delete file
up by the path of its data file if it has only one, and apply it. Which rows the table has is therefore not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldhouse.errors import Unsupported
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.integrity import digest_in
from foldhouse.storage.listed import DeleteFile, ListedManifest, Values

Place = tuple[int, Values]
"""A partition: its spec's id, and its values."""


def check_places(
    manifests: Sequence[ListedManifest],
    deletes: Mapping[Place, Sequence[DeleteFile]],
    found: Mapping[str, FileRef],
) -> None:
    """Check that delete files are of the partition of the only data file that each deletes from.

    Args:
        manifests: all of a snapshot. They are read only if another tool's delete file fits none of the found files.
        deletes: the delete files to check, by partition.
        found: path -> data file, of some partitions.

    Raises:
        Unsupported: a delete file is of another partition.
    """
    unplaced: dict[str, list[tuple[Place, DeleteFile]]] = {}
    for place, candidates in deletes.items():
        for one in candidates:
            held = None if one.only is None else found.get(one.only)
            is_theirs = one.only is not None and digest_in(one.path) is None
            if is_theirs and (held is None or (held.spec_id, held.partition) != place):
                unplaced.setdefault(str(one.only), []).append((place, one))
    if not unplaced:
        return
    for manifest in manifests:
        # A delete file may be left over from a data file that is gone: most are.
        if manifest.has_deletes or unplaced.keys().isdisjoint(manifest.parsed().paths):
            continue
        for values, files in manifest.parsed().data.items():
            for file, sequence in files:
                for place, one in unplaced.get(file.path, ()):
                    if place != (manifest.spec_id, values) and one.applies_to(file.path, sequence):
                        raise _misplaced(manifest.table, one, place, (manifest.spec_id, values))


def _misplaced(table: str, delete: DeleteFile, place: Place, of_file: Place) -> Unsupported:
    return Unsupported(
        f"{table} has a delete file of another partition than its data file: {delete.path} is of {place[1]} in spec "
        f"{place[0]}, and {delete.only} of {of_file[1]} in spec {of_file[0]}. By Iceberg's specification, it deletes "
        "nothing; Iceberg's libraries apply it. Nothing was written; have the tool that wrote the delete file rewrite "
        "the table's data files (Spark: rewrite_data_files), or roll back to a snapshot without it"
    )
