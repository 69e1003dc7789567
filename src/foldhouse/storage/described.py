"""The description of a written file as JSON, as a Spark task returns it; it is checked before it is used.

Nothing from another process is unpickled, because a pickle can run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from foldhouse.errors import FoldhouseError
from foldhouse.storage.places import is_below
from foldhouse.storage.schema import Layout

_COUNTS = ("record_count", "file_size_in_bytes")
_COUNTS_BY_COLUMN = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_CONTENTS = {"data": DataFileContent.DATA, "position-deletes": DataFileContent.POSITION_DELETES}
_WORDS = {content: word for word, content in _CONTENTS.items()}
_NAMES = {"content", "file_path", "partition", "split_offsets", *_COUNTS, *_COUNTS_BY_COLUMN, *_BOUNDS}


def to_json(file: DataFile) -> dict[str, Any]:
    """Return the description of a written Parquet file in the types of JSON; bounds are hexadecimal."""
    said: dict[str, Any] = {name: getattr(file, name) for name in _COUNTS}
    said |= {name: dict(getattr(file, name) or {}) for name in _COUNTS_BY_COLUMN}
    said |= {name: {i: bound.hex() for i, bound in (getattr(file, name) or {}).items()} for name in _BOUNDS}
    said["content"] = _WORDS[file.content]
    said["file_path"] = file.file_path
    said["partition"] = [file.partition[place] for place in range(len(file.partition))]
    said["split_offsets"] = file.split_offsets
    return said


def from_json(said: Any, layout: Layout) -> DataFile:
    """Return the file that `to_json` described, after checking that the table could have such a file.

    Args:
        said: the parsed JSON; it may be anything.
        layout: of the table; the file must be below its location and have its partitioning.

    Raises:
        FoldhouseError: the JSON does not describe a file that this table could have.
    """
    checked(isinstance(said, dict) and set(said) == _NAMES, said, "the names of its parts")
    given: dict[str, Any] = said
    path = given["file_path"]
    checked(isinstance(path, str) and _is_inside(path, layout.location), path, f"a path below {layout.location}")
    partition = given["partition"]
    fits = isinstance(partition, list) and len(partition) == len(layout.spec.fields)
    checked(fits and all(one is None or type(one) in (int, str) for one in partition), partition, "partition values")
    offsets = given["split_offsets"]
    checked(offsets is None or (isinstance(offsets, list) and all(map(is_count, offsets))), offsets, "split offsets")
    content = given["content"]
    checked(isinstance(content, str) and content in _CONTENTS, content, "what a file holds")
    for name in _COUNTS:
        checked(is_count(given[name]), given[name], name)
    numbers: dict[str, Any] = {name: given[name] for name in _COUNTS}
    numbers |= {name: _by_column(name, given[name], is_count) for name in _COUNTS_BY_COLUMN}
    numbers |= {name: _bounds(name, given[name]) for name in _BOUNDS}
    file = DataFile.from_args(
        content=_CONTENTS[content],
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        sort_order_id=None,
        spec_id=layout.spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        split_offsets=offsets,
        **numbers,
    )
    # pyiceberg keeps spec_id outside of the record, so from_args ignores it.
    file.spec_id = layout.spec.spec_id
    return file


def parsed(text: Any) -> Any:
    """Parse a text as JSON.

    Raises:
        FoldhouseError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return checked(False, text, "JSON")


def is_count(value: Any) -> bool:
    """Whether a value of JSON is a whole number from 0 to the greatest `long`."""
    return type(value) is int and 0 <= value < 2**63  # isinstance would accept true and false of JSON


def checked(is_right: bool, value: Any, what: str) -> bool:
    """Return True if a value from a task passed its check.

    Raises:
        FoldhouseError: it did not; the message shows the value.
    """
    if not is_right:
        raise FoldhouseError(
            f"a Spark task returned what cannot be right: {str(value)[:200]!r} for {what}; nothing was committed. "
            "Check who else runs code in this Spark, and that its workers have this version of foldhouse"
        )
    return True


def _is_inside(path: str, location: str) -> bool:
    """Whether a path is below a location; for a plain path, comparing the texts is enough and cheap."""
    is_plain = path.startswith(f"{location}/") and not {"", ".", ".."} & set(path[len(location) + 1 :].split("/"))
    return (is_plain and path.isprintable()) or is_below(path, location)


def _by_column(name: str, said: Any, is_right: Any) -> dict[int, Any]:
    checked(isinstance(said, dict) and all(map(is_right, said.values())), said, name)
    # Field ids have 32 bits, so at most 10 digits; isdigit alone accepts digits such as `²`, which int refuses.
    checked(all(isinstance(i, str) and i.isascii() and i.isdigit() and len(i) < 11 for i in said), said, name)
    return {int(i): value for i, value in said.items()}


def _bounds(name: str, said: Mapping[str, Any]) -> dict[int, bytes]:
    try:
        return {
            i: bytes.fromhex(bound) for i, bound in _by_column(name, said, lambda one: isinstance(one, str)).items()
        }
    except ValueError:
        checked(False, said, name)
        raise
