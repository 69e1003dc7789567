"""The Java that Spark would start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
# Matches `version "17.0.2"` and `version "1.8.0_392"` in the first line of `java -version`.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java() -> tuple[Path | None, int | None]:
    """Return the program that Spark would start and its major version; `None` for what cannot be found.

    It is the one of `$JAVA_HOME`, or else the first on the path.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        return None, None
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Path(found), None
    said = _VERSION.search(done.stderr + done.stdout)
    return Path(found), int(said.group(1)) if said else None
