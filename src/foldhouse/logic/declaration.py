"""A digest of a declaration by its own source text, which stays the same under a new version of Spark.

The definition's hash is made of Spark's plan, and another version of Spark may print the same logic differently. The
digest here is made of the declaration's keys, folds and layout, and of every function in it. A function is digested by
its source text, its defaults, its closure and the global names that it uses; functions among these are digested in the
same way. From Python's standard library, Spark, foldhouse, Arrow, Polars, pandas and NumPy, only the names are used. If
a part cannot be digested, there is no digest, and a new version of Spark requires a rebuild. A function that reads a
file or a variable of the environment is such a part: an open lake then compiles the declaration for each refresh.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import json
import re
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
_LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow"})
"""Libraries that Python functions of Spark are written with."""
_ANSWERS = frozenset({"environ", "environb", "getenv", "getenvb", "read_bytes", "read_text"})
"""Names of the standard library by which a function reads what may be different at its next call."""
_LAMBDA = re.compile(r"\blambda\b")
_MOST_VALUES = 2_000
"""A function that reaches more values than this uses a library, and libraries are not digested."""


class _Unreadable(Exception):
    """A value without a text that is the same in every process."""


def declaration(table: Table, engine: str, beside: Sequence[str] = ()) -> str:
    """Return the digest of a declaration and the engine that made its plan: `0123456789abcdef by Spark 4.3.0`.

    Args:
        table: the declaration.
        engine: the version of Spark, or of its Connect server, that prints the plan.
        beside: other inputs that the logic depends on, such as session settings.

    Returns:
        The digest; empty if a part of the declaration cannot be digested.
    """
    try:
        contents = json.dumps([*_contents(table), *beside], sort_keys=True)
    except (_Unreadable, RecursionError):
        return ""
    return f"{hashlib.sha256(contents.encode()).hexdigest()[:16]} by {engine}"


def is_by_another_engine(one: str, other: str) -> bool:
    """Whether two declarations are equal and only the engine differs, which may print the same plan differently.

    With the same engine, another plan means other logic even if the digests are equal, so the answer is false.
    """
    (digest, _, engine), (same, _, another) = one.partition(" by "), other.partition(" by ")
    return bool(digest) and digest == same and engine != another


def is_another_text(one: str, other: str) -> bool:
    """Whether two declarations are certainly not equal, whatever engine made their plans."""
    digests = {each.partition(" by ")[0] for each in (one, other)}
    return len(digests) == 2 and "" not in digests


def _contents(table: Table) -> Iterator[Any]:
    fold = table.fold
    yield from (table.keys, table.sequence_by, table.partition_by, table.buckets, repr(fold))
    yield [source.name for source in table.sources]
    columns = fold.columns if isinstance(fold, Fold) else ()
    yield {column.algebra.name: column.algebra.version for _, column in columns}
    named = [*(argument for _, column in columns for argument in column.arguments), fold.delete_when, table.rows]
    seen: dict[int, int] = {}
    yield [_value(one, seen) for one in named]


def _value(given: Any, seen: dict[int, int], used: Set[str] = frozenset()) -> Any:
    """Describe a value as JSON: a function by its parts, a module by the names that are used from it."""
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
    if _is_of_library(given):
        return ["known", given.__module__, given.__qualname__]
    if isinstance(given, types.FunctionType | types.BuiltinFunctionType | type):
        return _callable(given, seen)
    raise _Unreadable(repr(given))


def _callable(given: Any, seen: dict[int, int]) -> Any:
    if hasattr(given, "__wrapped__"):  # a Spark UDF or another decorated function: digest the wrapped function
        attributes = {name: repr(one) for name, one in vars(given).items() if name in ("returnType", "evalType")}
        return ["wrapped", given.__module__, attributes, _value(given.__wrapped__, seen)]
    module, is_written = given.__module__ or "builtins", isinstance(given, types.FunctionType)
    if _is_known(module) and not (is_written and module == "builtins"):  # `exec` sets that module, too
        if given.__name__ in _ANSWERS:
            raise _Unreadable(repr(given))
        return ["known", module, given.__qualname__]
    if not is_written:
        raise _Unreadable(repr(given))
    if _ANSWERS & set(_names(given.__code__)) or (
        "open" in _globals(given.__code__) and "open" not in given.__globals__
    ):
        raise _Unreadable(repr(given))
    cells = [_value(cell.cell_contents, seen) for cell in given.__closure__ or ()]
    defaults = [_value(one, seen) for one in (given.__defaults__, given.__kwdefaults__)]
    return ["function", _source(given), defaults, cells, _reached(given.__globals__, set(_names(given.__code__)), seen)]


def _reached(there: Mapping[str, Any], used: Set[str], seen: dict[int, int]) -> list[Any]:
    return [[name, _value(there[name], seen, used)] for name in sorted(used) if name in there]


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code looks up, including those of nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _globals(code: types.CodeType) -> set[str]:
    """Return the names that code, and the functions in it, look up outside of any object; a column may be `open`."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_globals(one) for one in code.co_consts if isinstance(one, types.CodeType)))


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in _KNOWN


def _is_of_library(given: Any) -> bool:
    name = getattr(given, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES and hasattr(given, "__qualname__")


def _source(given: Any) -> str:
    try:
        text, lines = textwrap.dedent(inspect.getsource(given)), inspect.findsource(given)[0]
    except (OSError, TypeError) as failure:
        raise _Unreadable(repr(given)) from failure
    code: types.CodeType = given.__code__
    if code.co_name != "<lambda>" or len(_LAMBDA.findall(lines[code.co_firstlineno - 1])) < 2:
        return text
    return f"{text}{_body(code, lines)}"  # the text is the same for each lambda of the line


def _body(code: types.CodeType, lines: Sequence[str]) -> str:
    """Return the source text of the body of a lambda."""
    starts = [(line, at) for line, _, at, to in code.co_positions() if line and at is not None and to]
    ends = [(line, to) for _, line, at, to in code.co_positions() if line and at is not None and to]
    if not starts:  # Python was told to keep no columns
        raise _Unreadable(code.co_name)
    (first, start), (last, end) = min(starts), max(ends)
    within = [line.encode() for line in lines[first - 1 : last]]
    within[-1] = within[-1][:end]
    within[0] = within[0][start:]
    return b"".join(within).decode()
