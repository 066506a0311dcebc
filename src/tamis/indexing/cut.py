"""Long bounds cut short: an index is read often, and the first characters of a bound say nearly all."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.patterns import successor_of_bytes, successor_of_prefix
from tamis.indexing.spec import IndexedColumn

LONGEST_BOUND = 64
"""Characters of a text, or bytes."""


def cut_bounds(metadata: Mapping[str, pa.Array], column: IndexedColumn) -> dict[str, pa.Array]:
    """The metadata of a column with bounds of at most `LONGEST_BOUND`; one that is cut is not exact any more."""
    found = dict(metadata)
    is_text = types.is_text(column.type)
    if not (is_text or types.is_bytes(column.type)) or pa.types.is_fixed_size_binary(column.type):
        return found
    for kind in ("lower", "upper"):
        bounds = found[column.name(kind)]
        length = pc.utf8_length(bounds) if is_text else pc.binary_length(bounds)
        is_long = pc.fill_null(pc.greater(length, LONGEST_BOUND), False)
        if not is_long.true_count:
            continue
        # Whatever a text starts with is at most the text; above it is what comes after all texts that start so.
        heads = [bound[:LONGEST_BOUND] for bound in bounds.filter(is_long).to_pylist()]
        if kind == "upper":
            after = successor_of_prefix if is_text else successor_of_bytes
            heads = [after(head) for head in heads]
        cut = pc.replace_with_mask(bounds, is_long, pa.array(heads, bounds.type))
        found[column.name(kind)] = cut
        exact = found[column.name(f"{kind}_exact")]
        inexact = pc.if_else(is_long, pa.scalar(False), exact)
        found[column.name(f"{kind}_exact")] = pc.if_else(cut.is_valid(), inexact, pa.scalar(None, types.BOOLEAN))
    return found
