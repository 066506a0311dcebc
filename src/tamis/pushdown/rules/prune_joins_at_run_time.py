"""The smaller side of a join is run first, and its keys prune the other one before that is read.

The rule marks a join: `prunes` names the side to be pruned. Whoever runs the plan runs the other side first, and asks
`pruned` for the marked one with the keys that were found. What they say is, for each criterion,

- all of them as a list, where there are no more than `MOST_KEYS`;
- else ranges that have all of them in it, cut where the gaps between keys are widest, `MOST_RANGES` at most.

Partitions, files, row groups and pages are left out by either. Rows are tested by lists of up to `MOST_TESTED` keys;
of more a Bloom filter (see `tamis.scan.key_sieve`) leaves out most rows, if keys are numbers or moments.

Which side may be pruned depends on what the join keeps without a match: of an outer join never the side that it keeps.
It is worth it where the values of a key lie in few places of a table that is much larger than the other side: by its
partitions, by the bounds of its files or by what is in them.
The filter goes down to scans alone. It is no more than a help, so whatever cannot take it in goes without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.functions import type_of, without_widening
from tamis.expr.nodes import Call, Column, Expr
from tamis.pushdown.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Sort,
    TableScan,
    Union,
    outputs_of,
    sources_of,
    with_sources,
)
from tamis.pushdown.optimizer import Context
from tamis.pushdown.policies.leakproof import is_leakproof, policy_may_fail
from tamis.pushdown.rules.key_filters import MOST_TESTED, key_filter, key_sieve
from tamis.pushdown.rules.scan_names import ScanNames
from tamis.pushdown.rules.sizes import MOST_ROWS_HELD, Size, is_filtered, size_of
from tamis.pushdown.symbols import substitute
from tamis.scan.key_sieve import KeySieve

__all__ = ["MOST_ROWS_HELD", "PruneJoinsAtRunTime", "pruned"]

Side: TypeAlias = OneOf["left", "right"]

MAY_PRUNE: dict[str, tuple[Side, ...]] = {
    "inner": ("left", "right"),
    "left": ("right",),
    "right": ("left",),
    "semi": ("left", "right"),
    "anti": ("right",),
    "full": (),
    "cross": (),
}
"""The sides of which a row without a match adds nothing to the result."""


class PruneJoinsAtRunTime:
    name = "prune_joins_at_run_time"
    is_final = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Join(criteria=criteria) if criteria:
                chosen = _chosen_side(node, context)
                return None if chosen == node.prunes else replace(node, prunes=chosen)
            case _:
                return None


def _chosen_side(join: Join, context: Context) -> Side | None:
    sides: list[tuple[Size, Side]] = []
    for side in MAY_PRUNE[join.kind]:
        own, other = (join.left, join.right) if side == "left" else (join.right, join.left)
        size = size_of(other, context)
        # All keys of a table rarely leave anything of another out.
        if not size.may_be_held or not is_filtered(other, context):
            continue
        reached = [
            scan
            for pair in join.criteria
            for scan, column in _reached(own, pair[0] if side == "left" else pair[1])
            if may_gain(scan, column, context)
        ]
        # What matters is what is read of tables, and not how many rows joins make of them.
        if any(size.is_much_smaller_than(size_of(scan, context)) for scan in reached):
            sides.append((size, side))
    if not sides:
        return None
    return min(sides, key=lambda each: each[0].order)[1]


def may_gain(scan: TableScan, column: Column, context: Context) -> bool:
    """Whether a scan leaves anything out when it knows some values of a column.

    Where those lie everywhere it does not: then the engine joins as fast without, and needs no run of one side before.
    """
    own = ScanNames.of(scan, context).in_handle(column)
    return context.lies_together(scan, own) is not False


# --- At run time ------------------------------------------------------------------------------------------------------


def pruned(join: Join, keys: pa.Table, context: Context) -> Node:
    """The side that a marked join prunes, with the keys of the other side in its scans: a column for each criterion."""
    side = join.left if join.prunes == "left" else join.right
    for number, pair in enumerate(join.criteria):
        # Keys that the narrower type does not have are equal to none of its values.
        target = without_widening(pair[0] if join.prunes == "left" else pair[1])
        if not isinstance(target, Column):
            continue
        predicate = key_filter(target, keys.column(number))
        if predicate is not None:
            found = _Keys(predicate, key_sieve(target, keys.column(number)))
            side = _with_keys(side, target, found, context) or side
    return side


@dataclass(frozen=True, slots=True)
class _Keys:
    """What keys say of a column."""

    predicate: Expr
    sieve: KeySieve | None


@dataclass(frozen=True, slots=True)
class _Step:
    """The sources of a node into which a filter of one of its columns may go, and what the column is there."""

    into: tuple[tuple[int, Column], ...]


def _reached(node: Node, key: Expr) -> list[tuple[TableScan, Column]]:
    """The scans to which a filter of a column would come, and what the column is there."""
    found: list[tuple[TableScan, Column]] = []
    column = without_widening(key)
    waiting = [(node, column)] if isinstance(column, Column) else []
    while waiting:
        current, own = waiting.pop()
        if isinstance(current, TableScan):
            found.append((current, own))
        sources = sources_of(current)
        waiting += [(sources[number], inner) for number, inner in _step(current, own).into]
    return found


def _step(node: Node, column: Column) -> _Step:
    symbol = column.path[0]
    match node:
        # A policy that fails tells which rows it was asked about.
        case Filter(protects=True) if policy_may_fail(node.predicate):
            return _Step(())
        case Project(protects=True) if any(policy_may_fail(each.expr) for each in node.outputs):
            return _Step(())
        case Filter() | Sort():
            return _Step(((0, column),))
        case Project():
            meaning = next((each.expr for each in node.outputs if each.name == symbol), None)
            if not isinstance(meaning, Column) or (node.protects and meaning.path != (symbol,)):
                return _Step(())
            return _Step(((0, Column((*meaning.path, *column.path[1:]), type=column.type)),))
        case Aggregate():
            meaning = next((each.expr for each in node.keys if each.name == symbol), None)
            if not isinstance(meaning, Column):
                return _Step(())
            return _Step(((0, Column((*meaning.path, *column.path[1:]), type=column.type)),))
        case Union():
            place = next((place for place, each in enumerate(node.columns) if each.name == symbol), None)
            return _Step(()) if place is None or len(column.path) > 1 else _step_into_union(node, place, column)
        case Join():
            return _step_into_join(node, column)
        case _:
            return _Step(())


def _step_into_union(union: Union, place: int, column: Column) -> _Step:
    outputs = [outputs_of(source)[place] for source in union.sources]
    return _Step(
        tuple(
            (number, Column((output.name,), type=output.type))
            for number, output in enumerate(outputs)
            if output.type is not None and output.type == column.type
        )
    )


def _step_into_join(join: Join, column: Column) -> _Step:
    """To the side of the column where it is kept as it is, and to a column of the other side that must be equal."""
    is_left = any(output.name == column.path[0] for output in outputs_of(join.left))
    keeps = ("inner", "cross", "left", "semi", "anti") if is_left else ("inner", "cross", "right")
    if join.kind not in keeps:
        return _Step(())
    into = [(0 if is_left else 1, column)]
    if join.kind in ("inner", "semi"):
        for left, right in join.criteria:
            own, other = (left, right) if is_left else (right, left)
            if own == column and isinstance(other, Column) and type_of(own) == type_of(other):
                into.append((1 if is_left else 0, other))
    return _Step(tuple(into))


def _with_keys(node: Node, column: Column, keys: _Keys, context: Context) -> Node | None:
    """The node with keys of a column in the scans that they come to; None where none takes them in."""
    if isinstance(node, TableScan):
        return _scan_with_keys(node, column, keys, context)
    sources = list(sources_of(node))
    has_changed = False
    for number, own in _step(node, column).into:
        said = _said_of(keys.predicate, column, own)
        changed = None if said is None else _with_keys(sources[number], own, _Keys(said, keys.sieve), context)
        if changed is not None:
            sources[number] = changed
            has_changed = True
    return with_sources(node, tuple(sources)) if has_changed else None


def _said_of(predicate: Expr, column: Column, other: Column) -> Expr | None:
    """The filter of a column about another one of the same values."""
    if column.path == other.path:
        return predicate
    return None if len(column.path) > 1 else substitute(predicate, {column.path[0]: other})


def _is_short(predicate: Expr) -> bool:
    """Whether rows are tested by a predicate: it is a list, and not a long one."""
    match predicate:
        case Call("in", (_, *items)):
            return len(items) <= MOST_TESTED
        case Call("or" | "and"):
            return False
        case _:
            return True


def _scan_with_keys(scan: TableScan, column: Column, keys: _Keys, context: Context) -> Node | None:
    if (scan.protects and not is_leakproof(keys.predicate)) or not context.means_the_same(keys.predicate):
        return None
    connector = context.connector(scan.connector)
    names = ScanNames.of(scan, context)
    predicate = names.in_handle(keys.predicate)
    handle = None if _is_short(predicate) else connector.push_pruning(scan.handle, predicate)
    if handle is None:
        pushed = connector.push_filter(scan.handle, predicate)
        # What would be left of it, or comes back in further columns, is of no use.
        handle = None if pushed is None or pushed.projections else pushed.handle
    if keys.sieve is not None:
        before = scan.handle if handle is None else handle
        handle = connector.push_keys(before, names.in_handle(column), keys.sieve) or handle
    return None if handle is None else replace(scan, handle=handle)
