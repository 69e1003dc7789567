"""Check over Spark Connect what depends on an order of rows: windows and `dropDuplicates`, in the printed plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foldhouse.logic.asked import refuse
from foldhouse.logic.decided import Decided, Identity
from foldhouse.logic.functions import CLASS_OF, ORDERED
from foldhouse.logic.plan import Expression, Node
from foldhouse.logic.repeatable import check_deduplicate, listed, ordered_by

_RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Window functions that give the same answer to all rows that tie."""
_WINDOW = re.compile(r"(\w+)\(.*\) windowspecdefinition\(.*\bspecifiedwindowframe\((\w+)Frame, (.*)\)\)")
_ALL_ROWS = "unboundedpreceding$(), unboundedfollowing$()"


def check_order(plan: Node, sources: Sequence[Identity]) -> None:
    """Refuse a window or `dropDuplicates` that gives an arbitrary answer among rows that tie.

    Args:
        plan: the printed plan; its sources have the aliases `source_name(place)`.
        sources: in the order of their places.

    Raises:
        DefinitionError: the message contains the function, and the columns that would order it.
    """
    decided = Decided(plan, sources)
    for node in plan.walk():
        if node.kind == "Deduplicate":
            check_deduplicate(node, decided)
        if node.kind == "Window":
            _check_window(node, decided)


def _check_window(node: Node, decided: Decided) -> None:
    partition = [one.id for one in node.of("partitionSpec") if one.kind == "AttributeReference" and one.id is not None]
    differing = decided.undecided(node.children[0], [*partition, *ordered_by(node.of("orderSpec"))])
    if not differing:
        return
    for one in node.of("windowExpressions"):
        if not _is_of_all_ties(one):
            refuse(
                f"{one.name or one} OVER (...)",
                f"gives an arbitrary answer among rows that tie; order by {listed(differing)} as well",
            )


def _is_of_all_ties(window: Expression) -> bool:
    """Whether a window gives the same answer to all rows that tie, in whatever order they are read."""
    found = _WINDOW.fullmatch(str(window.children[0].facts.get("text", ""))) if window.children else None
    if found is None or found[0].count("windowspecdefinition") != 1:
        return False
    if found[1] in _RANKS:
        return True
    return CLASS_OF.get(found[1]) not in ORDERED and (found[2] == "Range" or found[3] == _ALL_ROWS)
