"""The latest days of partitions that have ended, for the plots of the page.

For its plots, Dagster 1.13 asks for the newest 120 partitions, counted from now also where the partitions end earlier.
The plots by partition of a history would then be of days that do not exist, and empty.
"""

from typing import Any

import dagster as dg


def show_latest_days() -> None:
    """Have this process count the newest partitions from their end, if it is in the past."""
    counted_from_now = dg.TimeWindowPartitionsDefinition.get_paginated_partition_keys

    def counted_from_end(
        self: dg.TimeWindowPartitionsDefinition, context: Any, limit: int, ascending: bool, cursor: str | None = None
    ) -> Any:
        if not ascending and self.end is not None and context.effective_dt > self.end:
            context = context.updated(effective_dt=self.end, dynamic_partitions_store=None)
        return counted_from_now(self, context, limit, ascending, cursor)

    dg.TimeWindowPartitionsDefinition.get_paginated_partition_keys = counted_from_end  # type: ignore[method-assign]
