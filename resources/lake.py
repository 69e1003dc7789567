"""The lake of this deployment: the folder `$FOLDHOUSE_LAKE`, the catalog `$FOLDHOUSE_CATALOG`, else `./lake`."""

from foldhouse.dagster import LakeFolder, lake_resource

__all__ = ["LakeFolder", "lake_resource"]
