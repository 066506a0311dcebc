"""The nodes of the expression language, and the walks over them.

An expression is a tree of calls over literals and leaves. Its leaves tell two kinds of trees apart:

- a `Name` is unbound: what was written in SQL text, with `tamis.col`, or for another library;
- a `Column` is bound: a column of a schema, with its type. `bind` makes bound trees of unbound ones, and skipping,
  evaluation, formats, engines and query plans take bound trees only.

`Call` is generic over the leaf, so that mypy rejects an unbound tree where a bound one is needed: `Expr` is a bound
tree, `Unbound` a tree of names, `AnyExpr` either of them.

Nodes are immutable values: compared by content, hashable, safe to share between threads.
No walk recurses, because the user decides how deep a predicate is: a generated filter may be
ten thousand levels deep. Equality and hashing of `Call` are written by hand for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, Union, overload

import pyarrow as pa

from tamis import types


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column before it is bound to a schema: `a.b` has the path `("a", "b")`.

    `position` is the 1-based character in the SQL text. `exact` says that the name was quoted with back-ticks, and so
    selects one of the columns that differ only by case. Equality ignores both.
    """

    path: tuple[str, ...]
    position: int | None = field(default=None, compare=False, repr=False)
    exact: bool = field(default=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The path as text, its parts joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a schema, or a field inside a struct column: `a.b` has the path `("a", "b")`.

    `type` is None where it is unknown; columns of one path and different types are different. `position` is the
    1-based character in the SQL text. `exact` says that other columns differ only by case, so that its name is printed
    with back-ticks. Equality ignores these two.
    """

    path: tuple[str, ...]
    type: pa.DataType | None = field(hash=False)  # Arrow formats a type as text for each hash
    position: int | None = field(default=None, compare=False, repr=False)
    exact: bool = field(default=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The path as text, its parts joined by dots."""
        return ".".join(self.path)


Leaf = Name | Column

T = TypeVar("T")
L = TypeVar("L", bound=Leaf)
M = TypeVar("M", bound=Leaf)
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    L_co = TypeVarWithDefault("L_co", bound=Leaf, covariant=True, default=Column)  # `Call` alone is a bound call
else:
    L_co = TypeVar("L_co", bound=Leaf, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A value of a type, in the physical form that `tamis.types` describes; None is NULL.

    NaN equals itself, as in Spark. `quoted` holds the texts in double quotes that it was written with, as the names
    that they may be meant as. Binding checks and drops them; equality ignores them.
    """

    value: Any
    type: pa.DataType = types.NULL
    quoted: tuple[Name, ...] = field(default=(), repr=False)

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

    def __reduce__(self) -> tuple[type[Literal], tuple[Any, ...]]:
        return Literal, (self.value, self.type, self.quoted)  # so that NaN is the shared object again

    @property
    def is_null(self) -> bool:
        """Return whether the value is NULL."""
        return self.value is None


@dataclass(frozen=True, slots=True)
class Spelling:
    """How its user wrote a call that is stored as one of another function: `nvl(x, 0)` is a call of `coalesce`.

    The arguments are texts, and numbers of arguments of the stored call; None stands for all of these.
    """

    function: str
    args: tuple[int | str, ...] | None = None


BETWEEN = Spelling("between")
"""The spelling of an AND of two comparisons that was written as BETWEEN."""
IMPLICIT = Spelling("")
"""The spelling of a call that was not written, such as the cast of an operand: its first argument was written."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Generic[L_co]):
    """A function or an operator applied to arguments. `tamis.expr.functions.table` lists the supported ones.

    `position` is the 1-based character of an unsupported function in the SQL text. `spelling` says how the call was
    written, if it was as another function. Equality ignores both.
    """

    function: str
    args: tuple[Tree[L_co], ...]
    position: int | None = None
    spelling: Spelling | None = None
    _hash: int = field(init=False, default=0)
    _evaluable: bool | None = field(init=False, default=None)
    """Whether Arrow can evaluate it; set by `evaluate.can_evaluate`."""
    _fallible: bool | None = field(init=False, default=None)
    """Whether it may fail on some value; set by `table.may_fail`."""
    _operands: tuple[Tree[L_co], ...] | None = field(init=False, default=None)
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
        pairs: list[tuple[AnyExpr, AnyExpr]] = [(self, other)]
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

    def __reduce__(self) -> tuple[Callable[[tuple[Step, ...]], AnyExpr], tuple[tuple[Step, ...]]]:
        # Pickle and deepcopy recurse over arguments, so they get a flat list. String hashes differ between processes,
        # so the copy computes its own.
        return from_steps, (to_steps(self),)

    def __repr__(self) -> str:
        from tamis.expr.sql.printer import restore_spelling, to_sql

        return f"Call<{to_sql(restore_spelling(self))}>"


Tree = Union[L, Literal, Call[L]]  # noqa: UP007 - mypy takes no alias that an operator makes of a type variable
"""A tree over one kind of leaf."""
Expr = Column | Literal | Call[Column]
Unbound = Name | Literal | Call[Name]
AnyExpr = Name | Column | Literal | Call[Leaf]

TRUE = Literal(True, types.BOOLEAN)
FALSE = Literal(False, types.BOOLEAN)
NULL = Literal(None, types.NULL)


def and_(*args: Tree[L]) -> Tree[L]:
    """Return the conjunction of any number of predicates; without any, TRUE."""
    return _combine("and", TRUE, args)


def or_(*args: Tree[L]) -> Tree[L]:
    """Return the disjunction of any number of predicates; without any, FALSE."""
    return _combine("or", FALSE, args)


def not_(arg: Tree[L]) -> Tree[L]:
    """Return the negation of a predicate."""
    return Call("not", (arg,))


def between(value: Tree[L], low: Tree[L], high: Tree[L]) -> Tree[L]:
    """Return `value BETWEEN low AND high`: an AND of two comparisons, which is printed as it was written."""
    return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))), spelling=BETWEEN)


def _combine(function: str, empty: Literal, args: tuple[Tree[L], ...]) -> Tree[L]:
    match args:
        case ():
            return empty
        case (only,):
            return only
        case _:
            return Call(function, args)


_ARGS_BEFORE_ITEMS = {"in": 1, "any_between": 2}
"""The number of arguments before the list items of a function."""


def get_operands(node: Tree[L]) -> tuple[Tree[L], ...]:
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


def is_logic(node: AnyExpr) -> bool:
    return isinstance(node, Call) and node.function in ("and", "or", "not")


def get_conditions(node: Tree[L]) -> tuple[Tree[L], ...]:
    """Return the operands of AND, OR and NOT; other nodes have none."""
    return node.args if isinstance(node, Call) and is_logic(node) else ()


def walk(expr: Tree[L], children: Callable[[Tree[L]], tuple[Tree[L], ...]] = get_operands) -> Iterator[Tree[L]]:
    """Yield every distinct node of an expression, parents before children; lists of literals belong to their node."""
    seen: set[int] = set()
    stack: list[Tree[L]] = [expr]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(children(node)))


def find_columns(expr: Tree[L]) -> list[L]:
    """Return the distinct columns of an expression, or names of an unbound one, in order of appearance."""
    return list(dict.fromkeys(node for node in walk(expr) if not isinstance(node, Literal | Call)))


def split_conjuncts(expr: Tree[L]) -> list[Tree[L]]:
    """Return the conjuncts of a predicate: `a AND (b AND c)` has three."""
    found: list[Tree[L]] = []
    stack: list[Tree[L]] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.function == "and":
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return found


def fold(
    expr: Tree[L],
    combine: Callable[[Tree[L], tuple[T, ...]], T],
    children: Callable[[Tree[L]], tuple[Tree[L], ...]] = get_operands,
) -> T:
    """Compute a value for an expression from its leaves up: `combine(node, values of its children)`.

    A node that occurs several times as the same object is combined once.
    """
    done: dict[int, T] = {}
    # Children created during the walk must outlive it, or another object could get their id.
    opened: dict[int, tuple[Tree[L], ...]] = {}
    stack: list[Tree[L]] = [expr]
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


def transform(expr: Tree[L], rewrite: Callable[[Tree[L]], Tree[L]]) -> Tree[L]:
    """Rewrite an expression from its leaves up; a node whose arguments are unchanged stays the same object."""
    return fold(expr, lambda node, args: rewrite(replace_args(node, args)))


Step = Leaf | Literal | tuple[str, tuple[int, ...], Spelling | None]
"""A leaf, or a function with the positions of the steps that are its arguments, and its spelling."""


def to_steps(expr: AnyExpr) -> tuple[Step, ...]:
    """Return an expression as a flat list in which arguments precede their calls; the last step is the root."""
    steps: list[Step] = []

    def add(node: AnyExpr, args: tuple[int, ...]) -> int:
        steps.append((node.function, args, node.spelling) if isinstance(node, Call) else node)
        return len(steps) - 1

    fold(expr, add, lambda node: node.args if isinstance(node, Call) else ())
    return tuple(steps)


def from_steps(steps: tuple[Step, ...]) -> AnyExpr:
    built: list[AnyExpr] = []
    for step in steps:
        match step:
            case (function, args, spelling):
                built.append(Call(function, tuple(built[arg] for arg in args), spelling=spelling))
            case _:
                built.append(step)
    return built[-1]


@overload
def replace_args(node: Call[Leaf], args: tuple[Tree[M], ...]) -> Call[M]: ...
@overload
def replace_args(node: Tree[M], args: tuple[Tree[M], ...]) -> Tree[M]: ...
def replace_args(node: Any, args: tuple[Tree[M], ...]) -> Any:
    """Return the node with other operands, or the same object if they are unchanged."""
    if isinstance(node, Call) and any(new is not old for new, old in zip(args, node.args, strict=False)):
        return Call(node.function, (*args, *node.args[len(args) :]), node.position, node.spelling)
    return node


def replace_columns(expr: Tree[L], replace: Callable[[L], Tree[M]]) -> Tree[M]:
    """Return the expression with something else for each column, or for each name of an unbound one."""

    def combine(node: Tree[L], args: tuple[Tree[M], ...]) -> Tree[M]:
        match node:
            case Literal():
                return node
            case Call():
                return replace_args(node, args)
            case _:
                return replace(node)

    return fold(expr, combine)


def make_unbound_error(node: Never) -> TypeError:
    """Return the error for a name among the leaves of an expression that should be bound."""
    return TypeError(f"expected a bound expression, found the unbound {node!r}: bind it to a schema first")
