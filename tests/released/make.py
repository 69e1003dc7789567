"""Makes the stored lake of a released format: run it with that version, and never again for it.

    cd tests/released && PYTHONPATH=../../src python make.py format-1.tar.xz

A new format gets a file of its own beside the older ones.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from released_io import lake_in
from shop import TABLES, events, payments

BATCHES = 4


def make(folder: Path) -> None:
    """Write the lake into a folder: four batches, a tag after the second, a compaction."""
    with closing(lake_in(folder)) as lake:
        for batch in range(BATCHES):
            lake.append(payments, events(batch), batch_id=f"batch-{batch}")
            for table in TABLES:
                lake.refresh(table)
            if batch == 1:
                for table in TABLES:
                    lake.tag(table, "second")
        lake.compact(TABLES[0])


def main(into: Path) -> None:
    """Make the lake in a temporary folder, and pack it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        with tarfile.open(into, "w:xz") as packed:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    packed.add(path, str(path.relative_to(folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
