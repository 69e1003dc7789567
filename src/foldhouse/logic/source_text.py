"""The source text of functions, and the names that their code looks up."""

from __future__ import annotations

import dis
import functools
import importlib.util
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Any

_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_LAMBDA = re.compile(r"\blambda\b")


class Unreadable(Exception):
    """A value without a text that is the same in every process.

    Attributes:
        within: the name of the innermost function that uses it; empty for the function itself.
    """

    within = ""

    def __str__(self) -> str:
        """Return what it is, and where it is used."""
        return f"{super().__str__()}{f' (in {self.within})' if self.within else ''}"


def imports_of(code: types.CodeType, package: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modules that code imports, including that of nested functions, and the names that are wanted of each.

    `import a.b` wants none, and makes `a` known.
    """
    loaded: list[Any] = []  # at last, how many dots begin the name, and the names that are wanted
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            loaded.append(one.argval)
        if one.opname == "IMPORT_NAME":
            try:
                name = importlib.util.resolve_name("." * loaded[-2] + one.argval, package)
            except ImportError as failure:  # relative, but not in a package
                raise Unreadable(f"the relative import of {one.argval!r}") from failure
            yield name, loaded[-1] or ()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from imports_of(constant, package)


def names_of(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code looks up, including those of nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)


def globals_of(code: types.CodeType) -> set[str]:
    """Return the names that code, and the functions in it, look up outside of any object; a column may be `open`."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname in _OF_GLOBALS}
    return found.union(*(globals_of(one) for one in code.co_consts if isinstance(one, types.CodeType)))


def source_of(given: Any) -> tuple[str, bool]:
    """Return the source text of a function; its instructions, if its file has another one by now.

    Python finds the text in the file as it is, and not as it was when this process loaded it. Of a lambda that goes on
    in further lines, it may find the first line alone.

    Returns:
        The text, and whether it is that of a lambda of which Python found a part alone.
    """
    alone = _unwrapped(given)
    try:
        text, lines = textwrap.dedent(inspect.getsource(alone)), inspect.findsource(alone)[0]
    except (OSError, TypeError) as failure:
        raise Unreadable(f"{given!r}, which has no source text") from failure
    code: types.CodeType = given.__code__
    if not is_in(code, "".join(lines)):
        return f"Python {sys.version_info[:2]}: {instructions_of(code)}", False
    if code.co_name != "<lambda>":
        return text, False
    last = max((line for _, line, _, _ in code.co_positions() if line), default=code.co_firstlineno)
    is_part = last >= code.co_firstlineno + len(text.splitlines())
    if not is_part and len(_LAMBDA.findall(lines[code.co_firstlineno - 1])) < 2:
        return text, False
    return f"{text}{_body(code, lines)}", is_part  # the text is the same for each lambda of the line


def _unwrapped(given: Any) -> types.FunctionType:
    """Return a function with the code of another one and nothing else: of a wrapper, Python finds the wrapped text.

    Of the code by itself, it finds the text as well, but looks for the module among all modules of the process: 0.2 s.
    """
    code: types.CodeType = given.__code__
    return types.FunctionType(code, given.__globals__, closure=tuple(types.CellType() for _ in code.co_freevars))


def is_in(code: types.CodeType, text: str) -> bool:
    """Whether code is what the text of its file says."""
    try:
        there = _compiled(text, code.co_filename)
    except (SyntaxError, ValueError):  # of a notebook, perhaps
        return True
    same = [one for one in there if (one.co_name, one.co_firstlineno) == (code.co_name, code.co_firstlineno)]
    return any(instructions_of(one) == instructions_of(code) for one in same)


@functools.lru_cache(maxsize=64)
def _compiled(text: str, filename: str) -> tuple[types.CodeType, ...]:
    """Return the code of all functions in the text of a file."""
    found, left = [], [compile(text, filename, "exec", dont_inherit=True)]
    while left:
        one = left.pop()
        found.append(one)
        left += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
    return tuple(found)


def instructions_of(code: types.CodeType) -> list[Any]:
    """Return what code does, without the lines where it stands."""
    constants = [instructions_of(one) if isinstance(one, types.CodeType) else _plain(one) for one in code.co_consts]
    return [code.co_name, code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants]


def _plain(constant: object) -> str:
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _body(code: types.CodeType, lines: Sequence[str]) -> str:
    """Return the source text of the body of a lambda."""
    starts = [(line, at) for line, _, at, to in code.co_positions() if line and at is not None and to]
    ends = [(line, to) for _, line, at, to in code.co_positions() if line and at is not None and to]
    if not starts:  # Python was told to keep no columns
        raise Unreadable(f"{code.co_name}, of which Python keeps no columns")
    (first, start), (last, end) = min(starts), max(ends)
    within = [line.encode() for line in lines[first - 1 : last]]
    within[-1] = within[-1][:end]
    within[0] = within[0][start:]
    return b"".join(within).decode()
