"""How runs queue: one writer per table, and runs of new data before backfills.

| run | tag `dagster/priority` |
|---|---|
| a correction that `landing_sensor` found | 2 |
| new files, new commits, a schedule | 1 |
| a backfill from the page | 0, Dagster's default |

`dagster.yaml` limits each pool to one run, and backfills to one of the two slots, so that a slot is left for live runs.
A run that writes a table waits for the other run that writes it; without the limit, one of the two would lose the race
and fold again.
"""

PRIORITY = "dagster/priority"
CORRECTION, LIVE = "2", "1"


def pool_of(name: str) -> str:
    """The pool of whoever writes a table or stream: its name."""
    return name
