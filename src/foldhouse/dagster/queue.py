"""How runs queue: one writer per table, and runs of new data before backfills.

| run | tag `dagster/priority` |
|---|---|
| a correction that `landing_sensor` found | 2 |
| new files, new commits, a schedule | 1 |
| a backfill from the page | 0, Dagster's default |

`dagster.yaml` limits each pool to one run, and backfills to one of the two slots, so that a slot is left for live runs.
A run that writes a table waits for the other run that writes it; without the limit, one of the two would lose the race
and fold again. So that it does not wait for a whole backfill, `days_per_run` divides the backfill into runs: between
two of them, the waiting run is the first in the queue.
"""

import dagster as dg

PRIORITY = "dagster/priority"
CORRECTION, LIVE = "2", "1"


def pool_of(name: str) -> str:
    """The pool of whoever writes a table or stream: its name."""
    return name


def policy_of(days_per_run: int | None) -> dg.BackfillPolicy:
    """Return how a launched backfill is divided into runs: not at all, or into runs of so many days."""
    if days_per_run is None:
        return dg.BackfillPolicy.single_run()
    return dg.BackfillPolicy.multi_run(max_partitions_per_run=days_per_run)
