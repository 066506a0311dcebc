"""Partition predicates from generated columns: a filter on `ts` implies one on a partition column `date(ts)`.

For a partition column p = f(x) and a filter that allows only the values of x in [lo, hi], every matching row has

    f(lo) <= p <= f(hi)        where f is monotone (for time zones see `generation_expressions`)

so this predicate can prune partitions, before any statistics are read. Nothing more is concluded:

- A list of values maps value by value. A range maps to a range of one calendar field only within one period of the next
  larger field: days from the 5th to the 9th of one month are `day BETWEEN 5 AND 9`. With columns for `year`, `month`,
  `day`, `hour` the order is that of the tuple: `year > 2023 OR (year = 2023 AND month >= 11)`.
- Where the filter itself contains f(x), the partition column replaces it: `date(ts) <> …` becomes `p <> …`.
- x IS NULL implies p IS NULL. An empty string is NULL as a partition value, so a predicate that holds for the empty
  string keeps NULL too.
- Formatted times sort like times from year 0 to 9999. Later years start with `+`, which sorts before all digits: a
  lower bound without an upper one also keeps strings below `'0'`.

AND and OR compose; an operand without an implied predicate leaves an OR without one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.bind import bind
from tamis.expr.evaluate import can_evaluate, evaluate_constant
from tamis.expr.functions.table import FUNCTIONS
from tamis.expr.nodes import (
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    and_,
    find_columns,
    fold,
    or_,
    split_conjuncts,
    transform,
    walk,
)
from tamis.expr.normalise import normalise
from tamis.formats.delta.generation_expressions import (
    CALENDAR_FIELDS,
    DerivedColumn,
    Range,
    find_derived_columns,
    find_prefix,
    find_ranges,
    find_source_column,
    intersect_ranges,
)
from tamis.types import is_text

_MOST_RANGES = 100
"""Above this many ranges, neighbours are merged: each range costs an evaluation of the expression at both ends."""

_BEFORE_DIGITS = Literal("0", types.STRING)


def derive_partition_predicates(
    predicate: Expr,
    generated: Mapping[str, str],
    schema: pa.Schema,
    partition_columns: Collection[str],
    *,
    collated: Collection[tuple[str, ...]] = (),
) -> list[Expr]:
    """Return predicates on partition columns that hold for every row for which a bound, normalised predicate is TRUE.

    `generated` holds the generation expressions (SQL) by column name. `collated` holds the paths of columns with a
    collation, which are not used. The result is bound to the schema. It is empty if nothing is implied.
    """
    derived = [
        each
        for each in find_derived_columns(generated.items(), schema, partition_columns)
        if each.source.path not in collated and each.column.path not in collated
    ]
    if not derived:
        return []
    known = frozenset(Column((name,)) for name in partition_columns)

    def imply(node: Expr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Call("and", parts):
                leaves = [part for part in parts if not _is_junction(part)]
                return _make_conjunction([*_imply_from_leaves(leaves, derived, known), *args])
            case Call("or"):
                return TRUE if TRUE in args else or_(*args)
            case _:
                return _make_conjunction(_imply_from_leaves([node], derived, known))

    found = fold(predicate, imply, _get_junctions)
    bound = normalise(bind(found, schema))
    return [part for part in split_conjuncts(bound) if part != TRUE]


def _get_junctions(node: Expr) -> tuple[Expr, ...]:
    """Return the children to fold before a node; the leaves of an AND are handled together with it."""
    match node:
        case Call("and", parts):
            return tuple(part for part in parts if _is_junction(part))
        case Call("or", parts):
            return parts
        case _:
            return ()


def _is_junction(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in ("and", "or")


def _make_conjunction(parts: Sequence[Expr]) -> Expr:
    return and_(*(part for part in dict.fromkeys(parts) if part != TRUE))


def _imply_from_leaves(
    leaves: Sequence[Expr], derived: Sequence[DerivedColumn], known: Collection[Column]
) -> list[Expr]:
    """Return the predicates that follow from `leaves`, which all hold; `known` holds all partition columns."""
    found = [_substitute(leaf, derived, known) for leaf in leaves]
    by_source: dict[Column, list[Expr]] = {}
    for leaf in leaves:
        source = find_source_column(leaf)
        if source is not None:
            by_source.setdefault(source, []).append(leaf)
    for source, own_leaves in by_source.items():
        columns = [each for each in derived if each.source == source]
        found += [_imply_null_test(leaf, each) for leaf in own_leaves for each in columns]
        found += [_imply_prefix_test(leaf, each) for leaf in own_leaves for each in columns]
        ranges: list[Range] | None = None
        for leaf in own_leaves:
            ranges = intersect_ranges(ranges, find_ranges(leaf, source))
        if ranges:
            found += _imply_from_ranges(ranges, columns)
    return found


# --- The partition column instead of its expression -------------------------------------------------------------------


def _substitute(leaf: Expr, derived: Sequence[DerivedColumn], known: Collection[Column]) -> Expr:
    exact = [each for each in derived if each.is_exact]
    columns = {each.expression: each.column for each in exact}
    found = transform(leaf, lambda node: columns.get(node, node))
    used = find_columns(found)
    if found is leaf or not set(used) <= set(known) or not _is_supported(found):
        return TRUE
    empty = [each.column for each in exact if each.column in used and _holds_for_empty(leaf, each)]
    return or_(found, *map(_make_null_test, empty))


def _is_supported(leaf: Expr) -> bool:
    """Whether every function is supported: another one might not be deterministic."""
    return all(node.function in FUNCTIONS for node in walk(leaf) if isinstance(node, Call))


def _holds_for_empty(leaf: Expr, derived: DerivedColumn) -> bool:
    """Whether the predicate may be TRUE where the partition column is an empty string, which is stored as NULL."""
    if not derived.may_be_empty:
        return False
    if not is_text(derived.column.type or types.NULL):
        return True
    empty = Literal("", types.STRING)
    constant = transform(leaf, lambda node: empty if node == derived.expression else node)
    if find_columns(constant) or not can_evaluate(constant):
        return True
    try:
        return evaluate_constant(constant).value is True
    except EvaluationError:
        return True


# --- NULL and prefixes ------------------------------------------------------------------------------------------------


def _make_null_test(column: Column) -> Expr:
    return Call("is_null", (column,))


def _imply_null_test(leaf: Expr, derived: DerivedColumn) -> Expr:
    match leaf:
        case Call("is_null") | Call("<=>", (Column(), Literal(value=None))):
            return _make_null_test(derived.column)
        case Call("is_not_null") if not derived.may_be_empty:
            return Call("is_not_null", (derived.column,))
        case _:
            return TRUE


def _imply_prefix_test(leaf: Expr, derived: DerivedColumn) -> Expr:
    """Imply a predicate from a prefix: it is a prefix of the substring, or the substring is a prefix of it."""
    prefix = find_prefix(leaf)
    match prefix, derived.expression:
        case str(), Call("substring", (Column(), _, Literal(value=int() as length))) if prefix and length > 0:
            if len(prefix) >= length:
                return Call("=", (derived.column, Literal(prefix[:length], types.STRING)))
            return Call("startswith", (derived.column, Literal(prefix, types.STRING)))
        case _:
            return TRUE


# --- Ranges -----------------------------------------------------------------------------------------------------------


def _imply_from_ranges(ranges: list[Range], columns: Sequence[DerivedColumn]) -> list[Expr]:
    field_columns = _find_field_columns(columns)
    found = [_imply_for_tuple(ranges, field_columns)] if len(field_columns) > 1 else []
    for each in columns:
        if len(field_columns) < 2 or each not in field_columns:
            found.append(_imply_for_column(ranges, each))
    return found


def _imply_for_column(ranges: list[Range], derived: DerivedColumn) -> Expr:
    if derived.is_exact and all(low is not None and low == high for low, high in ranges):
        return _make_in_list([low for low, _ in ranges if low is not None], derived)
    return _make_ranges_test(derived, [_map_range(each, derived) for each in _group_ranges(ranges)])


def _make_in_list(values: list[Literal], derived: DerivedColumn) -> Expr:
    """Return `p IN (…)` with the images of single values."""
    images = derived.compute_images(values)
    if images is None:
        return TRUE
    is_empty = derived.may_be_empty and any(not image.value for image in images)
    return or_(Call("in", (derived.column, *images)), *([_make_null_test(derived.column)] if is_empty else []))


def _map_range(given: Range, derived: DerivedColumn) -> Range:
    low, high = given
    if derived.is_field and not _is_in_one_period(given, derived):
        return None, None
    return (
        None if low is None else derived.compute_bound(low, 0),
        None if high is None else derived.compute_bound(high, 1),
    )


def _is_in_one_period(given: Range, derived: DerivedColumn) -> bool:
    """Whether both ends are in the same year (for months), month (for days) or day (for hours)."""
    low, high = given
    if low is None or high is None:
        return False
    ends = derived.compute_field_input(low, 0), derived.compute_field_input(high, 1)
    field = derived.steps[-1].call.function
    larger = CALENDAR_FIELDS[: CALENDAR_FIELDS.index(field)]
    return None not in ends and _extract_fields(ends[0], larger) == _extract_fields(ends[1], larger)


def _extract_fields(value: Literal | None, fields: Sequence[str]) -> list[int] | None:
    try:
        return None if value is None else [evaluate_constant(Call(field, (value,))).value for field in fields]
    except EvaluationError:
        return None


def _make_ranges_test(derived: DerivedColumn, ranges: list[Range]) -> Expr:
    column = derived.column
    points: list[Literal] = []
    parts: list[Expr] = []
    for low, high in _merge_ranges(ranges):
        if low is not None and low == high:
            points.append(low)
            continue
        above: Expr = TRUE if low is None else Call(">=", (column, low))
        if low is not None and high is None and derived.is_formatted:
            above = or_(above, Call("<", (column, _BEFORE_DIGITS)))
        below: Expr = TRUE if high is None else Call("<=", (column, high))
        part = _make_conjunction([above, below])
        if part == TRUE:
            return TRUE
        if derived.may_be_empty and (low is None or low.value == ""):
            part = or_(part, _make_null_test(column))
        parts.append(part)
    if points:
        parts.append(Call("in", (column, *points)))
        if derived.may_be_empty and any(not point.value for point in points):
            parts.append(_make_null_test(column))
    return or_(*parts)


def _merge_ranges(ranges: list[Range]) -> list[Range]:
    """Return the same ranges in order, with overlapping ones merged."""
    closed = [(low, high) for low, high in ranges if low is not None and high is not None]
    if len(closed) < len(ranges):
        # A list gives closed ranges only, so an open range is the only one; if there were more, their hull is sound.
        return [_compute_hull(ranges)]
    merged: list[tuple[Literal, Literal]] = []
    for low, high in sorted(closed, key=lambda each: each[0].value):
        if merged and low.value <= merged[-1][1].value:
            start, end = merged[-1]
            merged[-1] = (start, max(end, high, key=lambda literal: literal.value))
        else:
            merged.append((low, high))
    return list(merged)


def _group_ranges(ranges: list[Range]) -> list[Range]:
    """Return the same ranges, or, where there are many, the hulls of neighbouring ones."""
    if len(ranges) <= _MOST_RANGES:
        return ranges
    closed = [(low, high) for low, high in ranges if low is not None]
    if len(closed) < len(ranges):
        return [_compute_hull(ranges)]
    ordered = sorted(closed, key=lambda each: each[0].value)
    size = -(-len(ordered) // _MOST_RANGES)
    return [_compute_hull(ordered[start : start + size]) for start in range(0, len(ordered), size)]


def _compute_hull(ranges: Sequence[Range]) -> Range:
    lows, highs = [low for low, _ in ranges if low is not None], [high for _, high in ranges if high is not None]
    return (
        min(lows, key=lambda literal: literal.value) if len(lows) == len(ranges) else None,
        max(highs, key=lambda literal: literal.value) if len(highs) == len(ranges) else None,
    )


# --- Year, month, day, hour -------------------------------------------------------------------------------------------


def _find_field_columns(columns: Sequence[DerivedColumn]) -> list[DerivedColumn]:
    """Return the columns that are year, month, day and hour of the source, up to the first that is missing."""
    by_field = {each.field: each for each in reversed(columns)}
    found: list[DerivedColumn] = []
    for field in CALENDAR_FIELDS:
        if field not in by_field:
            break
        found.append(by_field[field])
    return found


def _imply_for_tuple(ranges: list[Range], columns: list[DerivedColumn]) -> Expr:
    names = [each.column for each in columns]
    parts = [_make_tuple_range(names, *_map_to_tuples(given, columns)) for given in _group_ranges(ranges)]
    return TRUE if TRUE in parts else or_(*dict.fromkeys(parts))


def _map_to_tuples(given: Range, columns: list[DerivedColumn]) -> tuple[list[Literal] | None, list[Literal] | None]:
    found: list[list[Literal] | None] = []
    for side, end in enumerate(given):
        values = [None if end is None else each.compute_bound(end, side) for each in columns]
        found.append(None if None in values else [value for value in values if value is not None])
    return found[0], found[1]


def _make_tuple_range(columns: list[Column], low: list[Literal] | None, high: list[Literal] | None) -> Expr:
    equal = 0
    if low is not None and high is not None:
        while equal < len(columns) and low[equal] == high[equal]:
            equal += 1
    same = [Call("=", (column, value)) for column, value in zip(columns[:equal], (low or [])[:equal], strict=True)]
    rest = columns[equal:]
    if not rest:
        return _make_conjunction(same)
    above = TRUE if low is None else _make_tuple_bound(">", rest, low[equal:])
    below = TRUE if high is None else _make_tuple_bound("<", rest, high[equal:])
    return _make_conjunction([*same, above, below])


def _make_tuple_bound(operator: str, columns: list[Column], values: list[Literal]) -> Expr:
    """Return the predicate that the tuple of columns is >= (for `>`) or <= (for `<`) the tuple of values."""
    found: Expr = Call(f"{operator}=", (columns[-1], values[-1]))
    for column, value in zip(columns[-2::-1], values[-2::-1], strict=True):
        found = or_(Call(operator, (column, value)), and_(Call("=", (column, value)), found))
    return found
