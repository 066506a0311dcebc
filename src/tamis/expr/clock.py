"""The time of a query: `now()` and similar calls become one literal, the same for all rows and pruning levels."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Expr, Literal, transform

_CLOCKS: dict[str, Callable[[datetime], Literal]] = {
    **dict.fromkeys(("now", "current_timestamp"), literal),
    "localtimestamp": lambda now: literal(now.replace(tzinfo=None)),
    **dict.fromkeys(("current_date", "curdate"), lambda now: literal(now.date())),
}
"""Functions without arguments that return the current time. There is no session time zone, so days are in UTC."""


def freeze_current_time(expr: Expr, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Expr:
    """Replace every call that returns the current time by the same literal.

    >>> from tamis.expr.sql import parse_sql
    >>> stop_clocks(parse_sql("day < current_date()"), lambda: datetime(2024, 3, 1, tzinfo=UTC))
    Call<day < DATE '2024-03-01'>
    """
    found: list[datetime] = []

    def replace_clock(node: Expr) -> Expr:
        if not (isinstance(node, Call) and not node.args and node.function in _CLOCKS):
            return node
        if not found:
            found.append(now())
        return _CLOCKS[node.function](found[0])

    return transform(expr, replace_clock)
