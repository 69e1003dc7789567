"""Files that somebody means ill with, one after the other through the landing folder: what came of each.

    python -m tests.hostile_files FOLDER SEED CASES

prints one JSON object: how many landed and were refused, and what must be empty: errors that are not ours, hangs, rows
that an independent reader does not see, and messages that show what lies outside of the folder.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import string
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

from assets.retail import FORMAT
from foldhouse.errors import LandingError
from foldhouse.landing import Landed, Landing
from tests import csv_oracle

DAY = date(2011, 11, 22)
HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
LENIENT = replace(FORMAT, max_bad_share=1.0)
SECRET = "sesame-open-7f3a"
HANG_SECONDS = 120
"""A case that takes longer hangs; the slowest takes a second or two."""

MIB = 2**20

VALUES = [
    *("", " ", "\t", "\u00a0", "\u2007", "\u202f", "\u200b", "\ufeff", "\u3164", "\x1b", "\x9b2J", "\u202e", "\x7f"),
    *("1", "-1", "+1", "007", "1_000", "1,000", "1.0", "1e3", "0x10", "NaN", "nan", "inf", "-Infinity", "1e400"),
    *("2147483647", "2147483648", "-2147483649", "9" * 400, "-", "--1", "\u0663", "\uff11", "1\u00a0", "\u22121"),
    *("2.55", ".5", "5.", "-.5", "0.00001", "0.12340000", "99999999.9999", "100000000", "1.2.3", "£2", "0" * 300 + "1"),
    *("2011-11-22 08:26:00", "2011-11-22 24:00:00", "2011-11-22 23:59:60", "2011-02-30 00:00:00"),
    *("2011-11-22 08:26:00Z", "2011-11-22T08:26:00", "0000-01-01 00:00:00", "9999-12-31 23:59:59", "2011-11-22"),
    *(
        "17850.0",
        "17850.00",
        "=cmd|' /C calc'!A0",
        "a\nb",
        'a"b',
        '"',
        '""',
        "a,b",
        "é" * 50,
        "😀",
        "NULL",
        "\\N",
        "\\",
    ),
]
GOOD = ["536365", "85123A", "WHITE LANTERN", "6", "2011-11-22 08:26:00", "2.55", "17850.0", "United Kingdom"]


def written(fields: list[str]) -> str:
    """A line, with quotes where they are needed."""
    row = io.StringIO(newline="")
    csv.writer(row, lineterminator="").writerow(fields)
    return row.getvalue()


def good_text(chance: random.Random, lines: int | None = None) -> str:
    """A day in which most values are right, with one of the three line ends."""
    rows = [list(GOOD) for _ in range(chance.randrange(1, 60) if lines is None else lines)]
    for row in rows:
        if chance.random() < 0.4:
            row[chance.randrange(8)] = chance.choice(VALUES)
    line_end = chance.choice(["\n", "\n", "\r\n", "\r"])
    return line_end.join([HEADER, *map(written, rows)]) + chance.choice(["", line_end])


def soup(chance: random.Random) -> bytes:
    """Delimiters, quotes and line ends by chance."""
    body = "".join(chance.choices(',,,,"""\n\n\r a;\t', k=chance.randrange(1, 2500)))
    return f"{HEADER}\n{body}".encode()


def quotes(chance: random.Random) -> bytes:
    """A few lines with wrong quotes, again and again."""
    lines = ["".join(chance.choices(',"a', k=chance.randrange(1, 12))) for _ in range(chance.randrange(1, 4))]
    return "\n".join([HEADER, *lines * chance.randrange(1, 150)]).encode()


def mutated(chance: random.Random, content: bytes) -> bytes:
    """Bytes with bits flipped, cut out, doubled, moved, or put in."""
    changed = bytearray(content)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(changed) + 1)
        length = chance.randrange(1, 40)
        kind = chance.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = changed[at : at + length]
        elif kind == 3:
            changed[at:at] = bytes(chance.randrange(256) for _ in range(length))
        else:
            del changed[at:]
    return bytes(changed)


def encoded(chance: random.Random) -> bytes:
    encoding = chance.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7", "utf-8-sig", "cp037"])
    text = good_text(chance).encode("latin-1", "replace").decode("latin-1")
    return text.encode(encoding, "replace") if chance.random() < 0.8 else b"\xef\xbb\xbf" * 2 + text.encode()


def headers(chance: random.Random) -> bytes:
    names = HEADER.split(",")
    kind = chance.randrange(7)
    if kind == 0:
        names += [chance.choice(names)]
    elif kind == 1:
        chance.shuffle(names)
    elif kind == 2:
        names = ["x" * chance.choice([10**5, 5 * MIB])]
    elif kind == 3:
        names = ['"' + HEADER]
    elif kind == 4:
        names = ["," * chance.choice([1000, 10**6])]
    elif kind == 5:
        names = []
    else:
        names = [chance.choice(VALUES) for _ in names]
    return "\n".join([",".join(names), written(GOOD)]).encode()


def large(chance: random.Random) -> bytes:
    """Much of one thing: a line, columns, short lines, bad lines, quotes that are not closed."""
    size = chance.choice([MIB, 3 * MIB, 6 * MIB])
    piece = chance.choice(["x", ",", '"', "\n", "\r", ",,,,,,,\n", "a\n", 'a","x\n', '"x\n', "\x1b", '""', "é", '"",'])
    return f"{HEADER}\n{written(GOOD)}\n".encode() + (piece * (size // len(piece))).encode()


def packed(chance: random.Random) -> bytes:
    """A gzip: whole, in members, cut, with more at its end, or with a wrong sum."""
    content = chance.choice([soup, quotes, encoded, headers])(chance)
    if chance.random() < 0.5:
        content = good_text(chance).encode()
    whole = gzip.compress(content, mtime=0)
    kind = chance.randrange(6)
    if kind == 0:
        at = chance.randrange(len(content) + 1)
        return gzip.compress(content[:at]) + b"\0" * chance.randrange(3) + gzip.compress(content[at:])
    if kind == 1:
        return whole[: chance.randrange(len(whole))]
    if kind == 2:
        return whole + bytes(chance.randrange(256) for _ in range(chance.randrange(1, 20)))
    if kind == 3:
        return whole[:-8] + bytes(chance.randrange(256) for _ in range(8))
    if kind == 4:
        return gzip.compress(whole)
    return whole


def bomb(chance: random.Random) -> bytes:
    """Some 300 MiB in some 300 kB."""
    content = chance.choice([b"\0", b"x", b"\n", b"\r\n", b'"', b",", b",,,,,,,\n", f"{written(GOOD)}\n".encode()])
    member = zlib.compress(content * (4 * MIB // len(content)), 9, wbits=31)
    return gzip.compress(f"{HEADER}\n".encode()) + member * 75


CONTENTS: list[tuple[int, str, Callable[[random.Random], bytes], str]] = [
    (90, "values", lambda chance: good_text(chance).encode(errors="surrogatepass"), ".csv"),
    (90, "mutated", lambda chance: mutated(chance, good_text(chance).encode()), ".csv"),
    (60, "soup", soup, ".csv"),
    (60, "quotes", quotes, ".csv"),
    (40, "encoded", encoded, ".csv"),
    (40, "headers", headers, ".csv"),
    (20, "large", large, ".csv"),
    (60, "packed", packed, ".csv.gz"),
    (50, "mutated gzip", lambda chance: mutated(chance, gzip.compress(good_text(chance).encode(), mtime=0)), ".csv.gz"),
    (20, "noise", lambda chance: chance.randbytes(chance.randrange(5000)), ".csv"),
    (20, "compressed noise", lambda chance: chance.randbytes(chance.randrange(5000)), ".csv.gz"),
    (10, "bomb", bomb, ".csv.gz"),
]


def odd(chance: random.Random, path: Path) -> None:
    """Make something that is no regular file, or a very large one."""
    outside = path.parent.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret.csv").write_text(f"{SECRET}\n")
    kind = chance.randrange(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(chance.choice(["/dev/zero", "/dev/stdin", "/dev/tty", "/proc/self/mem", "/proc/kmsg"]))
    elif kind == 3:
        path.symlink_to(chance.choice([outside / "secret.csv", "../outside/secret.csv", outside, ".", path.name]))
    elif kind == 4:
        with path.open("wb") as file:
            file.truncate(chance.choice([2**40, 600 * MIB]))
    elif kind == 5:
        for name in (path.with_suffix("").name, f"{path.name}.gz"):
            (path.parent / name).write_text(SECRET)
        path.write_text(good_text(chance))
        (path.parent / f"{DAY}.csv.gz").write_bytes(b"x")
    elif kind == 6:
        here = os.getcwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as held:
            held.bind(path.name)
        os.chdir(here)
    else:
        path.write_text("".join(chance.choices(string.printable, k=100)))
        path.chmod(0)


def wrong(landed: Landed, stored: bytes, is_gzip: bool) -> str:
    """What an independent reader sees otherwise; nothing where both agree."""
    text = csv_oracle.content_of(stored, is_gzip).decode().removeprefix("\ufeff")
    header = next(iter(text.splitlines()), "")
    good, bad = csv_oracle.lines_of_text(text[len(header) :], columns=8, longest=LENIENT.limits.line_bytes)
    events = {}
    for number, fields in good.items():
        event = csv_oracle.invoice(fields, DAY)
        if event is None:
            bad[number] = ""
        else:
            events[number] = {**event, "source_file": f"{DAY}.csv", "line_number": number}
    if landed.events.to_pylist() != list(events.values()):
        return f"{landed.events.num_rows} events, expected {len(events)}, or others"
    if landed.quarantined["line_number"].to_pylist() != sorted(bad):
        return f"other lines are quarantined than {sorted(bad)[:10]}"
    return "" if landed.lines == len(events) + len(bad) else f"{landed.lines} lines"


class Hang(BaseException):
    """The alarm rang."""


def ring(*_: object) -> None:
    raise Hang


def run(folder: Path, seed: int, cases: int) -> dict[str, object]:
    """Take the cases of a seed through the landing folder."""
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    failures: dict[str, list[str]] = {"raw": [], "hangs": [], "wrong": [], "leaks": []}
    signal.signal(signal.SIGALRM, ring)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in range(cases):
        landing = folder / "landing"
        landing.mkdir(parents=True)
        kind, path, stored = "odd", landing / f"{DAY}.csv", b""
        if case % 12:
            _, kind, make, suffix = chance.choices(CONTENTS, weights=[one[0] for one in CONTENTS])[0]
            path, stored = landing / f"{DAY}{suffix}", make(chance)
            path.write_bytes(stored)
        else:
            odd(chance, path)
        signal.alarm(HANG_SECONDS)
        try:
            landed = Landing(landing, LENIENT).read(DAY)
        except LandingError as error:
            outcomes[f"{kind}: refused"] += 1
            if SECRET in str(error) or not str(error).isprintable() or len(str(error)) > 8000:
                failures["leaks"].append(f"case {case}, {kind}: {str(error)[:500]!r}")
        except Hang:
            failures["hangs"].append(f"case {case}, {kind}")
        except BaseException as error:
            failures["raw"].append(f"case {case}, {kind}: {error!r:.500}")
        else:
            signal.alarm(0)
            outcomes[f"{kind}: landed"] += 1
            if len(stored) < 200_000 and (found := wrong(landed, stored, path.suffix == ".gz")):
                failures["wrong"].append(f"case {case}, {kind}: {found}")
        finally:
            signal.alarm(0)
            shutil.rmtree(landing)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"cases": cases, "outcomes": outcomes, "grown_mib": grown // 1024, **failures}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
