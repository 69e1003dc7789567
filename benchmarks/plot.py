"""The seconds of every contender, a panel for each number of changes, on logarithmic axes; as SVG, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

from benchmarks.apply import short
from benchmarks.contenders import CONTENDERS

OURS = "foldhouse"
_COLOUR, _OTHERS, _GREY = "#12355b", "#6f9fc8", "#667"
_LEFT, _WIDTH, _GAP, _LINE, _TOP, _BELOW = 130, 240, 16, 26, 64, 34


def plot(figures: Path, to: Path, rows: int = 5_000_000) -> bool:
    """Draw the warm seconds of D changes into `rows` rows, uniform keys, `latest`; beside each how many times ours.

    Args:
        figures: the JSON of a run.
        to: the SVG.
        rows: N.

    Returns:
        Whether there was anything to draw.
    """
    panels: dict[int, dict[str, float]] = {}
    for one in json.loads(figures.read_text()).get("apply", []):
        if one["rows"] == rows and one["keys"] == "uniform" and one["workload"] == "latest" and "seconds" in one:
            panels.setdefault(one["changes"], {})[one["contender"]] = one["seconds"]
    if not panels:
        return False
    names = [name for name in CONTENDERS if any(name in panel for panel in panels.values())]
    width, height = _LEFT + (_WIDTH + _GAP) * len(panels), _TOP + _LINE * len(names) + _BELOW
    title = f"Seconds to apply D changes to {short(rows)} rows, commit included (warm, median), and times {OURS}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="20" font-size="14">{title}</text>',
        *(_name(name, place) for place, name in enumerate(names)),
    ]
    known = [seconds for panel in panels.values() for seconds in panel.values()]
    for number, (changes, panel) in enumerate(sorted(panels.items())):
        axis = _Axis(_LEFT + (_WIDTH + _GAP) * number, min(known), max(known))
        parts += _panel(changes, panel, names, axis)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join([*parts, "</svg>"]) + "\n")
    return True


class _Axis:
    """Seconds -> pixels, over whole decades that hold everything."""

    def __init__(self, left: int, least: float, most: float) -> None:
        self.left = left
        self.first, self.last = math.floor(math.log10(least)), math.ceil(math.log10(most * 1.0001))

    def __call__(self, seconds: float) -> float:
        return self.left + _WIDTH * (math.log10(seconds) - self.first) / (self.last - self.first)


def _name(name: str, place: int) -> str:
    weight = ' font-weight="bold"' if name == OURS else ""
    return f'<text x="{_LEFT - 12}" y="{_middle(place) + 4}" text-anchor="end" font-size="12"{weight}>{name}</text>'


def _middle(place: int) -> int:
    return _TOP + _LINE * place + _LINE // 2


def _panel(changes: int, seconds: dict[str, float], names: list[str], axis: _Axis) -> list[str]:
    bottom = _TOP + _LINE * len(names)
    centre = axis.left + _WIDTH / 2
    parts = [
        f'<text x="{centre}" y="{_TOP - 14}" text-anchor="middle" font-size="13">D = {short(changes)}</text>',
        f'<rect x="{axis.left}" y="{_TOP}" width="{_WIDTH}" height="{bottom - _TOP}" fill="#f6f8fa"/>',
    ]
    for decade in range(axis.first, axis.last + 1):
        x = axis(10.0**decade)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ccd"/>')
        anchor = {axis.first: "start", axis.last: "end"}.get(decade, "middle")
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}" fill="{_GREY}">{10.0**decade:g} s</text>'
        )
    ours = seconds.get(OURS)
    if ours:
        x = axis(ours)
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{_COLOUR}" stroke-dasharray="3 3"/>'
        )
    for place, name in enumerate(names):
        if name in seconds:
            parts += _dot(name, changes, seconds[name], ours, _middle(place), axis)
    return parts


def _dot(name: str, changes: int, seconds: float, ours: float | None, y: int, axis: _Axis) -> list[str]:
    """A dot, and its figures on the side where there is room."""
    x = axis(seconds)
    said = f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    if ours and name != OURS:
        said += f", {seconds / ours:.1f} ×"  # noqa: RUF001 - read by people
    is_right = x < axis.left + _WIDTH * 0.62
    place = f'x="{x + 10:.1f}"' if is_right else f'x="{x - 10:.1f}" text-anchor="end"'
    halo = 'stroke="#f6f8fa" stroke-width="3" paint-order="stroke"'
    colour = _COLOUR if name == OURS else _OTHERS
    told = f"{name}, D = {short(changes)}: {seconds:.2f} s"
    return [
        f'<circle cx="{x:.1f}" cy="{y}" r="5.5" fill="{colour}"><title>{told}</title></circle>',
        f'<text {place} y="{y + 4}" fill="#223" {halo}>{said}</text>',
    ]
