"""What a declaration says by itself, without Spark: a digest that a new version of Spark leaves as it is.

The definition's hash is made of Spark's plan, and another version of Spark may print the same logic in other words. The
digest here is made of the declaration: keys, folds and layout, and of every function that it names the source text,
the defaults, the closure, and what it uses of its module's names, functions among them in the same way. Python's
standard library and Spark count by the names alone. Where something cannot be read so, there is no digest, and a new
Spark asks for a rebuild.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from foldhouse.values.definition import Stream, Table
from foldhouse.values.fold import Fold

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Decimal, date, time, timedelta)
_KNOWN = sys.stdlib_module_names | {"pyspark", "foldhouse"}
_MOST_VALUES = 2_000
"""A function that reaches more than this uses a library, whose insides are not read."""


class _Unreadable(Exception):
    """A value that says nothing which would be the same in another process."""


def declaration(table: Table, engine: str, beside: Sequence[str] = ()) -> str:
    """The digest of a declaration, and by which engine its plan was made: `0123456789abcdef by Spark 4.3.0`.

    Args:
        table: the declaration.
        engine: what prints the plan; equal for equal prints.
        beside: what else the logic depends on, such as settings of the session.

    Returns:
        Empty where something in the declaration cannot be read.
    """
    try:
        said = json.dumps([*_said(table), *beside], sort_keys=True)
    except (_Unreadable, RecursionError):
        return ""
    return f"{hashlib.sha256(said.encode()).hexdigest()[:16]} by {engine}"


def is_by_another_engine(one: str, other: str) -> bool:
    """Whether two declarations are the same, and only the engine is not, which may print the same plan in other words.

    With the same engine, another plan is another logic, whatever the digests say: they did not see the difference.
    """
    (digest, _, engine), (same, _, another) = one.partition(" by "), other.partition(" by ")
    return bool(digest) and digest == same and engine != another


def _said(table: Table) -> Iterator[Any]:
    fold = table.fold
    yield from (table.keys, table.sequence_by, table.partition_by, table.buckets, repr(fold))
    yield [source.name for source in table.sources]
    columns = fold.columns if isinstance(fold, Fold) else ()
    yield {column.algebra.name: column.algebra.version for _, column in columns}
    named = [*(argument for _, column in columns for argument in column.arguments), fold.delete_when, table.rows]
    seen: dict[int, int] = {}
    yield [_value(one, seen) for one in named]


def _value(given: Any, seen: dict[int, int], used: Set[str] = frozenset()) -> Any:
    """What a value is, as JSON; of a function, what it is made of; of a module, what is used of it."""
    if isinstance(given, _PLAIN):
        return [type(given).__name__, repr(given)]
    once = hash((id(given), frozenset(used))) if isinstance(given, types.ModuleType) else id(given)
    if once in seen:
        return ["again", seen[once]]
    seen[once] = len(seen)
    if len(seen) > _MOST_VALUES:
        raise _Unreadable("a library")
    if isinstance(given, list | tuple):
        return [type(given).__name__, [_value(one, seen) for one in given]]
    if isinstance(given, Mapping):
        return ["mapping", [[_value(name, seen), _value(one, seen)] for name, one in given.items()]]
    if isinstance(given, set | frozenset) and all(isinstance(one, _PLAIN) for one in given):
        return ["set", sorted(map(repr, given))]
    if isinstance(given, Stream | Table):
        return ["source", given.name]
    if isinstance(given, functools.partial):
        return ["partial", [_value(one, seen) for one in (given.func, given.args, given.keywords)]]
    if isinstance(given, types.ModuleType):
        return ["module", given.__name__, [] if _is_known(given.__name__) else _reached(vars(given), used, seen)]
    if isinstance(given, types.FunctionType | types.BuiltinFunctionType | type):
        return _callable(given, seen)
    raise _Unreadable(repr(given))


def _callable(given: Any, seen: dict[int, int]) -> Any:
    if hasattr(given, "__wrapped__"):  # a UDF of Spark's, or another decorator: what it wraps, and what it says of it
        said = {name: repr(one) for name, one in vars(given).items() if name in ("returnType", "evalType")}
        return ["wrapped", given.__module__, said, _value(given.__wrapped__, seen)]
    module, is_written = given.__module__ or "builtins", isinstance(given, types.FunctionType)
    if _is_known(module) and not (is_written and module == "builtins"):  # which what `exec` made says it is of
        return ["known", module, given.__qualname__]
    if not is_written:
        raise _Unreadable(repr(given))
    cells = [_value(cell.cell_contents, seen) for cell in given.__closure__ or ()]
    defaults = [_value(one, seen) for one in (given.__defaults__, given.__kwdefaults__)]
    return ["function", _source(given), defaults, cells, _reached(given.__globals__, set(_names(given.__code__)), seen)]


def _reached(there: Mapping[str, Any], used: Set[str], seen: dict[int, int]) -> list[Any]:
    return [[name, _value(there[name], seen, used)] for name in sorted(used) if name in there]


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that code looks up, and those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in _KNOWN


def _source(given: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(given))
    except (OSError, TypeError) as failure:
        raise _Unreadable(repr(given)) from failure
