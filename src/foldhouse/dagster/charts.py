"""Small charts as SVG in markdown, which Dagster's page shows inline up to 999 characters."""

from base64 import b64encode
from collections.abc import Sequence
from itertools import pairwise

MOST_CHARACTERS = 999
_WIDTH, _HEIGHT, _GAP = 240, 22, 12
_MOST_POINTS = 60
_COLOURS = ("#36a", "#c60", "#284")

Line = tuple[str, Sequence[float]]
"""What a line is called, with its last value; and its points, the oldest first."""


def lines(*given: Line) -> str:
    """Draw lines below each other, each with its name; points are left out from the front until all of it fits.

    Returns:
        Markdown with one image; empty if no line has two points.
    """
    drawn = [one for one in given if len(one[1]) > 1]
    points = min(max((len(one[1]) for one in drawn), default=0), _MOST_POINTS)
    while points > 1:
        rows = [_line(name, values[-points:], number) for number, (name, values) in enumerate(drawn)]
        if len(text := _image(rows, len(rows), "; ".join(name for name, _ in drawn))) <= MOST_CHARACTERS:
            return text
        points -= 1
    return ""


def bars(name: str, values: Sequence[float]) -> str:
    """Draw bars, the last one in another colour.

    Returns:
        Markdown with one image; empty without a value.
    """
    for count in range(min(len(values), _MOST_POINTS), 0, -1):
        shown = values[-count:]
        top, step = max(*shown, 0) or 1, _WIDTH / max(len(shown), 12)
        heights = [round(max(0.0, value) / top * _HEIGHT) for value in shown]
        starts = [f"M{_short((number + 0.5) * step)} {_HEIGHT}v-{height}" for number, height in enumerate(heights)]
        width = _short(step * 0.7)
        body = f"<g stroke-width='{width}'>{_path(''.join(starts[:-1]), 0)}{_path(starts[-1], 1)}</g>{_named(name, 0)}"
        if len(text := _image([body], 1, name)) <= MOST_CHARACTERS:
            return text
    return ""


def _line(name: str, values: Sequence[float], number: int) -> str:
    least, top = min(values), max(values)
    spread = (top - least) or 1
    foot = number * (_HEIGHT + _GAP) + _HEIGHT
    across = [round(place * _WIDTH / (len(values) - 1)) for place in range(len(values))]
    down = [foot - 1 - round((value - least) / spread * (_HEIGHT - 2)) for value in values]
    steps = "".join(f"l{x}{'' if y < 0 else ' '}{y}" for x, y in zip(_steps(across), _steps(down), strict=True))
    return _path(f"M{across[0]} {down[0]}{steps}", number) + _named(name, number)


def _steps(places: Sequence[int]) -> list[int]:
    """Return how far each place is from the one before it."""
    return [there - here for here, there in pairwise(places)]


def _path(d: str, number: int) -> str:
    return f"<path d='{d}' stroke='{_COLOURS[number % len(_COLOURS)]}'/>" if d else ""


def _named(name: str, number: int) -> str:
    escaped = name.replace("&", "&amp;").replace("<", "&lt;")
    return f"<text y='{number * (_HEIGHT + _GAP) + _HEIGHT + _GAP - 3}'>{escaped}</text>"


def _image(rows: Sequence[str], count: int, described: str) -> str:
    """Return the markdown of an image; brackets would end its description."""
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{count * (_HEIGHT + _GAP)}' fill='none'>"
    # Grey can be read on a light and on a dark page.
    style = "<style>text{font:9px sans-serif;fill:#888}</style>"
    data = b64encode(f"{head}{style}{''.join(rows)}</svg>".encode()).decode()
    return f"![{described.translate(str.maketrans('', '', '[]'))}](data:image/svg+xml;base64,{data})"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
