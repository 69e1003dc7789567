"""Iceberg's REST catalog on a port, with tables in the store of the environment; arguments: a folder and a port."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.catalog_servers import rest

PREFIX = "PYICEBERG_CATALOG__PROD__"


def properties(folder: Path, port: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the server's configuration, from that of its clients."""
    return {
        "port": str(port),
        "uri": f"jdbc:sqlite:{folder / 'rest.db'}",
        "warehouse": given[f"{PREFIX}WAREHOUSE"],
        "io_impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3__endpoint": given[f"{PREFIX}S3__ENDPOINT"],
        "s3__access_key_id": given[f"{PREFIX}S3__ACCESS_KEY_ID"],
        "s3__secret_access_key": given[f"{PREFIX}S3__SECRET_ACCESS_KEY"],
        "s3__path_style_access": "true",
        "client__region": given[f"{PREFIX}S3__REGION"],
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with rest(place) as servers:
        servers.start(**properties(place, int(sys.argv[2]), os.environ))
        signal.pause()
