"""Asks the page of `foldhouse dev` to load the code location again, from a process of its daemon."""

import json
import os
import urllib.request

PAGE = "FOLDHOUSE_PAGE"
"""The environment variable with the address of the page; `foldhouse dev` sets it for the daemon."""
_RELOAD = "mutation { reloadWorkspace { __typename } }"
_PATIENCE_SECONDS = 20


def reload_page() -> bool:
    """Ask the page to load the code location again; return whether it was asked.

    It is not waited for: a page that takes longer than a sensor may wait goes on by itself.
    """
    address = os.environ.get(PAGE)
    if not address:
        return False
    request = urllib.request.Request(
        f"{address}/graphql", json.dumps({"query": _RELOAD}).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
    try:
        with opener.open(request, timeout=_PATIENCE_SECONDS) as answer:
            return bool(answer.status == 200)
    except TimeoutError:
        return True
    except OSError:
        return False
