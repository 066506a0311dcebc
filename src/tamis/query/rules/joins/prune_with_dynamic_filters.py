"""Dynamic filters: run the smaller side of a join first, and prune the scans of the other side by its keys.

The rule marks a join: `dynamic_filter_side` names the side to prune. The executor runs the other side first, and calls
`push_dynamic_filters` with the keys it found to get the marked side with dynamic filters. For each criterion, the
filter is

- an IN list of all keys, if there are at most `Tuning.max_listed_keys`;
- else up to `Tuning.max_key_ranges` ranges that contain all keys, split at the widest gaps between keys.

Both prune partitions, files, row groups and pages. Rows are tested with lists of up to `Tuning.max_tested_keys` keys.
For more keys, a Bloom join filter (see `tamis.scan.reading.bloom_join_filter`) drops most rows, if the keys are numbers
or timestamps.

Which side may be pruned depends on the join kind: never the side whose unmatched rows an outer join keeps. Pruning pays
off if the table is much larger than the other side and clustered by the key: by its partitions, by the bounds of its
files, or by the row groups or pages inside of them.
A dynamic filter is pushed into scans only. It is an optimization: a scan that does not support it works without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.evaluate import to_physical_value
from tamis.expr.functions.table import strip_widening_casts, type_of
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, and_, or_
from tamis.query.plan import nodes
from tamis.query.plan.column_ids import substitute
from tamis.query.plan.optimizer import Context
from tamis.query.policies.leakproof import is_leakproof, policy_may_fail
from tamis.query.rules.scan_expressions import ScanNames
from tamis.scan.reading.bloom_join_filter import BloomJoinFilter
from tamis.tuning import DEFAULT_TUNING, Tuning

# --- Sizes ----------------------------------------------------------------------------------------------------------
#
# Size estimates of nodes from table statistics, before anything is read.


@dataclass(frozen=True, slots=True)
class Size:
    """An estimate of the size of a node's result, from metadata. None means unknown."""

    rows: int | None
    bytes: int | None

    def can_build(self, tuning: Tuning) -> bool:
        """Return whether a join side of this size may be read to build a dynamic filter."""
        if self.rows is not None:
            return self.rows <= tuning.max_build_rows
        return self.bytes is not None and self.bytes <= tuning.max_build_bytes

    def is_much_smaller_than(self, other: Size, ratio: float) -> bool:
        """Return whether the other size is more than `ratio` times this one, or unknown."""
        if self.rows is not None and other.rows is not None:
            return ratio * self.rows < other.rows
        if self.bytes is not None and other.bytes is not None:
            return ratio * self.bytes < other.bytes
        return True

    @property
    def sort_key(self) -> tuple[bool, int]:
        return self.rows is None, self.rows if self.rows is not None else self.bytes or 0


def estimate_size(node: nodes.Node, context: Context) -> Size:
    match node:
        case nodes.TableScan():
            known = context.properties(node)
            return Size(known.rows, known.bytes)
        case nodes.Values():
            return Size(node.rows.num_rows, node.rows.nbytes)
        case nodes.Limit() | nodes.TopN():
            below = estimate_size(node.source, context)
            return Size(node.count if below.rows is None else min(node.count, below.rows), below.bytes)
        case nodes.Join(kind="semi" | "anti"):
            return estimate_size(node.left, context)
        case _:
            # A guess for joins: most are on a unique key of one side. The executor stops a side that grows too large.
            sizes = [estimate_size(source, context) for source in nodes.get_sources(node)]
            if isinstance(node, nodes.Union | nodes.Sql):
                return Size(_combine(sum, [size.rows for size in sizes]), _combine(sum, [size.bytes for size in sizes]))
            return Size(_combine(max, [size.rows for size in sizes]), _combine(max, [size.bytes for size in sizes]))


def _combine(function: Callable[[Iterable[int]], int], numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else function([0, *(number for number in numbers if number is not None)])


def is_filtered(node: nodes.Node, context: Context) -> bool:
    """Return whether a node returns, or may return, fewer rows than the tables below it have."""
    for each in nodes.walk_plan(node):
        match each:
            case nodes.TableScan():
                if context.properties(each).is_filtered is not False:
                    return True
            case nodes.Filter() | nodes.Limit() | nodes.TopN() | nodes.Sql() | nodes.Join(kind="semi" | "anti"):
                return True
            case _:
                pass
    return False


Side: TypeAlias = OneOf["left", "right"]

PRUNABLE_SIDES: dict[str, tuple[Side, ...]] = {
    "inner": ("left", "right"),
    "left": ("right",),
    "right": ("left",),
    "semi": ("left", "right"),
    "anti": ("right",),
    "full": (),
    "cross": (),
}
"""For each join kind, the sides whose unmatched rows do not contribute to the result."""


class PruneWithDynamicFilters:
    name = "prune_with_dynamic_filters"
    is_final = True

    def apply(self, node: nodes.Node, context: Context) -> nodes.Node | None:
        match node:
            case nodes.Join(criteria=criteria) if criteria:
                chosen = _choose_side(node, context)
                return None if chosen == node.dynamic_filter_side else replace(node, dynamic_filter_side=chosen)
            case _:
                return None


def _choose_side(join: nodes.Join, context: Context) -> Side | None:
    sides: list[tuple[Size, Side]] = []
    for side in PRUNABLE_SIDES[join.kind]:
        own, other = (join.left, join.right) if side == "left" else (join.right, join.left)
        size = estimate_size(other, context)
        # The keys of an unfiltered table rarely prune anything.
        if not size.can_build(context.tuning) or not is_filtered(other, context):
            continue
        scans = [
            scan
            for pair in join.criteria
            for scan, column in _find_scans(own, pair[0] if side == "left" else pair[1])
            if may_prune(scan, column, context)
        ]
        # Compare with what the scans read, not with the number of rows that joins produce.
        if any(
            size.is_much_smaller_than(estimate_size(scan, context), context.tuning.min_join_size_ratio)
            for scan in scans
        ):
            sides.append((size, side))
    if not sides:
        return None
    return min(sides, key=lambda each: each[0].sort_key)[1]


def may_prune(scan: nodes.TableScan, column: Column, context: Context) -> bool:
    """Return whether a dynamic filter on a column can prune anything in a scan.

    If the table is not clustered by the column, it prunes nothing: then the engine joins as fast without running one
    side first.
    """
    own = ScanNames.of(scan, context).to_handle_expr(column)
    return context.is_clustered(scan, own) is not False


# --- During execution -------------------------------------------------------------------------------------------------


def push_dynamic_filters(join: nodes.Join, keys: pa.Table, context: Context) -> nodes.Node:
    """Return the side that a marked join prunes, with dynamic filters in its scans.

    `keys` holds the keys of the other side, one column for each criterion.
    """
    side = join.left if join.dynamic_filter_side == "left" else join.right
    for number, pair in enumerate(join.criteria):
        # A key that the narrower type cannot represent equals none of its values.
        target = strip_widening_casts(pair[0] if join.dynamic_filter_side == "left" else pair[1])
        if not isinstance(target, Column):
            continue
        predicate = build_key_predicate(target, keys.column(number), context.tuning)
        if predicate is not None:
            found = _DynamicFilter(predicate, build_bloom_filter(target, keys.column(number), context.tuning))
            side = _push_dynamic_filter(side, target, found, context) or side
    return side


@dataclass(frozen=True, slots=True)
class _DynamicFilter:
    """A dynamic filter on a column: a predicate for pruning, and a Bloom join filter if there are many keys."""

    predicate: Expr
    bloom_filter: BloomJoinFilter | None


_Descent: TypeAlias = tuple[tuple[int, Column], ...]
"""For a column of a node: the sources (by index) that a filter on it may be pushed into, each with its own column."""


def _find_scans(node: nodes.Node, key: Expr) -> list[tuple[nodes.TableScan, Column]]:
    """Return the scans that a filter on a column would reach, with the column in each of them."""
    found: list[tuple[nodes.TableScan, Column]] = []
    column = strip_widening_casts(key)
    waiting = [(node, column)] if isinstance(column, Column) else []
    while waiting:
        current, own = waiting.pop()
        if isinstance(current, nodes.TableScan):
            found.append((current, own))
        sources = nodes.get_sources(current)
        waiting += [(sources[number], inner) for number, inner in _descend(current, own)]
    return found


def _descend(node: nodes.Node, column: Column) -> _Descent:
    column_id = column.path[0]
    match node:
        # The error of a policy that fails would reveal which rows it was evaluated on.
        case nodes.Filter(protects=True) if policy_may_fail(node.predicate):
            return ()
        case nodes.Project(protects=True) if any(policy_may_fail(each.expr) for each in node.outputs):
            return ()
        case nodes.Filter() | nodes.Sort():
            return ((0, column),)
        case nodes.Project() | nodes.Aggregate():
            outputs = node.outputs if isinstance(node, nodes.Project) else node.keys
            meaning = next((each.expr for each in outputs if each.name == column_id), None)
            is_mask = isinstance(node, nodes.Project) and node.protects
            if not isinstance(meaning, Column) or (is_mask and meaning.path != (column_id,)):
                return ()
            return ((0, Column((*meaning.path, *column.path[1:]), type=column.type)),)
        case nodes.Union():
            position = next((position for position, each in enumerate(node.columns) if each.name == column_id), None)
            if position is None or len(column.path) > 1:
                return ()
            inner = enumerate(nodes.get_outputs(source)[position] for source in node.sources)
            known = ((number, each) for number, each in inner if each.type is not None and each.type == column.type)
            return tuple((number, each.column) for number, each in known)
        case nodes.Join():
            return _descend_into_join(node, column)
        case _:
            return ()


def _descend_into_join(join: nodes.Join, column: Column) -> _Descent:
    """Descend to the column's own side, if the join preserves its values, and to equal columns of the other side."""
    is_left = any(output.name == column.path[0] for output in nodes.get_outputs(join.left))
    keeps = ("inner", "cross", "left", "semi", "anti") if is_left else ("inner", "cross", "right")
    if join.kind not in keeps:
        return ()
    into = [(0 if is_left else 1, column)]
    if join.kind in ("inner", "semi"):
        for left, right in join.criteria:
            own, other = (left, right) if is_left else (right, left)
            if own == column and isinstance(other, Column) and type_of(own) == type_of(other):
                into.append((1 if is_left else 0, other))
    return tuple(into)


def _push_dynamic_filter(
    node: nodes.Node, column: Column, dynamic: _DynamicFilter, context: Context
) -> nodes.Node | None:
    """Return the node with a dynamic filter in the scans that it reaches; None if no scan supports it."""
    if isinstance(node, nodes.TableScan):
        return _push_into_scan(node, column, dynamic, context)
    sources = list(nodes.get_sources(node))
    has_changed = False
    for number, own in _descend(node, column):
        predicate = _rewrite_for(dynamic.predicate, column, own)
        if predicate is None:
            continue
        changed = _push_dynamic_filter(sources[number], own, _DynamicFilter(predicate, dynamic.bloom_filter), context)
        if changed is not None:
            sources[number] = changed
            has_changed = True
    return nodes.replace_sources(node, tuple(sources)) if has_changed else None


def _rewrite_for(predicate: Expr, column: Column, other: Column) -> Expr | None:
    """Return the predicate with a column replaced by another one that has the same values; None if it is nested."""
    if column.path == other.path:
        return predicate
    return None if len(column.path) > 1 else substitute(predicate, {column.path[0]: other})


def _is_tested_by_row(predicate: Expr, max_keys: int) -> bool:
    """Return whether a predicate is cheap enough to test each row: an equality or a short IN list."""
    match predicate:
        case Call("in", (_, *items)):
            return len(items) <= max_keys
        case Call("or" | "and"):
            return False
        case _:
            return True


def _push_into_scan(
    scan: nodes.TableScan, column: Column, dynamic: _DynamicFilter, context: Context
) -> nodes.Node | None:
    if (scan.is_protected and not is_leakproof(dynamic.predicate)) or not context.is_equivalent_on_engine(
        dynamic.predicate
    ):
        return None
    connector = context.connector(scan.connector)
    names = ScanNames.of(scan, context)
    predicate = names.to_handle_expr(dynamic.predicate)
    handle = (
        None
        if _is_tested_by_row(predicate, context.tuning.max_tested_keys)
        else connector.push_pruning(scan.handle, predicate)
    )
    if handle is None:
        pushed = connector.push_filter(scan.handle, predicate)
        # A residual filter, or extra columns for one, would be of no use here.
        handle = None if pushed is None or pushed.projections else pushed.handle
    if dynamic.bloom_filter is not None:
        before = scan.handle if handle is None else handle
        handle = connector.push_join_keys(before, names.to_handle_expr(column), dynamic.bloom_filter) or handle
    return None if handle is None else replace(scan, handle=handle)


# --- Dynamic filters of joins: predicates on a join column, built from the key values of the other side ---------------


def build_key_predicate(
    column: Column, keys: pa.Array | pa.ChunkedArray, tuning: Tuning = DEFAULT_TUNING
) -> Expr | None:
    """Return a predicate that is TRUE wherever a column equals one of the keys; None if the type is not supported.

    NULL keys match nothing. Floats are not supported, because 0.0 equals -0.0 and NaN equals itself.
    """
    values = _cast_keys(keys, column.type)
    if values is None:
        return None
    distinct = pc.unique(values.drop_null())
    if isinstance(distinct, pa.ChunkedArray):
        distinct = distinct.combine_chunks()
    if not len(distinct):
        return FALSE
    ordered = distinct.take(pc.array_sort_indices(distinct))
    if len(ordered) <= tuning.max_listed_keys:
        items = tuple(_to_literal(value) for value in ordered)
        return Call("=", (column, items[0])) if len(items) == 1 else Call("in", (column, *items))
    ranges = _split_into_ranges(ordered, tuning.max_key_ranges)
    return or_(*(_make_range_predicate(column, ordered[first], ordered[last]) for first, last in ranges))


def build_bloom_filter(
    column: Column, keys: pa.Array | pa.ChunkedArray, tuning: Tuning = DEFAULT_TUNING
) -> BloomJoinFilter | None:
    """Return a Bloom join filter of the keys; None if an IN list suffices or the type is not supported."""
    values = _cast_keys(keys, column.type)
    if values is None or not BloomJoinFilter.can_hold(values.type):
        return None
    distinct = pc.unique(values)
    return BloomJoinFilter(distinct) if len(distinct) > tuning.max_tested_keys else None


def _cast_keys(keys: pa.Array | pa.ChunkedArray, data_type: pa.DataType | None) -> pa.Array | None:
    """Return the keys in the type of the column, without keys that this type cannot represent.

    Return None if the types are not supported.
    """
    if data_type is None or not types.is_ordered(data_type) or pa.types.is_floating(data_type):
        return None
    if pa.types.is_boolean(data_type):
        return None
    values = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if values.type == data_type:
        return values
    if types.is_text(values.type) and types.is_text(data_type):
        return values.cast(data_type)
    if not (pa.types.is_integer(values.type) and pa.types.is_integer(data_type)):
        return None
    if pa.types.is_uint64(values.type) or pa.types.is_uint64(data_type):
        return None
    smallest, largest = types.get_integer_range(data_type)
    values = values.cast(types.LONG)
    fits = pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))
    return values.filter(fits).cast(data_type)


def _to_literal(value: pa.Scalar) -> Literal:
    return Literal(to_physical_value(value), value.type)


def _make_range_predicate(column: Column, first: pa.Scalar, last: pa.Scalar) -> Expr:
    if first == last:
        return Call("=", (column, _to_literal(first)))
    return and_(Call(">=", (column, _to_literal(first))), Call("<=", (column, _to_literal(last))))


def _split_into_ranges(ordered: pa.Array, most: int) -> list[tuple[int, int]]:
    """Return the positions of the first and last key of each of at most `most` ranges, split at the widest gaps."""
    cuts = np.zeros(0, np.int64)
    numbers = _to_numbers(ordered)
    if numbers is not None:
        gaps = np.diff(numbers)
        widest = np.argsort(-gaps, kind="stable")[: most - 1]
        # Adjacent integers are never split.
        cuts = np.sort(widest[gaps[widest] > 1])
    firsts = [0, *(cuts + 1).tolist()]
    lasts = [*cuts.tolist(), len(ordered) - 1]
    return list(zip(firsts, lasts, strict=True))


def _to_numbers(ordered: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Return keys as numbers with about the same distances; None for strings and binary, which have no distance."""
    if pa.types.is_decimal(ordered.type):
        numbers: np.ndarray[tuple[int], np.dtype[np.float64]] = np.array([float(each) for each in ordered.to_pylist()])
        return numbers
    if pa.types.is_integer(ordered.type) or pa.types.is_temporal(ordered.type):
        plain = (
            ordered.cast(pa.int32()) if ordered.type.bit_width == 32 and pa.types.is_temporal(ordered.type) else ordered
        )
        return np.asarray(plain.cast(types.LONG) if not pa.types.is_uint64(plain.type) else plain, np.float64)
    return None


# --- Dynamic filters: the smaller side of a join runs first, and its keys prune the other side ------------------------

Run = Callable[[nodes.Node, int], "pa.Table | None"]
"""Runs a plan to an Arrow table whose columns are named by column ids; None if it has more rows than the limit."""


def apply_dynamic_filters(plan: nodes.Node, context: Context, run: Run) -> nodes.Node:
    """Return the plan with dynamic filters applied: in such a join the smaller side is replaced by its rows."""
    if isinstance(plan, nodes.Join) and plan.dynamic_filter_side is not None:
        plan = _apply_dynamic_filter(plan, context, run)
    sources = tuple(apply_dynamic_filters(source, context, run) for source in nodes.get_sources(plan))
    return nodes.replace_sources(plan, sources)


def _apply_dynamic_filter(join: nodes.Join, context: Context, run: Run) -> nodes.Node:
    plain = replace(join, dynamic_filter_side=None)
    small = join.right if join.dynamic_filter_side == "left" else join.left
    side = 1 if join.dynamic_filter_side == "left" else 0
    outputs = nodes.get_outputs(small)
    passed = tuple(nodes.Named(output.name, output.column) for output in outputs)
    keys = tuple(nodes.Named(f"key {number}", pair[side]) for number, pair in enumerate(join.criteria))
    rows = run(
        apply_dynamic_filters(nodes.Project(small, (*passed, *keys)), context, run), context.tuning.max_build_rows
    )
    if rows is None:
        return plain
    held = nodes.Values(rows.select(range(len(outputs))), outputs)
    other = push_dynamic_filters(join, rows.select(range(len(outputs), rows.num_columns)), context)
    return replace(plain, left=other, right=held) if side else replace(plain, left=held, right=other)
