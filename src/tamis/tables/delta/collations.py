"""Texts with a collation: which filters may be asked of them.

Under `UTF8_LCASE` the texts `A` and `a` are equal. Here texts compare byte by byte, so that such a comparison would
lose rows, and no bound, partition value or residual filter could mend it. What does not compare them is allowed:
whether a text is NULL, how long it is, and what it is as a value of another type.
"""

from __future__ import annotations

from tamis.errors import UnsupportedFeature
from tamis.expr.bind import place_of
from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, operands_of, walk
from tamis.expr.printer import shown
from tamis.tables.delta.schema import TableMetadata
from tamis.types import is_text

_COMPARES_NOTHING = frozenset(("is_null", "is_not_null", "length"))


def check_collations(filter: Expr, metadata: TableMetadata) -> None:
    """Refuse a bound filter, not simplified yet, that compares texts of a collation or makes other texts of them."""
    if not metadata.collations:
        return
    for node in walk(filter):
        if _compares_nothing(node):
            continue
        for operand in operands_of(node):
            collation = _collation(operand, metadata) if isinstance(operand, Column) else None
            if collation is not None:
                raise UnsupportedFeature(
                    f"texts of the column {shown(operand)} in the Delta table {metadata.place} compare by the "
                    f"collation {collation}, which Tamis does not have{place_of(operand)}. Compare their bytes, as in "
                    f"CAST({shown(operand)} AS BINARY) = CAST('…' AS BINARY), or filter the rows that a scan returns"
                )


def _compares_nothing(node: Expr) -> bool:
    if not isinstance(node, Call):
        return False
    if node.function in ("cast", "try_cast"):
        target = type_of(node)
        return target is not None and not is_text(target)
    return node.function in _COMPARES_NOTHING


def _collation(column: Column, metadata: TableMetadata) -> str | None:
    """The collation of a column, or of a text inside of it."""
    inside = (name for path, name in metadata.collations.items() if path[: len(column.path)] == column.path)
    return next(inside, None)
