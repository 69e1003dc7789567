"""How values are shown to people: one line, and in a notebook a small table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from html import escape

_IDS = ("position",)
"""Fields that hold the id of a snapshot under another name; an id is no amount, so its digits are not grouped."""


class Readable:
    """A dataclass that is shown as one line, and in a notebook as a small table, without what is zero or empty."""

    def __repr__(self) -> str:
        """Return the line."""
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._facts())})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._facts())

    def _facts(self) -> Iterator[tuple[str, str]]:
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.name.endswith("_id") or one.name in _IDS:
                yield from [] if value is None else [(one.name, str(value))]
            elif isinstance(value, bool):
                yield from [(one.name, str(value))] if value or one.default is MISSING else []
            elif isinstance(value, float):
                yield one.name, f"{value:.2f}"
            elif isinstance(value, int):
                yield from [(one.name, f"{value:,}")] if value else []
            elif isinstance(value, dict | tuple):
                yield from [(one.name, _short(value))] if value else []
            elif value is not None:
                yield one.name, str(value)


def _short(values: dict[object, object] | tuple[object, ...]) -> str:
    """Return one or two numbers or texts as they are, and the number of more or of others."""
    inner = values.values() if isinstance(values, dict) else values
    is_short = len(values) <= 2 and all(isinstance(one, int | str | None) for one in inner)
    return str(values) if is_short else f"{len(values):,}"


def html_table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table of HTML; the first cell of each is its heading."""
    lines = (
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(text)}</td>' for text in others)}</tr>"
        for first, *others in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"
