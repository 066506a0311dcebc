"""What translations from other libraries, and from SQL, share: the walk over a tree, and the checks of arithmetic.

The walk does not recurse, because the user decides how deep a tree is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError, TypeMismatch
from tamis.expr.foreign import is_arithmetic, mark, remove_mark
from tamis.expr.functions.table import FUNCTIONS, Function, Precedence, find_foreign_function
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Literal, Name, Unbound, and_, or_
from tamis.types import is_number, type_from_name, type_name


@dataclass(frozen=True, slots=True)
class Parts:
    """A node whose parts must be translated before it is built."""

    parts: Sequence[Any]
    build: Build


def translate_tree(root: Any, translate: Callable[[Any], Unbound | Parts]) -> Unbound:
    """Return the expression for a tree; `translate` turns one node into an expression, or into its parts."""
    done: list[Unbound] = []
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, Parts):
            # The second visit of a node: its parts are translated.
            first = len(done) - len(item.parts)
            parts = tuple(done[first:])
            del done[first:]
            done.append(item.build(parts))
            continue
        translated = translate(item)
        if isinstance(translated, Parts):
            stack.append(translated)
            stack.extend(reversed(translated.parts))
        else:
            done.append(translated)
    return done[0]


_CASTS = frozenset(("arrow_cast", "cast", "try_cast"))


def is_number_by_form(expr: Unbound) -> bool:
    """Return whether an expression is a number, whatever its columns are.

    The types of columns are unknown during a translation. Elsewhere `+` also joins texts and moves dates, which it does
    not do here; where one operand is a number, the other library accepts only numbers.
    """
    match remove_mark(expr):
        case Literal(type=data_type):
            return is_number(data_type)
        case Call(_, (_, Literal(value=str()) as target)) as call if call.function in _CASTS:
            return is_number(type_from_name(target.value))
        case Call(function):
            row = FUNCTIONS.get(function)
            returned = None if row is None else row.returns
            return is_arithmetic(function) or (isinstance(returned, pa.DataType) and is_number(returned))
        case _:
            return False


ADVICE = "write the filter as SQL text"
NAN = Literal(float("nan"), types.DOUBLE)

Build = Callable[[tuple[Unbound, ...]], Unbound]
"""Builds an expression from the parts of a node."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library: a column of the table of functions has its names of them, `translations` has its other ones."""

    name: str
    mark: str
    column: Callable[[Function], tuple[str, ...]]
    translations: Mapping[str, Build]

    def make_unsupported_error(self, what: str) -> ExpressionError:
        return ExpressionError(f"the {self.name} {what} has no counterpart here: {ADVICE}")

    def get_translation(self, kind: str, name: str) -> Build:
        """Return what builds a function, operator or node of this name."""
        row = find_foreign_function(name, self.column)
        build = self.translations.get(name) if row is None else partial(self._build_call, row)
        if build is None:
            raise self.make_unsupported_error(f"{kind} {name!r}")
        return build

    def _build_call(self, function: Function, args: tuple[Unbound, ...]) -> Unbound:
        """Build a call of a function that is here too; a sum of columns, which may be dates, is an error."""
        if not function.accepts(len(args)):
            raise ExpressionError(f"an expression has {function.name} of {len(args)} arguments: {ADVICE}")
        is_arithmetic = function.operator in (Precedence.SUM, Precedence.PRODUCT)
        if is_arithmetic and not any(map(is_number_by_form, args)):
            raise ExpressionError(
                f"an expression has {function.name} of two columns, which may be texts or dates: {ADVICE}"
            )
        return mark(self.mark, Call(function.name, args))


def find_cast_target(target: pa.DataType) -> Literal | None:
    """Return the name of a type to which SQL casts; None for a type that SQL does not have."""
    name = type_name(types.STRING if types.is_text(target) else target)
    try:
        has_name = type_from_name(name) == target or types.is_text(target)
    except TypeMismatch:
        has_name = False
    return Literal(name, types.STRING) if has_name else None


def build_field(value: Unbound, name: str, library: str) -> Unbound:
    """Build the field of a struct, which must be a column."""
    if not isinstance(value, Name):
        raise ExpressionError(f"the {library} field {name!r} of a computed struct has no counterpart here: {ADVICE}")
    return Name((*value.path, name), exact=True)


def build_membership(library: str, value: Unbound, items: pa.Array, *, nulls_equal: bool) -> Unbound:
    """Build a test for membership in a list. NULL in it equals NULL with `nulls_equal`, and is ignored without it."""
    members = [literal(item) for item in items.drop_null()]
    is_member = mark(library, Call("in", (value, *members))) if members else None
    if not nulls_equal:
        # `x <> x` is FALSE, and NULL for NULL.
        return Call("<>", (value, value)) if is_member is None else is_member
    if items.null_count:
        is_null = Call("is_null", (value,))
        return is_null if is_member is None else or_(is_null, is_member)
    # FALSE AND NULL is FALSE: NULL is not a member.
    return FALSE if is_member is None else and_(Call("is_not_null", (value,)), is_member)


def is_divisor_other_than_zero(expr: Unbound) -> bool:
    """Return whether an expression is a number other than zero: here a division by zero is NULL."""
    number = remove_mark(expr)
    return (
        isinstance(number, Literal)
        and is_number_by_form(number)
        and bool(number.value)
        and number.value == number.value
    )
