"""The connection to a REST catalog: time limits, retries of reads alone, and answers that are not a catalog's.

Guarantee: a commit is sent once. A request that may have reached the server is repeated only if it reads. A commit
whose answer was lost is looked up by the caller.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pyiceberg.catalog import TOKEN
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import LegacyOAuth2AuthManager
from pyiceberg.utils.config import Config
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse
from urllib3.util import Retry

from foldhouse.errors import StorageError

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 120
_ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 20.0
_BUSY = (429, 502, 503, 504)


class _Again(Retry):
    """Retries that wait as long as the server asks for, within a limit."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        asked = super().get_retry_after(response)
        return None if asked is None else min(asked, _LONGEST_WAIT_SECONDS)


class _Patient(HTTPAdapter):
    """Sends requests with time limits, and refuses pages that a proxy gives in the place of an answer."""

    def __init__(self) -> None:
        again = _Again(
            total=_ATTEMPTS,
            allowed_methods=("GET", "HEAD"),
            status_forcelist=_BUSY,
            backoff_factor=_FIRST_WAIT_SECONDS,
            backoff_max=_LONGEST_WAIT_SECONDS,
            raise_on_status=False,
        )
        super().__init__(max_retries=again)

    def send(self, request: PreparedRequest, *given: Any, **named: Any) -> Response:
        named["timeout"] = named.get("timeout") or (_CONNECT_SECONDS, _ANSWER_SECONDS)
        answer = super().send(request, *given, **named)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.ok and kind in ("text/html", "application/xhtml+xml"):
            answer.close()
            raise StorageError(
                f"the catalog's address answered a {request.method} with status {answer.status_code} and an HTML page, "
                "not with JSON: a proxy or a login page is in between; check the catalog's `uri` and the way to it"
            )
        if answer.status_code == HTTPStatus.NOT_IMPLEMENTED:  # pyiceberg would raise Python's NotImplementedError
            answer.close()
            raise StorageError(
                f"the catalog's server does not implement a {request.method} that is needed (status 501); nothing was "
                "changed by it. Check the catalog's `uri`, and what its server supports"
            )
        return answer


def tokens_of(catalog: object) -> dict[str, str]:
    """Return the tokens that a server gave a REST catalog for its credential; none for another catalog."""
    manager = getattr(catalog, "_auth_manager", None)
    tokens = (getattr(one, "_token", None) for one in (manager, getattr(manager, "token_provider", None)))
    return {f"token {place}": str(one) for place, one in enumerate(tokens) if one}


class PatientRestCatalog(RestCatalog):
    """A REST catalog whose requests have time limits; reads are retried, commits are not."""

    def __init__(self, name: str, **properties: str) -> None:
        try:
            super().__init__(name, **properties)
        except Exception:
            if "_session" in vars(self):
                self._session.close()
            raise

    def _refresh_token(self) -> None:
        """Called if the server says that the token expired: take a new one from the configuration, or ask for one."""
        token = (Config().get_catalog_config(self.name) or {}).get(TOKEN)
        if isinstance(token, str) and isinstance(self._auth_manager, LegacyOAuth2AuthManager):
            self.properties[TOKEN] = self._auth_manager._token = token
        super()._refresh_token()

    def _create_session(self) -> Session:
        session = super()._create_session()
        if not self.properties.get("rest.sigv4-enabled"):  # its signatures need the adapter of pyiceberg
            session.mount("http://", _Patient())
            session.mount("https://", _Patient())
        return session
