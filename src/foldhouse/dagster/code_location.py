"""The code location that `workspace.yaml` of a folder names, loaded into this process.

python_module: definitions                                      -> the module `definitions`
python_file: {relative_path: page/definitions.py}               -> the file, under the name of the file
python_package: {package_name: shop, attribute: made}           -> `shop.made`, or what `shop.made()` returns
"""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import yaml
from dagster.components.definitions import LazyDefinitions
from yaml import YAMLError

from foldhouse.calls.declared import failed_import
from foldhouse.errors import DefinitionError, FoldhouseError, InvalidCall
from foldhouse.garbage import importing
from foldhouse.values.code_place import place_of

_NAME_OF = {"python_module": "module_name", "python_package": "package_name", "python_file": "relative_path"}
"""Kind of code location -> the setting that says which code it is."""


def workspace_of(folder: Path) -> Path:
    """Return the `workspace.yaml` of a folder.

    Raises:
        InvalidCall: there is none.
    """
    workspace = folder / "workspace.yaml"
    if not workspace.exists():
        raise InvalidCall(
            f"there is no workspace.yaml in {folder}; run this in the folder of your project. `foldhouse init NAME` "
            "makes one"
        )
    return workspace


@dataclass(frozen=True)
class CodeLocation:
    """A code location that this process can load.

    Args:
        folder: where `workspace.yaml` is.
        code: a module, or a file relative to the folder.
        is_file: whether it is a file.
        attribute: of the module, which has the definitions; `None`: they are looked for.
        working_directory: from which the code imports, relative to the folder.
        location_name: the location's own name; `None`: as Dagster names it, after the code.
    """

    folder: Path
    code: str
    is_file: bool
    attribute: str | None
    working_directory: str
    location_name: str | None

    @staticmethod
    def first_of(folder: Path) -> "CodeLocation":
        """Return the first code location of a workspace.

        Args:
            folder: where `workspace.yaml` is.

        Raises:
            InvalidCall: there is no `workspace.yaml`, it cannot be read, or its first location is no Python code.
        """
        workspace = workspace_of(folder)
        try:
            [(kind, said)] = yaml.safe_load(workspace.read_text())["load_from"][0].items()
            given = said if isinstance(said, dict) else {_NAME_OF[kind]: said}
            code = given[_NAME_OF[kind]]
            if not isinstance(code, str):  # such as a variable of the environment
                raise TypeError(f"{code!r} is no name")
            return CodeLocation(
                folder=folder,
                code=code,
                is_file=kind == "python_file",
                attribute=given.get("attribute"),
                working_directory=given.get("working_directory") or ".",
                location_name=given.get("location_name"),
            )
        except (YAMLError, LookupError, TypeError, ValueError, AttributeError) as failure:
            raise InvalidCall(
                f"the first entry below load_from in {workspace} is none of {', '.join(_NAME_OF)}, as Dagster writes "
                "them; this process loads the code itself, so it needs one of them"
            ) from failure

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags by which the page lists a run under its job."""
        code = Path(self.code).name if self.is_file else self.code
        name = self.location_name or (f"{code}:{self.attribute}" if self.attribute else code)
        return {".dagster/repository": f"__repository__@{name}"}

    def definitions(self) -> dg.Definitions:
        """Load the definitions; once a process, because Python loads a module once.

        Raises:
            DefinitionError: the code cannot be loaded, or has no definitions.
        """
        working_directory = str((self.folder / self.working_directory).resolve())
        if working_directory not in sys.path:
            sys.path.insert(0, working_directory)
        try:
            with importing():
                module = (
                    _of_file((self.folder / self.code).resolve())
                    if self.is_file
                    else importlib.import_module(self.code)
                )
            found = _defined(module, self.attribute)
        except FoldhouseError as failure:
            raise type(failure)(f"{failure}{place_of(failure)}") from failure
        except (Exception, SystemExit) as failure:  # whatever the user's code raises
            raise failed_import(Path(self.code).stem if self.is_file else self.code, failure) from failure
        if not isinstance(found, dg.Definitions):
            where = f"{self.attribute} of {self.code} is" if self.attribute else f"{self.code} has"
            raise DefinitionError(f"{where} no dg.Definitions; `foldhouse init NAME` shows a definitions.py")
        return found


def _of_file(path: Path) -> ModuleType:
    """Load a file as a module under the name of the file, as Dagster does."""
    known = sys.modules.get(path.stem)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _defined(module: ModuleType, attribute: str | None) -> Any:
    """Return the definitions of a module, also those that a function makes; `None` if there are none."""
    if attribute is not None:
        found = getattr(module, attribute)
        return found() if callable(found) else found
    values = list(vars(module).values())
    lazy = next((value for value in values if isinstance(value, LazyDefinitions)), None)
    if lazy is not None:  # Dagster prefers them as well
        return lazy()
    return next((value for value in values if isinstance(value, dg.Definitions)), None)
