"""Column schemas, for the page's column tab."""

from collections.abc import Iterable

import dagster as dg


def schema_of_types(columns: Iterable[tuple[str, str]]) -> dg.TableSchema:
    """Column and Iceberg type as text -> Dagster's column schema."""
    return dg.TableSchema([dg.TableColumn(name, type) for name, type in columns])
