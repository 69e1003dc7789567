"""A strict parser of OpenMetrics text 1.0, for gauges, infos and statesets, written from the specification.

It refuses what a lenient scraper passes over: samples before their TYPE, a family in two places, a unit that is not the
end of the name, an unknown escape, a doubled label, a doubled sample, a missing `# EOF`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]Inf")
_SUFFIXES = {"gauge": "", "info": "_info", "stateset": ""}
_ORDER = ("TYPE", "UNIT", "HELP")


class Malformed(ValueError):
    """The text is not OpenMetrics; the message has the line."""


@dataclass
class Family:
    type: str = ""
    unit: str = ""
    help: str = ""
    samples: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)

    def value(self, **labels: str) -> float:
        return self.samples[frozenset(labels.items())]


def parse(text: str) -> dict[str, Family]:
    """Return the families of a text by name.

    Raises:
        Malformed: the text breaks a rule.
    """
    if not text.endswith("\n") or (not text.isprintable() and "\r" in text):
        raise Malformed("the text does not end with a line feed, or has carriage returns")
    *lines, last = text[:-1].split("\n")
    if last != "# EOF" or "# EOF" in lines:
        raise Malformed("the last line, and no other, is `# EOF`")
    families: dict[str, Family] = {}
    name = ""
    for line in lines:
        try:
            name = _metadata(line, families, name) if line.startswith("#") else _sample(line, families, name)
        except Malformed as failure:
            raise Malformed(f"{failure}: {line!r}") from None
    for one, family in families.items():
        if not family.type or not family.samples:
            raise Malformed(f"{one} has no type or no samples")
    return families


def _metadata(line: str, families: dict[str, Family], current: str) -> str:
    words = line.split(" ", 3)
    if len(words) != 4 or words[0] != "#" or words[1] not in _ORDER or not _NAME.fullmatch(words[2]):
        raise Malformed("neither TYPE, UNIT nor HELP of a name")
    _, kind, name, said = words
    if name != current:
        if name in families:
            raise Malformed(f"{name} is in two places")
        families[name] = Family()
    family = families[name]
    if family.samples or any(getattr(family, later.lower()) for later in _ORDER[_ORDER.index(kind) :]):
        raise Malformed(f"{kind} comes late, or twice")
    if kind == "TYPE" and said not in _SUFFIXES:
        raise Malformed("not a type that is expected here")
    if kind == "UNIT" and not name.endswith(f"_{said}"):
        raise Malformed("the unit is not the end of the name")
    if kind == "HELP" and re.sub(r'\\[\\n"]', "", said).count("\\"):
        raise Malformed("an unknown escape")
    setattr(family, kind.lower(), said)
    return name


def _sample(line: str, families: dict[str, Family], current: str) -> str:
    found = _SAMPLE.fullmatch(line)
    family = families.get(current)
    if found is None or family is None:
        raise Malformed("not a sample, or one without a family")
    name, labels, number = found.groups()
    if name != current + _SUFFIXES[family.type] or not _NUMBER.fullmatch(number):
        raise Malformed("another name than the family's type has, or no number")
    pairs = _labels(labels or "")
    value = float(number)
    if family.type == "info" and value != 1:
        raise Malformed("an info is 1")
    if family.type == "stateset" and (value not in (0, 1) or current not in dict(pairs)):
        raise Malformed("a state is 0 or 1, and named by a label of the family's name")
    if frozenset(pairs) in family.samples:
        raise Malformed("a sample is doubled")
    family.samples[frozenset(pairs)] = value
    return current


def _labels(text: str) -> list[tuple[str, str]]:
    pairs, at = [], 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None or (found.group(3) == "," and found.end() == len(text)):
            raise Malformed('labels are not name="value", separated by commas')
        value = re.sub(r"\\(.)", lambda one: "\n" if one.group(1) == "n" else one.group(1), found.group(2))
        pairs.append((found.group(1), value))
        at = found.end()
    if len({name for name, _ in pairs}) != len(pairs):
        raise Malformed("a label is doubled")
    return pairs
