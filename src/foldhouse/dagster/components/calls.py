"""Reads the folds of a `defs.yaml`: `total(amount)` is `fh.total("amount")`.

| text | value |
|---|---|
| `count()` | `count()` |
| `total(quantity * price)` | `total("quantity * price")` |
| `top(10, stock_code, by=units)` | `top(10, "stock_code", by="units")` |
| `latest(delete_when="status = 'deleted'")` | `latest(delete_when="status = 'deleted'")` |

Numbers, text in quotes, and true and false are themselves; anything else is an expression, taken as it is written. Only
the folds below can be called, and nothing is evaluated.
"""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from foldhouse import (
    average,
    collect,
    count,
    distinct,
    distinct_exact,
    earliest,
    fold,
    latest,
    maximum,
    minimum,
    top,
    total,
)
from foldhouse.errors import DefinitionError

_FOLDS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        average,
        collect,
        count,
        distinct,
        distinct_exact,
        earliest,
        latest,
        maximum,
        minimum,
        top,
        total,
    )
}
_TRUTH = {"true": True, "false": False}


def fold_of(written: str | Mapping[str, str]) -> Any:
    """Return the fold of a table: one of its rows, or column -> fold.

    Raises:
        DefinitionError: the text is no call of a fold, or the fold refuses its arguments.
    """
    if isinstance(written, str):
        return called(written)
    return fold(**{column: called(text) for column, text in written.items()})


def called(text: str) -> Any:
    """Return the fold that a text calls.

    Raises:
        DefinitionError: the text is no call of a fold, or the fold refuses its arguments.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        tree = None
    name = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else None
    if not isinstance(tree, ast.Call) or name not in _FOLDS:
        raise DefinitionError(
            f"{text!r} is no fold; write one such as total(amount) or count(), of {', '.join(sorted(_FOLDS))}"
        )
    values = [_value(one, text) for one in tree.args]
    named = {one.arg or "**": _value(one.value, text) for one in tree.keywords}
    try:
        return _FOLDS[name](*values, **named)
    except TypeError as error:
        raise DefinitionError(f"{text!r} cannot be called so: {error}") from None


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one, text) for one in node.elts]
    written = ast.get_source_segment(text.strip(), node) or ""
    return _TRUTH.get(written, written)
