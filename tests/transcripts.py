"""Shell transcripts of the documentation: found in a page, run in this process, and compared with what is printed."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from foldhouse.cli import main

SHOWN_AS = "/srv/shop"
"""The folder in which commands run, as the pages name it."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ESCAPES = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
_LIKE = {
    "file": r"[0-9]+-[0-9a-zA-Z-]{20,}",
    "moment": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)",
    "run": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "id": r"\b\d{15,19}\b",
    "clock": r"(?:\d+ days?, )?\d+:\d\d:\d\d\.\d+",
    "seconds": r"\b\d+(?:\.\d)?(?= s\b)",
    "mib": r"\b[\d.]+(?= [MG]iB\b)",
    "bytes": r"\b[\d,]+(?= bytes\b)",
    "cut": r"(?<=@)\d+…?",
}
_DYNAMIC = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _LIKE.items()))
"""What differs from run to run."""
_REMEMBERED = ("file", "moment", "run", "id")
"""Each of these is the same one wherever a page repeats it."""
_SIZE = re.compile(r"(?<![\w.,-])\d{3,}(?![\w.,-])")
"""A number below the heading of a column of bytes."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    at: tuple[int, int]
    """Where its text begins and ends in the page."""


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in its order."""
    return [Block(one[1], one[2], one.span(2)) for one in _BLOCK.finditer(page)]


def sections(page: str) -> dict[str, list[Block]]:
    """Heading of the second level -> the blocks below it, in the order of the page; before the first: ``."""
    found: dict[str, list[Block]] = {"": []}
    fences = [(one.start(), one.end()) for one in _BLOCK.finditer(page)]
    headings = [
        (one.start(), one[1])
        for one in re.finditer(r"^## (.+)$", page, re.MULTILINE)
        if not any(first <= one.start() < last for first, last in fences)
    ]
    found |= {heading: [] for _, heading in headings}
    for block in blocks(page):
        heading = next((name for at, name in reversed(headings) if at < block.at[0]), "")
        found[heading].append(block)
    return found


@dataclass
class Transcript:
    """Runs the blocks of a section in a folder, and remembers which id of the page is which id of the run."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    remembered: dict[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> str:
        """Run the commands of a block, and return the block with what they printed.

        Returns:
            The text of the block itself, if everything was printed as it says.
        """
        return "".join(self._ran(command, printed) for command, printed in _commands(block.text))

    def run_python(self, block: Block) -> str:
        """Run Python in the names of the section, and return what it printed."""
        with redirect_stdout(io.StringIO()) as printed:
            exec(block.text, self.names)
        return self._shown(printed.getvalue())

    def fits(self, expected: str, printed: str) -> bool:
        """Whether output fits a text of the page, apart from ids, times, sizes and durations."""
        new: dict[str, str] = {}
        found = re.fullmatch(self._pattern(expected, new), " ".join(_words(printed)))
        if found:
            self.remembered |= {shown: found[name] for shown, name in new.items()}
        return found is not None

    def _ran(self, command: str, expected: str) -> str:
        printed = self._shown(self._call(self._actual(command)))
        if self.fits(expected, printed):
            return f"$ {command}\n{expected}"
        known = {actual: shown for shown, actual in self.remembered.items()}
        named = _DYNAMIC.sub(lambda one: known.get(one[0], one[0]), printed)
        self.fits(named, printed)  # so that later blocks name the same things by the same ids
        return f"$ {command}\n" + "".join(f"{_wrapped(line)}\n" for line in named.splitlines())

    def _call(self, command: str) -> str:
        words = shlex.split(command, comments=True)
        given = dict(one.split("=", 1) for one in words[: next(i for i, w in enumerate(words) if "=" not in w)])
        words = words[len(given) :]
        env = {**self.env, **given, "COLUMNS": "110", "FORCE_COLOR": "1", "NO_COLOR": "1", "TTY_INTERACTIVE": "0"}
        if words[0] == "foldhouse" and "|" not in words:
            done = CliRunner(env=env).invoke(main, words[1:])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            return done.output
        shell = subprocess.run(["sh", "-c", command], cwd=self.folder, capture_output=True, text=True, check=False)
        return shell.stdout + shell.stderr

    def _actual(self, command: str) -> str:
        return _DYNAMIC.sub(lambda one: self.remembered.get(one[0], one[0]), command)

    def _shown(self, printed: str) -> str:
        text = _ESCAPES.sub("", printed).replace(str(self.folder), SHOWN_AS)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())

    def _pattern(self, expected: str, new: dict[str, str]) -> str:
        parts, has_sizes = list[str](), False
        for line in expected.splitlines():
            has_sizes = has_sizes or re.search(r"\bbytes(_\w+)?(  |$)", line) is not None
            if line.strip() == "...":
                parts.append(r"(?:.*)")
            elif words := " ".join(_words(line)):
                parts.append(self._line(words, new, _SIZE if has_sizes else None))
        return r" ?".join(parts) if r"(?:.*)" in parts else " ".join(parts)

    def _line(self, text: str, new: dict[str, str], size: re.Pattern[str] | None) -> str:
        def fixed(part: str) -> str:
            if size is None:
                return re.escape(part)
            return r"\d+".join(re.escape(one) for one in size.split(part))

        pattern, end = "", 0
        for one in _DYNAMIC.finditer(text):
            kind = one.lastgroup or ""
            pattern += fixed(text[end : one.start()])
            end = one.end()
            if kind not in _REMEMBERED:
                pattern += _LIKE[kind]
            elif one[0] in self.remembered:
                pattern += re.escape(self.remembered[one[0]])
            elif one[0] in new:
                pattern += f"(?P={new[one[0]]})"
            else:
                new[one[0]] = f"one{len(new)}"
                pattern += f"(?P<{new[one[0]]}>{_LIKE[kind]})"
        return pattern + fixed(text[end:])


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a transcript, each with the lines that it prints."""
    if not text.startswith("$ "):
        raise ValueError(f"a transcript begins with a command, not with {text.splitlines()[:1]}")
    for one in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = one.partition("\n")
        yield command, printed


def _wrapped(line: str) -> str:
    """Return a sentence in lines that fit the page; a row of a table stays one line."""
    if "   " in line.strip():
        return line
    return "\n".join(textwrap.wrap(line, 112, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


def _words(text: str) -> list[str]:
    """The words of an output; lines of a table's frame, and where lines are broken, do not count."""
    return [word for word in text.split() if not re.fullmatch("[─━]+", word)]
