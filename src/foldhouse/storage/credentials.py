"""Keeps the credentials of a store out of everything that is sent to another process, and renews them.

A task gets the names of the properties that are missing, and the name of the catalog. In the process that opened the
catalog, their values are in memory. Any other process takes them from its own configuration of that catalog, and then
asks the REST server for those that it vends for the table.

| credentials | renewed |
|---|---|
| of the environment, a profile or a role | by the store's client |
| of the catalog's configuration | the configuration is read again after five minutes |
| vended by a REST server | asked for again after four fifths of their life, at the latest five minutes before its end |
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from pyiceberg.io import GCS_TOKEN_EXPIRES_AT_MS

from foldhouse.errors import ConfigurationError, FoldhouseError, StorageError
from foldhouse.storage.configuration import WHERE, configuration_of
from foldhouse.storage.rest import PatientRestCatalog, tokens_of
from foldhouse.storage.secrets import is_secret, secrets_in
from foldhouse.storage.vended import vended_for

RENEWED_SECONDS = 300.0
_SOON_SECONDS = 30.0
"""How soon something is tried again that could not be renewed, or whose time is over by this machine's clock."""
_SHARE_BEFORE_END = 5
_EXPIRY = "expires-at"

Properties = Mapping[str, str]


@dataclass(frozen=True)
class _Held:
    """Credentials in memory, until they should be renewed."""

    values: dict[str, str]
    until: float
    renew: Callable[[], Properties] | None = None


_HELD: dict[str, _Held] = {}
_TOKENS: dict[frozenset[tuple[str, str]], str] = {}
_OPENED: dict[str, PatientRestCatalog] = {}
_CONFIGURED: dict[str, Properties] = {}
"""The configurations from which a task took credentials: an error of asking for vended ones may quote them."""
_RECENT: deque[dict[str, str]] = deque(maxlen=64)
"""Vended credentials that were replaced: they may still hold, and be in a message."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Credentials:
    """Which properties of a store are secret, without their values.

    Args:
        catalog: the name of the catalog in pyiceberg's configuration.
        names: of the properties.
        token: under which this process remembers the values; it means nothing to another process.
        table: for which a REST server vends them; empty if they are configured.
    """

    catalog: str = ""
    names: tuple[str, ...] = ()
    token: str = field(default="", repr=False)
    table: tuple[str, ...] = ()

    def values(self) -> dict[str, str]:
        """Return the secret properties: the same object until they are renewed.

        Raises:
            StorageError: this process has not opened the catalog, and does not have its credentials configured.
        """
        if not self.names:
            return _NONE
        with _LOCK:
            held = _HELD.get(self.token)
        if held is None or held.until <= time.time():
            held = self._renewed(held)
        return held.values

    def _renewed(self, held: _Held | None) -> _Held:
        renew = held.renew if held is not None else self._found_here
        try:
            found = renew() if renew is not None else {}
            values = {name: found[name] for name in self.names if name in found}
        except FoldhouseError:
            if held is None:
                raise
            found, values = {}, {}
        if held is not None and (len(values) < len(self.names) or values == held.values):
            made = _Held(held.values, max(_until(found), time.time() + _SOON_SECONDS), held.renew)
        elif len(values) < len(self.names):
            raise self._missing(values)
        else:
            made = _Held(values, _until(found), renew)
        with _LOCK:
            if held is not None and made.values is not held.values:
                _RECENT.append(held.values)
            _HELD[self.token] = made
        return made

    def _found_here(self) -> Properties:
        """Return what this process has configured, with what the REST server vends for the table."""
        try:
            given = configuration_of(self.catalog)
        except ConfigurationError:
            return {}
        configured = {name: str(value) for name, value in given.items()}
        with _LOCK:
            _CONFIGURED[self.catalog] = given
        if not self.table or all(name in configured for name in self.names):
            return configured
        with _LOCK:
            catalog = _OPENED.get(self.catalog)
        if catalog is None:
            opened = PatientRestCatalog(self.catalog, **configured)
            with _LOCK:
                catalog = _OPENED.setdefault(self.catalog, opened)
        return {**configured, **vended_for(catalog, self.table)}

    def _missing(self, values: Properties) -> StorageError:
        missing = [name for name in self.names if name not in values]
        return StorageError(
            f"this process has no {', '.join(missing)} of catalog {self.catalog}: credentials are not sent with "
            f"tasks. Configure catalog {self.catalog} for Spark's workers too, in {WHERE}"
        )


_NONE: dict[str, str] = {}


def held_secrets() -> dict[str, Properties]:
    """Return the credentials that this process has in memory, so that no message shows them."""
    with _LOCK:
        held = [one.values for one in _HELD.values()]
        found = [*held, *_RECENT, *_CONFIGURED.values(), *map(tokens_of, _OPENED.values())]
    return {str(number): values for number, values in enumerate(found)}


def public_of(properties: Properties) -> dict[str, str]:
    """Return the properties of a file system that anybody may see."""
    return {
        name: text
        for name, text in properties.items()
        if not _is_private(name, text) and not _is_of_the_catalog(name) and _EXPIRY not in name
    }


def _is_of_the_catalog(name: str) -> bool:
    """Whether a property is how the catalog is reached, which is of no use to a file system."""
    return name in ("auth", "ssl") or name.startswith(("header.", "auth."))


def _is_private(name: str, text: str) -> bool:
    return is_secret(name) or bool(secrets_in({name: text}))


def _is_needed(name: str, text: str) -> bool:
    """Whether a property is a secret of the file system."""
    return _is_private(name, text) and name != "uri" and not _is_of_the_catalog(name) and _EXPIRY not in name


def separated(
    catalog: str,
    properties: Properties,
    renew: Callable[[], Properties] | None = None,
    vended_table: tuple[str, ...] = (),
) -> tuple[dict[str, str], Credentials]:
    """Divide the properties of a file system into those that anybody may see, and the credentials.

    Args:
        catalog: the name of the catalog.
        properties: of its file system.
        renew: returns newer properties; without it, they stay as they are in this process.
        vended_table: the table that a REST server vended them for.
    """
    public = public_of(properties)
    # Arrow takes a token of Google only with the end of its life.
    private = {
        name: text for name, text in properties.items() if name == GCS_TOKEN_EXPIRES_AT_MS or (_is_needed(name, text))
    }
    if not private:
        return public, Credentials()
    # Vended credentials are new at each load, so they are remembered by their table, not by their values.
    known = {"uri": str(properties.get("uri", "")), "table": "\0".join(vended_table)} if vended_table else private
    with _LOCK:
        token = _TOKENS.setdefault(frozenset({**known, "catalog": catalog}.items()), uuid4().hex)
        before = _HELD.get(token)
        values = before.values if before is not None and before.values == private else private
        if before is not None and values is private:
            _RECENT.append(before.values)
        if before is None or values is private or vended_table:
            _HELD[token] = _Held(values, _until(properties) if renew else float("inf"), renew)
    return public, Credentials(catalog, tuple(sorted(private)), token, vended_table)


def _until(properties: Properties) -> float:
    """Return when credentials should be renewed, in seconds since the epoch."""
    now = time.time()
    ends = [int(text) / 1000 for name, text in properties.items() if _EXPIRY in name and str(text).isdigit()]
    if not ends:
        return now + RENEWED_SECONDS
    left = min(ends) - now
    if left <= 0:  # this machine's clock is ahead of the server's, or the server vends what has expired
        return now + _SOON_SECONDS
    return now + left - min(RENEWED_SECONDS, left / _SHARE_BEFORE_END)
