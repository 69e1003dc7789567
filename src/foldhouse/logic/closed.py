"""Describe the declarations that make the same plan in every process: those whose functions read nothing else.

A function is described by its instructions, and by all that it can reach from there: closures, defaults, attributes,
and what it names in its own module and in others. Every kind of value is described whole, or the declaration is not
closed. What a function uses of a library is known by its name alone, so only a few modules are allowed, which read no
clock, no file and nothing else of their process, and no names by which code reaches beyond what it names. Sets are not
allowed, because Python orders them in another way in each process.

`foldhouse.logic.declaration` describes more declarations, and each less strictly: Spark's plan is compared as well.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import importlib.util
import itertools
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Generic, Protocol

from pyspark.sql.types import DataType

from foldhouse.logic.functions import words
from foldhouse.logic.source_text import Unreadable, globals_of, imports_of, names_of
from foldhouse.values.definition import Table
from foldhouse.values.fold import Fold

_MODULES = words("""
    __future__ abc builtins collections dataclasses datetime decimal enum fractions functools itertools math numbers
    operator re string textwrap types typing pyspark.sql.functions pyspark.sql.types pyspark.sql.window
    pyspark.sql.column pyspark.sql.dataframe pyspark.sql.classic
    json _collections _datetime _decimal _functools _json _operator
""")
_EXACTLY = words("pyspark pyspark.sql")
"""Packages that are allowed themselves, but not each of their modules."""
_NAMES = words("""
    now today utcnow getcontext localcontext attrgetter methodcaller Formatter
    get_type_hints get_annotations get_args
    sparkSession SparkSession SparkContext sparkContext sql_ctx rdd semanticHash sameSemantics inputFiles executionInfo
    _jvm _jdf _jc _sc _session _jsparkSession _plan udf udtf pandas_udf arrow_udf pandas_udtf arrow_udtf
""")
"""Names that are not allowed, of whatever they are: by them code reaches the clock, the session or the process."""
_BUILTINS = words("""
    hash id eval exec compile input open breakpoint help globals locals vars dir getattr set frozenset
""")
"""Functions of Python itself that are not allowed; a column may have such a name."""
_DUNDERS = words("__init__ __call__ __name__ __doc__ __debug__ __enter__ __exit__")
"""Names of Python itself that are allowed; others reach what is not described, or make texts of addresses."""
_SETS = words("BUILD_SET SET_ADD SET_UPDATE")
"""Instructions that make a set: the order of its elements is another one in each process."""
_OF_KEYS = words("keys items")
_SET_OPERATORS = words("& | - ^ &= |= -= ^=")
_FORMATTING = words("format format_map")
_FIELD = re.compile(r"\{[^{}]*[.\[]")
"""Matches a place of a text to format that asks for an attribute or an element."""
_VARIABLE = "${"
"""Begins what Spark replaces in SQL by a setting or a variable of the environment, as in `n > ${env:LEAST}`."""
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta})
"""Types whose values are their `repr`. Subclasses are not: they may have methods."""
_METACLASSES = (type, abc.ABCMeta, enum.EnumMeta)
_BASES = (object, abc.ABC, Protocol, Generic, enum.Enum, enum.IntEnum, enum.StrEnum, Exception, ValueError)
_OF_EVERY_CLASS = words("""
    __module__ __qualname__ __dict__ __weakref__ __annotations__ __match_args__ __hash__
    __firstlineno__ __static_attributes__ __abstractmethods__ __orig_bases__ __parameters__ _abc_impl
""")
_MAKERS = ("dataclasses", "reprlib")
"""Modules whose code a dataclass has as methods."""
_MOST_VALUES = 5_000


def closed_digest(table: Table) -> str:
    """Return a digest of a declaration whose plan is the same in every process; empty for any other."""
    found, reason = _described_whole(table)
    return "" if reason else hashlib.sha256(found.encode()).hexdigest()[:16]


def why_not_closed(table: Table) -> str:
    """Return what a declaration is not closed because of; empty if it is."""
    return _described_whole(table)[1]


def _described_whole(table: Table) -> tuple[str, str]:
    """Return the description of a declaration, or why there is none."""
    try:
        return json.dumps(_Description().of(table)), ""
    except (_NotClosed, Unreadable) as reason:
        return "", str(reason)
    except RecursionError:
        return "", "values that contain one another"
    except Exception as failure:  # whatever a value of the project raises when it is looked at
        return "", f"a value that cannot be looked at ({type(failure).__name__})"


class _NotClosed(Exception):
    """A value that may be another one in another process, or of which not everything is described."""


class _Description:
    """The description of one declaration.

    Attributes:
        seen: the ids of the values that were described -> their numbers.
        kept: these values, so that no other one gets the id of one of them.
        modules: the modules of the project that are reached.
        used: the names that the code of all functions looks up.
        asking: a text among the values that asks for an attribute or an element if it is formatted; empty if none does.
    """

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[object] = []
        self.modules: dict[str, types.ModuleType] = {}
        self.used: set[str] = set()
        self.asking = ""

    def of(self, table: Table) -> list[Any]:
        """Describe all that Spark's plan depends on, but not the columns of the sources.

        Raises:
            _NotClosed: the plan may be another one in another process.
        """
        fold = table.fold
        columns = fold.columns if isinstance(fold, Fold) else ()
        arguments = [argument for _, column in columns for argument in column.arguments]
        found: list[Any] = [table.keys, table.sequence_by, table.partition_by, table.buckets, repr(fold)]
        found.append([source.name for source in table.sources])
        found += [self.value(one) for one in (arguments, fold.delete_when, table.rows)]
        found.append(self._modules())
        if self.asking and self.used & _FORMATTING:
            raise _NotClosed(f"a text that asks for an attribute, {self.asking!r}")
        return found

    def value(self, given: Any) -> Any:
        """Describe a value by what it is made of."""
        kind = type(given)
        if kind in _PLAIN:
            _check_text(given)
            self.asking = given if kind is str and _FIELD.search(given) else self.asking
            return [kind.__name__, repr(given)]
        if id(given) in self.seen:
            return ["again", self.seen[id(given)]]
        self.seen[id(given)] = len(self.seen)
        self.kept.append(given)
        if len(self.seen) > _MOST_VALUES:
            raise _NotClosed(f"more than {_MOST_VALUES:,} values that its functions reach")
        if kind in (list, tuple):
            return [kind.__name__, [self.value(one) for one in given]]
        if kind in (dict, types.MappingProxyType):
            return ["mapping", [[self.value(name), self.value(one)] for name, one in given.items()]]
        if kind is functools.partial and not vars(given):
            return ["partial", [self.value(one) for one in (given.func, given.args, given.keywords)]]
        if kind is types.ModuleType:
            return self._module(given)
        if kind is re.Pattern:
            return ["pattern", repr(given.pattern), given.flags]
        if kind is types.MethodType:
            return ["method", self.value(given.__func__), self.value(given.__self__)]
        if isinstance(given, DataType) and _is_allowed(kind.__module__):
            return ["data type", given.json()]
        if kind in (types.FunctionType, types.BuiltinFunctionType) or isinstance(given, type):
            return self._named(given)
        if isinstance(kind, enum.EnumMeta):
            return ["member", self.value(kind), given.name, self.value(given.value)]
        if kind.__mro__[1:] == (object,) and type(kind) is type and "__dict__" in vars(kind):
            return ["instance", self._named(kind), self.value(vars(given))]
        raise _refused(given)

    def _module(self, given: types.ModuleType) -> Any:
        """Describe a module by its name; what is used of it is described at last, by the names that all code uses."""
        name = given.__name__
        if given is builtins or (not _is_allowed(name) and (_is_of_a_library(given) or "__getattr__" in vars(given))):
            raise _refused(given)
        self.modules[name] = given
        return ["module", name]

    def _modules(self) -> list[Any]:
        """Describe what the code of all functions may use of all modules, which may be handed on as values."""
        found: list[Any] = []
        done: set[tuple[str, str]] = set()
        while left := sorted(
            {(m, n) for m, given in self.modules.items() for n in self.used & vars(given).keys()} - done
        ):
            for module, name in left:
                done.add((module, name))
                value = vars(self.modules[module])[name]
                found.append([module, name, self._of_library(value) if _is_allowed(module) else self.value(value)])
        return found

    def _of_library(self, given: object) -> Any:
        """Describe a value of a module that is allowed: by its name, and by nothing else."""
        if isinstance(given, types.ModuleType) and _is_allowed(given.__name__):
            return self.value(given)
        module = getattr(given, "__module__", None)
        is_theirs = isinstance(module, str) and _is_allowed(module) and _is_of_this_code(given)
        if type(given) in _PLAIN or type(given).__module__ == "typing" or is_theirs:
            return ["known", repr(given) if type(given) in _PLAIN else str(getattr(given, "__qualname__", ""))]
        raise _refused(given)

    def _named(self, given: Any) -> Any:
        """Describe a function or a class: one of an allowed module by its name, any other one by its text."""
        module = given.__module__ or "builtins"
        if _is_allowed(module):
            return self._known(given, module)
        if _is_of_a_library(sys.modules.get(module)):
            raise _refused(given)
        if isinstance(given, type):
            return self._class(given)
        if not isinstance(given, types.FunctionType):
            raise _refused(given)
        return self._function(given)

    def _known(self, given: Any, module: str) -> Any:
        itself = getattr(given, "__self__", None)
        there: Any = sys.modules.get(module)
        for part in given.__qualname__.split("."):
            there = getattr(there, part, None)
        if (
            there is not given
            or not _is_of_this_code(given)
            or not (itself is None or isinstance(itself, types.ModuleType))
        ):
            raise _refused(given)
        self._use({given.__name__}, {given.__name__} if module == "builtins" else set(), given)
        return ["known", module, given.__qualname__]

    def _function(self, given: types.FunctionType) -> Any:
        code = given.__code__
        attributes = {name: one for name, one in vars(given).items() if name != "__wrapped__"}
        cells = [self._cell(cell) for cell in given.__closure__ or ()]
        defaults = [self.value(one) for one in (given.__defaults__, given.__kwdefaults__, attributes)]
        used, there = set(names_of(code)), given.__globals__
        loaded = globals_of(code)
        self._use(used, loaded - there.keys(), given)
        named = [[name, self.value(there[name])] for name in sorted(loaded & there.keys())]
        imports = sorted(set(imports_of(code, str(there.get("__package__") or ""))))
        said = [given.__name__, given.__qualname__, self.value(given.__doc__)]  # of which each may have been set
        return ["function", said, _described(code), defaults, cells, named, [self._imported(*one) for one in imports]]

    def _imported(self, name: str, wanted: tuple[str, ...]) -> list[Any]:
        """Describe what an import in a body makes known: the module, and the packages around it or modules in it."""
        parts = name.split(".")
        around = [] if wanted else [_loaded(".".join(parts[:count])) for count in range(1, len(parts))]
        found = _loaded(name)
        inside = [f"{name}.{one}" for one in wanted if hasattr(found, "__path__")]
        known = [_loaded(one) for one in inside if importlib.util.find_spec(one) is not None]
        return [self.value(one) for one in (*around, found, *known)]

    def _cell(self, cell: types.CellType) -> Any:
        try:
            contents = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            return ["empty"]
        return self.value(contents)

    def _class(self, given: type) -> Any:
        if type(given) not in _METACLASSES:
            raise _refused(given)
        bases = [["base", one.__qualname__] if one in _BASES else self.value(one) for one in given.__mro__[1:]]
        parts = [[name, part] for name, one in sorted(vars(given).items()) for part in self._part(given, name, one)]
        members: Mapping[str, enum.Enum] = given.__members__ if isinstance(given, enum.EnumMeta) else {}
        values = [[name, one.name, self.value(one.value)] for name, one in members.items()]
        return ["class", given.__name__, given.__qualname__, bases, parts, values]

    def _part(self, given: type, name: str, one: Any) -> Iterator[Any]:
        """Describe an attribute of a class; not what every class has, nor what a dataclass or an enumeration made."""
        if name in _OF_EVERY_CLASS:
            return
        if name == "__dataclass_fields__":
            yield [[field.name, self._default(field)] for field in one.values()]
            return
        if name == "__dataclass_params__":
            yield repr(one)
            return
        written = getattr(one, "__func__", getattr(one, "fget", one))  # of a static method, a class method, a property
        if isinstance(written, types.GetSetDescriptorType):  # of `__dict__` and `__weakref__`
            return
        if isinstance(given, enum.EnumMeta) and _is_of_enumerations(given, name, one, written):
            return
        if not isinstance(written, types.FunctionType):
            yield self.value(one)
        elif isinstance(one, property) and (one.fset or one.fdel):
            raise _refused(one)
        elif not (dataclasses.is_dataclass(given) and _is_made(written)):
            yield [type(one).__name__, self._named(written)]

    def _default(self, field: dataclasses.Field[Any]) -> Any:
        values = (field.default, field.default_factory)
        given = ["" if one is dataclasses.MISSING else self.value(one) for one in values]
        # Types other than classes are those of `typing`, whose texts say all of them.
        kind = self.value(field.type) if isinstance(field.type, type) else repr(field.type)
        said = [field.init, field.repr, field.hash, field.compare, field.kw_only]
        return [said, kind, self.value(dict(field.metadata)), *given]

    def _use(self, names: set[str], of_python: set[str], given: object) -> None:
        """Take down the names that code looks up, and those among them that are of Python itself."""
        beyond = {one for one in names if one in _NAMES or (one.startswith("__") and one not in _DUNDERS)}
        if beyond := beyond | (of_python & _BUILTINS):
            raise _NotClosed(f"{min(beyond)}, in {getattr(given, '__qualname__', given)}")
        self.used |= names


def _refused(given: object) -> _NotClosed:
    return _NotClosed(f"{given!r}")


def _loaded(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as failure:  # whatever it raises
        raise _NotClosed(f"the module {name}, which cannot be imported") from failure


def _is_made(given: types.FunctionType) -> bool:
    """Whether a method is one that `dataclasses` made."""
    return given.__code__.co_filename == "<string>" or given.__globals__.get("__name__") in _MAKERS


def _is_of_enumerations(given: type, name: str, one: object, written: object) -> bool:
    """Whether an attribute of an enumeration is a member, or what `enum` keeps of these."""
    if isinstance(one, given | enum.property):
        return True
    is_own = isinstance(written, types.FunctionType) and not _is_allowed(written.__module__)
    return name.startswith("_") and name.endswith("_") and name != "__doc__" and not is_own


def _described(code: types.CodeType) -> list[Any]:
    """Describe what code does, whatever its file says by now."""
    _check_instructions(code)
    shape = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    constants = [_described(one) if isinstance(one, types.CodeType) else _constant(one) for one in code.co_consts]
    return [shape, names, code.co_code.hex(), code.co_exceptiontable.hex(), constants]


def _check_text(given: object) -> None:
    if isinstance(given, str) and _VARIABLE in given:
        raise _NotClosed(f"a text with a variable that Spark replaces, {given[:200]!r}")


def _constant(given: object) -> list[Any]:
    _check_text(given)
    if isinstance(given, frozenset):
        return ["frozenset", *sorted(map(repr, given))]
    if isinstance(given, tuple):
        return ["tuple", *map(_constant, given)]
    return [type(given).__name__, repr(given)]


def _check_instructions(code: types.CodeType) -> None:
    """Refuse code that may do something else in another process, or that reaches more than its names say."""
    following = [*dis.get_instructions(code), None]
    for one, after in itertools.pairwise(following):
        assert one is not None
        is_set = one.opname in _SETS or (
            isinstance(one.argval, frozenset) and (after is None or after.opname != "CONTAINS_OP")
        )
        if is_set or (one.argrepr in _SET_OPERATORS and _OF_KEYS & set(code.co_names)):
            raise _NotClosed(f"a set, whose order is another one in each process, in {code.co_qualname}")
        if one.opname == "MATCH_CLASS":
            raise _NotClosed(f"a pattern with a class, in {code.co_qualname}")
    texts = [one for one in code.co_consts if isinstance(one, str)]
    if _FORMATTING & set(code.co_names) and any(map(_FIELD.search, texts)):
        raise _NotClosed(f"a text that asks for an attribute, in {code.co_qualname}")


def _is_of_this_code(given: object) -> bool:
    """Whether a function is of Spark's or Python's own code, and not put in its place under the same name."""
    if not isinstance(given, types.FunctionType):
        return True
    top = str(given.__globals__.get("__name__", "")).partition(".")[0]
    return top == "pyspark" or top in sys.stdlib_module_names


def _is_allowed(module: str) -> bool:
    parts = module.split(".")
    return module in _EXACTLY or any(".".join(parts[:count]) in _MODULES for count in range(1, len(parts) + 1))


def _is_of_a_library(module: types.ModuleType | None) -> bool:
    """Whether a module is of Python itself, of foldhouse, or of a package that was installed."""
    if module is None:
        return True
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None) or ""
    return top in sys.stdlib_module_names or top in ("foldhouse", "pyspark") or not file or "-packages" in file
