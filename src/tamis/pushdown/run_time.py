"""Dynamic filters: the smaller side of a join runs first, and its keys prune the other side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.pushdown.nodes import Join, Named, Node, Project, Values, get_outputs, get_sources, replace_sources
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.prune_joins_at_run_time import push_dynamic_filters
from tamis.pushdown.rules.sizes import MAX_BUILD_ROWS

Run = Callable[[Node, int], "pa.Table | None"]
"""Runs a plan to an Arrow table whose columns are named by column ids; None if it has more rows than the limit."""


def apply_dynamic_filters(plan: Node, context: Context, run: Run) -> Node:
    """Return the plan with dynamic filters applied: in such a join the smaller side is replaced by its rows."""
    if isinstance(plan, Join) and plan.dynamic_filter_side is not None:
        plan = _apply_dynamic_filter(plan, context, run)
    sources = tuple(apply_dynamic_filters(source, context, run) for source in get_sources(plan))
    return replace_sources(plan, sources)


def _apply_dynamic_filter(join: Join, context: Context, run: Run) -> Node:
    plain = replace(join, dynamic_filter_side=None)
    small = join.right if join.dynamic_filter_side == "left" else join.left
    side = 1 if join.dynamic_filter_side == "left" else 0
    outputs = get_outputs(small)
    passed = tuple(Named(output.name, Column((output.name,), type=output.type)) for output in outputs)
    keys = tuple(Named(f"key {number}", pair[side]) for number, pair in enumerate(join.criteria))
    rows = run(apply_dynamic_filters(Project(small, (*passed, *keys)), context, run), MAX_BUILD_ROWS)
    if rows is None:
        return plain
    held = Values(rows.select(range(len(outputs))), outputs)
    other = push_dynamic_filters(join, rows.select(range(len(outputs), rows.num_columns)), context)
    return replace(plain, left=other, right=held) if side else replace(plain, left=held, right=other)
