"""The time of a query: `now()` and its like become one literal, so that every row and every level sees the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Expr, Literal, transform

_CLOCKS: dict[str, Callable[[datetime], Literal]] = {
    **dict.fromkeys(("now", "current_timestamp"), literal),
    "localtimestamp": lambda moment: literal(moment.replace(tzinfo=None)),
    **dict.fromkeys(("current_date", "curdate"), lambda moment: literal(moment.date())),
}
"""Functions without arguments that ask for the time; there is no session zone, so a day is one of UTC."""


def stop_clocks(expr: Expr, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Expr:
    """The expression with the time at which it was asked for in place of every call that asks for it.

    >>> from tamis.expr.sql import parse_sql
    >>> stop_clocks(parse_sql("day < current_date()"), lambda: datetime(2024, 3, 1, tzinfo=UTC))
    Call<day < DATE '2024-03-01'>
    """
    found: list[datetime] = []

    def stopped(node: Expr) -> Expr:
        if not (isinstance(node, Call) and not node.args and node.function in _CLOCKS):
            return node
        if not found:
            found.append(now())
        return _CLOCKS[node.function](found[0])

    return transform(expr, stopped)
