"""The credentials that a REST server vends for one table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog.rest import Endpoints, RestCatalog, TableResponse
from pyiceberg.io import PY_IO_IMPL
from requests import RequestException

from foldhouse.errors import StorageError


def said_by(catalog: RestCatalog, response: TableResponse) -> dict[str, str]:
    """Return the properties that a server gives for the file system of a table, but no code that it names."""
    vended = catalog._resolve_storage_credentials(response.storage_credentials, response.metadata_location)
    return {name: text for name, text in {**response.config, **vended}.items() if name != PY_IO_IMPL}


def vended_for(catalog: RestCatalog, table: tuple[str, ...]) -> Mapping[str, str]:
    """Ask a server for the properties of a table's file system.

    Raises:
        StorageError: the server does not answer, or refuses.
    """
    url = catalog.url(Endpoints.load_table, prefixed=True, **catalog._split_identifier_for_path(table))
    try:
        answer = catalog._session.get(url, params={"snapshots": "refs"})
        if answer.status_code in (401, 419):
            catalog._refresh_token()
            answer = catalog._session.get(url, params={"snapshots": "refs"})
        answer.raise_for_status()
        return said_by(catalog, TableResponse.model_validate_json(answer.text))
    except (RequestException, ValueError) as failure:
        status = getattr(getattr(failure, "response", None), "status_code", None)
        said = f"status {status}" if status else type(failure).__name__
        raise StorageError(
            f"{'.'.join(table)}: catalog {catalog.name} gives no credentials for its files ({said}). Check that its "
            "server runs and still accepts this process"
        ) from None  # a cause may contain the secret
