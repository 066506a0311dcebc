"""Partition predicates from generated columns: what a filter on `ts` says about a partition column `date(ts)`.

For a partition column p = f(x) and a filter that allows only the values of x in [lo, hi], every row that matches has

    f(lo) <= p <= f(hi)        where f keeps the order (see `derivation` for what time zones add to that)

so this may be asked of partitions, before any statistics are read. Never more than that is concluded:

- A list of values maps value by value, and a range of one calendar field only within one period of the next larger:
  days from the 5th to the 9th of one month are `day BETWEEN 5 AND 9`. With `year`, `month`, `day`, `hour` side by
  side the order is that of the tuple: `year > 2023 OR (year = 2023 AND month >= 11)`.
- Where the filter itself uses f(x), the partition column stands for it: `date(ts) <> …` becomes `p <> …`.
- x IS NULL gives p IS NULL. An empty text is NULL as a partition value, so a predicate that holds for the empty text
  keeps NULL too.
- Times as text sort like times from year 0 to 9999. Later years start with `+`, which sorts before all digits: a
  lower bound alone also keeps what is below `'0'`.

AND and OR compose; a part that says nothing makes an OR say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.bind import bind
from tamis.expr.evaluate import can_evaluate, evaluate_constant
from tamis.expr.functions import FUNCTIONS
from tamis.expr.nodes import (
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    and_,
    columns_of,
    conjuncts_of,
    fold,
    or_,
    transform,
    walk,
)
from tamis.expr.normalise import normalise
from tamis.tables.delta.derivation import FIELDS, Derived, derived_columns
from tamis.tables.delta.source_ranges import Range, intersected, prefix_of, ranges_of, source_of
from tamis.types import is_text

_MOST_RANGES = 100
"""Of more ranges than this, neighbours are taken together: each costs an evaluation of the expression at both ends."""

_BEFORE_DIGITS = Literal("0", types.STRING)


def partition_predicates(
    predicate: Expr,
    generated: Mapping[str, str],
    schema: pa.Schema,
    partition_columns: Collection[str],
    *,
    collated: Collection[tuple[str, ...]] = (),
) -> list[Expr]:
    """Predicates on partition columns that hold for every row for which a bound, normalised predicate is TRUE.

    `generated` are the generation expressions (SQL) by column name; `collated` the paths of columns whose texts are not
    compared byte by byte, of which nothing follows. The result is bound to the schema; empty where there is nothing.
    """
    derived = [
        each
        for each in derived_columns(generated.items(), schema, partition_columns)
        if each.source.path not in collated and each.column.path not in collated
    ]
    if not derived:
        return []
    known = frozenset(Column((name,)) for name in partition_columns)

    def implied(node: Expr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Call("and", parts):
                leaves = [part for part in parts if not _is_junction(part)]
                return _conjunction([*_of_leaves(leaves, derived, known), *args])
            case Call("or"):
                return TRUE if TRUE in args else or_(*args)
            case _:
                return _conjunction(_of_leaves([node], derived, known))

    found = fold(predicate, implied, _combined)
    bound = normalise(bind(found, schema))
    return [part for part in conjuncts_of(bound) if part != TRUE]


def _combined(node: Expr) -> tuple[Expr, ...]:
    """What is looked at before a node: the leaves of an AND are looked at together, with it."""
    match node:
        case Call("and", parts):
            return tuple(part for part in parts if _is_junction(part))
        case Call("or", parts):
            return parts
        case _:
            return ()


def _is_junction(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in ("and", "or")


def _conjunction(parts: Sequence[Expr]) -> Expr:
    return and_(*(part for part in dict.fromkeys(parts) if part != TRUE))


def _of_leaves(leaves: Sequence[Expr], derived: Sequence[Derived], known: Collection[Column]) -> list[Expr]:
    """What follows from predicates that all hold; `known` are all partition columns."""
    found = [_substituted(leaf, derived, known) for leaf in leaves]
    by_source: dict[Column, list[Expr]] = {}
    for leaf in leaves:
        source = source_of(leaf)
        if source is not None:
            by_source.setdefault(source, []).append(leaf)
    for source, of_source in by_source.items():
        columns = [each for each in derived if each.source == source]
        found += [_null_test(leaf, each) for leaf in of_source for each in columns]
        found += [_prefix_test(leaf, each) for leaf in of_source for each in columns]
        ranges: list[Range] | None = None
        for leaf in of_source:
            ranges = intersected(ranges, ranges_of(leaf, source))
        if ranges:
            found += _of_ranges(ranges, columns)
    return found


# --- The partition column in the place of its expression --------------------------------------------------------------


def _substituted(leaf: Expr, derived: Sequence[Derived], known: Collection[Column]) -> Expr:
    exact = [each for each in derived if each.is_exact]
    columns = {each.expression: each.column for each in exact}
    found = transform(leaf, lambda node: columns.get(node, node))
    used = columns_of(found)
    if found is leaf or not set(used) <= set(known) or not _is_understood(found):
        return TRUE
    empty = [each.column for each in exact if each.column in used and _holds_for_empty(leaf, each)]
    return or_(found, *map(_is_null, empty))


def _is_understood(leaf: Expr) -> bool:
    """Whether every function is one of ours: another might give two rows with the same values different answers."""
    return all(node.function in FUNCTIONS for node in walk(leaf) if isinstance(node, Call))


def _holds_for_empty(leaf: Expr, derived: Derived) -> bool:
    """Whether the predicate may be TRUE where the partition column is an empty text, and so stored as NULL."""
    if not derived.may_be_empty:
        return False
    if not is_text(derived.column.type or types.NULL):
        return True
    empty = Literal("", types.STRING)
    constant = transform(leaf, lambda node: empty if node == derived.expression else node)
    if columns_of(constant) or not can_evaluate(constant):
        return True
    try:
        return evaluate_constant(constant).value is True
    except EvaluationError:
        return True


# --- NULL and prefixes ------------------------------------------------------------------------------------------------


def _is_null(column: Column) -> Expr:
    return Call("is_null", (column,))


def _null_test(leaf: Expr, derived: Derived) -> Expr:
    match leaf:
        case Call("is_null") | Call("<=>", (Column(), Literal(value=None))):
            return _is_null(derived.column)
        case Call("is_not_null") if not derived.may_be_empty:
            return Call("is_not_null", (derived.column,))
        case _:
            return TRUE


def _prefix_test(leaf: Expr, derived: Derived) -> Expr:
    """A prefix of the text is a prefix of its beginning, or the other way round."""
    prefix = prefix_of(leaf)
    match prefix, derived.expression:
        case str(), Call("substring", (Column(), _, Literal(value=int() as length))) if prefix and length > 0:
            if len(prefix) >= length:
                return Call("=", (derived.column, Literal(prefix[:length], types.STRING)))
            return Call("startswith", (derived.column, Literal(prefix, types.STRING)))
        case _:
            return TRUE


# --- Ranges -----------------------------------------------------------------------------------------------------------


def _of_ranges(ranges: list[Range], columns: Sequence[Derived]) -> list[Expr]:
    tuple_of_fields = _fields_in_order(columns)
    found = [_tuple_in(ranges, tuple_of_fields)] if len(tuple_of_fields) > 1 else []
    for each in columns:
        if len(tuple_of_fields) < 2 or each not in tuple_of_fields:
            found.append(_one_in(ranges, each))
    return found


def _one_in(ranges: list[Range], derived: Derived) -> Expr:
    if derived.is_exact and all(low is not None and low == high for low, high in ranges):
        return _among([low for low, _ in ranges if low is not None], derived)
    return _any_between(derived, [_image(each, derived) for each in _grouped(ranges)])


def _among(values: list[Literal], derived: Derived) -> Expr:
    """The images of single values: `p IN (…)`."""
    images = derived.images(values)
    if images is None:
        return TRUE
    is_empty = derived.may_be_empty and any(not image.value for image in images)
    return or_(Call("in", (derived.column, *images)), *([_is_null(derived.column)] if is_empty else []))


def _image(given: Range, derived: Derived) -> Range:
    low, high = given
    if derived.is_field and not _in_one_period(given, derived):
        return None, None
    return (
        None if low is None else derived.end(low, 0),
        None if high is None else derived.end(high, 1),
    )


def _in_one_period(given: Range, derived: Derived) -> bool:
    """Whether both ends are in the same year (of months), month (of days) or day (of hours)."""
    low, high = given
    if low is None or high is None:
        return False
    ends = derived.before_field(low, 0), derived.before_field(high, 1)
    field = derived.steps[-1].call.function
    larger = FIELDS[: FIELDS.index(field)]
    return None not in ends and _parts(ends[0], larger) == _parts(ends[1], larger)


def _parts(value: Literal | None, fields: Sequence[str]) -> list[int] | None:
    try:
        return None if value is None else [evaluate_constant(Call(field, (value,))).value for field in fields]
    except EvaluationError:
        return None


def _any_between(derived: Derived, ranges: list[Range]) -> Expr:
    column = derived.column
    points: list[Literal] = []
    parts: list[Expr] = []
    for low, high in _merged(ranges):
        if low is not None and low == high:
            points.append(low)
            continue
        above: Expr = TRUE if low is None else Call(">=", (column, low))
        if low is not None and high is None and derived.is_formatted:
            above = or_(above, Call("<", (column, _BEFORE_DIGITS)))
        below: Expr = TRUE if high is None else Call("<=", (column, high))
        part = _conjunction([above, below])
        if part == TRUE:
            return TRUE
        if derived.may_be_empty and (low is None or low.value == ""):
            part = or_(part, _is_null(column))
        parts.append(part)
    if points:
        parts.append(Call("in", (column, *points)))
        if derived.may_be_empty and any(not point.value for point in points):
            parts.append(_is_null(column))
    return or_(*parts)


def _merged(ranges: list[Range]) -> list[Range]:
    """The same ranges in order, those that overlap made one."""
    closed = [(low, high) for low, high in ranges if low is not None and high is not None]
    if len(closed) < len(ranges):
        # A list gives closed ranges only, so an open one stands alone; were there more, their hull is sound.
        return [_hull(ranges)]
    merged: list[tuple[Literal, Literal]] = []
    for low, high in sorted(closed, key=lambda each: each[0].value):
        if merged and low.value <= merged[-1][1].value:
            start, end = merged[-1]
            merged[-1] = (start, max(end, high, key=lambda literal: literal.value))
        else:
            merged.append((low, high))
    return list(merged)


def _grouped(ranges: list[Range]) -> list[Range]:
    """The same ranges; where they are many, neighbours taken together."""
    if len(ranges) <= _MOST_RANGES:
        return ranges
    closed = [(low, high) for low, high in ranges if low is not None]
    if len(closed) < len(ranges):
        return [_hull(ranges)]
    ordered = sorted(closed, key=lambda each: each[0].value)
    size = -(-len(ordered) // _MOST_RANGES)
    return [_hull(ordered[start : start + size]) for start in range(0, len(ordered), size)]


def _hull(ranges: Sequence[Range]) -> Range:
    lows, highs = [low for low, _ in ranges if low is not None], [high for _, high in ranges if high is not None]
    return (
        min(lows, key=lambda literal: literal.value) if len(lows) == len(ranges) else None,
        max(highs, key=lambda literal: literal.value) if len(highs) == len(ranges) else None,
    )


# --- Year, month, day, hour -------------------------------------------------------------------------------------------


def _fields_in_order(columns: Sequence[Derived]) -> list[Derived]:
    """The columns that are year, month, day and hour of the source, as far as none is missing."""
    by_field = {each.field: each for each in reversed(columns)}
    found: list[Derived] = []
    for field in FIELDS:
        if field not in by_field:
            break
        found.append(by_field[field])
    return found


def _tuple_in(ranges: list[Range], columns: list[Derived]) -> Expr:
    names = [each.column for each in columns]
    parts = [_tuple_between(names, *_tuples(given, columns)) for given in _grouped(ranges)]
    return TRUE if TRUE in parts else or_(*dict.fromkeys(parts))


def _tuples(given: Range, columns: list[Derived]) -> tuple[list[Literal] | None, list[Literal] | None]:
    found: list[list[Literal] | None] = []
    for side, end in enumerate(given):
        values = [None if end is None else each.end(end, side) for each in columns]
        found.append(None if None in values else [value for value in values if value is not None])
    return found[0], found[1]


def _tuple_between(columns: list[Column], low: list[Literal] | None, high: list[Literal] | None) -> Expr:
    equal = 0
    if low is not None and high is not None:
        while equal < len(columns) and low[equal] == high[equal]:
            equal += 1
    same = [Call("=", (column, value)) for column, value in zip(columns[:equal], (low or [])[:equal], strict=True)]
    rest = columns[equal:]
    if not rest:
        return _conjunction(same)
    above = TRUE if low is None else _beyond(">", rest, low[equal:])
    below = TRUE if high is None else _beyond("<", rest, high[equal:])
    return _conjunction([*same, above, below])


def _beyond(operator: str, columns: list[Column], values: list[Literal]) -> Expr:
    """The tuple of columns is no smaller (`>`) or no larger (`<`) than that of the values."""
    found: Expr = Call(f"{operator}=", (columns[-1], values[-1]))
    for column, value in zip(columns[-2::-1], values[-2::-1], strict=True):
        found = or_(Call(operator, (column, value)), and_(Call("=", (column, value)), found))
    return found
