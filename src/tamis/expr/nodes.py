"""The three nodes of the expression language, and the walks over them.

Nodes are immutable values: equal when they say the same, hashable, safe to share between threads.
No walk recurses, because the depth of a predicate is the user's: a filter made by a program may be
ten thousand levels deep. Equality and hashing of `Call` are written by hand for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from tamis import types

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field inside a struct column: `a.b` has the path `("a", "b")`.

    `position` is the character of the SQL text where it stood, counted from 1; it does not count for equality.
    `type` is known once the expression is bound to a schema, and does not count for equality either, nor does `exact`:
    whether the name was written between back-ticks, and so picks one of the columns that differ only by case.
    """

    path: tuple[str, ...]
    position: int | None = field(default=None, compare=False, repr=False)
    type: pa.DataType | None = field(default=None, compare=False, repr=False)
    exact: bool = field(default=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A value of a type, in the physical form that `tamis.types` describes; None is NULL.

    NaN equals itself, as it does in the language.
    """

    value: Any
    type: pa.DataType = types.NULL

    def __post_init__(self) -> None:
        # One NaN object for all, which is its own equal and has one hash.
        if isinstance(self.value, float) and math.isnan(self.value):
            object.__setattr__(self, "value", math.nan)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        same = self.value is other.value or self.value == other.value
        return same and bool(self.type == other.type)

    def __hash__(self) -> int:
        return hash(self.value)  # not of the type: Arrow would print it every time

    def __reduce__(self) -> tuple[type[Literal], tuple[Any, pa.DataType]]:
        return Literal, (self.value, self.type)  # which gives a NaN its one object again

    @property
    def is_null(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call:
    """A function or an operator applied to arguments. `tamis.expr.functions` lists the known ones.

    `position` is the character of the SQL text where an unknown function stood; it does not count for equality.
    """

    function: str
    args: tuple[Expr, ...]
    position: int | None = None
    _hash: int = field(init=False, default=0)
    _evaluable: bool | None = field(init=False, default=None)
    """Whether Arrow can evaluate it, once `evaluate.can_evaluate` found out."""
    _fallible: bool | None = field(init=False, default=None)
    """Whether it may fail on some value, once `evaluate.may_fail` found out."""
    _operands: tuple[Expr, ...] | None = field(init=False, default=None)
    """Its arguments without the items of a list, once `operands_of` looked at each of those."""
    _type: tuple[pa.DataType | None] | None = field(init=False, default=None)
    """The type, once `functions.type_of` found it: asking again at every level of a deep tree would be quadratic."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.function, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        pairs: list[tuple[Expr, Expr]] = [(self, other)]
        while pairs:
            left, right = pairs.pop()
            if left is right:
                continue
            if not (isinstance(left, Call) and isinstance(right, Call)):
                if left != right:
                    return False
            elif left._hash != right._hash or left.function != right.function or len(left.args) != len(right.args):
                return False
            else:
                pairs.extend(zip(left.args, right.args, strict=True))
        return True

    def __reduce__(self) -> tuple[Callable[[tuple[Step, ...]], Expr], tuple[tuple[Step, ...]]]:
        # Pickle and deepcopy recurse over arguments, so they get a list without depth. Hashes of strings differ between
        # processes: the copy computes its own.
        return from_steps, (to_steps(self),)

    def __repr__(self) -> str:
        from tamis.expr.printer import to_sql

        return f"Call<{to_sql(self)}>"


Expr = Column | Literal | Call

TRUE = Literal(True, types.BOOLEAN)
FALSE = Literal(False, types.BOOLEAN)
NULL = Literal(None, types.NULL)


def and_(*args: Expr) -> Expr:
    """The conjunction of any number of predicates; of none, TRUE."""
    return _junction("and", TRUE, args)


def or_(*args: Expr) -> Expr:
    """The disjunction of any number of predicates; of none, FALSE."""
    return _junction("or", FALSE, args)


def not_(arg: Expr) -> Expr:
    return Call("not", (arg,))


def _junction(function: str, empty: Literal, args: tuple[Expr, ...]) -> Expr:
    match args:
        case ():
            return empty
        case (only,):
            return only
        case _:
            return Call(function, args)


_BEFORE_ITEMS = {"in": 1, "any_between": 2}
"""How many arguments of a function come before the items of its list."""


def operands_of(node: Expr) -> tuple[Expr, ...]:
    """The arguments of a node, but not the items of a list of literals.

    There may be a hundred thousand of those, and they are one value: nothing is computed for each of them.
    """
    if not isinstance(node, Call):
        return ()
    before = _BEFORE_ITEMS.get(node.function)
    if before is None:
        return node.args
    if node._operands is None:
        are_literals = all(type(item) is Literal for item in node.args[before:])
        object.__setattr__(node, "_operands", node.args[:before] if are_literals else node.args)
    return node._operands or ()


def walk(expr: Expr, children: Callable[[Expr], tuple[Expr, ...]] = operands_of) -> Iterator[Expr]:
    """Every distinct node of an expression, parents before children; lists of literals are part of their node."""
    seen: set[int] = set()
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(children(node)))


def columns_of(expr: Expr) -> list[Column]:
    """The distinct columns of an expression, in the order in which they appear."""
    return list(dict.fromkeys(node for node in walk(expr) if isinstance(node, Column)))


def conjuncts_of(expr: Expr) -> list[Expr]:
    """The predicates that must all hold: `a AND (b AND c)` has three."""
    found: list[Expr] = []
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.function == "and":
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return found


def fold(
    expr: Expr,
    combine: Callable[[Expr, tuple[T, ...]], T],
    children: Callable[[Expr], tuple[Expr, ...]] = operands_of,
) -> T:
    """Compute a value for an expression from its leaves up: `combine(node, values of its children)`.

    A node that occurs several times as the same object is combined once.
    """
    done: dict[int, T] = {}
    # Children that are made on the fly must outlive the walk, or another object could take their id.
    opened: dict[int, tuple[Expr, ...]] = {}
    stack: list[Expr] = [expr]
    while stack:
        node = stack[-1]
        key = id(node)
        if key in done:
            stack.pop()
            continue
        below = opened.get(key)
        if below is None:
            below = opened[key] = children(node)
            # A deep predicate is folded some dozen times, and most of its nodes are leaves.
            waiting = [child for child in below if id(child) not in done] if below else None
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
        stack.pop()
        done[key] = combine(node, tuple([done[id(child)] for child in below]) if below else ())
    return done[id(expr)]


def transform(expr: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Rewrite an expression from its leaves up; a node whose arguments stay the same is the same object."""
    return fold(expr, lambda node, args: rewrite(with_args(node, args)))


Step = Column | Literal | tuple[str, tuple[int, ...]]
"""A leaf, or a call of a function with the values of earlier steps."""


def to_steps(expr: Expr) -> tuple[Step, ...]:
    """An expression as a list in which arguments come before the calls that use them; the last step is the whole."""
    steps: list[Step] = []

    def add(node: Expr, args: tuple[int, ...]) -> int:
        steps.append((node.function, args) if isinstance(node, Call) else node)
        return len(steps) - 1

    fold(expr, add, lambda node: node.args if isinstance(node, Call) else ())
    return tuple(steps)


def from_steps(steps: tuple[Step, ...]) -> Expr:
    """The expression that `to_steps` took apart."""
    built: list[Expr] = []
    for step in steps:
        match step:
            case (function, args):
                built.append(Call(function, tuple(built[arg] for arg in args)))
            case _:
                built.append(step)
    return built[-1]


def with_args(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """The node with other operands, or the very same node where they are the same."""
    if isinstance(node, Call) and any(new is not old for new, old in zip(args, node.args, strict=False)):
        return Call(node.function, (*args, *node.args[len(args) :]), node.position)
    return node
