"""What `dg scaffold defs` writes for a component: a `defs.yaml` to fill in, instead of one without attributes."""

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

_FOLD = """\
type: {type}

attributes:
  table: {table}
  # A folder beside this one, or a declared value such as {package}.payments.payments.
  source: {source}
  keys: {keys}
  fold:
    events: count()  # column: fold, such as total(amount)
"""
_LANDING = """\
type: {type}

attributes:
  stream: {stream}
  # With one file a day, YYYY-MM-DD.csv or YYYY-MM-DD.csv.gz.
  folder: {folder}
  day: day
  columns:  # all of the files, in the order of the header
    - {{source: day, name: day, type: date, required: true}}
    - {{source: amount, name: amount, type: "decimal(12,2)", required: true}}
"""


class FoldParams(BaseModel):
    """The options of `dg scaffold defs foldhouse.dagster.components.FoldComponent`."""

    table: str = Field("", description="The name, namespace first; by default that of the project and of the folder.")
    source: str = Field(
        "SOURCE", description="A folder of the defs folder, or a declared value such as shop.payments.payments."
    )
    keys: str = Field("KEY", description="The key column; write more of them into the file.")


class LandingParams(BaseModel):
    """The options of `dg scaffold defs foldhouse.dagster.components.LandingComponent`."""

    stream: str = Field("", description="The name, namespace first; by default that of the project and of the folder.")
    folder: str = Field("landing", description="From the project's folder on, or s3://bucket/prefix.")


class FoldScaffolder(dg.Scaffolder[FoldParams]):
    """Writes the `defs.yaml` of a table; `dg check defs` names what is left to fill in."""

    @classmethod
    def get_scaffold_params(cls) -> type[FoldParams]:
        """Return the options."""
        return FoldParams

    def scaffold(self, request: dg.ScaffoldRequest[FoldParams]) -> None:
        """Write the file."""
        given = request.params
        table = given.table or _name(request.target_path)
        package = table.partition(".")[0]
        _write(request, _FOLD.format(type=request.type_name, package=package, **{**given.model_dump(), "table": table}))


class LandingScaffolder(dg.Scaffolder[LandingParams]):
    """Writes the `defs.yaml` of a landing folder with two columns."""

    @classmethod
    def get_scaffold_params(cls) -> type[LandingParams]:
        """Return the options."""
        return LandingParams

    def scaffold(self, request: dg.ScaffoldRequest[LandingParams]) -> None:
        """Write the file."""
        given = request.params
        stream = given.stream or _name(request.target_path)
        _write(request, _LANDING.format(type=request.type_name, stream=stream, folder=given.folder))


def _name(folder: Path) -> str:
    """Return the name that the folder of a component gives: that of the package above `defs`, and its own."""
    above = [one.parent.name for one in folder.parents if one.name == "defs"]
    return f"{above[0] if above else 'lake'}.{folder.name}"


def _write(request: dg.ScaffoldRequest[Any], text: str) -> None:
    if request.scaffold_format != "yaml":
        dg.scaffold_component(request)
    elif request.append:
        with request.target_path.open("a", encoding="utf-8") as file:
            file.write(f"---\n{text}")
    else:
        (request.target_path / "defs.yaml").write_text(text, encoding="utf-8")
