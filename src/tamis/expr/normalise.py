"""Normal form: constants folded, NOT pushed to the leaves, AND and OR flat, lists sorted, contradictions removed.

Each predicate has two normal forms:

- *exact*: TRUE, FALSE and NULL all matter, as inside `(a > 5) IS NULL`;
- *where*: only TRUE matters, because a filter drops FALSE and NULL alike.

Once NOT occurs only at the leaves, whether a tree of AND and OR is TRUE depends only on which of its leaves are TRUE.
So in the *where* form a sub-predicate may be replaced by one that is TRUE for the same rows, and `a > 5 AND a < 3`
is FALSE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.evaluate import can_evaluate, evaluate_constant
from tamis.expr.functions.table import FUNCTIONS, Nulls, find_spark_function, negate, type_of
from tamis.expr.nodes import (
    FALSE,
    NULL,
    TRUE,
    Call,
    Column,
    Expr,
    L,
    Literal,
    Tree,
    and_,
    fold,
    get_operands,
    not_,
    replace_args,
    transform,
)


def normalise(expr: Expr) -> Expr:
    """Return the normal form of a bound predicate for use as a filter."""
    return fold(_push_not_to_leaves(expr), _simplify, _flatten_arguments).where


# --- NOT ------------------------------------------------------------------------------------------------------------


def _push_not_to_leaves(expr: Expr) -> Expr:
    """Push NOT to the leaves. De Morgan's rules hold in three-valued logic too, so this is exact."""
    return fold(expr, _with_negation)[0]


def _with_negation(node: Expr, args: tuple[tuple[Expr, Expr], ...]) -> tuple[Expr, Expr]:
    """Return a node and its negation, given its arguments and their negations."""
    match node:
        case Call("not"):
            positive, negative = args[0]
            return negative, positive
        case Call(("and" | "or") as function):
            opposite = "or" if function == "and" else "and"
            return (
                replace_args(node, tuple(positive for positive, _ in args)),
                Call(opposite, tuple(negative for _, negative in args)),
            )
        case _:
            positive = replace_args(node, tuple(positive for positive, _ in args))
            return positive, negate(positive)


# --- Simplification -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NormalForms:
    exact: Expr
    where: Expr


def _flatten_arguments(node: Expr) -> tuple[Expr, ...]:
    """Return the arguments of a node; nested ANDs in an AND, and ORs in an OR, are flattened."""
    if not (isinstance(node, Call) and node.function in ("and", "or")):
        return get_operands(node)
    found: list[Expr] = []
    stack: list[Expr] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, Call) and part.function == node.function:
            stack.extend(reversed(part.args))
        else:
            found.append(part)
    return tuple(found)


def _simplify(node: Expr, args: tuple[_NormalForms, ...]) -> _NormalForms:
    match node:
        case Call(("and" | "or") as function):
            return _NormalForms(
                _simplify_junction(function, [arg.exact for arg in args], where=False),
                _simplify_junction(function, [arg.where for arg in args], where=True),
            )
        case Call():
            exact = _simplify_call(replace_args(node, tuple(arg.exact for arg in args)))
            return _NormalForms(exact, _as_filter(exact))
        case _:
            return _NormalForms(node, _as_filter(node))


def _as_filter(expr: Expr) -> Expr:
    return FALSE if isinstance(expr, Literal) and expr.is_null else expr


def _simplify_junction(function: str, parts: list[Expr], *, where: bool) -> Expr:
    absorbing, neutral = (FALSE, TRUE) if function == "and" else (TRUE, FALSE)
    flat: list[Expr] = []
    for part in parts:
        flat.extend(part.args if isinstance(part, Call) and part.function == function else (part,))
    distinct = list(dict.fromkeys(flat))
    if absorbing in distinct:
        return absorbing
    kept = [part for part in distinct if part != neutral]
    if where:
        # A filter drops NULL like FALSE: NULL absorbs in AND and is neutral in OR.
        if function == "and" and any(isinstance(part, Literal) and part.is_null for part in kept):
            return FALSE
        kept = [part for part in kept if not (isinstance(part, Literal) and part.is_null)]
    merged = merge_conjunction(kept, where=where) if function == "and" else merge_disjunction(kept)
    if absorbing in merged:
        return absorbing
    match merged:
        case []:
            return neutral
        case [only]:
            return only
        case _:
            return Call(function, tuple(merged))


def _simplify_call(expr: Expr) -> Expr:
    match expr:
        case Call("in", (value, *items)):
            return _simplify_in(value, items)
        case Call(("=" | "<>") as function, (predicate, Literal(value=bool() as value))) if _is_predicate(predicate):
            return predicate if value == (function == "=") else _push_not_to_leaves(not_(predicate))
        case Call("not", (inner,)):
            # An IN list with one item has become an equality.
            return negate(inner)
        case Call("cast", (value, Literal(value=str()))) if type_of(value) == type_of(expr):
            return value
        case Call("is_null" | "is_not_null", (Literal() as constant,)):
            return TRUE if constant.is_null == (expr.function == "is_null") else FALSE
        case Call():
            return _fold_constant(expr)
        case _:
            return expr


def _is_predicate(expr: Expr) -> bool:
    """Return whether a call is a predicate. A boolean column is not: it is compared by its bounds."""
    known = FUNCTIONS.get(expr.function) if isinstance(expr, Call) else None
    return known is not None and known.returns == types.BOOLEAN


def _fold_constant(call: Call) -> Expr:
    known = FUNCTIONS.get(call.function)
    if known is None:
        return call
    if known.nulls is Nulls.PROPAGATES and any(isinstance(arg, Literal) and arg.is_null for arg in call.args):
        return NULL
    if not all(isinstance(arg, Literal) for arg in call.args) or not can_evaluate(call):
        return call
    try:
        return evaluate_constant(call)
    except EvaluationError:
        # It must fail only if there is a row to evaluate it for, and not in an empty table.
        return call


def _simplify_in(value: Expr, items: list[Expr]) -> Expr:
    """Simplify an IN list: distinct items in ascending order, NULL last; one item becomes an equality."""
    literals = [item for item in dict.fromkeys(items) if isinstance(item, Literal)]
    if len({item.type for item in literals if not item.is_null}) > 1:
        return Call("in", (value, *items))  # the value is a function of unknown type
    values = sorted((item for item in literals if not item.is_null), key=lambda item: sort_key(item.value))
    nulls = [item for item in literals if item.is_null][:1]
    if len(literals) < len(dict.fromkeys(items)):
        return Call("in", (value, *items))
    if not values:
        return NULL if nulls else FALSE
    distinct = [item for index, item in enumerate(values) if index == 0 or item.value != values[index - 1].value]
    if len(distinct) == 1 and not nulls:
        return _fold_constant(Call("=", (value, distinct[0])))
    return Call("in", (value, *distinct, *nulls))


# --- Merging of comparisons of one column with constants: tighter bounds, shorter lists, contradictions ---------------
#
# a > 3 AND a > 5            a > 5
# a IN (1, 7, 9) AND a > 5   a IN (7, 9)
# a > 5 AND a < 3            never TRUE
# a = 1 OR a = 2             a IN (1, 2)


@dataclass(slots=True)
class _Constraints:
    """The constraints of a conjunction on one column."""

    column: Column
    lower: tuple[Literal, bool] | None = None
    """The largest lower bound, and whether it is exclusive."""
    upper: tuple[Literal, bool] | None = None
    allowed: list[Literal] | None = None
    excluded: dict[tuple[bool, object], Literal] = field(default_factory=dict)

    def add(self, function: str, items: tuple[Literal, ...]) -> None:
        match function:
            case "=" | "in":
                self._allow(items)
            case "<>":
                self.excluded[sort_key(items[0].value)] = items[0]
            case ">" | ">=":
                bound = (items[0], function == ">")
                if self.lower is None or _is_tighter(bound, self.lower, lower=True):
                    self.lower = bound
            case _:
                bound = (items[0], function == "<")
                if self.upper is None or _is_tighter(bound, self.upper, lower=False):
                    self.upper = bound

    def _allow(self, items: tuple[Literal, ...]) -> None:
        if self.allowed is None:
            self.allowed = list(items)
        else:
            keys = {sort_key(item.value) for item in items}
            self.allowed = [item for item in self.allowed if sort_key(item.value) in keys]

    def predicates(self) -> list[Expr] | None:
        """Return the shortest equivalent predicates; None if no value satisfies them."""
        if self.allowed is not None:
            values = [item for item in self.allowed if self._admits(item)]
            match values:
                case []:
                    return None
                case [only]:
                    return [Call("=", (self.column, only))]
                case _:
                    return [Call("in", (self.column, *sorted(values, key=lambda item: sort_key(item.value))))]
        if self.lower and self.upper and self._is_empty(self.lower, self.upper):
            return None
        found: list[Expr] = []
        if self.lower is not None:
            found.append(Call(">" if self.lower[1] else ">=", (self.column, self.lower[0])))
        if self.upper is not None:
            found.append(Call("<" if self.upper[1] else "<=", (self.column, self.upper[0])))
        found.extend(Call("<>", (self.column, item)) for item in self.excluded.values() if self._is_within(item))
        return found

    def _admits(self, item: Literal) -> bool:
        return sort_key(item.value) not in self.excluded and self._is_within(item)

    def _is_within(self, item: Literal) -> bool:
        if self.lower is not None:
            bound, strict = self.lower
            if is_less(item.value, bound.value) or (strict and not is_less(bound.value, item.value)):
                return False
        if self.upper is not None:
            bound, strict = self.upper
            if is_less(bound.value, item.value) or (strict and not is_less(item.value, bound.value)):
                return False
        return True

    @staticmethod
    def _is_empty(lower: tuple[Literal, bool], upper: tuple[Literal, bool]) -> bool:
        if is_less(upper[0].value, lower[0].value):
            return True
        return (lower[1] or upper[1]) and not is_less(lower[0].value, upper[0].value)


def _is_tighter(new: tuple[Literal, bool], old: tuple[Literal, bool], *, lower: bool) -> bool:
    inner, outer = (old[0].value, new[0].value) if lower else (new[0].value, old[0].value)
    return is_less(inner, outer) or (sort_key(inner) == sort_key(outer) and new[1] and not old[1])


def _parse_constraint(part: Expr) -> tuple[Column, str, tuple[Literal, ...]] | None:
    match part:
        case Call(_, (Column(type=None), *items)) if not all(map(_is_exact_in_any_type, items)):
            # A column of unknown type was not bound, so constants are not in its type yet, and need not compare as its
            # values do: for an int column, `x >= '9' AND x <= '10'` is TRUE for 9.
            return None
        case Call(("=" | "<>" | "<" | "<=" | ">" | ">=") as function, (Column() as column, Literal() as item)):
            return None if item.is_null else (column, function, (item,))
        case Call("in", (Column() as column, *items)):
            literals = tuple(item for item in items if isinstance(item, Literal) and not item.is_null)
            return (column, "in", literals) if len(literals) == len(items) else None
        case _:
            return None


def _is_exact_in_any_type(item: Expr) -> bool:
    """Return whether a constant keeps its value in every type that a column compared with it may have."""
    return (
        isinstance(item, Literal)
        and item.type is not None
        and pa.types.is_integer(item.type)
        and isinstance(item.value, int)
        and abs(item.value) <= _LARGEST_EXACT_INTEGER
    )


_LARGEST_EXACT_INTEGER = 2**24
"""32-bit floats represent every integer up to this one."""


def merge_conjunction(parts: list[Expr], *, where: bool) -> list[Expr]:
    """Return the conjuncts with all constraints on a column merged, at the position of the first one."""
    by_column: dict[Column, _Constraints] = {}
    merged: list[Expr | _Constraints] = []
    for part in parts:
        found = _parse_constraint(part)
        if found is None:
            merged.append(part)
            continue
        column, function, items = found
        if column not in by_column:
            merged.append(by_column.setdefault(column, _Constraints(column)))
        by_column[column].add(function, items)
    result: list[Expr] = []
    for entry in merged:
        if not isinstance(entry, _Constraints):
            result.append(entry)
            continue
        predicates = entry.predicates()
        if predicates is None:
            # Never TRUE; NULL where the column is NULL, unless only TRUE matters.
            predicates = [FALSE] if where else [and_(Call("is_null", (entry.column,)), NULL)]
        result.extend(predicates)
    return list(dict.fromkeys(result))


def merge_disjunction(parts: list[Expr]) -> list[Expr]:
    """Return the disjuncts with the equalities on a column merged into one IN list."""
    lists: dict[Column, list[Literal]] = {}
    merged: list[tuple[Expr, bool]] = []
    for part in parts:
        found = _parse_constraint(part)
        if found is None or found[1] not in ("=", "in"):
            merged.append((part, False))
            continue
        column, _, items = found
        if column not in lists:
            merged.append((column, True))
        lists.setdefault(column, []).extend(items)
    return [
        _build_membership(entry, lists[entry]) if is_list and isinstance(entry, Column) else entry
        for entry, is_list in merged
    ]


def _build_membership(column: Column, items: list[Literal]) -> Expr:
    distinct = {sort_key(item.value): item for item in items}
    values = [distinct[key] for key in sorted(distinct)]
    return Call("=", (column, values[0])) if len(values) == 1 else Call("in", (column, *values))


# --- The order of literal values: NaN is the largest number, texts compare by code point, FALSE before TRUE -----------


def sort_key(value: Any) -> tuple[bool, Any]:
    """Return a key that sorts values of one type, NaN last.

    >>> sorted([2.0, float("nan"), 1.0], key=sort_key)
    [1.0, 2.0, nan]
    """
    is_nan = value != value
    return (is_nan, 0 if is_nan else value)


def is_less(left: Any, right: Any) -> bool:
    return sort_key(left) < sort_key(right)


# --- The time of a query: `now()` and similar calls become one literal, the same for all rows and pruning levels ------


def freeze_current_time(expr: Tree[L], now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tree[L]:
    """Replace every call that returns the current time by the same literal.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> freeze_current_time(parse_sql("day < current_date()"), lambda: datetime(2024, 3, 1, tzinfo=UTC))
    Call<day < DATE '2024-03-01'>
    """
    found: list[datetime] = []

    def replace_clock(node: Tree[L]) -> Tree[L]:
        row = find_spark_function(node.function) if isinstance(node, Call) and not node.args else None
        if row is None or row.clock is None:
            return node
        if not found:
            found.append(now())
        return row.clock(found[0])

    return transform(expr, replace_clock)
