"""The lake of this deployment: the folder that `$FOLDHOUSE_LAKE` names, else `./lake`."""

from foldhouse.dagster import LakeFolder, lake_resource

__all__ = ["LakeFolder", "lake_resource"]
