"""What a REST catalog demands of whoever reads a table, which pyiceberg does not hand on.

The answer to `loadTable` may have `read-restrictions`: rows to filter and columns to leave out or to mask, for the
principal that asked. The specification wants a reader to fail that cannot apply one of them in full. A catalog may also
ask to plan scans by itself (`scan-planning-mode: server`), for all tables by its configuration or for one by the
answer; then only its plan says which files the principal may read. Tamis does neither, so both are refused by name.
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

Answers = list[dict[str, Any]]


def is_rest(catalog: Catalog) -> bool:
    module = sys.modules.get("pyiceberg.catalog.rest")
    return module is not None and isinstance(catalog, module.RestCatalog)


@contextmanager
def record_answers(catalog: Catalog) -> Iterator[Answers]:
    """The JSON objects that a REST catalog answers to this thread meanwhile, oldest first; none of other catalogs."""
    found: Answers = []
    if not is_rest(catalog):
        yield found
        return
    hooks = getattr(getattr(catalog, "_session", None), "hooks", None)
    if not isinstance(hooks, dict):
        raise UnsupportedFeature(
            f"what the catalog '{catalog.name}' answers cannot be seen with this version of pyiceberg, and so not "
            f"whether it demands {RESTRICTIONS}: open the table by its folder or its metadata file, or install "
            "another version of pyiceberg"
        )
    thread = get_ident()

    def record(response: Any, *args: Any, **kwargs: Any) -> None:
        if get_ident() != thread or not response.ok:
            return
        try:
            answer = response.json()
        except ValueError:
            return  # pyiceberg says what is wrong with it
        if isinstance(answer, dict):
            found.append(answer)

    hooks.setdefault("response", []).append(record)
    try:
        yield found
    finally:
        hooks["response"].remove(record)


def refuse_demands(answers: Answers, properties: Mapping[str, Any], what: str) -> None:
    """An error where an answer, or the configuration of a catalog, demands what Tamis does not do."""
    mode = str(properties.get(PLANNING) or _CLIENT)
    for answer in answers:
        restrictions = answer.get(RESTRICTIONS)
        if _restricts(restrictions):
            names = f" ({', '.join(map(str, restrictions))})" if isinstance(restrictions, dict) else ""
            raise UnsupportedFeature(
                f"the catalog demands {RESTRICTIONS}{names} of whoever reads {what}, and Tamis applies none: read the "
                "table with an engine that does, or ask for rights to read all of it"
            )
        config = answer.get("config")
        mode = str((config.get(PLANNING) if isinstance(config, dict) else None) or mode)
    if mode.lower() != _CLIENT:
        raise UnsupportedFeature(
            f"the catalog asks to plan scans of {what} by itself ({PLANNING}: {mode}), and Tamis plans by itself: read "
            f"the table with an engine that lets the catalog plan, or have the catalog allow {PLANNING}: {_CLIENT}"
        )


def _restricts(restrictions: Any) -> bool:
    """Whether anything is demanded: what is not known counts, and an empty object or list does not."""
    if isinstance(restrictions, dict):
        return any(map(_restricts, restrictions.values()))
    return restrictions is not None and restrictions != []
