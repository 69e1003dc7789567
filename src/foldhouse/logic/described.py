"""A definition in words: its parts, stored beside the table, so that a change can be shown as before and after.

The hash in a commit decides whether a definition changed. The words are only for people: a table without them, or with
ones that cannot be read, is refused with the two hashes alone.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping

from foldhouse.logic.compiled import Compiled
from foldhouse.values.fold import Fold
from foldhouse.values.metadata_names import DECLARED

_READS = "reads "
"""The beginning of the name of a part with the columns of one source that can change a row."""
_KEPT = 3
"""Definitions whose words are kept: that of the head, that of a rebuild that is not published, and one before."""
_MOST_TEXT = 4_000
_MOST_SHOWN = 200
# Matches the `+- ` and `:  ` in front of a node of a plan.
_TREE = re.compile(r"^[ :+-]*")
# Matches the `#12L` of `amount#12L`.
_ID = re.compile(r"#\d+L?\b")


def parts_of(compiled: Compiled) -> dict[str, str]:
    """Return the parts of a definition, each as text by its name."""
    table = compiled.table
    parts = {
        "source": ", ".join(source.name for source in table.sources),
        "keys": ", ".join(table.keys),
        "sequence_by": ", ".join(table.sequence_by),
        "partition_by": table.partition_by or "",
        "buckets": str(table.buckets),
        "rows": compiled.logic[:_MOST_TEXT],
    }
    if isinstance(table.fold, Fold):
        parts |= {f"column {name}": repr(column) for name, column in table.fold.columns}
    else:
        parts["fold"] = repr(table.fold)
    read = zip(table.sources, compiled.needed, strict=False)
    return parts | {f"{_READS}{source.name}": json.dumps(columns) for source, columns in read}


def remembered(properties: Mapping[str, str], compiled: Compiled) -> dict[str, str]:
    """Return the table properties to set with a commit of a definition; none if its words are stored already."""
    known = _known(properties)
    if compiled.definition_hash in known:
        return {}
    latest = {**dict(list(known.items())[1 - _KEPT :]), compiled.definition_hash: parts_of(compiled)}
    return {DECLARED: json.dumps(latest, separators=(",", ":"))}


def difference(properties: Mapping[str, str], folded_under: str | None, compiled: Compiled) -> str:
    """Return what differs between the stored definition and the present one, in words; empty if that is not known."""
    before, after = _known(properties).get(folded_under or ""), parts_of(compiled)
    if before is None:
        return ""
    names = [name for name in [*before, *after] if name != "rows" and not name.startswith(_READS)]
    changed = [name for name in names if before.get(name) != after.get(name)]
    said = [f"{name}: {_shown(before.get(name))} -> {_shown(after.get(name))}" for name in dict.fromkeys(changed)]
    rows = _rows_changed(before.get("rows", ""), after["rows"], skips_output=bool(said))
    return "; ".join([*said, *([rows] if rows else [])])


def columns_read(properties: Mapping[str, str], folded_under: str | None, source: str) -> tuple[str, ...]:
    """Return the columns of a source from which a stored table was computed; empty if that is not known."""
    text = _known(properties).get(folded_under or "", {}).get(f"{_READS}{source}", "[]")
    try:
        return tuple(map(str, json.loads(text)))
    except (ValueError, TypeError):
        return ()


def _known(properties: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return hash -> parts, as far as they can be read."""
    try:
        held = json.loads(properties.get(DECLARED, "{}"))
        return {str(name): {str(part): str(text) for part, text in parts.items()} for name, parts in dict(held).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _rows_changed(before: str, after: str, *, skips_output: bool) -> str:
    """Return the first lines that differ between two plans; the first line has the arguments of the folds."""
    old, new = ([_plain(line) for line in plan.splitlines()][skips_output:] for plan in (before, after))
    if old == new:
        return ""
    # An expression in a fold needs a plan of Spark, which a plain column does not; it is shown with its column.
    if skips_output and len(old or new) <= 1 and not (old and new):
        return ""
    if not old or not new:
        return "`rows` was added" if not old else "`rows` was removed"
    for kind, a, b, c, d in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if kind != "equal":
            return f"`rows`: {_shown(' '.join(old[a:b]))} -> {_shown(' '.join(new[c:d]))}"
    return ""


def _plain(line: str) -> str:
    return _ID.sub("", _TREE.sub("", line)).strip()


def _shown(text: str | None) -> str:
    if not text:
        return "nothing"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
