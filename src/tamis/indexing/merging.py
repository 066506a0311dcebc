"""Few large parts out of many small ones: to open a part costs as much as to read thousands of its entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.indexing.current import Part
from tamis.indexing.entries import Rows
from tamis.indexing.spec import IndexSpec
from tamis.indexing.store import SCHEMA, IndexStore

FULL_FILES = 50_000
FULL_BYTES = 128 * 1024 * 1024
"""What a part has at most."""


def merge_parts(store: IndexStore, spec: IndexSpec, parts: Iterable[tuple[Part, Rows | None]]) -> list[Part]:
    """Parts with the entries that still count (None: all of them), the small ones written together.

    A part that is at least half full of such entries stays as it is.
    """
    large: list[Part] = []
    small: list[tuple[Part, Rows | None]] = []
    for part, rows in parts:
        live = part.files if rows is None else len(rows)
        is_full = max(live / FULL_FILES, part.size / FULL_BYTES) >= 0.5
        if is_full and 2 * live >= part.files:
            large.append(part)
        else:
            small.append((part, rows))
    if len(small) == 1 and _is_clean(*small[0]):
        return [*large, small[0][0]]
    return [*large, *(_write(store, spec, group) for group in _groups(small))]


def _is_clean(part: Part, rows: Rows | None) -> bool:
    return rows is None or 2 * len(rows) >= part.files


def _groups(parts: Sequence[tuple[Part, Rows | None]]) -> Iterator[list[tuple[Part, Rows | None]]]:
    group: list[tuple[Part, Rows | None]] = []
    files = size = 0
    for part, rows in parts:
        live = part.files if rows is None else len(rows)
        if group and (files + live > FULL_FILES or size + part.size > FULL_BYTES):
            yield group
            group, files, size = [], 0, 0
        group.append((part, rows))
        files, size = files + live, size + part.size
    if group:
        yield group


def _write(store: IndexStore, spec: IndexSpec, group: Sequence[tuple[Part, Rows | None]]) -> Part:
    schemas: dict[bytes, int] = {}
    tables = [_entries(store, part, rows, schemas) for part, rows in group]
    return store.write_part(pa.concat_tables(tables), list(schemas), spec)


def _entries(store: IndexStore, part: Part, rows: Rows | None, schemas: dict[bytes, int]) -> pa.Table:
    """The entries of a part that still count, with schemas numbered as in the part to come."""
    table = store.read_whole(part)
    if rows is not None and len(rows) < part.files:
        table = table.take(pa.array(rows))
    if SCHEMA in table.column_names:
        numbers = [schemas.setdefault(schema, len(schemas)) for schema in store.schemas_of(part)]
        renumbered = pa.array(np.array(numbers, np.int32)).take(pc.cast(table[SCHEMA].combine_chunks(), pa.int64()))
        table = table.set_column(table.column_names.index(SCHEMA), SCHEMA, renumbered)
    return table.replace_schema_metadata(None)
