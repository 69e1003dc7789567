"""The secret values in the configuration of a catalog, and their removal from texts that people see."""

from __future__ import annotations

import base64
import contextlib
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

_SECRET = re.compile(
    r"secret|token|password|passwd|\bpwd\b|passphrase|credential|access-?key|account-?key|private-key|api-?key"
    r"|authorization|cookie|signature|\bsas\b|\bsig\b|connection-string|odbc-connect"
    # Any header may contain a secret, except those that every client sends.
    r"|^header\.(?!x-iceberg-access-delegation$|user-agent$|accept$|content-type$)"
)
# Matches `sig=abc` in `sv=2024&sig=abc`, and `AccountKey=abc` in `AccountName=a;AccountKey=abc`.
_ASSIGNED = re.compile(r"(?:^|[&;?])\s*([A-Za-z0-9_.-]+)=([^&;]+)")
_SHORTEST = 4
"""Shorter values occur in ordinary words; hiding them would garble every message."""
_LONGEST_LINE = 500
HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Whether the value of a property must not be shown, such as `s3.secret-access-key`."""
    return _SECRET.search(name.lower().replace("_", "-")) is not None


def secrets_in(properties: Mapping[str, Any]) -> frozenset[str]:
    """Return the secret values of a configuration, and those in its addresses, as a text may spell them.

    {"uri": "postgresql://fold:pa%40ss@db/lake", "s3.secret-access-key": "abcd"}   -> pa%40ss, pa@ss, abcd, ...
    """
    found: set[str] = set()
    for name, value in properties.items():
        if isinstance(value, Mapping):
            found |= secrets_in(value)
        else:
            found |= {*_of_property(name, str(value)), *_of_address(str(value))}
    if "password" in properties:  # of basic authentication
        found.add(_basic(str(properties.get("username", "")), str(properties["password"])))
    long = {one for one in found if len(one) >= _SHORTEST}
    # As they are in an address, and in the `repr` of a text.
    return frozenset(long | {quote(one, safe="") for one in long} | {repr(one)[1:-1] for one in long})


def _of_property(name: str, text: str) -> Iterator[str]:
    """Yield the value of a secret property, and its parts that are secrets alone."""
    if is_secret(name):
        yield text
        yield from text.split(":")[1:]  # a credential may be `client:secret`
        yield from text.split(" ")[1:]  # a header may be `Bearer token`
        yield from _assigned(text)


def _of_address(text: str) -> Iterator[str]:
    """Yield the password of an address, and the secrets among its parameters."""
    if "://" not in text:
        return
    with contextlib.suppress(ValueError):
        found = urlsplit(text)
        if found.password:
            password = unquote(found.password)
            yield from (found.password, password, _basic(unquote(found.username or ""), password))
    yield from _assigned(text.partition("://")[2].partition("?")[2])
    yield from _assigned(text.partition("://")[2].partition(";")[2])


def _assigned(text: str) -> Iterator[str]:
    for name, value in _ASSIGNED.findall(text):
        if is_secret(name):
            yield from (value, unquote(value))


def _basic(user: str, password: str) -> str:
    """Return a user and password as the header of basic authentication has them."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def cut(text: str) -> str:
    """Return a text as one line of a message, cut between words: half of a secret would not be found in it."""
    return textwrap.shorten(text, _LONGEST_LINE, placeholder=" ...", break_long_words=False, break_on_hyphens=False)


def without_secrets(text: str, properties: Mapping[str, Any]) -> str:
    """Return a text with every secret of a configuration replaced by `***`."""
    for secret in sorted(secrets_in(properties), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
