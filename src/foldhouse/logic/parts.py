"""How large an expression becomes when it is translated: Polars takes seconds to plan thousands of parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from foldhouse.logic.plan import Expression

MOST_PARTS = 500
"""Of a translated expression; a larger one is left to Spark."""


def parts_of(expression: Expression) -> int:
    """Return about how many parts a translated expression has, with those that it repeats."""
    sizes = [parts_of(child) for child in expression.children]
    if expression.kind in ("Least", "Greatest"):  # each comparison repeats its operands
        return reduce(lambda one, other: 3 * one + 2 * other, sizes)
    if expression.kind == "In":
        return _of_list(expression, sizes)
    if expression.kind == "With" and len(sizes) > 1:
        uses = sum(one.kind == "CommonExpressionRef" for one in expression.children[0].walk())
        return sizes[0] + uses * sum(sizes[1:])
    return 1 + sum(sizes)


def _of_list(expression: Expression, sizes: Sequence[int]) -> int:
    if all(child.kind in ("Literal", "Cast") and not child.references for child in expression.children[1:]):
        return 1 + sizes[0]
    return len(sizes) * sizes[0] + sum(sizes)
