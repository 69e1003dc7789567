"""The seconds of every contender on one logarithmic axis, as SVG, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.apply import short
from benchmarks.contenders import CONTENDERS

COLOURS = {1_000: "#7cb5e8", 100_000: "#2f6db3", 1_000_000: "#12355b"}
_LEFT, _WIDTH, _LINE, _TOP = 150, 560, 30, 56
_LEAST, _MOST = 0.03, 100.0


def plot(figures: Path, to: Path, rows: int = 5_000_000) -> None:
    """Draw the warm seconds of D changes into `rows` rows, uniform keys, `latest`.

    Args:
        figures: the JSON of a run.
        to: the SVG.
        rows: N.
    """
    found: dict[str, dict[int, float]] = {}
    for one in json.loads(figures.read_text())["apply"]:
        if one["rows"] == rows and one["keys"] == "uniform" and one["workload"] == "latest" and "seconds" in one:
            found.setdefault(one["contender"], {})[one["changes"]] = one["seconds"]
    names = [name for name in CONTENDERS if name in found]
    height = _TOP + _LINE * len(names) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 40} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="20" font-size="14">Seconds to apply D changes to {short(rows)} rows, commit included; '
        "warm, median</text>",
        *_axis(height),
        *(line for place, name in enumerate(names) for line in _contender(name, place, found[name])),
        "</svg>",
    ]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join(parts) + "\n")


def _x(seconds: float) -> float:
    span = math.log(_MOST / _LEAST)
    return _LEFT + _WIDTH * math.log(min(max(seconds, _LEAST), _MOST) / _LEAST) / span


def _axis(height: int) -> list[str]:
    lines: list[str] = []
    for seconds in (0.1, 0.3, 1, 3, 10, 30, 100):
        x = _x(seconds)
        lines.append(f'<line x1="{x:.0f}" y1="{_TOP - 10}" x2="{x:.0f}" y2="{height - 40}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.0f}" y="{height - 24}" text-anchor="middle" fill="#555">{seconds:g} s</text>')
    for place, (changes, colour) in enumerate(COLOURS.items()):
        x = _LEFT + 120 * place
        lines.append(f'<circle cx="{x}" cy="{_TOP - 22}" r="5" fill="{colour}"/>')
        lines.append(f'<text x="{x + 10}" y="{_TOP - 18}" fill="#333">D = {short(changes)}</text>')
    return lines


def _contender(name: str, place: int, seconds: dict[int, Any]) -> list[str]:
    y = _TOP + _LINE * place + 12
    weight = ' font-weight="bold"' if name.startswith("foldhouse") else ""
    lines = [f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end"{weight}>{name}</text>']
    known = [seconds[changes] for changes in COLOURS if changes in seconds]
    if not known:
        return lines
    lines.append(f'<line x1="{_x(min(known)):.0f}" y1="{y}" x2="{_x(max(known)):.0f}" y2="{y}" stroke="#bbb"/>')
    for changes, colour in COLOURS.items():
        if changes in seconds:
            told = f"{name}, D = {short(changes)}: {seconds[changes]:.2f} s"
            lines.append(
                f'<circle cx="{_x(seconds[changes]):.1f}" cy="{y}" r="6" fill="{colour}"><title>{told}</title></circle>'
            )
    return lines
