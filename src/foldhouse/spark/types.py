"""Converts Iceberg types to Spark types, with the field ids by which Spark's Parquet reader finds columns."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from foldhouse.errors import DefinitionError

_PLAIN: dict[type[iceberg.IcebergType], type[spark.DataType]] = {
    iceberg.BooleanType: spark.BooleanType,
    iceberg.IntegerType: spark.IntegerType,
    iceberg.LongType: spark.LongType,
    iceberg.FloatType: spark.FloatType,
    iceberg.DoubleType: spark.DoubleType,
    iceberg.DateType: spark.DateType,
    iceberg.TimestampType: spark.TimestampNTZType,
    iceberg.TimestamptzType: spark.TimestampType,
    iceberg.StringType: spark.StringType,
    iceberg.BinaryType: spark.BinaryType,
    iceberg.FixedType: spark.BinaryType,
    iceberg.UUIDType: spark.BinaryType,
}


def spark_schema(schema: Schema, columns: list[str]) -> spark.StructType:
    """Return the Spark schema of some top-level columns of an Iceberg schema, for reading by field id."""
    return spark.StructType([_field(schema.find_field(name)) for name in columns])


def _field(field: iceberg.NestedField) -> spark.StructField:
    return spark.StructField(field.name, _type(field.field_type), True, {"parquet.field.id": field.field_id})


def _type(kind: iceberg.IcebergType) -> spark.DataType:
    if isinstance(kind, iceberg.DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, iceberg.StructType):
        return spark.StructType([_field(f) for f in kind.fields])
    if isinstance(kind, iceberg.ListType):
        return spark.ArrayType(_type(kind.element_type))
    if isinstance(kind, iceberg.MapType):
        return spark.MapType(_type(kind.key_type), _type(kind.value_type))
    plain = _PLAIN.get(type(kind))
    if plain is None:
        raise DefinitionError(f"an Iceberg column has the type {kind}, which Spark does not have; use another type")
    return plain()


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Convert a Spark schema to Arrow; timestamps with a zone are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")
