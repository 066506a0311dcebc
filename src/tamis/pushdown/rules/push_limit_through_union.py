"""Push a limit into each source of a union: none of them has to return more rows than the union.

Limit(Union(x, y), n)  ─▶  Limit(Union(Limit(x, n), Limit(y, n)), n)
"""

from __future__ import annotations

from dataclasses import replace

from tamis.pushdown.nodes import UNLIMITED, Limit, Node, Union
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.bounds_of_rows import find_row_bound


class PushLimitThroughUnion:
    name = "push_limit_through_union"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Limit(Union() as union, count, offset) if count < UNLIMITED:
                wanted = count + offset
                sources = tuple(_limit_source(source, wanted, context) for source in union.sources)
                if all(new is old for new, old in zip(sources, union.sources, strict=True)):
                    return None
                return replace(node, source=replace(union, sources=sources))
            case _:
                return None


def _limit_source(source: Node, count: int, context: Context) -> Node:
    known = find_row_bound(source, context)
    return source if known is not None and known <= count else Limit(source, count)
