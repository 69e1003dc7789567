"""A declaration has the same digest in every process, until something that it uses is another."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import foldhouse as fh
from foldhouse.logic.declaration import declaration, is_another_text, is_by_another_engine, undigested

RATES = """
TAX = 1.19


def with_tax(column):
    return column * TAX
"""
LOGIC = """
import functools
import math

import foldhouse as fh
{imports}

LIMIT = 5
WORDS = ["a", "b"]
events = fh.stream("d.events", schema={{"k": "string", "n": "long"}}, keys="k")


def kept(frame, least):
    return frame.where(frame.n > math.floor(least)).where(frame.k.isin(WORDS))


def rows(frame):
    return kept(frame, LIMIT).select("k", (lambda one: {taxed}(one))(frame.n))


table = fh.table("d.table", source=events, rows=rows, fold=fh.fold(n=fh.total({argument})))
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The digest of a table that is declared in modules of its own, each time imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # A compiled module counts as new for the rest of the second in which it was written, if its size is the same.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(change: tuple[str, str] = ("", ""), way: str = "from rates import with_tax") -> str:
        taxed = "rates.with_tax" if way == "import rates" else "with_tax"
        texts = {"rates": RATES, "logic": LOGIC.format(imports=way, taxed=taxed, argument="lambda: abs(LIMIT)")}
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text.replace(*change) if change[0] else text)
        return declaration(_imported(tmp_path, "rates", "logic").table, "Spark 1")

    return make


def _imported(folder: Path, *names: str) -> Any:
    module = ModuleType("none")
    for name in names:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    importlib.invalidate_caches()
    __import__("linecache").clearcache()
    return module


CHANGES = {
    "a value": ("LIMIT = 5", "LIMIT = 6"),
    "an entry": ('"a", "b"', '"a", "c"'),
    "a function that is called": ("frame.n >", "frame.n >="),
    "the function itself": ('select("k"', 'select("n"'),
    "a value in another module": ("1.19", "1.07"),
    "a function in another module": ("column * TAX", "column + TAX"),
    "an argument of the fold": ("lambda: abs(LIMIT)", "lambda: -abs(LIMIT)"),
}


@pytest.mark.parametrize("way", ["from rates import with_tax", "import rates"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_declaration_uses_is_part_of_its_digest(made: Callable[..., str], change: str, way: str) -> None:
    before = made(way=way)
    assert before.endswith(" by Spark 1")
    assert made(way=way) == before
    assert made(CHANGES[change], way) != before
    assert made(way=way) == before


events = fh.stream("d.events", schema={"k": "string", "n": "long"}, keys="k")
LOCK = threading.Lock()


def table_of(rows: Any, name: str = "d.table") -> fh.Table:
    return fh.table(name, source=events, rows=rows, fold=fh.fold(n=fh.count()))


def of(rows: Any, name: str = "d.table") -> str:
    return declaration(table_of(rows, name), "Spark 1")


def test_a_closure_a_default_and_a_partial_are_part_of_it() -> None:
    def within(limit: int, least: int = 0) -> Callable[[Any], Any]:
        return lambda frame, least=least: frame.where(frame.n > limit + least)

    assert of(within(1)) == of(within(1)) != of(within(2))
    assert of(within(1, 1)) != of(within(1))
    cut = lambda frame, n: frame.limit(n)  # noqa: E731
    assert of(functools.partial(cut, n=1)) == of(functools.partial(cut, n=1)) != of(functools.partial(cut, n=2))


CODE = """
import enum
import functools
import logging
import re
from dataclasses import dataclass

import foldhouse as fh
import helper

BASE = 10
LOG = logging.getLogger("x")
DIGITS = re.compile("[0-9]+", re.ASCII)


class Kind(enum.Enum):
    ONE = BASE


@dataclass(frozen=True)
class Rates:
    rate: int

    def of(self, n):
        return n * self.rate


class Taxed:
    @staticmethod
    def of(n):
        return n * helper.RATE

    def __call__(self, n):
        return n + 1


RATES = Rates(7)
taxed = Taxed()


def doubled(given):
    @functools.wraps(given)
    def wrapper(n):
        return given(n) * 2

    return wrapper


@doubled
def wrapped(n):
    return n


def imported(n):
    from helper import of
    import helper as named

    return of(n)


def later():
    def one(n):
        return n if n else not_there

    if BASE < 0:
        not_there = 1
    return one


empty = later()


def used(n):
    LOG.debug("n")
    return DIGITS.sub("x", Kind.ONE, RATES.of(n), Taxed.of(n), taxed(n), wrapped(n), imported(n), empty(n))


def rows(frame):
    return frame.select("k", used(frame.n))


table = fh.table(
    "d.table",
    source=fh.stream("d.events", schema={"k": "string", "n": "long"}, keys="k"),
    rows=rows,
    fold=fh.fold(n=fh.count()),
)
"""
HELPER = """
RATE = 3


def of(n):
    return n + 5
"""
EDITS = {
    "a value of an enumeration": ("BASE = 10", "BASE = 11"),
    "a pattern": ("[0-9]+", "[0-8]+"),
    "the flags of a pattern": ("re.ASCII", "re.IGNORECASE"),
    "a field of an instance": ("Rates(7)", "Rates(8)"),
    "a method of a class": ("n * self.rate", "n * self.rate + 1"),
    "a call of an object": ("n + 1", "n + 2"),
    "a wrapper": ("given(n) * 2", "given(n) * 3"),
    "what is wrapped": ("def wrapped(n):\n    return n", "def wrapped(n):\n    return -n"),
    "what a static method uses": ("RATE = 3", "RATE = 4"),
    "a function that is imported in the body": ("n + 5", "n + 6"),
    "the body beside a logger": ('LOG.debug("n")', 'LOG.info("n")'),
}


@pytest.mark.parametrize("what", EDITS)
def test_what_the_code_of_a_function_reaches_is_part_of_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def digest(*change: str) -> str:
        for name, text in (("helper", HELPER), ("code_of", CODE)):
            (tmp_path / f"{name}.py").write_text(text.replace(*change) if change else text)
        return declaration(_imported(tmp_path, "helper", "code_of").table, "Spark 1")

    before = digest()
    assert before
    assert digest() == before
    assert is_another_text(before, digest(*EDITS[what]))


_CLASS = """
import enum, functools
from dataclasses import dataclass, field
import fh_given
from fh_given import GIVEN

def times(rate):
    def decorate(method):
        @functools.wraps(method)
        def called(self, n):
            return method(self, n) * rate
        return called
    return decorate

def made():
    return GIVEN

{text}

import foldhouse as fh
events = fh.stream("d.events", schema={{"k": "string", "n": "long"}}, keys="k")
table = fh.table("d.table", source=events, rows=lambda frame: Given, fold=fh.fold(n=fh.count()))
"""
FROM_ELSEWHERE = {
    "a value of a class": "class Given:\n    value = [GIVEN]",
    "a default of a method": "class Given:\n    def of(self, n, rate=GIVEN):\n        return n * rate",
    "a default by name": "class Given:\n    def of(self, n, *, rate=GIVEN):\n        return n * rate",
    "what a decorator was given": "class Given:\n    @times(GIVEN)\n    def of(self, n):\n        return n",
    "a default of a field": "@dataclass\nclass Given:\n    rates: tuple = (GIVEN,)",
    "a factory of a field": "@dataclass\nclass Given:\n    rates: list = field(default_factory=made)",
    "a function of a class": "class Given:\n    of = staticmethod(lambda n, rate=GIVEN: n * rate)",
    "a partial of a class": "class Given:\n    of = functools.partial(max, GIVEN)",
    "a cached property": (
        "class Given:\n    @functools.cached_property\n    def of(self):\n        return fh_given.GIVEN"
    ),
}


@pytest.mark.parametrize("what", FROM_ELSEWHERE)
def test_what_a_class_has_from_elsewhere_is_part_of_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def digest(given: int) -> str:
        (tmp_path / "fh_given.py").write_text(f"GIVEN = {given}\n")
        (tmp_path / "fh_class.py").write_text(_CLASS.format(text=FROM_ELSEWHERE[what]))
        return declaration(_imported(tmp_path, "fh_given", "fh_class").table, "Spark 1")

    before = digest(10)
    assert before
    assert digest(10) == before
    assert is_another_text(before, digest(1000))


_BESIDE = """
import collections, enum, functools
from typing import NamedTuple
import foldhouse as fh

{text}

events = fh.stream("d.events", schema={{"k": "string", "n": "long"}}, keys="k")
table = fh.table("d.table", source=events, rows=lambda frame: frame.map(used), fold=fh.fold(n=fh.count()))
"""
BESIDE = {
    "a method of a mapping": "used = {'a': 10}.get",
    "a method of a text": "used = '{} 10'.format",
    "the value of missing entries": "used = collections.defaultdict(lambda: 10, a=1)",
    "a method of a tuple": "class P(NamedTuple):\n    n: int\n\n    def of(self):\n        return 10\n\nused = P(1)",
    "a method of a mapping's class": (
        "class P(dict):\n    def __missing__(self, name):\n        return 10\n\nused = P(a=1)"
    ),
    "a method of a text's class": "class P(str):\n    def of(self):\n        return 10\n\nused = P('a')",
    "a method of a number of an enumeration": (
        "class P(enum.IntEnum):\n    A = 1\n\n    def of(self):\n        return 10\n\nused = P.A"
    ),
    "an attribute of a function": "def used(n):\n    return n * used.rate\n\nused.rate = 10",
    "a function for another type": (
        "@functools.singledispatch\ndef used(n):\n    return n\n\n@used.register\ndef _(n: int):\n    return 10"
    ),
    "a module that is imported from a package": "def used(n):\n    from fh_pack import inner\n\n    return inner.OF",
    "a package that is imported with a module": "def used(n):\n    import fh_pack.inner\n\n    return fh_pack.ALL",
}


@pytest.mark.parametrize("what", BESIDE)
def test_what_a_value_has_beside_its_contents_is_part_of_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "fh_pack").mkdir()

    def digest(number: int) -> str:
        (tmp_path / "fh_pack" / "__init__.py").write_text(f"ALL = {number}\n")
        (tmp_path / "fh_pack" / "inner.py").write_text(f"OF = {number}\n")
        (tmp_path / "fh_beside.py").write_text(_BESIDE.format(text=BESIDE[what].replace("10", str(number))))
        for name in ("fh_pack", "fh_pack.inner"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return declaration(_imported(tmp_path, "fh_beside").table, "Spark 1")

    before = digest(10)
    assert before
    assert digest(10) == before
    assert is_another_text(before, digest(1000))


def test_a_class_may_have_what_cannot_be_described() -> None:
    class Given:
        lock = threading.Lock()
        sizes = (1, 2)

    assert of(lambda frame: Given)


@pytest.mark.parametrize("given", ["rows", "lambda frame: Given().of(frame)"])
def test_the_digest_is_of_the_code_that_this_process_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Its file may have been edited since."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = """
import foldhouse as fh
events = fh.stream("d.events", schema={"k": "string", "n": "long"}, keys="k")
def rows(frame):
    return frame.select("k", (lambda one: one * 10)(frame.n))
class Given:
    def of(self, n):
        return n * 10
table = fh.table("d.table", source=events, rows=GIVEN, fold=fh.fold(n=fh.count()))
""".replace("GIVEN", given)
    file = tmp_path / "edited.py"
    file.write_text(first)
    old = _imported(tmp_path, "edited").table
    by_first = declaration(old, "Spark 1")
    for text in (first.replace("10", "20"), first.replace("def rows", "A = 1\ndef rows")):
        file.write_text(text)
        __import__("linecache").clearcache()
        stale = declaration(old, "Spark 1")
        assert stale
        assert is_another_text(stale, by_first)
        assert is_another_text(stale, declaration(_imported(tmp_path, "edited").table, "Spark 1"))
    file.write_text(first)
    __import__("linecache").clearcache()
    assert declaration(old, "Spark 1") == by_first


@pytest.mark.parametrize("second", ['.where("n > 20")', '.alias("n")'])
def test_a_lambda_is_digested_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str) -> None:
    """Python finds its first line alone, if the bracket around it was opened before."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = """
import foldhouse as fh
events = fh.stream("d.events", schema={"k": "string", "n": "long"}, keys="k")
table = fh.table(
    "d.table",
    source=events,
    rows=lambda frame: frame
    .where("n > 10"),
    fold=fh.fold(n=fh.count()),
)
"""
    found = []
    for one in (text, text, text.replace('.where("n > 10")', second)):
        (tmp_path / "of_two_lines.py").write_text(one)
        found.append(declaration(_imported(tmp_path, "of_two_lines").table, "Spark 1"))
    assert found[0] == found[1]
    assert is_another_text(found[1], found[2])


def test_a_digest_that_an_earlier_version_made_in_another_way_says_nothing() -> None:
    assert not is_another_text("+0123 by Spark 1", "4567 by Spark 1")
    assert is_another_text("+0123 by Spark 1", "+4567 by Spark 1")
    assert is_another_text("0123 by Spark 1", "4567 by Spark 1")
    assert not is_another_text("*0123 by Spark 1", "4567 by Spark 1")
    assert not is_another_text("*0123 by Spark 1", "+4567 by Spark 1")
    assert is_another_text("*0123 by Spark 1", "*4567 by Spark 1")
    assert not is_another_text("0123 by Spark 1", "~0123.2 by Spark 1")
    assert not is_another_text("0123 by Spark 1", "0123.2 by Spark 1")
    assert is_another_text("0123 by Spark 1", "4567.2 by Spark 1")
    assert not is_another_text("", "4567.2 by Spark 1")


def test_a_digest_that_this_version_made_is_not_equal_to_one_that_begins_in_another_way() -> None:
    assert is_another_text("0123.2 by Spark 1", "+0123.2 by Spark 1")
    assert is_another_text("+0123.2 by Spark 1", "~4567.2 by Spark 1")
    assert is_another_text("0123.2 by Spark 1", "")  # it has a part by now that has no text
    assert not is_another_text("0123.2 by Spark 1", "0123.2 by Spark 2")


def test_a_wrapper_an_import_and_a_lock_that_are_added_are_noticed() -> None:
    def doubled(given: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return functools.wraps(given)(lambda n: given(n) * 2)

    def imports(n: Any) -> Any:
        import test_declaration_helper

        return test_declaration_helper.of(n)

    def plain(n: Any) -> Any:
        return n

    sys.modules["test_declaration_helper"] = ModuleType("test_declaration_helper")
    before = of(lambda frame, used=plain: frame.map(used))
    for other in (doubled(plain), imports, LOCK):
        assert is_another_text(before, of(lambda frame, used=other: frame.map(used)))


def test_what_cannot_be_read_has_no_digest() -> None:
    made: dict[str, Any] = {}
    exec("rows = lambda frame: frame", made)
    assert of(made["rows"]) == ""
    assert of(lambda frame: frame.where(LOCK)) == ""


def test_why_there_is_no_digest_is_said() -> None:
    made: dict[str, Any] = {}
    exec("rows = lambda frame: frame", made)
    assert "which has no source text" in undigested(table_of(made["rows"]))
    assert re.search(r"lock.*has no source text \(in .*<lambda>\)", undigested(table_of(lambda f: f.where(LOCK))))
    assert "which reads a file or the environment" in undigested(table_of(lambda frame: frame.where(os.environ["A"])))
    assert undigested(table_of(lambda frame: frame)) == ""


def test_only_another_engine_makes_equal_digests_enough() -> None:
    assert is_by_another_engine("a by Spark 4.3.0", "a by Spark 4.3.1")
    assert is_by_another_engine("a by Spark 4.3.0", "a by Spark 4.3.0 Connect")
    assert not is_by_another_engine("a by Spark 4.3.0", "a by Spark 4.3.0")
    assert not is_by_another_engine("a by Spark 4.3.0", "b by Spark 4.3.1")
    assert not is_by_another_engine("", "")
    assert not is_by_another_engine("", "a by Spark 4.3.1")


UPPER, LOWER = (lambda s: s.upper()), (lambda s: s.lower())
MORE, LESS = (lambda n: "é" * (n + 1)), (lambda n: "é" * (n - 1))


@pytest.mark.parametrize(("one", "other"), [(UPPER, LOWER), (MORE, LESS)])
def test_two_functions_of_one_line_are_told_apart(one: Callable[..., str], other: Callable[..., str]) -> None:
    def digest(function: Callable[..., str]) -> str:
        return of(lambda e: e.map(function))

    assert digest(one) == digest(one)
    assert digest(one) != digest(other)
