"""The components of a project: what the `defs.yaml` of a package's folder `defs` declare."""

import warnings
from pathlib import Path
from types import ModuleType

import dagster as dg

from foldhouse.dagster.components import FoldComponent, LandingComponent
from foldhouse.dagster.quiet import without_beta_warnings
from foldhouse.errors import DefinitionError
from foldhouse.values.definition import Stream, Table

_FOLDER = "defs"


def components_of(package: ModuleType) -> dg.Definitions:
    """Return the definitions in the folder `defs` of a package, where `dg scaffold defs` puts them.

        defs = definitions_of(shop, components=components_of(shop))

    A folder that is missing or empty has none, where `dg.load_from_defs_folder` fails. Without `__init__.py` in the
    folder, `definitions_of` does not load its modules too.

    Args:
        package: the package of a project whose `pyproject.toml` has `[tool.dg]`.
    """
    if not hasattr(package, "__path__"):  # a module that is no package has no folder
        return dg.Definitions()
    folder = Path(package.__path__[0]) / _FOLDER
    if not any(one.suffix in (".yaml", ".yml", ".py") for one in folder.rglob("*")):
        return dg.Definitions()
    with without_beta_warnings():
        return dg.load_from_defs_folder(path_within_project=folder)


def declared_in_components(package: ModuleType) -> list[Table | Stream]:
    """Return the tables and streams that the components in the folder `defs` of a package declare.

    Args:
        package: as for `components_of`; its folder `defs` has a `defs.yaml`.

    Raises:
        DefinitionError: a component cannot be loaded; the message has its file.
    """
    folder = Path(package.__path__[0]) / _FOLDER
    try:
        with without_beta_warnings():
            warnings.filterwarnings("ignore", "`parse_obj_as` is deprecated")  # Dagster calls it for each file
            tree = dg.ComponentTree.for_project(folder)
            found: list[FoldComponent | LandingComponent] = [
                *tree.get_all_components(of_type=FoldComponent),
                *tree.get_all_components(of_type=LandingComponent),
            ]
            return [_declared(one, tree.load_context) for one in found]
    except Exception as failure:  # whatever Dagster and the user's files raise
        raise DefinitionError(f"{package.__name__}/{_FOLDER}: {_reason(failure)}") from failure


def _declared(component: FoldComponent | LandingComponent, context: dg.ComponentLoadContext) -> Table | Stream:
    try:
        return component.declared(context)
    except DefinitionError as error:
        if "defs.yaml: " in str(error):  # of a component that it has as its source
            raise
        name = component.table if isinstance(component, FoldComponent) else component.stream
        raise DefinitionError(f"the component of {name}: {error}") from error


def _reason(failure: BaseException) -> str:
    """Return what a failure says; Dagster wraps the causes of its own in drawings of the folder."""
    while not isinstance(failure, DefinitionError) and failure.__cause__ is not None:
        failure = failure.__cause__
    return str(failure) if isinstance(failure, DefinitionError) else f"{type(failure).__name__}: {failure}"
