"""Keeps the credentials of a store out of everything that is sent to another process, such as a Spark task.

A task gets the names of the properties that are missing, and the name of the catalog. In the process that opened the
catalog, their values are in memory; any other process takes them from its own configuration of that catalog.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from foldhouse.errors import ConfigurationError, StorageError
from foldhouse.storage.configured import WHERE, configuration_of
from foldhouse.storage.secrets import is_secret, secrets_in

_HELD: dict[str, dict[str, str]] = {}
_TOKENS: dict[frozenset[tuple[str, str]], str] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Credentials:
    """Which properties of a store are secret, without their values.

    Args:
        catalog: the name of the catalog in pyiceberg's configuration.
        names: of the properties.
        token: under which this process remembers the values; it means nothing to another process.
    """

    catalog: str = ""
    names: tuple[str, ...] = ()
    token: str = field(default="", repr=False)

    def values(self) -> dict[str, str]:
        """Return the secret properties.

        Raises:
            StorageError: this process has not opened the catalog, and does not have its credentials configured.
        """
        if not self.names:
            return {}
        with _LOCK:
            held = _HELD.get(self.token)
        if held is not None:
            return held
        try:
            configured = configuration_of(self.catalog)
        except ConfigurationError:
            configured = {}
        missing = [name for name in self.names if name not in configured]
        if missing:
            raise StorageError(
                f"this process has no {', '.join(missing)} of catalog {self.catalog}: credentials are not sent with "
                f"tasks. Configure catalog {self.catalog} for Spark's workers too, in {WHERE}"
            )
        return {name: str(configured[name]) for name in self.names}


def separated(catalog: str, properties: Mapping[str, str]) -> tuple[dict[str, str], Credentials]:
    """Divide the properties of a file system into those that anybody may see, and the credentials.

    Args:
        catalog: the name of the catalog.
        properties: of its file system.
    """
    private = {name: text for name, text in properties.items() if is_secret(name) or secrets_in({name: text})}
    public = {name: text for name, text in properties.items() if name not in private}
    # The address of the catalog is of no use to a file system, and may contain a password.
    private.pop("uri", None)
    if not private:
        return public, Credentials()
    with _LOCK:
        token = _TOKENS.setdefault(frozenset(private.items()), uuid4().hex)
        _HELD[token] = private
    return public, Credentials(catalog, tuple(sorted(private)), token)
