"""Joins that this process evaluates for Spark, which evaluates the rest of the logic from their rows.

Spark sorts and shuffles both sides of a large join, which takes it longer than all else. This process joins part by
part, writes the joined rows to files, and Spark reads these instead of the sources.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from foldhouse.errors import StorageError
from foldhouse.kernel.plan import polars_type
from foldhouse.logic.analysed import analysed
from foldhouse.logic.lower import Lower, lower_of
from foldhouse.logic.plan import source_name
from foldhouse.logic.understood import unique_columns
from foldhouse.refresh.rows.evaluate import has_choices, rows_directly
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.rows.on_spark import signed_as
from foldhouse.refresh.rows.written import is_flat
from foldhouse.refresh.run.by_cells import can_be_by_cells, parts_by_cells
from foldhouse.refresh.run.by_root import can_be_by_root, parts_by_root
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.parts import Evaluated, NotHere, can_be_read
from foldhouse.spark.grafted import Descent, columns_at, grafted
from foldhouse.spark.settled import files_of_this_process
from foldhouse.spark.source import empty_frame
from foldhouse.spark.types import arrow_schema
from foldhouse.values.window import Coverage

_LOG = logging.getLogger("foldhouse")


@dataclass(frozen=True)
class Joined:
    """Joined rows in temporary files, and what Spark makes of them.

    Args:
        frames: the signed rows that Spark makes of the joined rows; none, if Spark joins the sources itself.
        sizes: each file -> its size.
    """

    frames: Sequence[DataFrame] = ()
    sizes: Mapping[Path, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def watched(self, name: str) -> Iterator[None]:
        """Look afterwards, even if it fails, whether all files are as they were written: Spark leaves out empty ones.

        Args:
            name: of the table, for the message.

        Raises:
            StorageError: another program changed or removed one.
        """
        try:
            yield
        finally:
            for path, size in self.sizes.items():
                if not size or not path.is_file() or path.stat().st_size != size:
                    raise StorageError(
                        f"{name}: the temporary file {path} was changed or removed while Spark read it. Nothing was "
                        "committed; keep other programs away from the folder, or set TMPDIR to another, and run it "
                        "again"
                    )


def joined_for_spark(run: Run, folder: Path) -> Joined:
    """Join the sources of a run; return the signed rows that Spark makes of the joined rows.

    Args:
        run: of a classic session on this machine.
        folder: for the joined rows; it must not exist. It is needed until Spark has computed the signed rows.

    Returns:
        No frames, if Spark joins the sources itself: they are small, they are not read whole, or this process cannot.
    """
    if not _pays(run):
        return Joined()
    (evaluation,), logic = run.evaluations, run.logic
    rows = _over_nothing(logic)
    lower = _lower_of(logic, rows)
    if lower is None or not all(map(is_flat, lower.schema.types)):
        return Joined()
    compiled = replace(logic.compiled, direct=lower.direct, shape=lower.shape)
    whole = replace(evaluation, coverage=Coverage.everything())
    below = replace(run, logic=replace(logic, compiled=compiled), evaluations=[whole], evaluate=rows_directly)
    if not can_be_read(below.logic, whole):
        return Joined()
    try:
        paths = _written(below, lower, folder)
    except NotHere:
        _LOG.info("%s: Spark joins its sources, because this process cannot evaluate every part", run.name)
        shutil.rmtree(folder)
        return Joined()
    written = Joined(sizes={path: path.stat().st_size for path in paths})
    with written.watched(run.name):
        given = files_of_this_process(logic.session(), from_arrow_schema(lower.schema), paths)
        made = grafted(rows, lower.path, given, lower.given, lower.lifted)
        return replace(written, frames=[signed_as(logic.compiled, made, evaluation)])


def _pays(run: Run) -> bool:
    """Whether all rows of several sources are joined, and Spark would have to sort those of the smaller ones."""
    logic, tuning = run.logic, run.job.tuning
    is_whole = run.recompute is None and len(run.evaluations) == 1 and run.evaluations[0].weight > 0
    if not is_whole or has_choices(run.evaluations[0]) or logic.compiled.direct is not None or not tuning.direct_rows:
        return False
    rows = [sum(piece.file.rows for piece in pieces) for pieces in run.evaluations[0].pieces]
    # Other settings may change what an expression means; see `compile_table`.
    return len(rows) > 1 and sum(rows) - max(rows) >= tuning.joined_least_rows and not logic.compiled.settings


def _over_nothing(logic: Logic) -> DataFrame:
    """Return the rows that the logic makes of sources without rows."""
    given = zip(logic.layouts, logic.compiled.inputs, strict=True)
    frames = [empty_frame(logic.session(), layout, list(names)) for layout, names in given]
    return logic.compiled.signed_rows([one.alias(source_name(place)) for place, one in enumerate(frames)])


def _lower_of(logic: Logic, rows: DataFrame) -> Lower | None:
    def asked(path: Descent) -> tuple[list[int], pa.Schema]:
        numbers, kinds = columns_at(rows, path)
        return numbers, arrow_schema(kinds)

    given = zip(logic.layouts, logic.compiled.inputs, strict=True)
    sources = [pa.schema([layout.arrow.field(name) for name in names]) for layout, names in given]
    unique = [unique_columns(source) for source in logic.compiled.table.sources]
    return lower_of(analysed(rows), sources, unique, asked)


def _written(run: Run, lower: Lower, folder: Path) -> list[Path]:
    """Write the rows of the lower part to files, at least one; return their paths.

    Raises:
        NotHere: a part is too large, or a value cannot be computed here.
    """
    count = os.cpu_count() or 1
    (sources := folder / "sources").mkdir(mode=0o700, parents=True)
    with ThreadPoolExecutor(count) as threads:
        parts = enumerate(_parts(run, sources, threads, count))
        found = list(threads.map(lambda part: _written_part(part[1], folder, part[0]), parts))
    paths = [path for of_part in found for path in of_part]
    if not paths:
        none = pl.DataFrame(schema={one.name: polars_type(one.type) for one in lower.schema})
        paths = _written_part(lambda: iter([none]), folder, 0)
    return paths


def _parts(run: Run, folder: Path, threads: ThreadPoolExecutor, count: int) -> list[Evaluated]:
    if can_be_by_cells(run.logic):
        return parts_by_cells(run, folder, threads, count)
    if can_be_by_root(run.logic, run.evaluations[0]):
        return parts_by_root(run, folder, threads, count)
    raise NotHere


def _written_part(part: Evaluated, folder: Path, number: int) -> list[Path]:
    found = []
    for at, rows in enumerate(part()):
        found.append(folder / f"{number}-{at}.parquet")
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())  # Parquet's writer takes no newer texts
        pq.write_table(table, found[-1], compression="snappy", write_statistics=False, store_schema=False)
    return found
