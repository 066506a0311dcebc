"""Demands of REST catalogs on the reader of a table, which pyiceberg does not expose.

The response to `loadTable` may contain `read-restrictions`: row filters, and columns to omit or to mask, for the
principal of the request. The specification requires a reader to fail if it cannot apply all of them. A catalog may also
demand server-side scan planning (`scan-planning-mode: server`), for all tables in its configuration or for one table in
the response; then only its plan determines which files the principal may read. Tamis supports neither, and rejects both
with an error that names the demand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from pyiceberg.catalog import Catalog

from tamis.errors import UnsupportedFeature

RESTRICTIONS = "read-restrictions"
PLANNING = "scan-planning-mode"
_CLIENT = "client"

Responses = list[dict[str, Any]]


def is_rest_catalog(catalog: Catalog) -> bool:
    module = sys.modules.get("pyiceberg.catalog.rest")
    return module is not None and isinstance(catalog, module.RestCatalog)


@contextmanager
def record_responses(catalog: Catalog) -> Iterator[Responses]:
    """Collect the JSON objects that a REST catalog returns to this thread, oldest first; empty for other catalogs."""
    found: Responses = []
    if not is_rest_catalog(catalog):
        yield found
        return
    hooks = getattr(getattr(catalog, "_session", None), "hooks", None)
    if not isinstance(hooks, dict):
        raise UnsupportedFeature(
            f"this version of pyiceberg does not expose the responses of the catalog '{catalog.name}', so Tamis cannot "
            f"check for {RESTRICTIONS}: open the table by its folder or its metadata file, or install another version "
            "of pyiceberg"
        )
    thread = get_ident()

    def record(response: Any, *args: Any, **kwargs: Any) -> None:
        if get_ident() != thread or not response.ok:
            return
        try:
            content = response.json()
        except ValueError:
            return  # pyiceberg reports the error
        if isinstance(content, dict):
            found.append(content)

    hooks.setdefault("response", []).append(record)
    try:
        yield found
    finally:
        hooks["response"].remove(record)


def reject_unsupported_demands(responses: Responses, properties: Mapping[str, Any], what: str) -> None:
    """Raise if a response or the configuration of a catalog demands what Tamis does not support."""
    mode = str(properties.get(PLANNING) or _CLIENT)
    for content in responses:
        restrictions = content.get(RESTRICTIONS)
        if _has_restriction(restrictions):
            names = f" ({', '.join(map(str, restrictions))})" if isinstance(restrictions, dict) else ""
            raise UnsupportedFeature(
                f"the catalog demands {RESTRICTIONS}{names} for {what}, which Tamis does not support: read the table "
                "with an engine that does, or ask for rights to read all of it"
            )
        config = content.get("config")
        mode = str((config.get(PLANNING) if isinstance(config, dict) else None) or mode)
    if mode.lower() != _CLIENT:
        raise UnsupportedFeature(
            f"the catalog demands server-side scan planning for {what} ({PLANNING}: {mode}), which Tamis does not "
            f"support: read the table with an engine that does, or have the catalog allow {PLANNING}: {_CLIENT}"
        )


def _has_restriction(restrictions: Any) -> bool:
    """Return whether there is any restriction: an unknown one counts, an empty object or list does not."""
    if isinstance(restrictions, dict):
        return any(map(_has_restriction, restrictions.values()))
    return restrictions is not None and restrictions != []
