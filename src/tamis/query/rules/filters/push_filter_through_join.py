"""Push filters to the side of a join that they refer to, if the kind of the join allows it.

| kind        | WHERE on the left | WHERE on the right | ON about the left alone | ON about the right alone |
|-------------|-------------------|--------------------|-------------------------|--------------------------|
| inner, cross| left              | right              | left                    | right                    |
| left        | left              | stays              | stays                   | right                    |
| right       | stays             | right              | left                    | stays                    |
| full        | stays             | stays              | stays                   | stays                    |
| semi        | left              |                    | left                    | right                    |
| anti        | left              |                    | stays                   | right                    |

If a WHERE rejects the NULLs with which an outer join pads a side, the join does not have to pad it: `left` becomes
`inner`. An equality between both sides becomes a criterion of the join. A conjunct on a column of one side also holds
for the column of the other side that must be equal to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tamis.expr.functions.table import FUNCTIONS, Nulls, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, and_
from tamis.query.plan.column_ids import collect_column_ids, is_deterministic, substitute
from tamis.query.plan.nodes import Filter, Join, JoinKind, Node, get_outputs
from tamis.query.plan.optimizer import Context
from tamis.query.policies.leakproof import is_leakproof
from tamis.query.rules.scan_expressions import add_filter, list_conjuncts

_WHERE_LEFT = frozenset({"inner", "cross", "left", "semi", "anti"})
_WHERE_RIGHT = frozenset({"inner", "cross", "right"})
_ON_LEFT = frozenset({"inner", "cross", "right", "semi"})
_ON_RIGHT = frozenset({"inner", "cross", "left", "semi", "anti"})


class PushFilterThroughJoin:
    name = "push_filter_through_join"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Join() as join, predicate, protects=False):
                return _push_where(join, list_conjuncts(predicate))
            case Join(filter=condition) as join if condition is not None:
                return _push_on(join, list_conjuncts(condition))
            case _:
                return None


@dataclass
class _Sides:
    """The column ids of both sides of a join, and the conjuncts assigned to each of them."""

    left: frozenset[str]
    right: frozenset[str]
    to_left: list[Expr] = field(default_factory=list)
    to_right: list[Expr] = field(default_factory=list)
    criteria: list[tuple[Expr, Expr]] = field(default_factory=list)
    staying: list[Expr] = field(default_factory=list)

    @staticmethod
    def of(join: Join) -> _Sides:
        left, right = (frozenset(output.name for output in get_outputs(side)) for side in (join.left, join.right))
        return _Sides(left, right)

    def is_left(self, conjunct: Expr) -> bool:
        column_ids = collect_column_ids(conjunct)
        return bool(column_ids) and column_ids <= self.left

    def is_right(self, conjunct: Expr) -> bool:
        column_ids = collect_column_ids(conjunct)
        return bool(column_ids) and column_ids <= self.right

    def criterion(self, conjunct: Expr) -> tuple[Expr, Expr] | None:
        match conjunct:
            case Call("=", (one, other)) if self.is_left(one) and self.is_right(other):
                return one, other
            case Call("=", (one, other)) if self.is_right(one) and self.is_left(other):
                return other, one
            case _:
                return None

    def assign(self, conjuncts: Iterable[Expr], *, to_left: bool, to_right: bool, to_criteria: bool) -> None:
        """Assign each conjunct to a side that it may be pushed to, or to the criteria; others stay."""
        for conjunct in conjuncts:
            found = self.criterion(conjunct) if to_criteria else None
            if not is_deterministic(conjunct):
                self.staying.append(conjunct)
            elif to_left and self.is_left(conjunct):
                self.to_left.append(conjunct)
            elif to_right and self.is_right(conjunct):
                self.to_right.append(conjunct)
            elif found is not None:
                self.criteria.append(found)
            else:
                self.staying.append(conjunct)

    @property
    def has_moved(self) -> bool:
        return bool(self.to_left or self.to_right or self.criteria)

    def rebuild(self, join: Join, kind: JoinKind, *, implies: bool) -> Join:
        """Return the join over filtered sides; with `implies`, also by the conjuncts that its criteria imply."""
        criteria = tuple(dict.fromkeys((*join.criteria, *self.criteria)))
        implied = _derive_implied(self, criteria) if implies else ([], [])
        return replace(
            join,
            left=add_filter(join.left, (*self.to_left, *implied[0])),
            right=add_filter(join.right, (*self.to_right, *implied[1])),
            kind="inner" if kind == "cross" and criteria else kind,
            criteria=criteria,
        )


def _push_where(join: Join, conjuncts: list[Expr]) -> Node | None:
    sides = _Sides.of(join)
    kind = _reduce_outer_join(join.kind, conjuncts, sides)
    is_inner = kind in ("inner", "cross")
    sides.assign(conjuncts, to_left=kind in _WHERE_LEFT, to_right=kind in _WHERE_RIGHT, to_criteria=is_inner)
    if not sides.has_moved and kind == join.kind:
        return None
    return add_filter(sides.rebuild(join, kind, implies=True), sides.staying)


def _push_on(join: Join, conjuncts: list[Expr]) -> Node | None:
    sides = _Sides.of(join)
    sides.assign(conjuncts, to_left=join.kind in _ON_LEFT, to_right=join.kind in _ON_RIGHT, to_criteria=True)
    if not sides.has_moved:
        return None
    # The unmatched rows that an outer join keeps do not satisfy its ON.
    made = sides.rebuild(join, join.kind, implies=join.kind in ("inner", "cross"))
    return replace(made, filter=and_(*sides.staying) if sides.staying else None)


# --- Outer joins ------------------------------------------------------------------------------------------------------


def _reduce_outer_join(kind: JoinKind, conjuncts: Iterable[Expr], sides: _Sides) -> JoinKind:
    """Return the join kind without the padded rows that a WHERE drops anyway."""
    if kind not in ("left", "right", "full"):
        return kind
    conjuncts = list(conjuncts)
    needs_left = any(_rejects_null(conjunct, sides.left) for conjunct in conjuncts)
    needs_right = any(_rejects_null(conjunct, sides.right) for conjunct in conjuncts)
    match kind, needs_left, needs_right:
        case ("full", True, True) | ("left", _, True) | ("right", True, _):
            return "inner"
        case "full", True, False:
            return "left"
        case "full", False, True:
            return "right"
        case _:
            return kind


def _rejects_null(conjunct: Expr, column_ids: frozenset[str]) -> bool:
    """Return whether a conjunct is never TRUE if all of some columns are NULL."""
    match conjunct:
        case Column(path, type=data_type):
            return path[0] in column_ids and data_type is not None and bool(pa.types.is_boolean(data_type))
        case Call("<=>", (Column(path), Literal() as value)):
            return path[0] in column_ids and not value.is_null
        case Call("in" | "is_not_null", (first, *_)):
            return _is_column_of(first, column_ids)
        case Call("or", args):
            return all(_rejects_null(each, column_ids) for each in args)
        case Call("and", args):
            return any(_rejects_null(each, column_ids) for each in args)
        case Call(function, args) if function in FUNCTIONS and FUNCTIONS[function].nulls is Nulls.PROPAGATES:
            return any(_is_column_of(each, column_ids) for each in args)
        case _:
            return False


def _is_column_of(expr: Expr, column_ids: frozenset[str]) -> bool:
    return isinstance(expr, Column) and expr.path[0] in column_ids


# --- Conjuncts implied by equal columns -------------------------------------------------------------------------------


def _derive_implied(sides: _Sides, criteria: Iterable[tuple[Expr, Expr]]) -> tuple[list[Expr], list[Expr]]:
    """Return further conjuncts for the left and the right side, which hold because criteria make columns equal.

    A row that does not satisfy one has no match, because all remaining rows of the other side satisfy it.
    """
    to_left: list[Expr] = []
    to_right: list[Expr] = []
    for left, right in criteria:
        if _can_derive(left) and _can_derive(right) and type_of(left) == type_of(right):
            to_right += [
                _rewrite_for(conjunct, left, right) for conjunct in sides.to_left if _refers_only_to(conjunct, left)
            ]
            to_left += [
                _rewrite_for(conjunct, right, left) for conjunct in sides.to_right if _refers_only_to(conjunct, right)
            ]
    return to_left, to_right


def _can_derive(expr: Expr) -> bool:
    """Return whether equal values of a column are identical. Floats are excluded: 0.0 equals -0.0."""
    return (
        isinstance(expr, Column)
        and len(expr.path) == 1
        and expr.type is not None
        and not pa.types.is_floating(expr.type)
        and not pa.types.is_nested(expr.type)
    )


def _refers_only_to(conjunct: Expr, column: Expr) -> bool:
    return isinstance(column, Column) and collect_column_ids(conjunct) == {column.path[0]} and is_leakproof(conjunct)


def _rewrite_for(conjunct: Expr, column: Expr, other: Expr) -> Expr:
    assert isinstance(column, Column)
    return substitute(conjunct, {column.path[0]: other})
