"""Where landing files are: a folder of this machine, or a prefix of a bucket."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from foldhouse.errors import LandingError
from foldhouse.landing.opened import Look, Opened, opened_file, opened_folder
from foldhouse.landing.prefix import Prefix


class Place(Protocol):
    """The files of a landing folder, by their names."""

    is_waited_for: bool
    """Whether a file takes longer to arrive than to read."""

    def looks(self, names: re.Pattern[str]) -> dict[str, Look]:
        """Return what each file whose name fits a pattern looks like from outside."""

    def held(self, names: list[str]) -> list[str]:
        """Return those of some names that there is a file for."""

    def file(self, name: str) -> Path | str:
        """Return the path or address of a file."""

    def opened(self, file: Path | str) -> AbstractContextManager[Opened]:
        """Open a file for reading."""


@dataclass(frozen=True)
class Folder:
    """A folder of this machine."""

    path: Path

    is_waited_for = False

    def looks(self, names: re.Pattern[str]) -> dict[str, Look]:
        """Return what each file whose name fits a pattern looks like from outside."""
        with opened_folder(self.path) as folder:
            found = {name: _status(name, folder) for name in self._listed() if names.fullmatch(name)}
        return {name: _look(name, status) for name, status in found.items() if status is not None}

    def held(self, names: list[str]) -> list[str]:
        """Return those of some names that there is a file for."""
        with opened_folder(self.path) as folder:
            return [name for name in names if _status(name, folder)]

    def file(self, name: str) -> Path:
        """Return the path of a file."""
        return self.path / name

    def opened(self, file: Path | str) -> AbstractContextManager[Opened]:
        """Open a file for reading."""
        return opened_file(Path(file))

    def _listed(self) -> list[str]:
        try:
            return sorted(os.listdir(self.path))
        except OSError as error:
            found = f"landing folder {self.path} cannot be listed ({error.strerror})"
            raise LandingError(f"{found}; create it, or name the folder that holds the files") from error


def place_of(folder: Path | str, catalog: str) -> Place:
    """Return the place of a landing folder.

    Args:
        folder: a folder of this machine, or an address such as `s3://bucket/prefix`.
        catalog: whose properties open a store; empty for the environment alone.
    """
    return Prefix(folder, catalog) if isinstance(folder, str) else Folder(folder)


def _status(name: str, folder: int) -> os.stat_result | None:
    """Return what the folder says of a name, without following a link; None where there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _look(name: str, status: os.stat_result) -> Look:
    text = f"{name}:{status.st_size}:{status.st_ino}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    return Look(name, status.st_size, text)
