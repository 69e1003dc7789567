"""The component of a landing folder: its stream, quarantine, job and sensors from a few lines of a `defs.yaml`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from foldhouse import stream as declare_stream
from foldhouse.dagster.components.declared import located, of_type
from foldhouse.dagster.components.scaffold import LandingScaffolder
from foldhouse.dagster.days_sensor import days_sensor
from foldhouse.dagster.found_days import found_days
from foldhouse.dagster.landing import landing_asset
from foldhouse.dagster.sensor import landing_sensor
from foldhouse.errors import DefinitionError
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat, Landing
from foldhouse.storage.configuration import is_address
from foldhouse.values.definition import Stream


@dataclass(frozen=True)
class _Folder:
    path: Path | str

    def open(self, format: CsvFormat) -> Landing:
        return Landing(self.path, format)


class Column(dg.Model, dg.Resolvable):
    """A column of the files: `{source: Amount, name: amount, type: "decimal(12,2)", required: true}`."""

    source: Annotated[str, Field(description="Its name in the header.")]
    name: Annotated[str, Field(description="Its name among the events.")]
    type: Annotated[str, Field(description="Its type, as Iceberg writes it.")] = "string"
    required: Annotated[
        bool, dg.Resolver(of_type(bool), model_field_type=bool), Field(description="Whether a line without it is bad.")
    ] = False


def _columns(context: Any, written: Sequence[Any]) -> Sequence[CsvColumn]:
    return [CsvColumn(one.source, one.name, one.type, one.required) for one in written]


@dg.scaffold_with(LandingScaffolder)
class LandingComponent(dg.Component, dg.Model, dg.Resolvable):
    """A folder with one CSV file a day, `YYYY-MM-DD.csv[.gz]`, that lands in a stream.

        type: foldhouse.dagster.components.LandingComponent
        attributes:
          stream: shop.orders
          folder: landing/orders
          day: placed
          columns:
            - {source: Placed, name: placed, type: date, required: true}
            - {source: Amount, name: amount, type: "decimal(12,2)", required: true}

    Bad lines go to the stream `<stream>_quarantine`. Its days follow the files: the sensor `days_<stream>` has the page
    show those that came since it was loaded. The sensor `landing_<stream>` lands new and changed files; it is off until
    it is switched on. Its assets need a resource `lake`.
    """

    stream: Annotated[str, Field(description="The name, namespace first; also the asset's key.")]
    folder: Annotated[str, Field(description="From the project's folder on, or `s3://bucket/prefix`.")]
    columns: Annotated[
        Sequence[CsvColumn],
        dg.Resolver(_columns, model_field_type=list[Column.model()]),
        Field(description="All columns, in the order of the header."),
    ]
    day: Annotated[str, Field(description="The date or timestamp column that is on the day of its file.")]
    keys: Annotated[str | Sequence[str], Field(description="Which row an event is about.")] = ()
    sequence_by: Annotated[str | Sequence[str], Field(description="Which event is the later one.")] = ()
    event_id: Annotated[str | Sequence[str], Field(description="Which delivery is the same event again.")] = ()
    max_bad_share: Annotated[
        float,
        dg.Resolver(of_type(float, int), model_field_type=float),
        Field(description="The share of bad lines with which a file lands."),
    ] = 0.05
    description: Annotated[str, Field(description="What the events are.")] = ""
    sensitive: Annotated[str | Sequence[str], Field(description="Columns whose values no record may show.")] = ()

    @property
    def format(self) -> CsvFormat:
        """What a file holds."""
        return CsvFormat(tuple(self.columns), day=self.day, max_bad_share=self.max_bad_share)

    def declared(self, context: dg.ComponentLoadContext) -> Stream:
        """Return the stream."""
        is_date = next((one.type for one in self.columns if one.name == self.day), "") == "date"
        return declare_stream(
            self.stream,
            schema=self.format.types,
            partition_by=self.day if is_date else f"day({self.day})",
            keys=self.keys,
            sequence_by=self.sequence_by,
            event_id=self.event_id,
            description=self.description,
            sensitive=self.sensitive,
        )

    def days(self, context: dg.ComponentLoadContext) -> dg.DailyPartitionsDefinition:
        """Return the days of its files and of its stream."""
        return found_days(self._folder(context), self.format, stream=self.declared(context))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the two assets, the job that lands them, its sensors, and the folder as a resource."""
        with located(context.path):
            stream, days, name = self.declared(context), self.days(context), "_".join(self.stream.split("."))
        quarantine = declare_stream(f"{self.stream}_quarantine", schema=QUARANTINE_TYPES, partition_by="day")
        key = f"landing_{name}"
        asset = landing_asset(stream, quarantine, self.format, partitions_def=days, landing_resource_key=key)
        land = dg.define_asset_job(
            f"land_{name}",
            selection=dg.AssetSelection.assets(*asset.keys),
            executor_def=dg.in_process_executor,
            description=f"Lands days of {self.stream}.",
        )
        sensor = landing_sensor(
            f"landing_{name}",
            job_name=land.name,
            format=self.format,
            partitions_def=days,
            stream=stream,
            quarantine=quarantine,
            landing_resource_key=key,
            reloads_page=True,
        )
        folder = dg.ResourceDefinition.hardcoded_resource(self._folder(context))
        sensors = [sensor, days_sensor(f"days_{name}", landed_in=stream)]
        return dg.Definitions(assets=[asset], jobs=[land], sensors=sensors, resources={key: folder})

    def _folder(self, context: dg.ComponentLoadContext) -> _Folder:
        if not self.folder.strip():  # else it would be the project's folder
            raise DefinitionError(
                f"{self.stream}: folder is {self.folder!r}; give the one with its files, such as landing/orders"
            )
        return _Folder(self.folder if is_address(self.folder) else context.project_root / self.folder)
