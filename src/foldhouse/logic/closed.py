"""Tell which declarations make the same plan in every process: those whose functions read nothing but what is digested.

`foldhouse.logic.declaration` digests the text of functions and the values that they name. What they use of a library
is digested by its name alone, and may give another answer in another process: a clock, a random number, a file, a hash
of a text. So only a few modules are allowed here, and no name by which code reaches beyond what it names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from foldhouse.logic.declaration import Reached, reached
from foldhouse.logic.functions import words
from foldhouse.values.definition import Table

_MODULES = words("""
    __future__ abc builtins collections dataclasses datetime decimal enum fractions functools itertools logging math
    numbers operator re string textwrap types typing pyspark.sql.functions pyspark.sql.types pyspark.sql.window
    pyspark.sql.column pyspark.sql.dataframe pyspark.sql.classic pyspark.sql.connect.functions
""")
_EXACTLY = words("pyspark pyspark.sql")
"""Packages that are allowed themselves, but not each of their modules."""
_NAMES = words("""
    now today utcnow fromtimestamp astimezone timestamp hash id eval exec compile input open breakpoint help print
    __import__ __builtins__ __dict__ __globals__ __getattribute__ __self__ __class__ __code__ __subclasses__ __loader__
    globals locals vars dir getattr attrgetter methodcaller
    sparkSession SparkSession SparkContext sparkContext getActiveSession getOrCreate active sql_ctx conf read readStream
    _jvm _jdf _jc _sc _session _jsparkSession _plan client rdd udf pandas_udf udtf
""")


def closed_digest(table: Table, beside: Sequence[str] = ()) -> str:
    """Return the digest of a declaration whose plan is the same in every process; empty for any other.

    Args:
        table: the declaration.
        beside: further inputs of the digest.
    """
    found = reached(table, beside)
    if not found.digest or not _is_closed(found):
        return ""
    return hashlib.sha256(repr([found.digest, found.further]).encode()).hexdigest()[:16]


def _is_closed(found: Reached) -> bool:
    return not (found.opaque or found.names & _NAMES) and all(map(_is_allowed, found.modules))


def _is_allowed(module: str) -> bool:
    parts = module.split(".")
    return module in _EXACTLY or any(".".join(parts[:count]) in _MODULES for count in range(1, len(parts) + 1))
