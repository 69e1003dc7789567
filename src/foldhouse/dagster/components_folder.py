"""The components of a project: what the `defs.yaml` of a package's folder `defs` declare."""

from pathlib import Path
from types import ModuleType

import dagster as dg

from foldhouse.dagster.quiet import without_beta_warnings

_FOLDER = "defs"


def components_of(package: ModuleType) -> dg.Definitions:
    """Return the definitions in the folder `defs` of a package, where `dg scaffold defs` puts them.

        defs = dg.Definitions.merge(definitions_of(shop), components_of(shop))

    A folder that is missing or empty has none, where `dg.load_from_defs_folder` fails. Without `__init__.py` in the
    folder, `definitions_of` does not load its modules too.

    Args:
        package: the package of a project whose `pyproject.toml` has `[tool.dg]`.
    """
    folder = Path(package.__path__[0]) / _FOLDER
    if not any(one.suffix in (".yaml", ".yml", ".py") for one in folder.rglob("*")):
        return dg.Definitions()
    with without_beta_warnings():
        return dg.load_from_defs_folder(path_within_project=folder)
