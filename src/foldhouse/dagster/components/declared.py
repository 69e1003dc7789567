"""Finds the streams and tables that a `defs.yaml` names as sources."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import dagster as dg

from foldhouse.errors import DefinitionError
from foldhouse.values.definition import Stream, Table

_following: ContextVar[tuple[str, ...]] = ContextVar("following", default=())
"""The folders of components whose sources are being looked for, each the source of the one before."""


@runtime_checkable
class Declares(Protocol):
    """A component that declares a stream or table, and knows its days."""

    def declared(self, context: dg.ComponentLoadContext) -> Stream | Table:
        """Return the stream or table."""

    def days(self, context: dg.ComponentLoadContext) -> dg.DailyPartitionsDefinition | None:
        """Return the days of its asset."""


def of_type(*types: type) -> Callable[[Any, Any], Any]:
    """Return a resolver that takes values of some types only, so that another value is an error with its line."""

    def resolve(context: Any, value: Any) -> Any:
        if type(value) not in types:
            raise DefinitionError(f"{value!r} is no {' or '.join(one.__name__ for one in types)}")
        return value

    return resolve


@contextmanager
def _followed(named: str) -> Iterator[None]:
    """Refuse a source that is folded from itself, directly or through others.

    Raises:
        DefinitionError: the source is being looked for already.
    """
    before = _following.get()
    if named in before:
        raise DefinitionError(f"source: {' is folded from '.join((*before, named))}; a table needs a stream below it")
    token = _following.set((*before, named))
    try:
        yield
    finally:
        _following.reset(token)


@contextmanager
def located(folder: Path) -> Iterator[None]:
    """Begin the message of a declaration's error with the file of the component."""
    try:
        yield
    except DefinitionError as error:
        if "defs.yaml: " in str(error):
            raise
        raise DefinitionError(f"{folder.name}/defs.yaml: {error}") from error


def source_of(
    named: str, context: dg.ComponentLoadContext
) -> tuple[Stream | Table, dg.DailyPartitionsDefinition | None]:
    """Return the source that a component names, with the days of its asset.

        orders                      -> what the component in the folder `orders` of the defs folder declares
        shop.payments.payments      -> the value `payments` of the module `shop.payments`

    Raises:
        DefinitionError: there is neither.
    """
    if (context.defs_module_path / named).is_dir():
        component = context.load_component(named)
        if isinstance(component, Declares):
            with located(context.defs_module_path / named), _followed(named):
                return component.declared(context), component.days(context)
        raise DefinitionError(f"source: the component in {named} is a {type(component).__name__} and declares no table")
    module, _, name = named.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name) if module else None
    except (ImportError, AttributeError) as error:
        raise DefinitionError(f"source: there is no folder and no value {named!r}: {error}") from error
    if not isinstance(value, Stream | Table):
        raise DefinitionError(
            f"source: {named!r} is no folder of the defs folder, and no stream or table; name a folder such as orders, "
            "or a value such as shop.payments.payments"
        )
    return value, None
