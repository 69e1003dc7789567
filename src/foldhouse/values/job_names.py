"""The names that Dagster jobs, and the ops in them, have in every project.

Dagster refuses to load a project in which another job has one of these names. The job of a project's assets has the
name of its package.
"""

from __future__ import annotations

REFRESH, MAINTENANCE = "refresh", "maintenance"
ROLLBACK, RESTATE, REBUILD = "rollback", "restate", "rebuild"
PUBLISH, DROP_BRANCH, TAG = "publish", "drop_branch", "tag"
OP_OF = {
    MAINTENANCE: "maintenance_of_every_table",
    ROLLBACK: "roll_back",
    RESTATE: "restate_days",
    REBUILD: "fold_again",
    PUBLISH: "publish_rebuild",
    DROP_BRANCH: "drop",
    TAG: "set_tag",
}
"""A job that is not made of assets -> its op."""
JOB_NAMES = frozenset({REFRESH, *OP_OF, *OP_OF.values()})
