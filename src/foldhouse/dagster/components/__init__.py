"""Components of Dagster: a table, or a landing folder, declared in a `defs.yaml`."""

from foldhouse.dagster.components.fold import FoldComponent
from foldhouse.dagster.components.landing import LandingComponent

__all__ = ["FoldComponent", "LandingComponent"]
