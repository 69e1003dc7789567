"""What pyiceberg's configuration says of a catalog: `.pyiceberg.yaml`, or `PYICEBERG_CATALOG__PROD__URI`."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config

from foldhouse.errors import ConfigurationError
from foldhouse.storage.secrets import is_secret

_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# Matches `s3://bucket`, and `s3:/bucket`, which is what `Path` makes of it.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
REREAD_SECONDS = 60.0
_READ_AT = "_foldhouse_read_at"
"""The attribute of a catalog with the time of its last reading, in a list that its copies share."""
WHERE = "`.pyiceberg.yaml` in $PYICEBERG_HOME, your home or the current folder, or PYICEBERG_CATALOG__NAME__URI"


def check_is_folder(path: str | Path) -> None:
    """Refuse an address such as `s3://bucket/lake` where a folder is needed.

    Raises:
        ConfigurationError: it is an address.
    """
    if is_address(path):
        raise ConfigurationError(
            f"{path} is an address, and a local lake is a folder on this machine. For tables in a store, configure a "
            f"catalog ({WHERE}) and open it by its name: fh.Lake.open(NAME), or --catalog NAME"
        )


def is_address(path: str | Path) -> bool:
    """Whether a path is an address such as `s3://bucket/lake`, also as `Path` spells it."""
    return _ADDRESS.match(str(path)) is not None


def configuration_of(name: str) -> Mapping[str, Any]:
    """Return the configuration of a catalog, as pyiceberg reads it now.

    Raises:
        ConfigurationError: there is none of that name, or it cannot be read.
    """
    if not _NAMED.fullmatch(name):
        raise ConfigurationError(f"{name!r} is not the name of a catalog; use letters, digits, `_` and `-`")
    try:
        config = Config()
        found = config.get_catalog_config(name)
        known = sorted(config.get_known_catalogs())
    except Exception as failure:  # of the YAML parser, of files, or ValueError for a wrong structure
        raise ConfigurationError(
            f"pyiceberg's configuration cannot be read ({type(failure).__name__}); check {WHERE}"
        ) from None  # the message may quote the file
    if found is None:
        raise ConfigurationError(
            f"no catalog {name} is configured; there is {', '.join(known) or 'none'}. Configure it in {WHERE}"
        )
    return found


def opened_now(catalog: Catalog) -> None:
    """Remember that a catalog has the configuration of this moment."""
    vars(catalog)[_READ_AT] = [time.monotonic()]


def reread(catalog: Catalog) -> dict[str, str]:
    """Read the configuration of a catalog again, at most once a minute; return its properties.

    Only secrets and what belongs to them are taken, so that a catalog does not move. One that was not opened by its
    name, or whose configuration is gone, stays as it is.
    """
    found: dict[str, Any] = catalog.properties
    at = vars(catalog).get(_READ_AT)
    if at is not None and time.monotonic() - at[0] >= REREAD_SECONDS:
        at[0] = time.monotonic()
        with contextlib.suppress(ConfigurationError):
            new = configuration_of(catalog.name)
            found.update({name: text for name, text in new.items() if text is not None and is_secret(name)})
    return {name: str(text) for name, text in found.items()}
