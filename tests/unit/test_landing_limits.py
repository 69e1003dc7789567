"""The limits of landing: what may be opened, how much of it is read, and in how much memory."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest
from landing_days import DAY, HEADER, LINE, RETAIL, land, lenient, line_with, lines_of

from foldhouse.errors import DefinitionError, LandingError, TooManyBadLines, UnreadableFile
from foldhouse.landing import CsvColumn, CsvFormat, Landing, Limits
from foldhouse.landing.content import Content

MIB = 2**20
SECRET = "root:x:0:0"


def limited(**limits: int) -> CsvFormat:
    return lenient(limits=Limits(**limits))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    held = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is at most 107 characters long
    try:
        held.bind(path.name)
    finally:
        os.chdir(here)
        held.close()


def link_outside(path: Path) -> None:
    outside = path.parent.parent / "secret.txt"
    outside.write_text(SECRET)
    path.symlink_to(outside)


def link_inside(path: Path) -> None:
    (path.parent / "whole.csv").write_text(lines_of(LINE))
    path.symlink_to("whole.csv")


ODD_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (fifo, "is a FIFO"),
    "socket": (unix_socket, "is a socket"),
    "directory": (Path.mkdir, "is a directory"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
    "link out of the folder": (link_outside, "is a symbolic link"),
    "link inside of the folder": (link_inside, "is a symbolic link"),
    "link to nothing": (lambda path: path.symlink_to("gone.csv"), "is a symbolic link"),
    "link to itself": (lambda path: path.symlink_to(path.name), "is a symbolic link"),
}


@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize(("make", "kind"), ODD_FILES.values(), ids=ODD_FILES)
def test_what_is_no_regular_file_is_refused_by_name_and_not_read(
    tmp_path: Path, make: Callable[[Path], None], kind: str, compressed: str
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    path = folder / f"{DAY}.csv{compressed}"
    make(path)
    landing = Landing(folder, RETAIL)
    with pytest.raises(UnreadableFile) as refused:
        landing.read(DAY)
    assert str(refused.value).startswith(f"{path} {kind}; landing reads regular files only: land a file in its place")
    assert SECRET not in str(refused.value)
    assert list(landing.fingerprints()) == landing.days() == [DAY]  # so that a sensor asks for the day, once


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device")
def test_a_device_is_refused_by_name_and_not_read(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / f"{DAY}.csv", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container may not make a device")
    with pytest.raises(UnreadableFile, match="is a device"):
        Landing(tmp_path, RETAIL).read(DAY)


@pytest.mark.parametrize(
    ("turn", "said"),
    [(lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link"), (os.mkfifo, "is a FIFO")],
    ids=["a link", "a FIFO"],
)
def test_a_file_that_turns_into_something_else_before_it_is_opened_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / f"{DAY}.csv"
    path.write_text(lines_of(LINE))
    opened = os.open

    def swapped(name: str, *arguments: object, **options: object) -> int:
        if name == path.name:
            path.unlink()
            turn(path)
        return opened(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(UnreadableFile, match=said):
        Landing(tmp_path, RETAIL).read(DAY)


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        (lines_of(LINE), {"stored_bytes": 100}, "has 160 bytes; the limit is 100; raise `stored_bytes`"),
        (
            lines_of(LINE),
            {"content_bytes": 100},
            "than it may; the limit is 100; raise `content",
        ),
        (lines_of(LINE), {"header_bytes": 50}, "a header of more than 50 bytes; the limit is 50; raise `header_bytes`"),
        (lines_of(*[LINE] * 100), {"event_bytes": 5000}, "more than 5,000 bytes of events; the limit is 5,000; raise"),
        ("x" * 5 * MIB, {}, "has a header of more than 65,536 bytes"),
        ('"' + "x" * 200_000, {"header_bytes": MIB}, "has the header"),
    ],
)
def test_a_file_beyond_a_limit_is_refused_with_the_limit_and_how_to_raise_it(
    tmp_path: Path, text: str, limits: dict[str, int], message: str
) -> None:
    with pytest.raises(UnreadableFile) as refused:
        land(tmp_path, text, limited(**limits))
    assert message in str(refused.value)
    assert str(refused.value).endswith("Nothing of it was landed")
    assert len(str(refused.value)) < 2000


def test_more_bad_lines_than_the_limit_are_refused_whatever_the_share_is(tmp_path: Path) -> None:
    bad = line_with("Quantity", "9" * 30)
    assert land(tmp_path, lines_of(LINE, *[bad] * 50), limited(bad_lines=50)).quarantined.num_rows == 50
    with pytest.raises(TooManyBadLines, match=r"more than 50 lines cannot be .* raise `bad_lines`.* First: line"):
        land(tmp_path, lines_of(LINE, *[bad] * 51), limited(bad_lines=50))
    with pytest.raises(TooManyBadLines, match="more than 50 lines"):
        land(tmp_path, lines_of(LINE, *["a,b"] * 100_000), limited(bad_lines=50))


def test_the_text_of_a_bad_line_is_cut_in_the_quarantine_and_says_how_long_it_was(tmp_path: Path) -> None:
    bad = line_with("Quantity", "é" * 3000)
    landed = land(tmp_path, lines_of(LINE, bad))
    raw = landed.quarantined["raw"][0].as_py()
    assert raw.endswith(f"… ({len(bad.encode()):,} bytes)")
    assert bad.startswith(raw.partition("…")[0])
    assert len(raw.encode()) < 2100


def test_the_reasons_of_a_line_with_many_columns_are_cut(tmp_path: Path) -> None:
    format = CsvFormat(tuple(CsvColumn(f"c{at}", f"c{at}", "int") for at in range(500)), max_bad_share=1)
    landed = land(tmp_path, ",".join(format.header) + "\n" + ",".join(["x" * 70] * 500) + "\n", format)
    assert len(landed.quarantined["reason"][0].as_py()) <= 1001


def test_a_line_that_is_longer_than_a_block_is_one_bad_line(tmp_path: Path) -> None:
    for line_end in ("\n", "\r", "\r\n"):
        for long in (",".join("x" * 12 * MIB for _ in range(1)), '"' + "x" * 12 * MIB):
            landed = land(tmp_path, line_end.join([HEADER, LINE, long, LINE, LINE]))
            assert landed.events["line_number"].to_pylist() == [1, 3, 4]
            assert landed.quarantined["line_number"].to_pylist() == [2]
            assert landed.quarantined["reason"][0].as_py().startswith("line: found more than ")


def test_a_quote_that_is_never_closed_in_a_large_file_takes_no_other_line_with_it(tmp_path: Path) -> None:
    bad = LINE.replace("WHITE", '"WHITE')
    landed = land(tmp_path, lines_of(bad, *[LINE] * 150_000))
    assert (landed.events.num_rows, landed.quarantined.num_rows) == (150_000, 1)
    assert landed.quarantined["raw"].to_pylist() == [bad]


def test_a_line_feed_after_a_long_line_at_the_end_of_a_block_is_no_line(tmp_path: Path) -> None:
    for length in range(4 * MIB - 3, 4 * MIB + 3):
        before = HEADER + "\r\n"
        landed = land(tmp_path, before + "x" * (length - len(before)) + "\r\n" + LINE + "\r\n")
        assert (landed.events["line_number"].to_pylist(), landed.quarantined["line_number"].to_pylist()) == ([2], [1])


def test_a_large_file_reads_the_same_as_its_parts(tmp_path: Path) -> None:
    lines = [line_with("Description", f'{at} "é", \r\n £') if at % 3 else LINE for at in range(120_000)]
    landed = land(tmp_path, lines_of(*lines))
    assert landed.lines == landed.events.num_rows == 120_000
    assert landed.events["line_number"].to_pylist() == list(range(1, 120_001))
    described = landed.events["description"].to_pylist()
    assert described[1:3] == ['1 "é", \r\n £', '2 "é", \r\n £']
    assert described[119_997] == "WHITE LANTERN"
    assert landed.digest == hashlib.sha256(lines_of(*lines).encode()).hexdigest()


def test_wrong_bytes_far_into_a_file_are_placed(tmp_path: Path) -> None:
    before = lines_of(*[LINE.replace("WHITE", "£££££")] * 40_000).encode()
    for wrong, found in ((b"\0", "has a NUL byte"), (b"\xff", "is not UTF-8: byte 0xff"), (b"\xc2", "byte 0xc2")):
        with pytest.raises(UnreadableFile, match=rf"{found} at byte offset {len(before)}, line 40002"):
            land(tmp_path, before + wrong + b"more\n")
    for keep in (1, 2, 3):
        with pytest.raises(UnreadableFile, match=rf"byte 0xf0 at byte offset {len(before)}, line 40002"):
            land(tmp_path, before + "😀".encode()[:keep])


def test_a_character_may_lie_across_two_pieces(tmp_path: Path) -> None:
    for shift in range(4):
        text = HEADER + "\n" + "x" * shift + "😀" * (MIB // 2)
        with pytest.raises(TooManyBadLines):
            land(tmp_path, text, lenient(max_bad_share=0))


def test_a_gzip_of_many_small_members_and_padding_reads_as_one(tmp_path: Path) -> None:
    text = lines_of(*[LINE] * 20).encode()
    members = b"".join(gzip.compress(text[at : at + 1]) for at in range(len(text)))
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(b"") + members + b"\0" * 100_000)
    assert Landing(tmp_path, RETAIL).read(DAY).lines == 20
    format = limited(members=1000)
    with pytest.raises(UnreadableFile, match=r"gzip of more than 1,000 members; the limit is 1,000; raise `members`"):
        Landing(tmp_path, format).read(DAY)


@pytest.mark.parametrize("tail", [b"more", b"\0\0more", b"\x1f", b"\x1f\x8b", gzip.compress(b"x", mtime=0)[:-1]])
def test_bytes_after_the_end_of_a_gzip_are_refused(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(lines_of(LINE).encode()) + tail)
    with pytest.raises(UnreadableFile, match="is a truncated or corrupt gzip"):
        Landing(tmp_path, RETAIL).read(DAY)


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_a_gzip_whose_content_fills_its_pieces_is_read_to_the_last_byte(tmp_path: Path, size: int) -> None:
    content = (HEADER + "\n").encode()
    content += b"x" * (size - len(content))
    path = tmp_path / f"{DAY}.csv.gz"
    path.write_bytes(gzip.compress(content))
    pieces = list(Content(path, Limits()).pieces())
    assert b"".join(pieces) == content
    path.write_bytes(gzip.compress(content)[:-8])
    with pytest.raises(UnreadableFile, match="ends before its end mark"):
        list(Content(path, Limits()).pieces())


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{DAY}.csv"
    path.write_text(lines_of(*[LINE] * 20_000))
    pieces = Content(path, Limits()).pieces()
    next(pieces)
    with path.open("a") as file:
        file.write(LINE)
    with pytest.raises(UnreadableFile, match=r"changed while it was read; write it under another name, rename it"):
        list(pieces)


def test_a_file_that_grows_without_end_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / f"{DAY}.csv"
    path.write_bytes(b"x" * MIB)

    def read_while_it_grows() -> None:
        with path.open("ab") as file:
            for _ in Content(path, Limits(stored_bytes=5 * MIB)).pieces():
                file.write(b"x" * MIB)
                file.flush()

    with pytest.raises(UnreadableFile, match="grew while it was read; the limit is 5,242,880"):
        read_while_it_grows()
    assert path.stat().st_size < 8 * MIB


def test_a_file_that_is_replaced_while_it_is_read_lands_as_it_was_with_its_own_digest(tmp_path: Path) -> None:
    path = tmp_path / f"{DAY}.csv"
    before, after = (lines_of(*[line] * 20_000).encode() for line in (LINE, LINE.replace("WHITE", "BLACK")))
    path.write_bytes(before)
    content = Content(path, Limits())
    pieces = content.pieces()
    read = next(pieces)
    (tmp_path / "arriving").write_bytes(after)
    (tmp_path / "arriving").replace(path)
    read += b"".join(pieces)
    assert read == before
    assert content.digest == hashlib.sha256(before).hexdigest()


def bomb(path: Path, content: bytes, mebibytes: int) -> None:
    member = gzip.compress(content * (32 * MIB // len(content)), mtime=0)
    path.write_bytes(gzip.compress(f"{HEADER}\n".encode()) + member * (mebibytes // 32))


# The format is that of `assets/retail.py`, which imports Dagster; that takes longer than to read the day.
PEAK = """
import json, resource, sys
from datetime import date
from pathlib import Path
from foldhouse.errors import LandingError
from foldhouse.landing import CsvColumn, CsvFormat, Landing, replaced
cleaned = {"customer_id": replaced(r"^([0-9]+)\\.0$", r"\\1")}
columns = [CsvColumn(**one, clean=cleaned.get(one["name"])) for one in json.loads(sys.argv[2])]
FORMAT = CsvFormat(columns=tuple(columns), day="invoiced_at")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    Landing(Path(sys.argv[1]), FORMAT).read(date(2011, 11, 22))
    print("landed")
except LandingError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def peak_of(folder: Path) -> tuple[str, int]:
    """Read the day in a process of its own: what came of it, and by how many MiB the process grew."""
    root = Path(__file__).resolve().parents[2]
    columns = [{name: getattr(one, name) for name in ("source", "name", "type", "required")} for one in RETAIL.columns]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder), json.dumps(columns)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=root,
        check=True,
    )
    *told, peak = done.stdout.splitlines()
    return "\n".join(told), int(peak)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0", "has a NUL byte"),
        pytest.param(b"x", "compressed to more than", marks=pytest.mark.heavy),
        pytest.param(b"\n", "compressed to more than", marks=pytest.mark.heavy),
        pytest.param(b'"', "compressed to more than", marks=pytest.mark.heavy),
        pytest.param(b",,,,,,,\n", "lines cannot be events", marks=pytest.mark.heavy),
        ((LINE + "\n").encode(), "compressed to more than"),
    ],
)
def test_a_gzip_of_far_more_is_refused_within_the_stated_memory(tmp_path: Path, content: bytes, message: str) -> None:
    bomb(tmp_path / f"{DAY}.csv.gz", content, 512)
    told, peak = peak_of(tmp_path)
    assert message in told
    assert peak < 384


def test_fields_without_a_byte_in_them_are_counted_as_the_memory_they_take(tmp_path: Path) -> None:
    format = CsvFormat(
        tuple(CsvColumn(f"c{at}", f"c{at}", "decimal(38,0)") for at in range(200)),
        limits=Limits(event_bytes=16 * MIB),
    )
    with pytest.raises(UnreadableFile, match=r"more than 16,777,216 bytes of events"):
        land(tmp_path, ",".join(format.header) + "\n" + ("," * 199 + "\n") * 20_000, format)


@pytest.mark.parametrize("limits", [{"bad_lines": 0}, {"line_bytes": -1}, {"ratio": 1.5}, {"stored_bytes": True}])
def test_a_limit_that_is_none_is_refused_where_it_is_declared(limits: dict[str, int]) -> None:
    with pytest.raises(DefinitionError, match=f"limits.{next(iter(limits))}=.* is not a limit"):
        Limits(**limits)


@pytest.mark.parametrize("files", [1000, pytest.param(30_000, marks=pytest.mark.heavy)])
def test_a_folder_of_many_files_is_listed_and_its_odd_names_are_no_days(tmp_path: Path, files: int) -> None:
    odd = [b"2011-11-22.csv\n", b"2011-11-22\n.csv", b"2011-11-2\xff.csv", b"\xff\xfe.csv", b"2011-11-22.CSV", b"-.csv"]
    odd += ["\uff12011-11-22.csv".encode(), b" 2011-11-22.csv", b"2011-11-22.csv.gz.part", b"0000-01-01.csv"]
    for name in odd:
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()
    first = date(1750, 1, 1).toordinal()
    for at in range(files):
        os.close(os.open(tmp_path / f"{date.fromordinal(first + at)}.csv", os.O_CREAT | os.O_WRONLY))
    landing = Landing(tmp_path, RETAIL)
    days = landing.days()
    assert (len(days), days[0]) == (files, date(1750, 1, 1))
    assert len(landing.fingerprints()) == files


def test_looking_for_the_file_of_a_day_does_not_list_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path, lines_of(LINE))
    monkeypatch.setattr(os, "listdir", lambda *_: pytest.fail("it was listed"))
    assert Landing(tmp_path, RETAIL).read(DAY).lines == 1


def test_a_folder_that_is_a_link_is_the_folder_that_was_configured(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "landing").symlink_to("real")
    land(tmp_path / "real", lines_of(LINE))
    assert Landing(tmp_path / "landing", RETAIL).read(DAY).lines == 1
    with pytest.raises(LandingError, match="cannot be listed"):
        Landing(Path(f"{tmp_path}/\0"), RETAIL).read(DAY)


def test_what_a_message_shows_of_a_file_is_escaped_and_short(tmp_path: Path) -> None:
    attack = "\x1b]0;owned\x07\x9b2J\u202e=cmd|' /C calc'!A0\r"
    with pytest.raises(UnreadableFile) as refused:
        land(tmp_path, attack * 1000)
    bad = land(tmp_path, lines_of(LINE, line_with("Quantity", attack)))
    with pytest.raises(TooManyBadLines) as too_many:
        land(tmp_path, lines_of(line_with("Quantity", attack)), RETAIL)
    for text in (str(refused.value), str(too_many.value), bad.quarantined["reason"][0].as_py()):
        assert text.isprintable()
        assert len(text) < 2000


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    land(tmp_path, lines_of(LINE))
    before = held()
    for text in (lines_of(LINE), "x", lines_of(*[LINE] * 3) + "\0", ""):
        with suppress(LandingError):
            land(tmp_path, text)
    assert held() == before
