"""The command line: read tables, changes and history, run a job in the foreground, roll back, rebuild, tidy up.

Reading starts no JVM and does not import Dagster.
"""

from foldhouse.cli.main import main

__all__ = ["main"]
