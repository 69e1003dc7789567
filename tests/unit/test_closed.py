"""Which declarations have the same plan in every process: none whose functions reach what is not digested."""

from __future__ import annotations

import builtins
import datetime
import decimal
import enum
import functools
import importlib
import linecache
import math
import operator
import os
import platform
import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

import foldhouse as fh
from foldhouse.logic.closed import closed_digest

events = fh.stream("shop.events", schema={"k": "long", "s": "string"})
RATES = {"EUR": decimal.Decimal("1.1"), "USD": 1}
LIMIT = math.floor(2.5)
_looked_up = RATES.get


class Threshold:
    """A value with a method."""

    at = 3

    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, rows: Any) -> Any:
        return rows.where(F.col("k") > self.at + self.more)


@dataclass(frozen=True)
class Limits:
    """Fields, one of which has a default that is no single value."""

    least: int
    names: tuple[str, ...] = ("a", "b")

    def of(self, rows: Any) -> Any:
        return rows.where(F.col("k") > self.least).where(F.col("s").isin(*self.names))


class Lazy:
    """A value that is computed when it is asked for, of what its digest does not see."""

    @functools.cached_property
    def at(self) -> int:
        return len(sys.argv)


LAZY = Lazy()


def a_helper(rows: Any, day: datetime.date = datetime.date(2024, 1, 1)) -> Any:
    return rows.where(F.col("s") > day.isoformat())


def of_a_window(rows: Any) -> Any:
    place = F.row_number().over(Window.partitionBy("k").orderBy("s"))
    return rows.withColumn("n", place.cast(T.LongType())).where("n = 1")


def of_all(rows: Any) -> Any:
    rates = functools.reduce(operator.add, [F.lit(rate) for rate in RATES.values()])
    return a_helper(rows).withColumn("n", F.lit(LIMIT) * rates).withColumns({c: F.upper(c) for c in ("s",)})


def imports_a_module(rows: Any) -> Any:
    import math

    return rows.limit(math.ceil(0.5))


def imports_a_clock(rows: Any) -> Any:
    import time

    return rows.where(F.col("k") < int(time.time() // 86_400))


def has_an_attribute(rows: Any) -> Any:
    return rows.where(F.col("k") > has_an_attribute.least)  # type: ignore[attr-defined]


has_an_attribute.least = 3  # type: ignore[attr-defined]
any_attribute = getattr


class Kind(enum.Enum):
    """Kinds of events."""

    SALE = "sale"
    REFUND = "refund"

    @property
    def word(self) -> str:
        return self.value.upper()


class Pair(NamedTuple):
    """A tuple with a method."""

    least: int

    def of(self, rows: Any) -> Any:
        return rows.where(F.col("k") > self.least)


def matches(rows: Any) -> Any:
    match datetime.date:
        case object(today=clock):
            return rows.where(F.col("s") < str(clock()))


class Slots:
    """A value whose state is in slots."""

    __slots__ = ("__dict__", "least")


class Shy:
    """A value that cannot be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)

    def __repr__(self) -> str:
        raise LookupError("repr")


class Meta(type):
    """A class of classes."""

    @property
    def words(cls) -> list[str]:
        return sys.argv


class OfMeta(metaclass=Meta):
    """Its words are those of its class."""


A_SET = {"k", "s"}
LEAST = {"k": "k > ${system:least}"}
SLOTS = Slots()
SHY, BARE = Shy(), object()
any_clock = datetime.datetime.now
SCHEMA = T.StructType([T.StructField("a", T.LongType())])
PAIR = Pair(3)

CLOSED: dict[str, Callable[..., Any]] = {
    "columns": lambda rows: rows.select("k", F.lower("s").alias("s")),
    "a window": of_a_window,
    "helpers, constants and a comprehension": of_all,
    "an object": Threshold(2),
    "a method of a dataclass": Limits(3).of,
    "an attribute of a function": has_an_attribute,
    "an enumeration": lambda rows: rows.where(F.col("s").isin([one.word for one in Kind])),
    "a choice among literals": lambda rows: rows.select(*[c for c in rows.columns if c in {"k", "s"}]),
    "columns and functions with names of Python": lambda rows: rows.where(rows.id > F.hash(rows.open, rows.timestamp)),
    "a pattern that is compiled": lambda rows: rows.select(*[c for c in rows.columns if re.compile("k|s").match(c)]),
    "a type of data": lambda rows: rows.withColumn("s", F.from_json("s", SCHEMA)["a"].cast("string")),
    "a partial": functools.partial(a_helper, day=datetime.date(2024, 2, 2)),
    "SQL": lambda rows: rows.selectExpr("k", "upper(s) AS s"),
    "an import": imports_a_module,
}
OPEN: dict[str, Callable[..., Any]] = {
    "today": lambda rows: rows.where(F.col("s") < str(datetime.date.today())),
    "a clock": imports_a_clock,
    "a random number": lambda rows: rows.where(F.col("k") > random.randint(0, 9)),
    "the machine": lambda rows: rows.where(F.col("s") == platform.node()),
    "the process": lambda rows: rows.where(F.col("k") == os.getpid()),
    "the environment": lambda rows: rows.where(F.col("s") == os.environ["HOME"]),
    "a variable that Spark replaces": lambda rows: rows.where("k > ${env:LEAST}"),
    "such a variable in a value": lambda rows: rows.where(LEAST["k"]),
    "a file": lambda rows: rows.where(F.col("s") == Path("x").read_text()),
    "another file": lambda rows: rows.where(F.col("s") == open("x").read()),  # noqa: SIM115
    "arguments": lambda rows: rows.where(F.col("s") == sys.argv[0]),
    "the seed of hashes": lambda rows: rows.where(F.col("k") == hash("x") % 8),
    "an address": lambda rows: rows.where(F.col("k") == id(rows)),
    "a setting": lambda rows: rows.where(F.col("k") == int(rows.sparkSession.conf.get("spark.x", "1"))),
    "a session": lambda rows: rows.where(F.col("k") == len(SparkSession.builder.getOrCreate().version)),
    "any attribute": lambda rows: rows.where(F.col("s") == str(getattr(datetime.date, "to" + "day")())),
    "any attribute by another name": lambda rows: rows.where(F.col("s") == any_attribute(F, "__name__")),
    "a module of a library": lambda rows: rows.where(F.col("s") == F.builtin.sys.argv[0]),
    "the columns of a stream": lambda rows: rows.select(*[name for name, _ in events.schema]),
    "a tuple with methods": lambda rows: PAIR.of(rows),
    "the context of decimals": lambda rows: rows.where(F.col("k") > decimal.getcontext().prec),
    "the order of a set": lambda rows: rows.select(*{"k", "s"}),
    "the order of a set of the module": lambda rows: rows.select(*A_SET),
    "the order of a set that is computed": lambda rows: rows.select(*{name.lower() for name in rows.columns}),
    "the order of a set by its name": lambda rows: rows.select(*set(rows.columns)),
    "the order of two dictionaries": lambda rows: rows.select(*(RATES.keys() - rows.asDict().keys())),
    "a text of an attribute": lambda rows: rows.where(F.col("s") == f"{rows.__class__}"),
    "a pattern": matches,
    "a hash": lambda rows: rows.where(F.col("k") == "x".__hash__()),
    "a clock by another name": lambda rows: rows.where(F.col("s") < any_clock().isoformat()),
    "a value that cannot be looked at": lambda rows: rows.where(F.col("k") > SHY.least),
    "a value of nothing": lambda rows: rows.where(F.lit(BARE is None)),
    "slots": lambda rows: rows.where(F.col("k") > SLOTS.least),
    "a metaclass": lambda rows: rows.where(F.col("k") > len(OfMeta.words)),
    "the module of Python's functions": lambda rows: rows.where(F.col("k") == builtins.hash("x")),
    "an evaluated text": lambda rows: rows.where(eval("F.col('k') > 0")),
    "a library": lambda rows: rows.where(F.col("k") > int(np.int64(1))),
    "a function of an object": lambda rows: rows.where(F.col("k") > _looked_up("USD")),
    "a cached property": lambda rows: rows.where(F.col("k") > LAZY.at),
    "a function of Python": lambda rows: rows.withColumn("k", F.udf(lambda k: k + 1, "long")("k")),
}


def a_table(rows: Callable[..., Any]) -> fh.Table:
    return fh.table("shop.kept", source=events, rows=rows, keys="k", fold=fh.fold(s=fh.minimum("s")))


@pytest.mark.parametrize("name", CLOSED)
def test_logic_of_what_is_digested_has_the_same_plan_in_every_process(name: str) -> None:
    assert closed_digest(a_table(CLOSED[name]))


@pytest.mark.parametrize("name", OPEN)
def test_logic_that_reaches_further_does_not(name: str) -> None:
    assert closed_digest(a_table(OPEN[name])) == ""


def test_an_argument_with_a_variable_that_spark_replaces_is_not_the_same_in_every_process() -> None:
    for argument, is_closed in (("k * 2", True), ("k * ${env:RATE}", False)):
        table = fh.table("shop.kept", source=events, keys="k", fold=fh.fold(s=fh.total(argument)))
        assert bool(closed_digest(table)) == is_closed


def test_the_default_of_a_field_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = closed_digest(a_table(Limits(3).of))
    monkeypatch.setattr(Limits, "names", ("a",))
    assert closed_digest(a_table(Limits(3).of)) not in ("", before)


_LIMITS = "LIMIT = 3\n"
_USES = """
import limits_of_rows
from pyspark.sql import functions as F
def the_module():
    return limits_of_rows
class Holder:
    def __init__(self, module):
        self.module = module
held = Holder(limits_of_rows)
def made(module):
    return lambda given: given.where(F.col('k') > module.LIMIT)
def named(given):
    return given.where(F.col('k') > limits_of_rows.LIMIT)
def returned(given):
    return given.where(F.col('k') > the_module().LIMIT)
def of_an_object(given):
    return given.where(F.col('k') > held.module.LIMIT)
def imported(given):
    import limits_of_rows as limits
    return given.where(F.col('k') > limits.LIMIT)
in_a_closure = made(limits_of_rows)
"""


@pytest.fixture
def uses_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a project whose functions reach a value of another module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "limits_of_rows.py").write_text(_LIMITS)
    (tmp_path / "uses_limits.py").write_text(_USES)
    yield importlib.import_module("uses_limits")
    for name in ("uses_limits", "limits_of_rows"):
        del sys.modules[name]


@pytest.mark.parametrize("name", ["named", "returned", "of_an_object", "imported", "in_a_closure"])
def test_a_value_of_a_module_is_part_of_it_however_it_is_reached(
    uses_limits: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(getattr(uses_limits, name))
    before = closed_digest(table)
    assert before
    monkeypatch.setattr(sys.modules["limits_of_rows"], "LIMIT", 4)
    assert closed_digest(table) not in ("", before)
    monkeypatch.setattr(sys.modules["limits_of_rows"], "LIMIT", lambda: 4)
    assert closed_digest(table) not in ("", before)


def test_a_module_that_makes_its_names_itself_may_give_others(
    uses_limits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert closed_digest(a_table(uses_limits.named))
    monkeypatch.setattr(sys.modules["limits_of_rows"], "__getattr__", lambda name: 4, raising=False)
    assert closed_digest(a_table(uses_limits.named)) == ""


def test_a_function_that_was_put_into_a_library_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert closed_digest(a_table(CLOSED["columns"]))
    monkeypatch.setattr(F, "lower", lambda name: F.upper(name))
    assert closed_digest(a_table(CLOSED["columns"])) == ""


def test_a_function_that_takes_the_name_of_one_of_a_library_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @functools.wraps(DataFrame.where)
    def where(rows: Any, least: int = LIMIT) -> Any:
        return rows.filter(F.col("k") > least)

    assert closed_digest(a_table(lambda rows: where(rows))) == ""
    monkeypatch.setattr(F, "lower", functools.wraps(F.lower)(lambda name: F.upper(name)))
    assert closed_digest(a_table(CLOSED["columns"])) == ""


_GIVEN = {
    "metadata of a field": (
        "@dataclass\nclass Given:\n    n: int = field(default=0, metadata={{'factor': {least}}})\n"
        "def rows(given):\n    return given.where(str(fields(Given)[0].metadata['factor']))"
    ),
    "the type of a field": (
        "@dataclass\nclass Given:\n    n: 'n > {least}' = None\n"
        "def rows(given):\n    return given.where(fields(Given)[0].type)"
    ),
    "what a class says of itself": (
        'class Given:\n    """n > {least}"""\ndef rows(given):\n    return given.where(Given.__doc__)'
    ),
    "what an enumeration says of itself": (
        'class Given(Enum):\n    """n > {least}"""\n    A = 1\ndef rows(given):\n    return given.where(Given.__doc__)'
    ),
    "what a function says of itself": (
        'def given():\n    """n > {least}"""\ndef rows(frame):\n    return frame.where(given.__doc__)'
    ),
    "the name of a function": (
        "def given():\n    return 1\ngiven.__name__ = 'n > {least}'\n"
        "def rows(frame):\n    return frame.where(given.__name__)"
    ),
    "a private value of an enumeration": (
        "class Given(Enum):\n    A = 1\n    __least = {least}\n    def least(self):\n        return self.__least\n"
        "def rows(frame):\n    return frame.where(str(Given.A.least()))"
    ),
}


def _rows_of(text: str) -> Callable[..., Any]:
    """Make the functions of a module of a project."""
    module = types.ModuleType("given_to_rows")
    module.__file__ = "/project/given_to_rows.py"
    sys.modules[module.__name__] = module
    exec(f"from dataclasses import dataclass, field, fields\nfrom enum import Enum\n{text}", vars(module))
    found: Callable[..., Any] = vars(module)["rows"]
    return found


@pytest.mark.parametrize("what", _GIVEN)
def test_what_code_may_ask_of_a_class_or_a_function_is_part_of_it(what: str) -> None:
    try:
        one, again, other = (closed_digest(a_table(_rows_of(_GIVEN[what].format(least=n)))) for n in (1, 1, 2))
    finally:
        del sys.modules["given_to_rows"]
    assert one == again != other
    assert one


def test_how_a_method_is_bound_is_part_of_it() -> None:
    made = []
    try:
        for kind in ("", "@staticmethod", "@classmethod", "@property"):
            text = f"class Given:\n    {kind}\n    def of(one=1):\n        return 'n > 1'\n"
            made.append(closed_digest(a_table(_rows_of(f"{text}def rows(frame):\n    return frame.where(Given.of)"))))
    finally:
        del sys.modules["given_to_rows"]
    assert len({*made, ""}) == 5


def test_a_text_that_asks_a_module_for_a_value_is_refused_wherever_it_is() -> None:
    text = "import limits\nTEXTS = {{'a': ['n > {{0.LEAST}}']}}\ndef rows(frame):\n    return {}"
    sys.modules["limits"] = types.ModuleType("limits")
    sys.modules["limits"].__file__ = "/project/limits.py"
    try:
        for used, is_closed in (("frame.where(TEXTS['a'][0].format(limits))", False), ("TEXTS", True)):
            digest = closed_digest(a_table(_rows_of(text.format(used).replace("{{", "{").replace("}}", "}"))))
            assert bool(digest) == is_closed
    finally:
        del sys.modules["limits"], sys.modules["given_to_rows"]


def test_an_attribute_of_a_function_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = closed_digest(a_table(has_an_attribute))
    monkeypatch.setattr(has_an_attribute, "least", 4)
    assert closed_digest(a_table(has_an_attribute)) not in ("", before)


_EDITED = """
import dataclasses, enum, functools
from pyspark.sql import functions as F
from other_of_edited import clean, least_of, settings
LIMIT = {least}
def made(limit):
    class Rules:
        def __call__(self, rows):
            return rows.where(f"n > {{limit}}")
    return Rules()
class WithDefault:
    def of(self, rows, limit=LIMIT):
        return rows.where(f"n > {{limit}}")
class WithPart:
    __call__ = functools.partial(lambda rows, n: rows.where(f"n > {{n}}"), n=LIMIT)
class WithOther:
    clean = staticmethod(clean)
class Decorated:
    @least_of
    def of(self, rows):
        return rows
if LIMIT == 1:
    class Chosen:
        def of(self, rows):
            return rows.where("n > 1")
else:
    class Chosen:
        def of(self, rows):
            return rows.where("n > 2")
def some():
    return [LIMIT]
@dataclasses.dataclass
class WithFactory:
    limits: list = dataclasses.field(default_factory=some)
class Kind(enum.Enum):
    A = {least}
    B = 7
class Loaded:
    def of(self, rows):
        return rows.where("n > {least}")
def of(given):
    return lambda rows: rows.where(f"n > {{given.LEAST}}")
def import_in_body(rows):
    import package_of_edited.inner
    return rows.where(f"n > {{package_of_edited.other.LEAST}}")
def from_in_body(rows):
    from package_of_edited import other
    return rows.where(f"n > {{other.LEAST}}")
ALL = dict(
    a_lambda_of_two_lines=lambda rows: rows
    .where("n > {least}"),
    a_choice_of_two_lines=lambda rows: rows if rows is None
    else rows.where("n > {least}"),
    a_closure=made(LIMIT),
    a_default=WithDefault().of,
    a_partial=WithPart(),
    a_static_method=WithOther().clean,
    a_decorated_method=Decorated().of,
    a_class_by_a_condition=Chosen().of,
    a_factory=lambda rows: rows.where(f"n > {{WithFactory().limits[0]}}"),
    a_member=lambda rows: rows.where(f"n > {{list(Kind)[0].value}}"),
    a_method=Loaded().of,
    a_module_in_a_closure=of(settings),
    a_module_in_a_partial=functools.partial(lambda rows, given: rows.where(f"n > {{given.LEAST}}"), given=settings),
    an_import_in_a_body=import_in_body,
    a_module_from_a_package=from_in_body,
)
"""
_OTHER = """
import settings_of_edited as settings
def clean(rows):
    return rows.where("n > {least}")
def least_of(method):
    def found(self, rows):
        return method(self, rows).where("n > {least}")
    return found
"""
_NAMES = ["edited", "other_of_edited", "settings_of_edited", "package_of_edited"]


def written(folder: Path, least: int) -> dict[str, Callable[..., Any]]:
    """Load the logic of a project as a new process would."""
    for name in [one for one in sys.modules if one.partition(".")[0] in _NAMES]:
        del sys.modules[name]
    package = folder / "package_of_edited"
    package.mkdir(exist_ok=True)
    (folder / "edited.py").write_text(_EDITED.format(least=least))
    (folder / "other_of_edited.py").write_text(_OTHER.format(least=least))
    (folder / "settings_of_edited.py").write_text(f"LEAST = {least}\n")
    (package / "__init__.py").write_text("from package_of_edited import other\n")
    (package / "inner.py").touch()
    (package / "other.py").write_text(f"LEAST = {least}\n")
    importlib.invalidate_caches()
    linecache.checkcache()
    found: dict[str, Callable[..., Any]] = importlib.import_module("edited").ALL
    return found


def test_whatever_the_text_of_a_project_says_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    one = {name: closed_digest(a_table(rows)) for name, rows in written(tmp_path, 1).items()}
    again = {name: closed_digest(a_table(rows)) for name, rows in written(tmp_path, 1).items()}
    loaded = written(tmp_path, 2)
    other = {name: closed_digest(a_table(rows)) for name, rows in loaded.items()}
    assert one == again
    assert {name for name in one if one[name] in ("", other[name])} == set()
    (tmp_path / "edited.py").write_text(_EDITED.format(least=3))
    linecache.checkcache()
    assert {name: closed_digest(a_table(rows)) for name, rows in loaded.items()} == other, "it is what was loaded"
    written(tmp_path, 1)
