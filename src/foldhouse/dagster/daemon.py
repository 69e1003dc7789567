"""Dagster's daemon, which sees a launched backfill within seconds: `python -m foldhouse.dagster.daemon run`.

Dagster's own looks for backfills every 30 seconds, and no setting changes that. It takes the same options.
"""

from dagster._daemon import cli, controller

LOOK_SECONDS = 5


def look_often() -> None:
    """Have the daemon of this process look for launched backfills every `LOOK_SECONDS`."""
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = LOOK_SECONDS


def main() -> None:
    """Run Dagster's daemon."""
    look_often()
    cli.main()


if __name__ == "__main__":
    main()
