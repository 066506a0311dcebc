"""Dynamic filters: the smaller side of a join runs first, and its keys prune the other side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.pushdown.nodes import Join, Named, Node, Project, Values, outputs_of, sources_of, with_sources
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.prune_joins_at_run_time import MOST_ROWS_HELD, pruned

Run = Callable[[Node, int], "pa.Table | None"]
"""Runs a plan to an Arrow table whose columns are named by column ids; None if it has more rows than the limit."""


def prune_joins(plan: Node, context: Context, run: Run) -> Node:
    """Return the plan with dynamic filters applied: in such a join the smaller side is replaced by its rows."""
    if isinstance(plan, Join) and plan.prunes is not None:
        plan = _apply_dynamic_filter(plan, context, run)
    sources = tuple(prune_joins(source, context, run) for source in sources_of(plan))
    return with_sources(plan, sources)


def _apply_dynamic_filter(join: Join, context: Context, run: Run) -> Node:
    plain = replace(join, prunes=None)
    small = join.right if join.prunes == "left" else join.left
    side = 1 if join.prunes == "left" else 0
    outputs = outputs_of(small)
    passed = tuple(Named(output.name, Column((output.name,), type=output.type)) for output in outputs)
    keys = tuple(Named(f"key {number}", pair[side]) for number, pair in enumerate(join.criteria))
    rows = run(prune_joins(Project(small, (*passed, *keys)), context, run), MOST_ROWS_HELD)
    if rows is None:
        return plain
    held = Values(rows.select(range(len(outputs))), outputs)
    other = pruned(join, rows.select(range(len(outputs), rows.num_columns)), context)
    return replace(plain, left=other, right=held) if side else replace(plain, left=held, right=other)
