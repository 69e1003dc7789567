"""The secret values in the configuration of a catalog, and their removal from texts that people see."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

_SECRET = re.compile(
    r"secret|token|password|passwd|credential|access-key|account-key|private-key|\bsas\b|connection-string"
)
_SHORTEST = 4
"""Shorter values occur in ordinary words; hiding them would garble every message."""
HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Whether the value of a property must not be shown, such as `s3.secret-access-key`."""
    return _SECRET.search(name.lower().replace("_", "-")) is not None


def secrets_in(properties: Mapping[str, Any]) -> frozenset[str]:
    """Return the secret values of a configuration, and the passwords in its addresses.

    {"uri": "postgresql://fold:pa%40ss@db/lake", "s3.secret-access-key": "abcd"}   -> pa%40ss, pa@ss, abcd
    """
    found: set[str] = set()
    for name, value in properties.items():
        if isinstance(value, Mapping):
            found |= secrets_in(value)
            continue
        text = str(value)
        if is_secret(name):
            found |= {text, *text.split(":")[1:]}  # a credential may be `client:secret`
        with contextlib.suppress(ValueError):
            password = urlsplit(text).password if "://" in text else None
            found |= {password, unquote(password)} if password else set()
    return frozenset(one for one in found if len(one) >= _SHORTEST)


def without_secrets(text: str, properties: Mapping[str, Any]) -> str:
    """Return a text with every secret of a configuration replaced by `***`."""
    for secret in sorted(secrets_in(properties), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
