"""Strings with a collation: which filters on them are supported.

Under `UTF8_LCASE` the strings `A` and `a` are equal. Tamis compares strings byte by byte, so such a comparison would
lose rows, whether in bounds, in partition values or in the residual filter. Predicates that do not compare the strings
are supported: tests for NULL, the length, and casts to another type.
"""

from __future__ import annotations

from tamis.errors import UnsupportedFeature
from tamis.expr.bind import format_expression_position
from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, get_operands, walk
from tamis.expr.printer import to_display_sql
from tamis.tables.delta.schema import TableMetadata
from tamis.types import is_text

_NON_COMPARING = frozenset(("is_null", "is_not_null", "length"))


def check_collations(filter: Expr, metadata: TableMetadata) -> None:
    """Raise UnsupportedFeature where a filter compares strings with a collation or derives other strings from them.

    The filter is bound and not yet simplified.
    """
    if not metadata.collations:
        return
    for node in walk(filter):
        if _is_non_comparing(node):
            continue
        for operand in get_operands(node):
            collation = _find_collation(operand, metadata) if isinstance(operand, Column) else None
            if collation is not None:
                raise UnsupportedFeature(
                    f"the column {to_display_sql(operand)} of the Delta table {metadata.location} has the collation "
                    f"{collation}, which Tamis does not support in filters{format_expression_position(operand)}. Compare bytes, as in "
                    f"CAST({to_display_sql(operand)} AS BINARY) = CAST('…' AS BINARY), or filter the rows that a scan returns"
                )


def _is_non_comparing(node: Expr) -> bool:
    if not isinstance(node, Call):
        return False
    if node.function in ("cast", "try_cast"):
        target = type_of(node)
        return target is not None and not is_text(target)
    return node.function in _NON_COMPARING


def _find_collation(column: Column, metadata: TableMetadata) -> str | None:
    """Return the collation of a column, or of a string nested in it; None where there is none."""
    inside = (name for path, name in metadata.collations.items() if path[: len(column.path)] == column.path)
    return next(inside, None)
