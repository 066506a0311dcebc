"""The three nodes of the expression language, and the walks over them.

Nodes are immutable values: compared by content, hashable, safe to share between threads.
No walk recurses, because the user decides how deep a predicate is: a generated filter may be
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

    `position` is the 1-based character in the SQL text. `type` is set once the expression is bound to a schema.
    `exact` says that the name was quoted with back-ticks, and so selects one of the columns that differ only by case.
    Equality ignores these three.
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

    NaN equals itself, as in Spark.
    """

    value: Any
    type: pa.DataType = types.NULL

    def __post_init__(self) -> None:
        # All NaN literals share one object, which is identical to itself and has one hash.
        if isinstance(self.value, float) and math.isnan(self.value):
            object.__setattr__(self, "value", math.nan)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        same = self.value is other.value or self.value == other.value
        return same and bool(self.type == other.type)

    def __hash__(self) -> int:
        return hash(self.value)  # without the type: Arrow formats it as text for each hash

    def __reduce__(self) -> tuple[type[Literal], tuple[Any, pa.DataType]]:
        return Literal, (self.value, self.type)  # so that NaN is the shared object again

    @property
    def is_null(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call:
    """A function or an operator applied to arguments. `tamis.expr.functions.table` lists the supported ones.

    `position` is the 1-based character of an unsupported function in the SQL text; equality ignores it.
    """

    function: str
    args: tuple[Expr, ...]
    position: int | None = None
    _hash: int = field(init=False, default=0)
    _evaluable: bool | None = field(init=False, default=None)
    """Whether Arrow can evaluate it; set by `evaluate.can_evaluate`."""
    _fallible: bool | None = field(init=False, default=None)
    """Whether it may fail on some value; set by `table.may_fail`."""
    _operands: tuple[Expr, ...] | None = field(init=False, default=None)
    """Its arguments without a list of literals; set by `get_operands`."""
    _type: tuple[pa.DataType | None] | None = field(init=False, default=None)
    """The type; set by `table.type_of`, because computing it at every level of a deep tree would be quadratic."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.function, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        pairs: list[tuple[Expr, Expr]] = [(self, other)]
        # Calls share arguments: without this, comparing two rewritten predicates would take exponential time.
        seen: set[tuple[int, int]] = set()
        while pairs:
            left, right = pairs.pop()
            if left is right:
                continue
            if not (isinstance(left, Call) and isinstance(right, Call)):
                if left != right:
                    return False
            elif left._hash != right._hash or left.function != right.function or len(left.args) != len(right.args):
                return False
            elif (key := (id(left), id(right))) not in seen:
                seen.add(key)
                pairs.extend(zip(left.args, right.args, strict=True))
        return True

    def __reduce__(self) -> tuple[Callable[[tuple[Step, ...]], Expr], tuple[tuple[Step, ...]]]:
        # Pickle and deepcopy recurse over arguments, so they get a flat list. String hashes differ between processes,
        # so the copy computes its own.
        return from_steps, (to_steps(self),)

    def __repr__(self) -> str:
        from tamis.expr.sql.printer import to_sql

        return f"Call<{to_sql(self)}>"


Expr = Column | Literal | Call

TRUE = Literal(True, types.BOOLEAN)
FALSE = Literal(False, types.BOOLEAN)
NULL = Literal(None, types.NULL)


def and_(*args: Expr) -> Expr:
    """Return the conjunction of any number of predicates; without any, TRUE."""
    return _combine("and", TRUE, args)


def or_(*args: Expr) -> Expr:
    """Return the disjunction of any number of predicates; without any, FALSE."""
    return _combine("or", FALSE, args)


def not_(arg: Expr) -> Expr:
    return Call("not", (arg,))


def _combine(function: str, empty: Literal, args: tuple[Expr, ...]) -> Expr:
    match args:
        case ():
            return empty
        case (only,):
            return only
        case _:
            return Call(function, args)


_ARGS_BEFORE_ITEMS = {"in": 1, "any_between": 2}
"""The number of arguments before the list items of a function."""


def get_operands(node: Expr) -> tuple[Expr, ...]:
    """Return the arguments of a node without the items of a list of literals.

    A list may have a hundred thousand items. It counts as one value, so that nothing is computed for each item.
    """
    if not isinstance(node, Call):
        return ()
    before = _ARGS_BEFORE_ITEMS.get(node.function)
    if before is None:
        return node.args
    if node._operands is None:
        are_literals = all(type(item) is Literal for item in node.args[before:])
        object.__setattr__(node, "_operands", node.args[:before] if are_literals else node.args)
    return node._operands or ()


def walk(expr: Expr, children: Callable[[Expr], tuple[Expr, ...]] = get_operands) -> Iterator[Expr]:
    """Yield every distinct node of an expression, parents before children; lists of literals belong to their node."""
    seen: set[int] = set()
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(children(node)))


def find_columns(expr: Expr) -> list[Column]:
    """Return the distinct columns of an expression, in order of appearance."""
    return list(dict.fromkeys(node for node in walk(expr) if isinstance(node, Column)))


def split_conjuncts(expr: Expr) -> list[Expr]:
    """Return the conjuncts of a predicate: `a AND (b AND c)` has three."""
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
    children: Callable[[Expr], tuple[Expr, ...]] = get_operands,
) -> T:
    """Compute a value for an expression from its leaves up: `combine(node, values of its children)`.

    A node that occurs several times as the same object is combined once.
    """
    done: dict[int, T] = {}
    # Children created during the walk must outlive it, or another object could get their id.
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
            # Leaves skip the list: they are most of the nodes, and a predicate is folded some dozen times.
            waiting = [child for child in below if id(child) not in done] if below else None
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
        stack.pop()
        done[key] = combine(node, tuple([done[id(child)] for child in below]) if below else ())
    return done[id(expr)]


def transform(expr: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Rewrite an expression from its leaves up; a node whose arguments are unchanged stays the same object."""
    return fold(expr, lambda node, args: rewrite(replace_args(node, args)))


Step = Column | Literal | tuple[str, tuple[int, ...]]
"""A leaf, or a function with the positions of the steps that are its arguments."""


def to_steps(expr: Expr) -> tuple[Step, ...]:
    """Return an expression as a flat list in which arguments precede their calls; the last step is the root."""
    steps: list[Step] = []

    def add(node: Expr, args: tuple[int, ...]) -> int:
        steps.append((node.function, args) if isinstance(node, Call) else node)
        return len(steps) - 1

    fold(expr, add, lambda node: node.args if isinstance(node, Call) else ())
    return tuple(steps)


def from_steps(steps: tuple[Step, ...]) -> Expr:
    """Return the expression that `to_steps` flattened."""
    built: list[Expr] = []
    for step in steps:
        match step:
            case (function, args):
                built.append(Call(function, tuple(built[arg] for arg in args)))
            case _:
                built.append(step)
    return built[-1]


def replace_args(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return the node with other operands, or the same object if they are unchanged."""
    if isinstance(node, Call) and any(new is not old for new, old in zip(args, node.args, strict=False)):
        return Call(node.function, (*args, *node.args[len(args) :]), node.position)
    return node
