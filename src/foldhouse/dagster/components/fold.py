"""The component of a table: an asset, its checks and its lag from a few lines of a `defs.yaml`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from foldhouse import table as declare_table
from foldhouse.dagster.components.calls import fold_of
from foldhouse.dagster.components.declared import located, of_type, source_of
from foldhouse.dagster.components.scaffold import FoldScaffolder
from foldhouse.dagster.found_days import EARLIEST
from foldhouse.dagster.lag import lag_check
from foldhouse.dagster.tables import fold_asset
from foldhouse.errors import DefinitionError
from foldhouse.values.definition import Table


@dg.scaffold_with(FoldScaffolder)
class FoldComponent(dg.Component, dg.Model, dg.Resolvable):
    """A table that is the fold of a stream or of another table.

        type: foldhouse.dagster.components.FoldComponent
        attributes:
          table: shop.revenue
          source: orders
          keys: placed
          partition_by: placed
          fold: {revenue: total(amount), orders: count()}

    Its assets need a resource `lake`.
    """

    table: Annotated[str, Field(description="The name, namespace first; also the asset's key.")]
    source: Annotated[
        str | Sequence[str],
        Field(description="A folder of the defs folder, or a declared value such as shop.payments.payments."),
    ]
    fold: Annotated[
        Any,
        dg.Resolver(lambda context, written: fold_of(written), model_field_type=str | Mapping[str, str]),
        Field(description="Column -> fold, such as total(amount); or one fold of rows, such as latest()."),
    ]
    keys: Annotated[str | Sequence[str], Field(description="The key columns.")] = ()
    sequence_by: Annotated[str | Sequence[str], Field(description="Which event is the later one.")] = ()
    where: Annotated[str | None, Field(description="A condition of SQL on the source's rows.")] = None
    columns: Annotated[Mapping[str, str], Field(description="Column -> expression of SQL, added to the rows.")] = {}
    partition_by: Annotated[str | None, Field(description="The day of a row.")] = None
    first_day: Annotated[
        str | None, Field(description="The first of its partitions; by default, the days are those of the source.")
    ] = None
    buckets: Annotated[
        int, dg.Resolver(of_type(int), model_field_type=int), Field(description="How many buckets a partition has.")
    ] = 1
    description: Annotated[str, Field(description="What the table holds.")] = ""
    sensitive: Annotated[
        Sequence[str] | None, Field(description="Columns whose values no record may show, besides inherited ones.")
    ] = None

    def declared(self, context: dg.ComponentLoadContext) -> Table:
        """Return the table."""
        named = [self.source] if isinstance(self.source, str) else list(self.source)
        found = [source_of(one, context)[0] for one in named]
        if len(found) > 1 and (self.where or self.columns):
            raise DefinitionError(f"{self.table}: where and columns are for one source; declare it in Python")
        if self.first_day is not None:
            _check_first_day(self.table, self.first_day, self.partition_by)
        return declare_table(
            self.table,
            source=found[0] if len(found) == 1 else found,
            fold=self.fold,
            keys=self.keys,
            sequence_by=self.sequence_by,
            rows=_rows(self.where, self.columns),
            partition_by=self.partition_by,
            buckets=self.buckets,
            description=self.description,
            sensitive=self.sensitive,
        )

    def days(self, context: dg.ComponentLoadContext) -> dg.DailyPartitionsDefinition | None:
        """Return the days of its asset: those of the first source that has days, if the table has a `partition_by`."""
        if self.partition_by is None:
            return None
        if self.first_day is not None:
            return dg.DailyPartitionsDefinition(self.first_day, end_offset=1, timezone="UTC")
        named = [self.source] if isinstance(self.source, str) else list(self.source)
        return next((days for one in named if (days := source_of(one, context)[1]) is not None), None)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the asset and its check `up_to_date`."""
        with located(context.path):
            table = self.declared(context)
            asset = fold_asset(table, partitions_def=self.days(context))
        return dg.Definitions(assets=[asset], asset_checks=[lag_check(table)])


def _check_first_day(table: str, first_day: str, partition_by: str | None) -> None:
    if partition_by is None:
        raise DefinitionError(
            f"{table}: first_day is given without partition_by, so it has no days; add it, or leave first_day out"
        )
    try:
        day = date.fromisoformat(first_day)
    except ValueError:
        day = None
    if day is None or str(day) != first_day or day < EARLIEST:
        raise DefinitionError(f"{table}: first_day is {first_day!r}; give a day such as 2024-03-01, from {EARLIEST} on")


def _rows(where: str | None, columns: Mapping[str, str]) -> Callable[[DataFrame], DataFrame] | None:
    if where is None and not columns:
        return None

    def rows(source: DataFrame) -> DataFrame:
        kept = source if where is None else source.where(where)
        for name, expression in columns.items():
            kept = kept.withColumn(name, F.expr(expression))
        return kept

    return rows
