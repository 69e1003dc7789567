"""A digest of a declaration by its own source text, which stays the same under a new version of Spark.

The definition's hash is made of Spark's plan, and another version of Spark may print the same logic differently. The
digest here is made of the declaration's keys, folds and layout, and of every function in it. A function is digested by
its source text, its defaults, its closure, its attributes and the global names that it uses; functions among these are
digested in the same way, and so are what it imports in its body, the wrappers around it, methods with the object that
they are of, classes by their source text, and patterns.
From Python's standard library, Spark, foldhouse, Arrow, Polars, pandas and NumPy, only the names are used. If a part
cannot be digested, there is no digest, and a new version of Spark requires a rebuild. A function that reads a file or
a variable of the environment is such a part: an open lake then compiles the declaration for each refresh.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import hashlib
import importlib.util
import inspect
import json
import logging
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from foldhouse.logic.source_text import (
    Unreadable,
    globals_of,
    imports_of,
    instructions_of,
    is_in,
    names_of,
    source_of,
)
from foldhouse.values.definition import Stream, Table
from foldhouse.values.fold import Fold

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Decimal, date, time, timedelta)
_KNOWN = sys.stdlib_module_names | {"pyspark", "foldhouse"}
_LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow"})
"""Libraries that Python functions of Spark are written with."""
_ANSWERS = frozenset({"environ", "environb", "getenv", "getenvb", "read_bytes", "read_text"})
"""Names of the standard library by which a function reads what may be different at its next call."""
_READS = "which reads a file or the environment"
_FURTHER = "+"
"""Begins a digest that earlier versions made in another way: without imports in a body, wrappers, and further lines."""
_OF_CLASSES = "*"
"""Begins a digest that earlier versions made without what a class has from elsewhere."""
_OF_MORE = "~"
"""Begins a digest that earlier versions made without what a bound method, a container or a function has."""
_MADE = ".2"
"""Ends a digest, for the way in which it was made: with one way, digests that begin in another way are not equal."""
_HEX = "0123456789abcdef"
_MOST_VALUES = 2_000
"""A function that reaches more values than this uses a library, and libraries are not digested."""


class _Seen(dict[int, int]):
    """The values that were described, by their ids -> their numbers.

    Attributes:
        has_further: whether one of them is described in a way that earlier versions did not know.
        has_class: whether one of them is a class that has something from elsewhere.
        has_more: whether one of them is described in a way that only this version knows.
    """

    has_further = False
    has_class = False
    has_more = False


def declaration(table: Table, engine: str, beside: Sequence[str] = ()) -> str:
    """Return the digest of a declaration and the engine that made its plan: `0123456789abcdef.2 by Spark 4.3.0`.

    Args:
        table: the declaration.
        engine: the version of Spark, or of its Connect server, that prints the plan.
        beside: other inputs that the logic depends on, such as session settings.

    Returns:
        The digest; empty if a part of the declaration cannot be digested.
    """
    seen = _Seen()
    try:
        contents = json.dumps([*_contents(table, seen), *beside], sort_keys=True)
    except (Unreadable, RecursionError):
        return ""
    further = _OF_CLASSES if seen.has_class else _FURTHER if seen.has_further else ""
    further = _OF_MORE if seen.has_more else further
    return f"{further}{hashlib.sha256(contents.encode()).hexdigest()[:16]}{_MADE} by {engine}"


def undigested(table: Table) -> str:
    """Return what a declaration has no digest because of; empty if it has one."""
    try:
        json.dumps([*_contents(table, _Seen())])
    except Unreadable as reason:
        return str(reason)
    except RecursionError:
        return "values that contain one another"
    return ""


def is_by_another_engine(one: str, other: str) -> bool:
    """Whether two declarations are equal and only the engine differs, which may print the same plan differently.

    With the same engine, another plan means other logic even if the digests are equal, so the answer is false.
    """
    (digest, _, engine), (same, _, another) = one.partition(" by "), other.partition(" by ")
    return bool(digest) and _made(digest)[0] == _made(same)[0] and engine != another


def is_another_text(one: str, other: str) -> bool:
    """Whether two declarations are certainly not equal, whatever engine made their plans.

    A digest that an earlier version made in another way says nothing. If the later declaration has no digest, it has
    a part that the earlier one did not have.

    Args:
        one: the earlier declaration.
        other: the later declaration.
    """
    (digest, way), (same, another) = (_made(each.partition(" by ")[0]) for each in (one, other))
    if not digest or not same:
        return way == _MADE and not same
    if not (way and way == another) and digest.rstrip(_HEX) != same.rstrip(_HEX):
        return False
    return digest != same


def _made(digest: str) -> tuple[str, str]:
    """Return a digest, and the way in which it was made."""
    itself, dot, way = digest.partition(".")
    return itself, f"{dot}{way}"


def _contents(table: Table, seen: _Seen) -> Iterator[Any]:
    fold = table.fold
    yield from (table.keys, table.sequence_by, table.partition_by, table.buckets, repr(fold))
    yield [source.name for source in table.sources]
    columns = fold.columns if isinstance(fold, Fold) else ()
    yield {column.algebra.name: column.algebra.version for _, column in columns}
    named = [*(argument for _, column in columns for argument in column.arguments), fold.delete_when, table.rows]
    yield [_value(one, seen) for one in named]


def _value(given: Any, seen: _Seen, used: Set[str] = frozenset()) -> Any:
    """Describe a value as JSON: a function by its parts, a module by the names that are used from it."""
    if isinstance(given, _PLAIN) and not _is_of_project(type(given)):
        return [type(given).__name__, repr(given)]
    once = hash((id(given), frozenset(used))) if isinstance(given, types.ModuleType) else id(given)
    if once in seen:
        return ["again", seen[once]]
    seen[once] = len(seen)
    if len(seen) > _MOST_VALUES:
        raise Unreadable(f"more than {_MOST_VALUES:,} values that its functions reach, as of a library")
    if isinstance(given, enum.Enum):
        seen.has_more |= isinstance(given, _PLAIN)
        return ["member", _value(type(given), seen), given.name, _value(given.value, seen)]
    if isinstance(given, _PLAIN):
        return [type(given).__name__, repr(given), *_of_container(given, seen)]
    if isinstance(given, list | tuple):
        return [type(given).__name__, [_value(one, seen) for one in given], *_of_container(given, seen)]
    if isinstance(given, Mapping):
        items = [[_value(name, seen), _value(one, seen)] for name, one in given.items()]
        return ["mapping", items, *_of_container(given, seen)]
    if isinstance(given, set | frozenset) and all(isinstance(one, _PLAIN) for one in given):
        return ["set", sorted(map(repr, given))]
    if isinstance(given, Stream | Table):
        return ["source", given.name]
    if isinstance(given, functools.partial):
        return ["partial", [_value(one, seen) for one in (given.func, given.args, given.keywords)]]
    if isinstance(given, types.ModuleType):
        return ["module", given.__name__, [] if _is_known(given.__name__) else _named(vars(given), used, seen)]
    if isinstance(given, re.Pattern):
        return ["pattern", repr(given.pattern), given.flags]
    if isinstance(given, logging.Logger):
        return ["logger", given.name]
    if isinstance(given, types.MethodType):
        return ["method", _value(given.__func__, seen), _value(given.__self__, seen)]
    if _is_of_library(given):
        return ["known", given.__module__, given.__qualname__]
    if isinstance(given, types.FunctionType | types.BuiltinFunctionType | type):
        return _callable(given, seen)
    if _is_written_here(type(given)):
        return ["instance", _value(type(given), seen), _value(vars(given), seen)]
    raise Unreadable(f"{given!r}, which has no source text")


def _of_container(given: Any, seen: _Seen) -> list[Any]:
    """Describe what a text, a list or a mapping has beside its contents: its class, or what makes missing entries."""
    found: list[Any] = []
    if isinstance(given, collections.defaultdict) and given.default_factory is not None:
        found.append(_value(given.default_factory, seen))
    if _is_of_project(type(given)):
        found += [_described_or_left_out(one, seen) for one in (type(given), getattr(given, "__dict__", None))]
    seen.has_more |= bool(found)
    return found


def _is_of_project(given: type) -> bool:
    """Whether a class is neither of a known library nor of a package that was installed."""
    return not (_is_known(given.__module__) or _is_installed(sys.modules.get(given.__module__)))


def _is_written_here(given: type) -> bool:
    """Whether the instances of a class have their state in a dictionary, and the class has a source text."""
    return _is_of_project(given) and given.__mro__[1:] == (object,) and "__dict__" in vars(given)


def _class(given: type, seen: _Seen) -> Any:
    """Describe a class by its source text, by what its methods use, and by what it has from elsewhere."""
    try:
        text = textwrap.dedent(inspect.getsource(given))
        lines = "".join(inspect.findsource(given)[0])
    except (OSError, TypeError) as failure:
        raise Unreadable(f"{given!r}, which has no source text") from failure
    if other := _not_in(given, lines):  # the file has another text by now
        seen.has_more = True
        text = json.dumps(other)
    found: list[Any] = [_value(one, seen) for one in given.__mro__[1:-1] if not _is_known(one.__module__)]
    for name, one in sorted(vars(given).items()):
        written = getattr(one, "__func__", getattr(one, "fget", one))  # of a static method, a class method, a property
        if isinstance(written, types.FunctionType) and written.__code__.co_filename != "<string>":  # of a dataclass
            _refuse_answers(written)
            found.append([name, _reached(written, seen)])
        elif isinstance(one, _PLAIN) and not name.startswith("__"):
            found.append([name, _value(one, seen)])
        if elsewhere := _from_elsewhere(given, name, one, seen):
            seen.has_class = True
            found.append(["from elsewhere", name, elsewhere])
    members = [[one.name, _value(one.value, seen)] for one in given] if issubclass(given, enum.Enum) else []
    return ["class", given.__qualname__, text, found, members]


def _not_in(given: type, text: str) -> list[Any]:
    """Return the names and instructions of the methods of a class, if one of them is not what its file says."""
    written = [getattr(one, "__func__", getattr(one, "fget", one)) for _, one in sorted(vars(given).items())]
    codes = [one.__code__ for one in written if isinstance(one, types.FunctionType)]
    own = [one for one in codes if one.co_qualname.startswith(f"{given.__qualname__}.")]
    return [] if all(is_in(one, text) for one in own) else list(map(instructions_of, own))


def _from_elsewhere(given: type, name: str, one: Any, seen: _Seen) -> list[Any]:
    """Describe what the source text of a class does not say of an attribute: values, and what a decorator was given.

    What cannot be described is left out: it may be a lock, or another object by which no value is computed.
    """
    written = getattr(one, "__func__", getattr(one, "fget", one))
    values: list[Any] = []
    if name == "__dataclass_fields__":
        defaults = [default for field in one.values() for default in (field.default, field.default_factory)]
        values = [default for default in defaults if default is not dataclasses.MISSING]
    elif name.startswith("__") and not isinstance(written, types.FunctionType):
        return []
    elif isinstance(one, functools.cached_property):
        values = [one.func]
    elif not isinstance(written, types.FunctionType):
        values = [] if isinstance(one, _PLAIN) or _is_made_for(given, one) else [one]
    elif written.__code__.co_filename == "<string>":
        return []
    elif written.__qualname__ != f"{given.__qualname__}.{name}" or hasattr(written, "__wrapped__"):
        values = [written]
    else:
        cells = [cell for cell in written.__closure__ or () if not _is_of_class(cell, given)]
        values = [*(written.__defaults__ or ()), *(written.__kwdefaults__ or {}).values(), *cells]
    return [_described_or_left_out(value, seen) for value in values]


def _is_made_for(given: type, one: Any) -> bool:
    """Whether an attribute is one that Python makes for each class, or a member of an enumeration."""
    made = types.GetSetDescriptorType | types.MemberDescriptorType | enum.property
    return isinstance(one, made) or (isinstance(given, enum.EnumMeta) and isinstance(one, given | dict | list | type))


def _is_of_class(cell: types.CellType, given: type) -> bool:
    """Whether a variable of a method is the class itself, as `super()` has it."""
    try:
        return cell.cell_contents is given
    except ValueError:
        return False


def _described_or_left_out(given: Any, seen: _Seen) -> Any:
    try:
        return _cell(given, seen) if isinstance(given, types.CellType) else _value(given, seen)
    except Unreadable:
        return "left out"


def _callable(given: Any, seen: _Seen) -> Any:
    is_written = isinstance(given, types.FunctionType)
    is_wrapper = is_written and hasattr(given, "__wrapped__") and not _is_known(given.__globals__.get("__name__", ""))
    if hasattr(given, "__wrapped__") and not is_wrapper:  # a Spark UDF, or a function that the library decorated
        attributes = {name: repr(one) for name, one in vars(given).items() if name in ("returnType", "evalType")}
        registered = vars(given).get("registry", {})  # of `functools.singledispatch`
        further = [] if len(registered) < 2 else [_value(registered, seen)]
        seen.has_more |= bool(further)
        return ["wrapped", given.__module__, attributes, _value(given.__wrapped__, seen), *further]
    seen.has_further |= is_wrapper
    itself = getattr(given, "__self__", None) if isinstance(given, types.BuiltinFunctionType) else None
    if not isinstance(itself, types.NoneType | types.ModuleType | type):  # `{"a": 1}.get` is a method of that
        seen.has_more = True
        return ["method", given.__qualname__, _value(itself, seen)]
    module = given.__module__ or "builtins"
    if not is_wrapper and _is_known(module) and not (is_written and module == "builtins"):  # `exec` sets that module
        if given.__name__ in _ANSWERS:
            raise Unreadable(f"{given!r}, {_READS}")
        return ["known", module, given.__qualname__]
    if isinstance(given, type):
        return _class(given, seen)
    if not is_written:
        raise Unreadable(f"{given!r}, which has no source text")
    _refuse_answers(given)
    source, is_part = source_of(given)
    seen.has_further |= is_part
    try:
        cells = [_cell(cell, seen) for cell in given.__closure__ or ()]
        defaults = [_value(one, seen) for one in (given.__defaults__, given.__kwdefaults__)]
        reached = _reached(given, seen)
        attributes = {name: one for name, one in vars(given).items() if name != "__wrapped__"}
        further = [_described_or_left_out(attributes, seen)] if attributes else []
        seen.has_more |= bool(further)
        return ["function", source, defaults, cells, reached, *further]
    except Unreadable as reason:
        reason.within = reason.within or given.__qualname__
        raise


def _refuse_answers(given: types.FunctionType) -> None:
    """Refuse a function that reads what may be different at its next call."""
    if _ANSWERS & set(names_of(given.__code__)) or (
        "open" in globals_of(given.__code__) and "open" not in given.__globals__
    ):
        raise Unreadable(f"{given!r}, {_READS}")


def _cell(cell: types.CellType, seen: _Seen) -> Any:
    try:
        return _value(cell.cell_contents, seen)
    except ValueError:  # a variable that has no value yet
        return ["empty"]


def _reached(given: types.FunctionType, seen: _Seen) -> list[Any]:
    """Describe what a function names outside of itself, and what it imports."""
    used = set(names_of(given.__code__))
    found = _named(given.__globals__, used, seen)
    imports = list(imports_of(given.__code__, given.__globals__.get("__package__") or ""))
    beside = {one for name, wanted in imports for one in _beside(name, wanted)} - {name for name, _ in imports}
    for name in sorted({name for name, _ in imports} | beside):
        if _is_known(name) or _top(name) in _LIBRARIES:
            continue
        module = _imported(name)
        if not _is_installed(module) or _top(name) == _top(given.__module__ or ""):
            seen.has_further = True
            seen.has_more |= name in beside
            found.append(["import", name, _value(module, seen, used)])
    return found


def _beside(name: str, wanted: Sequence[str]) -> Iterator[str]:
    """Yield what an import makes known beside a module: the packages around it, or the modules wanted from it."""
    if _is_known(name) or _top(name) in _LIBRARIES:
        return
    parts = name.split(".")
    yield from () if wanted else (".".join(parts[:count]) for count in range(1, len(parts)))
    if wanted and hasattr(_imported(name), "__path__"):
        yield from (inside for one in wanted if importlib.util.find_spec(inside := f"{name}.{one}") is not None)


def _imported(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as failure:  # whatever it raises: the function itself has not been called
        raise Unreadable(f"the module {name}, which cannot be imported") from failure


def _named(there: Mapping[str, Any], used: Set[str], seen: _Seen) -> list[Any]:
    return [[name, _value(there[name], seen, used)] for name in sorted(used) if name in there]


def _is_known(module: str) -> bool:
    return _top(module) in _KNOWN


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_installed(module: types.ModuleType | None) -> bool:
    """Whether a module is of a package that was installed, and so probably a library."""
    return "-packages" in (getattr(module, "__file__", None) or "")


def _is_of_library(given: Any) -> bool:
    name = getattr(given, "__module__", None)
    return isinstance(name, str) and _top(name) in _LIBRARIES and hasattr(given, "__qualname__")
