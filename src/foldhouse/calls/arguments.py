"""Checks the arguments of a lake's methods against their annotations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from foldhouse.calls.failures import translating_errors
from foldhouse.calls.forked import check_has_threads
from foldhouse.calls.progress import shown_if_long
from foldhouse.errors import DefinitionError, FoldhouseError, InvalidData, UnknownSnapshot
from foldhouse.storage.hiding import hiding_secrets
from foldhouse.storage.outlived import timed
from foldhouse.storage.rest import tokens_of
from foldhouse.values.definition import Stream, Table
from foldhouse.values.given import shown, text, texts

Method = TypeVar("Method", bound=Callable[..., Any])
_LONGEST = timedelta(days=365 * 200)
_MOST = 2**62


def told(method: Method) -> Method:
    """Decorate a method of a lake: it checks its arguments by their annotations, and raises only foldhouse's errors.

    A call that does not fit the signature raises `TypeError`, as everywhere in Python.
    """
    signature = inspect.signature(method)
    # Annotations are texts, because their modules import `annotations` from `__future__`.
    checks = {name: _CHECKS[str(one.annotation)] for name, one in signature.parameters.items() if _is_checked(one)}

    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        check_has_threads()
        bound = signature.bind(*given, **named)
        for name, check in checks.items():
            if name in bound.arguments:
                bound.arguments[name] = check(f"{method.__name__}: {name}", bound.arguments[name])
        about = next((bound.arguments[name] for name in ("table", "stream") if name in bound.arguments), "the lake")
        name = about if isinstance(about, str) else about.name

        def translated() -> Any:
            with translating_errors(name), timed(), shown_if_long(f"{method.__name__} {name}"):
                return method(*bound.args, **bound.kwargs)

        return hiding_secrets(_configuration(bound.args[0]), translated)

    return call  # type: ignore[return-value]


def _configuration(lake: Any) -> Mapping[str, Any]:
    """Return the configuration of a lake's catalog and the token that it was given, for the secrets in them."""
    found = getattr(lake.catalog, "properties", None)
    given = found if isinstance(found, Mapping) else {}
    return {**given, "held tokens": tokens_of(lake.catalog)}


def _is_checked(one: inspect.Parameter) -> bool:
    return str(one.annotation) in _CHECKS


def _refused(kind: type[FoldhouseError], what: str, value: object, wanted: str) -> FoldhouseError:
    return kind(f"{what} is {shown(value)}; {wanted} is needed")


def _table(what: str, value: Any) -> Any:
    if not isinstance(value, Table):
        raise _refused(DefinitionError, what, value, "a declaration made by foldhouse.table")
    return value


def _table_or_name(what: str, value: Any) -> Any:
    return value if isinstance(value, str) else _table(what, value)


def _stream(what: str, value: Any) -> Any:
    if not isinstance(value, Stream):
        raise _refused(DefinitionError, what, value, "a declaration made by foldhouse.stream")
    return value


def _source(what: str, value: Any) -> Any:
    return value if isinstance(value, Stream | Table) else text(f"{what}, a declaration or a name,", value)


def _days(what: str, values: Any) -> Any:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _refused(InvalidData, what, values, "a list of days, such as [date(2024, 3, 4)],")
    days = list(values)
    for day in days:
        if isinstance(day, datetime) or not isinstance(day, date):
            raise InvalidData(f"{what}: {shown(day)} is not a day; partitions are dates, such as date(2024, 3, 4)")
    return days


def _moment(what: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str | date | None):
        raise _refused(UnknownSnapshot, what, value, "a snapshot id, a time, a tag or a branch")
    return value


def _age(what: str, value: Any) -> Any:
    if not isinstance(value, str | date | timedelta | None):
        raise _refused(InvalidData, what, value, "an age such as 7d, or a moment,")
    return _span(what, value) if isinstance(value, timedelta) else value


def _span(what: str, value: Any) -> Any:
    if not isinstance(value, timedelta) or not timedelta() <= value <= _LONGEST:
        raise _refused(InvalidData, what, value, "a timedelta of 0 days to 200 years")
    return value


def _number(what: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise _refused(InvalidData, what, value, "a whole number of at least 1")
    return value


def _share(what: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise _refused(InvalidData, what, value, "a share above 0, up to 1,")
    return float(value)


def _mapping(what: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _refused(InvalidData, what, value, "a mapping of names to texts")
    return {text(f"{what} key", name): text(f"{what}[{shown(name)}]", one) for name, one in value.items()}


def _tables(what: str, values: Any) -> Any:
    if isinstance(values, str | bytes | Table) or not isinstance(values, Iterable):
        raise _refused(DefinitionError, what, values, "a list of declarations made by foldhouse.table")
    return [_table(what, one) for one in values]


def _optional(what: str, value: Any) -> Any:
    return None if value is None else text(what, value)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "Table": _table,
    "Table | str": _table_or_name,
    "Stream": _stream,
    "Source | str": _source,
    "Iterable[date]": _days,
    "Iterable[str]": texts,
    "Iterable[Table]": _tables,
    "AsOf": _moment,
    "OlderThan": _age,
    "timedelta": _span,
    "timedelta | None": lambda what, value: None if value is None else _span(what, value),
    "str": text,
    "int": _number,
    "float": _share,
    "int | None": lambda what, value: None if value is None else _number(what, value),
    "Mapping[str, str]": _mapping,
    "Mapping[str, str] | None": lambda what, value: None if value is None else _mapping(what, value),
    "str | None": _optional,
}
"""Annotation -> the function that checks a value, and returns it or raises."""
