"""What is decided only while a query runs: the smaller side of a join is run first, and its keys prune the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.pushdown.nodes import Join, Named, Node, Project, Values, outputs_of, sources_of, with_sources
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.prune_joins_at_run_time import MOST_ROWS_HELD, pruned

Run = Callable[[Node, int], "pa.Table | None"]
"""Runs a plan to an Arrow table with its symbols as names; None where it has more rows than that."""


def prune_joins(plan: Node, context: Context, run: Run) -> Node:
    """The plan in which joins that prune have done so: the side that was run stands in it as rows."""
    if isinstance(plan, Join) and plan.prunes is not None:
        plan = _pruned(plan, context, run)
    sources = tuple(prune_joins(source, context, run) for source in sources_of(plan))
    return with_sources(plan, sources)


def _pruned(join: Join, context: Context, run: Run) -> Node:
    plain = replace(join, prunes=None)
    small = join.right if join.prunes == "left" else join.left
    place = 1 if join.prunes == "left" else 0
    outputs = outputs_of(small)
    passed = tuple(Named(output.name, Column((output.name,), type=output.type)) for output in outputs)
    keys = tuple(Named(f"key {number}", pair[place]) for number, pair in enumerate(join.criteria))
    rows = run(prune_joins(Project(small, (*passed, *keys)), context, run), MOST_ROWS_HELD)
    if rows is None:
        return plain
    held = Values(rows.select(range(len(outputs))), outputs)
    other = pruned(join, rows.select(range(len(outputs), rows.num_columns)), context)
    return replace(plain, left=other, right=held) if place else replace(plain, left=held, right=other)
