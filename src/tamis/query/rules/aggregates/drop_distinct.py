"""Drop DISTINCT over rows that differ anyway: they include a unique key.

    Aggregate(TableScan(t), keys id, name)  ─▶  Project(TableScan(t), id, name)    if `id` is a unique key of t

A scan has the unique keys of its properties, a group those of its GROUP BY.
"""

from __future__ import annotations

from collections.abc import Iterable

from tamis.expr.nodes import Column
from tamis.query.plan.nodes import Aggregate, Filter, Join, Limit, Named, Node, Project, Sort, TableScan, TopN
from tamis.query.plan.optimizer import Context

Keys = frozenset[frozenset[str]]


class DropDistinct:
    name = "drop_distinct"
    is_final = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Aggregate(source, keys, aggregates=()) if keys:
                forwarded = _find_forwarded_columns(keys)
                is_unique = any(key <= forwarded.keys() for key in find_unique_keys(source, context))
                return Project(source, keys) if is_unique else None
            case _:
                return None


def find_unique_keys(node: Node, context: Context) -> Keys:
    """Return sets of outputs whose values, NULL included, no two rows of a node share."""
    match node:
        case TableScan(is_protected=False):
            names = context.connector(node.connector).columns(node.handle).names
            return _rename_keys(
                map(frozenset, context.properties(node).unique_keys),
                dict(zip(names, (output.name for output in node.columns), strict=True)),
            )
        case Aggregate():
            return frozenset((frozenset(each.name for each in node.keys),))
        case Project():
            return _rename_keys(find_unique_keys(node.source, context), _find_forwarded_columns(node.outputs))
        case Filter() | Sort() | Limit() | TopN():
            return find_unique_keys(node.source, context)
        case Join(kind="semi" | "anti"):
            return find_unique_keys(node.left, context)
        case _:
            return frozenset()


def _rename_keys(keys: Iterable[frozenset[str]], names: dict[str, str]) -> Keys:
    """Return the keys all of whose columns have a new name."""
    return frozenset(frozenset(names[name] for name in key) for key in keys if key <= names.keys())


def _find_forwarded_columns(outputs: Iterable[Named]) -> dict[str, str]:
    """Return the columns that some outputs forward, with the names of these outputs."""
    return {
        each.expr.path[0]: each.name for each in outputs if isinstance(each.expr, Column) and len(each.expr.path) == 1
    }
