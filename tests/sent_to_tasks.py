"""Watches what this process sends to Spark's tasks, in a process that a test starts."""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer

import foldhouse as fh

SENT: list[bytes] = []
_dumps = CloudPickleSerializer.dumps


def _watched(self: CloudPickleSerializer, value: Any) -> bytes:
    made: bytes = _dumps(self, value)
    SENT.append(made)
    return made


CloudPickleSerializer.dumps = _watched


def check_no_secret(secret: str, lake: fh.Lake) -> None:
    """Fail if a secret was sent to a task, or is in the metadata of a table, or if nothing was sent."""
    assert len(SENT) > 3, "the fold ran in tasks"
    assert not [one for one in SENT if secret.encode() in one], "the secret was sent to a task"
    for name in lake.tables():
        assert secret not in lake.load(name).metadata.model_dump_json()
