"""The files of a landing folder: which are days, when one has changed, and which are refused."""

from __future__ import annotations

import gzip
import os
from datetime import date
from pathlib import Path

import pytest
from landing_days import DAY, HEADER, LINE, RETAIL, land, line_with, lines_of

from foldhouse.errors import LandingError, UnreadableFile
from foldhouse.landing import Landing


def test_another_header_is_refused_with_what_was_found_and_expected(tmp_path: Path) -> None:
    for header in ("InvoiceNo,StockCode", HEADER.lower(), f"{HEADER},More", "", '"InvoiceNo', HEADER.replace(",", ";")):
        with pytest.raises(UnreadableFile) as refused:
            land(tmp_path, f"{header}\n{LINE}\n")
        assert f"2011-11-22.csv has the header {header!r}, expected {HEADER!r}; correct" in str(refused.value)
        assert str(refused.value).endswith("Nothing of it was landed")


def test_columns_in_another_order_are_another_header(tmp_path: Path) -> None:
    swapped = HEADER.replace("InvoiceNo,StockCode", "StockCode,InvoiceNo")
    with pytest.raises(UnreadableFile, match="has the header 'StockCode,InvoiceNo"):
        land(tmp_path, f"{swapped}\n{LINE}\n")


@pytest.mark.parametrize("keep", [5, 12, 40, -9, -1])
def test_a_truncated_gzip_is_refused(tmp_path: Path, keep: int) -> None:
    whole = gzip.compress(lines_of(*[line_with("Quantity", str(at)) for at in range(500)]).encode())
    (tmp_path / f"{DAY}.csv.gz").write_bytes(whole[:keep])
    with pytest.raises(
        UnreadableFile, match=r"2011-11-22.csv.gz is a truncated or corrupt gzip .*land it again, whole"
    ):
        Landing(tmp_path, RETAIL).read(DAY)


def test_a_corrupt_gzip_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(lines_of(*[line_with("Quantity", str(at)) for at in range(500)]).encode()))
    for at in (len(content) // 2, len(content) - 6):
        damaged = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
        (tmp_path / f"{DAY}.csv.gz").write_bytes(damaged)
        with pytest.raises(UnreadableFile, match="is a truncated or corrupt gzip"):
            Landing(tmp_path, RETAIL).read(DAY)
    (tmp_path / f"{DAY}.csv.gz").write_bytes(bytes(content) + b"more")
    with pytest.raises(UnreadableFile, match="is a truncated or corrupt gzip"):
        Landing(tmp_path, RETAIL).read(DAY)


def test_a_name_that_lies_about_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv is gzip where CSV was expected; .*name it .csv.gz"):
        land(tmp_path, gzip.compress(lines_of(LINE).encode()))
    (tmp_path / f"{DAY}.csv").rename(tmp_path / f"{DAY}.csv.gz")
    (tmp_path / f"{DAY}.csv.gz").write_text(lines_of(LINE))
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv.gz is not gzip; compress it, or name it .csv"):
        Landing(tmp_path, RETAIL).read(DAY)


def test_an_empty_file_is_refused_compressed_or_not(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"2011-11-22.csv is empty; .*header alone"):
        land(tmp_path, b"")
    (tmp_path / f"{DAY}.csv").unlink()
    for content in (b"", gzip.compress(b"")):
        (tmp_path / f"{DAY}.csv.gz").write_bytes(content)
        with pytest.raises(UnreadableFile, match=r"2011-11-22.csv.gz is empty"):
            Landing(tmp_path, RETAIL).read(DAY)


def test_another_encoding_is_refused_with_the_place_of_its_first_byte(tmp_path: Path) -> None:
    text = lines_of(LINE, line_with("Description", "£ LANTERN"))
    offset = text.index("£")
    with pytest.raises(
        UnreadableFile, match=rf"is not UTF-8: byte 0xa3 at byte offset {offset}, line 3; save it as UTF-8"
    ):
        land(tmp_path, text.encode("latin-1"))
    with pytest.raises(UnreadableFile, match="is UTF-16; save it as UTF-8"):
        land(tmp_path, text.encode("utf-16"))
    with pytest.raises(UnreadableFile, match="has a NUL byte at byte offset 1, line 1"):
        land(tmp_path, text.encode("utf-16-le"))


def test_a_nul_byte_is_refused_with_its_place(tmp_path: Path) -> None:
    text = lines_of(LINE, line_with("Description", "WHITE\0LANTERN"))
    with pytest.raises(UnreadableFile, match=rf"has a NUL byte at byte offset {text.index(chr(0))}, line 3"):
        land(tmp_path, text)


def test_two_files_for_a_day_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(lines_of(LINE).encode()))
    with pytest.raises(UnreadableFile, match=r"holds 2011-11-22.csv and 2011-11-22.csv.gz for one day; remove the one"):
        land(tmp_path, lines_of(LINE))
    landing = Landing(tmp_path, RETAIL)
    assert landing.days() == [DAY]
    assert list(landing.fingerprints()) == [DAY]


def test_a_folder_that_is_not_there_is_no_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for missing in ("gone", "file"):
        landing = Landing(tmp_path / missing, RETAIL)
        for look in (landing.days, landing.fingerprints, lambda: landing.path(DAY), lambda: landing.read(DAY)):  # noqa: B023
            with pytest.raises(LandingError, match=rf"landing folder .*{missing} cannot be listed \(.*\); create it"):
                look()


def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDHOUSE_LANDING", str(tmp_path))
    assert Landing.from_environment(RETAIL) == Landing(tmp_path, RETAIL)
    monkeypatch.setenv("FOLDHOUSE_LANDING", "")
    with pytest.raises(LandingError, match="FOLDHOUSE_LANDING is not set; set it to the folder"):
        Landing.from_environment(RETAIL)
    with pytest.raises(LandingError, match="ELSEWHERE is not set"):
        Landing.from_environment(RETAIL, "ELSEWHERE")


def test_days_are_the_files_named_for_one(tmp_path: Path) -> None:
    for name in (
        "2011-11-23.csv",
        "2011-11-22.csv.gz",
        "2011-02-30.csv",
        "2011-11-24.csv.tmp",
        "x2011-11-25.csv",
        "a.txt",
    ):
        (tmp_path / name).write_text("")
    landing = Landing(tmp_path, RETAIL)
    assert landing.days() == [date(2011, 11, 22), date(2011, 11, 23)]
    assert list(landing.fingerprints()) == landing.days()
    assert landing.path(date(2011, 11, 22)) == tmp_path / "2011-11-22.csv.gz"
    assert landing.path(date(2011, 11, 24)) is None


def test_a_fingerprint_stays_while_nothing_changes_and_is_of_its_own_file(tmp_path: Path) -> None:
    other = tmp_path / "2011-11-23.csv"
    land(tmp_path, lines_of(LINE))
    other.write_text(lines_of(LINE))
    landing = Landing(tmp_path, RETAIL)
    before = landing.fingerprints()
    assert landing.fingerprints() == before
    other.write_text(lines_of(LINE, LINE))
    after = landing.fingerprints()
    assert after[DAY] == before[DAY]
    assert after[date(2011, 11, 23)] != before[date(2011, 11, 23)]


def test_a_file_replaced_by_one_of_the_same_length_and_times_has_another_fingerprint(tmp_path: Path) -> None:
    land(tmp_path, lines_of(LINE))
    path = tmp_path / f"{DAY}.csv"
    landing, times = Landing(tmp_path, RETAIL), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    before = landing.fingerprints()
    replacement = tmp_path / "arriving"
    replacement.write_text(lines_of(LINE.replace("WHITE", "BLACK")))
    os.utime(replacement, ns=times)
    replacement.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (len(lines_of(LINE)), times[1])
    assert landing.fingerprints() != before


def test_a_file_compressed_in_its_place_has_another_fingerprint_and_the_same_digest(tmp_path: Path) -> None:
    plain, landing = land(tmp_path, lines_of(LINE)), Landing(tmp_path, RETAIL)
    before = landing.fingerprints()
    (tmp_path / f"{DAY}.csv").unlink()
    (tmp_path / f"{DAY}.csv.gz").write_bytes(gzip.compress(lines_of(LINE).encode()))
    assert landing.fingerprints() != before
    assert landing.read(DAY).digest == plain.digest
