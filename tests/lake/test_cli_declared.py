"""What a command says if it does not find the declarations, or if their code fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.calls.declared import tables_in
from foldhouse.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    fh.Lake.local(tmp_path / "lake").close()
    return tmp_path


def said(package: str) -> str:
    answer = CliRunner().invoke(main, ["refresh", "--declared-in", package])
    assert answer.exit_code == 2, answer.output
    assert answer.exception is None or isinstance(answer.exception, SystemExit)
    return answer.output


FAILING = {
    "a library is missing": ("import foldhouse\nimport no_such_library", "No module named 'no_such_library' (", 2),
    "its code fails": ("\n\n1 / 0", "ZeroDivisionError: division by zero (", 3),
    "its code ends Python": ("import sys\nsys.exit('no configuration')", "SystemExit: no configuration (", 2),
    "a declaration is refused": (
        "import foldhouse as fh\nevents = fh.stream('a', schema={'k': 'string'})",
        "'a' is not a table name",
        2,
    ),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("is_inside", [False, True], ids=["module", "package"])
def test_code_that_fails_is_named_with_its_line(folder: Path, name: str, is_inside: bool) -> None:
    code, message, line = FAILING[name]
    package = f"failing_{abs(hash((name, is_inside)))}"
    file = folder / package / "inside.py" if is_inside else folder / f"{package}.py"
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_text(code)
    found = said(package)
    assert message in found
    assert f"({file}, line {line})" in found


def test_packages_in_a_package_declare_tables_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "nesting" / "deeper" / "deepest").mkdir(parents=True)
    for place in ("", "deeper", "deeper/deepest"):
        (folder / "nesting" / place / "__init__.py").touch()
        name = f"n.t{len(place)}"
        (folder / "nesting" / place / "tables.py").write_text(
            "import foldhouse as fh\n"
            "events = fh.stream('n.events', schema={'k': 'string'})\n"
            f"table = fh.table({name!r}, source=events, keys='k', fold=fh.fold(n=fh.count()))\n"
        )
    assert [one.name for one in tables_in(importlib.import_module("nesting"))] == ["n.t0", "n.t14", "n.t6"]
    (folder / "nesting" / "deeper" / "__init__.py").write_text("1 / 0")
    for name in [one for one in sys.modules if one.startswith("nesting.")]:
        del sys.modules[name]
    with pytest.raises(ZeroDivisionError):
        tables_in(importlib.import_module("nesting"))


def test_code_that_cannot_be_parsed_is_named_with_its_line(folder: Path) -> None:
    (folder / "unparsed.py").write_text("def f(:")
    assert "unparsed cannot be imported: SyntaxError: invalid syntax (unparsed.py, line 1)" in said("unparsed")


def test_a_package_that_is_not_there_is_said_with_the_ways_out(folder: Path) -> None:
    for package in ("nowhere", "nowhere.at_all"):
        found = said(package)
        assert f"there is no package {package!r} in {folder}" in found
        assert "--declared-in" in found
        assert "foldhouse init NAME" in found


@pytest.mark.parametrize("package", ["tables.py", "../tables", "my tables", ""])
def test_a_file_is_no_name_of_a_package(folder: Path, package: str) -> None:
    assert f"{package!r} is no name of a package or module" in said(package)
