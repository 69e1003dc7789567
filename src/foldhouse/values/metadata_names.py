"""The names that foldhouse writes into a table's metadata, each once, in the order of `docs/table-format.md`.

They are here, and not in `storage`, because values read from a table say by these names what they could not read.
"""

from __future__ import annotations

KIND = "foldhouse.kind"
"""Table property: `stream` or `table`."""
EXPIRED = "foldhouse.expired"
"""Table property: what expired commits said that is still asked for."""
DECLARED = "foldhouse.declared"
"""Table property: the parts of the newest definitions, in words."""
THINNED = "foldhouse.thinned"
"""Table property: how snapshots follow one another across those that were expired."""
KEEP = "foldhouse.history.keep"
"""Table property: which states `expire` keeps, by age."""

BATCH_ID = "_batch_id"
"""Column of a stream: the id of the batch that an event came with."""
STATE = "_state"
"""Column of a table: what its folds remember beside what they publish."""

POSITION = "foldhouse.position"
COVERAGE = "foldhouse.coverage"
DEFINITION = "foldhouse.definition"
DECLARATION = "foldhouse.declaration"
"""Beside the hash of the plan, a digest that another version of Spark leaves as it is."""
RUN_ID = "foldhouse.run-id"
TABLE_ROWS = "foldhouse.rows"
ROWS_IN = "foldhouse.rows-in"
NULL_KEY_ROWS = "foldhouse.null-key-rows"
NULL_SEQUENCE_ROWS = "foldhouse.null-sequence-rows"
NEWEST_DELETE = "foldhouse.deleted-upto"
CHECKS = "foldhouse.checks"
"""The blocking checks of single rows that the rows passed before this snapshot became the head, as JSON."""
COMMIT = "foldhouse.commit"
"""In a snapshot summary: which snapshot it belongs to, so that a copied summary is told from our own."""
BATCH = "foldhouse.batch-id"
BATCHES_REPLACED = "foldhouse.batches-replaced"
REBUILT_IN_SPEC = "foldhouse.rebuilt-in-spec"
"""In the summary of a rebuild: the id of the partitioning it was written in, which a snapshot itself does not say."""

REBUILD_BRANCH = "foldhouse-rebuild"
AUDIT_BRANCH = "foldhouse-audit"
"""The branch of a commit whose checks did not pass yet."""
POSITION_TAG = "foldhouse.position."
"""The prefix of consumers' tags; the name of the consumer, which has processed the source up to the tag, follows."""
EXPIRY_TAG = "foldhouse.expiry."
"""The prefix of the tag by which a catalog server refuses an expiry that was planned before another one; a number."""

FILE_SEAL = "foldhouse.file"
"""In the footer of a data file: the random half of its name, so that two files with like contents differ."""
