"""Normal form: constants folded, NOT pushed to the leaves, AND and OR flat, lists sorted, contradictions removed.

Each predicate has two normal forms:

- *exact*: TRUE, FALSE and NULL all matter, as inside `(a > 5) IS NULL`;
- *where*: only TRUE matters, because a filter drops FALSE and NULL alike.

Once NOT occurs only at the leaves, whether a tree of AND and OR is TRUE depends only on which of its leaves are TRUE.
So in the *where* form a sub-predicate may be replaced by one that is TRUE for the same rows, and `a > 5 AND a < 3`
is FALSE.
"""

from __future__ import annotations

from dataclasses import dataclass

from tamis.errors import EvaluationError
from tamis.expr.evaluate import can_evaluate, evaluate_constant
from tamis.expr.functions import FUNCTIONS, NEGATIONS, Nulls, type_of
from tamis.expr.intervals import merge_conjunction, merge_disjunction
from tamis.expr.nodes import (
    FALSE,
    NULL,
    TRUE,
    Call,
    Expr,
    Literal,
    fold,
    get_operands,
    not_,
    replace_args,
)
from tamis.expr.ordering import sort_key


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
        case Call(function):
            positive = replace_args(node, tuple(positive for positive, _ in args))
            if function in NEGATIONS and isinstance(positive, Call):
                return positive, Call(NEGATIONS[function], positive.args)
            return positive, not_(positive)
        case Literal(value=bool() as value):
            return node, FALSE if value else TRUE
        case Literal(value=None):
            return node, node
        case _:
            return node, not_(node)


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
        case Call("not", (Call(function) as inner,)) if function in NEGATIONS:
            # An IN list with one item has become an equality.
            return Call(NEGATIONS[function], inner.args)
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
    return isinstance(expr, Call) and expr.function in _PREDICATES


_PREDICATES = frozenset(
    ("=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "in", "like", "startswith", "is_null", "is_not_null")
)


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
