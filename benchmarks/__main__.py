"""`make bench`: run the benchmarks, show a table, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import retail

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Measure the retail year and print what came of it."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--repeats", type=int, default=5, help="corrections of a day, of which the median counts")
    options.add_argument("--json", type=Path, default=ROOT / "artifacts" / "bench.json", help="where the figures go")
    chosen = options.parse_args()
    source = Path(os.environ.get("FOLDHOUSE_RETAIL", ROOT.parent / "shared" / "data" / "online-retail"))
    if not source.is_dir():
        raise SystemExit(f"the year of invoices is not at {source}; set FOLDHOUSE_RETAIL to its folder")
    with tempfile.TemporaryDirectory(prefix="foldhouse-bench-") as folder:
        figures = retail.measure(source, Path(folder), chosen.repeats)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    where = {"cores": os.cpu_count(), "python": platform.python_version()}
    chosen.json.write_text(json.dumps({"retail": figures, "machine": where}, indent=2) + "\n")
    shown = Table("figure", "value", title="The retail year: 305 files, 541,909 lines, five tables")
    for name, value in figures.items():
        shown.add_row(name, f"{value / 2**30:,.2f} GiB" if name.endswith("bytes") else f"{value:,.2f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
