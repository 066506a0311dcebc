"""Filters go to the side of a join that they are about, where the kind of the join lets them.

| kind        | WHERE on the left | WHERE on the right | ON about the left alone | ON about the right alone |
|-------------|-------------------|--------------------|-------------------------|--------------------------|
| inner, cross| left              | right              | left                    | right                    |
| left        | left              | stays              | stays                   | right                    |
| right       | stays             | right              | left                    | stays                    |
| full        | stays             | stays              | stays                   | stays                    |
| semi        | left              |                    | left                    | right                    |
| anti        | left              |                    | stays                   | right                    |

A row that an outer join fills up with NULL does not survive a WHERE that is never TRUE of NULL on that side: then the
join need not fill it up, and `left` becomes `inner`. An equality between both sides becomes a criterion of the join.
What holds for a column of one side holds for the one of the other side that must be equal to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, and_
from tamis.pushdown.nodes import Filter, Join, JoinKind, Node, outputs_of
from tamis.pushdown.optimizer import Context
from tamis.pushdown.paths import symbols_of
from tamis.pushdown.policies.leakproof import is_leakproof
from tamis.pushdown.rules.conjuncts import filtered, parts_of
from tamis.pushdown.symbols import is_deterministic, substitute

_WHERE_LEFT = frozenset({"inner", "cross", "left", "semi", "anti"})
_WHERE_RIGHT = frozenset({"inner", "cross", "right"})
_ON_LEFT = frozenset({"inner", "cross", "right", "semi"})
_ON_RIGHT = frozenset({"inner", "cross", "left", "semi", "anti"})


class PushFilterThroughJoin:
    name = "push_filter_through_join"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Join() as join, predicate, protects=False):
                return _push_where(join, parts_of(predicate))
            case Join(filter=condition) as join if condition is not None:
                return _push_on(join, parts_of(condition))
            case _:
                return None


@dataclass
class _Sides:
    """What goes where."""

    left: frozenset[str]
    right: frozenset[str]
    to_left: list[Expr] = field(default_factory=list)
    to_right: list[Expr] = field(default_factory=list)
    criteria: list[tuple[Expr, Expr]] = field(default_factory=list)
    staying: list[Expr] = field(default_factory=list)

    @staticmethod
    def of(join: Join) -> _Sides:
        left, right = (frozenset(output.name for output in outputs_of(side)) for side in (join.left, join.right))
        return _Sides(left, right)

    def is_left(self, part: Expr) -> bool:
        symbols = symbols_of(part)
        return bool(symbols) and symbols <= self.left

    def is_right(self, part: Expr) -> bool:
        symbols = symbols_of(part)
        return bool(symbols) and symbols <= self.right

    def criterion(self, part: Expr) -> tuple[Expr, Expr] | None:
        match part:
            case Call("=", (one, other)) if self.is_left(one) and self.is_right(other):
                return one, other
            case Call("=", (one, other)) if self.is_right(one) and self.is_left(other):
                return other, one
            case _:
                return None

    @property
    def has_moved(self) -> bool:
        return bool(self.to_left or self.to_right or self.criteria)


def _push_where(join: Join, parts: list[Expr]) -> Node | None:
    sides = _Sides.of(join)
    kind = _without_filling(join.kind, parts, sides)
    is_inner = kind in ("inner", "cross")
    for part in parts:
        found = sides.criterion(part) if is_inner and is_deterministic(part) else None
        if not is_deterministic(part):
            sides.staying.append(part)
        elif kind in _WHERE_LEFT and sides.is_left(part):
            sides.to_left.append(part)
        elif kind in _WHERE_RIGHT and sides.is_right(part):
            sides.to_right.append(part)
        elif found is not None:
            sides.criteria.append(found)
        else:
            sides.staying.append(part)
    if not sides.has_moved and kind == join.kind:
        return None
    criteria = tuple(dict.fromkeys((*join.criteria, *sides.criteria)))
    implied = _implied(sides, criteria)
    made = replace(
        join,
        left=filtered(join.left, (*sides.to_left, *implied[0])),
        right=filtered(join.right, (*sides.to_right, *implied[1])),
        kind="inner" if kind == "cross" and criteria else kind,
        criteria=criteria,
    )
    return filtered(made, sides.staying)


def _push_on(join: Join, parts: list[Expr]) -> Node | None:
    sides = _Sides.of(join)
    for part in parts:
        found = sides.criterion(part)
        if not is_deterministic(part):
            sides.staying.append(part)
        elif join.kind in _ON_LEFT and sides.is_left(part):
            sides.to_left.append(part)
        elif join.kind in _ON_RIGHT and sides.is_right(part):
            sides.to_right.append(part)
        elif found is not None:
            sides.criteria.append(found)
        else:
            sides.staying.append(part)
    if not sides.has_moved:
        return None
    criteria = tuple(dict.fromkeys((*join.criteria, *sides.criteria)))
    is_inner = join.kind in ("inner", "cross")
    # What an outer join keeps without a match has not met its ON.
    implied = _implied(sides, criteria) if is_inner else ([], [])
    return replace(
        join,
        left=filtered(join.left, (*sides.to_left, *implied[0])),
        right=filtered(join.right, (*sides.to_right, *implied[1])),
        kind="inner" if join.kind == "cross" and criteria else join.kind,
        criteria=criteria,
        filter=and_(*sides.staying) if sides.staying else None,
    )


# --- Outer joins ------------------------------------------------------------------------------------------------------


def _without_filling(kind: JoinKind, parts: Iterable[Expr], sides: _Sides) -> JoinKind:
    """The kind of the join without rows that a WHERE drops anyway."""
    if kind not in ("left", "right", "full"):
        return kind
    parts = list(parts)
    needs_left = any(_rejects_null(part, sides.left) for part in parts)
    needs_right = any(_rejects_null(part, sides.right) for part in parts)
    match kind, needs_left, needs_right:
        case ("full", True, True) | ("left", _, True) | ("right", True, _):
            return "inner"
        case "full", True, False:
            return "left"
        case "full", False, True:
            return "right"
        case _:
            return kind


def _rejects_null(part: Expr, symbols: frozenset[str]) -> bool:
    """Whether a conjunct is never TRUE where all of some columns are NULL."""
    match part:
        case Column(path, type=data_type):
            return path[0] in symbols and data_type is not None and bool(pa.types.is_boolean(data_type))
        case Call("<=>", (Column(path), Literal() as value)):
            return path[0] in symbols and not value.is_null
        case Call("=" | "<>" | "<" | "<=" | ">" | ">=", args):
            return any(_is_column_of(each, symbols) for each in args)
        case Call("in" | "like" | "startswith" | "endswith" | "contains" | "is_not_null", (first, *_)):
            return _is_column_of(first, symbols)
        case Call("or", args):
            return all(_rejects_null(each, symbols) for each in args)
        case Call("and", args):
            return any(_rejects_null(each, symbols) for each in args)
        case _:
            return False


def _is_column_of(expr: Expr, symbols: frozenset[str]) -> bool:
    return isinstance(expr, Column) and expr.path[0] in symbols


# --- What equal columns share -----------------------------------------------------------------------------------------


def _implied(sides: _Sides, criteria: Iterable[tuple[Expr, Expr]]) -> tuple[list[Expr], list[Expr]]:
    """What holds for the left and the right side besides, because criteria make columns equal.

    A row of one side that does not satisfy it has no match among the rows of the other that do, and no other is left.
    """
    to_left: list[Expr] = []
    to_right: list[Expr] = []
    for left, right in criteria:
        if _can_share(left) and _can_share(right) and type_of(left) == type_of(right):
            to_right += [_said_of(part, left, right) for part in sides.to_left if _is_only_about(part, left)]
            to_left += [_said_of(part, right, left) for part in sides.to_right if _is_only_about(part, right)]
    return to_left, to_right


def _can_share(expr: Expr) -> bool:
    """Of floats two zeros are equal, and yet not the same."""
    return (
        isinstance(expr, Column)
        and len(expr.path) == 1
        and expr.type is not None
        and not pa.types.is_floating(expr.type)
        and not pa.types.is_nested(expr.type)
    )


def _is_only_about(part: Expr, column: Expr) -> bool:
    return isinstance(column, Column) and symbols_of(part) == {column.path[0]} and is_leakproof(part)


def _said_of(part: Expr, column: Expr, other: Expr) -> Expr:
    assert isinstance(column, Column)
    return substitute(part, {column.path[0]: other})
