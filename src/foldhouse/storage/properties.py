"""Iceberg's own table properties for writing, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from foldhouse.errors import InvalidProperty

CODEC = "write.parquet.compression-codec"
LEVEL = "write.parquet.compression-level"
ROW_GROUP_BYTES = "write.parquet.row-group-size-bytes"
TARGET_BYTES = "write.target-file-size-bytes"
MERGE_FROM = "commit.manifest.min-count-to-merge"
MERGES = "commit.manifest-merge.enabled"
MANIFEST_BYTES = "commit.manifest.target-size-bytes"
METADATA_CODEC = "write.metadata.compression-codec"
_LEVELS = {
    "zstd": (1, 22),
    "gzip": (1, 9),
    "brotli": (0, 11),
    "snappy": None,
    "lz4": None,
    "uncompressed": None,
}
_MERGE_FROM_MANIFESTS = 8


@dataclass(frozen=True)
class WriteProperties:
    """The write settings of a table.

    Args:
        codec: Arrow's name of the codec of Parquet pages.
        level: the compression level; `None` for the codec's default.
        row_group_bytes: the size of a row group, measured in memory; `None` for groups of 65,536 rows.
        target_bytes: the size that a data file should not exceed; `None` for the default of the operation.
        merge_from: the number of small manifests from which a commit merges them; `None` for never.
        manifest_bytes: the size that a manifest should not exceed; `None` for a number of files.
        metadata_suffix: the end of the names of metadata files.
    """

    codec: str = "zstd"
    level: int | None = None
    row_group_bytes: int | None = None
    target_bytes: int | None = None
    merge_from: int | None = _MERGE_FROM_MANIFESTS
    manifest_bytes: int | None = None
    metadata_suffix: str = ".metadata.json"

    @property
    def small_codec(self) -> str:
        """The codec of small files: snappy instead of zstd, which takes longer to begin than such a file to encode."""
        return "snappy" if self.codec == "zstd" and self.level is None else self.codec


def write_properties(properties: Mapping[str, str]) -> WriteProperties:
    """Read the properties of a table.

    Raises:
        InvalidProperty: a value is not valid; the message names the property.
    """
    names = (CODEC, LEVEL, ROW_GROUP_BYTES, TARGET_BYTES, MERGE_FROM, MERGES, MANIFEST_BYTES, METADATA_CODEC)
    return _read(tuple((name, properties[name]) for name in names if name in properties))


@lru_cache(maxsize=64)
def _read(given: tuple[tuple[str, str], ...]) -> WriteProperties:
    said = dict(given)
    codec = _one_of(said, CODEC, "zstd", _LEVELS)
    merges = _one_of(said, MERGES, "true", {"true": None, "false": None}) == "true"
    metadata_codec = _one_of(said, METADATA_CODEC, "none", {"none": None, "gzip": None})
    return WriteProperties(
        codec="none" if codec == "uncompressed" else codec,
        level=_level(said, codec),
        row_group_bytes=_whole(said, ROW_GROUP_BYTES),
        target_bytes=_whole(said, TARGET_BYTES),
        merge_from=(_whole(said, MERGE_FROM) or _MERGE_FROM_MANIFESTS) if merges else None,
        manifest_bytes=_whole(said, MANIFEST_BYTES),
        metadata_suffix=".gz.metadata.json" if metadata_codec == "gzip" else ".metadata.json",
    )


def _one_of(said: Mapping[str, str], name: str, default: str, known: Mapping[str, object]) -> str:
    text = said.get(name, default).lower()
    if text not in known:
        raise InvalidProperty(f"the property {name} is {said[name]!r}; set it to one of {', '.join(known)}")
    return text


def _whole(said: Mapping[str, str], name: str) -> int | None:
    text = said.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**63):
        raise InvalidProperty(f"the property {name} is {text!r}; set it to a whole number above 0")
    return int(text)


def _level(said: Mapping[str, str], codec: str) -> int | None:
    text, levels = said.get(LEVEL), _LEVELS[codec]
    if text is None or text.lower() == "null":
        return None
    if levels is None:
        raise InvalidProperty(f"the property {LEVEL} is {text!r}, but {codec}, the {CODEC}, has no levels; remove it")
    if not (text.isascii() and text.isdigit() and levels[0] <= int(text) <= levels[1]):
        raise InvalidProperty(f"the property {LEVEL} is {text!r}; {codec} has levels from {levels[0]} to {levels[1]}")
    return int(text)
