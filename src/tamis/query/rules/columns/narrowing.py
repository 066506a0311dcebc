"""Narrow nodes to the columns and struct fields that are read from them.

Only projections and aggregations state which columns they need, so narrowing starts there and descends node by node.
Each node adds the columns that it reads itself, for its filter or its sort keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tamis.expr.nodes import Column, Expr
from tamis.query.plan import nodes
from tamis.query.plan.column_ids import ColumnIds, Path, collect_paths, drop_nested_paths, replace_paths
from tamis.types import find_field_type


@dataclass(frozen=True)
class Narrowed:
    """A narrower node, and the columns that replace paths in expressions above it."""

    node: nodes.Node
    replacements: dict[Path, Column]

    def put_below(self, node: nodes.Node) -> nodes.Node:
        """Return a node with this one as its source."""
        return nodes.replace_sources(self.rewrite(node), (self.node,))

    def rewrite(self, node: nodes.Node) -> nodes.Node:
        return nodes.map_expressions(node, lambda expr: replace_paths(expr, self.replacements))


def narrow_project(project: nodes.Project, *, nested: bool) -> nodes.Node | None:
    """Return the projection over narrower nodes; None if nothing below it can be narrowed.

    Unread columns are dropped. With `nested`, unread struct fields are dropped too.
    """
    wanted = collect_paths(each.expr for each in project.outputs)
    below = _narrow_below(project.source, wanted, nested)
    if below is None or (nested and not below.replacements):
        return None
    return below.put_below(project)


def narrow_source(source: nodes.Node, exprs: Iterable[Expr], *, nested: bool) -> Narrowed | None:
    """Return a node with only the columns that some expressions read; None if it has no others."""
    found = _narrow(source, collect_paths(exprs), nested)
    return None if found is None or (nested and not found.replacements) else found


def _narrow_below(node: nodes.Node, wanted: list[Path], nested: bool) -> Narrowed | None:
    """Return the node over narrower sources; None if nothing changes.

    The node may return more than the wanted paths, because it also reads columns itself.
    """
    match node:
        case nodes.Filter() | nodes.Sort() | nodes.TopN() | nodes.Limit():
            needed = drop_nested_paths([*wanted, *collect_paths(nodes.get_expressions(node))])
            found = _narrow(node.source, needed, nested)
            return None if found is None else Narrowed(found.put_below(node), found.replacements)
        case nodes.Join():
            return _narrow_join(node, wanted, nested)
        case nodes.Project():
            return _narrow_outputs(node, wanted, nested)
        case nodes.Union():
            return _narrow_union(node, wanted)
        case nodes.Aggregate():
            return _narrow_aggregate(node, wanted)
        case _:
            return None


def _narrow(source: nodes.Node, wanted: list[Path], nested: bool) -> Narrowed | None:
    """Return a node with only the wanted paths and those that it reads itself; None if it has no others.

    A projection is added only above leaves, which cannot narrow their output themselves. Projections in the middle of
    a plan would block filter pushdown.
    """
    outputs = {output.name: output for output in nodes.get_outputs(source)}
    paths = _find_paths(wanted, outputs, nested)
    whole = {path[0] for path in paths if len(path) == 1}
    if len(whole) == len(paths) == len(outputs):
        return None
    if not isinstance(source, nodes.TableScan | nodes.Values | nodes.Sql):
        return _narrow_below(source, wanted, nested)
    if isinstance(source, nodes.Sql) and not source.columns:
        return None
    named, replacements = _name_paths(paths, outputs)
    # Columns keep their order.
    order = {name: position for position, name in enumerate(outputs)}
    ordered = sorted(named, key=lambda pair: order[pair[1][0]])
    return Narrowed(nodes.Project(source, tuple(name for name, _ in ordered)), replacements)


def _find_paths(wanted: list[Path], outputs: dict[str, nodes.Output], nested: bool) -> list[Path]:
    """Return the outermost wanted paths, each cut to its column unless it leads to a struct field (with `nested`)."""
    found = []
    for path in wanted:
        is_field = nested and len(path) > 1 and _find_type(outputs, path) is not None
        found.append(path if is_field else path[:1])
    return drop_nested_paths(found)


def _find_type(outputs: dict[str, nodes.Output], path: Path) -> pa.DataType | None:
    output = outputs.get(path[0])
    return None if output is None else find_field_type(output.type, path[1:])


def _name_paths(
    paths: Sequence[Path], outputs: dict[str, nodes.Output]
) -> tuple[list[tuple[nodes.Named, Path]], dict[Path, Column]]:
    column_ids = ColumnIds(outputs)
    named: list[tuple[nodes.Named, Path]] = []
    replacements: dict[Path, Column] = {}
    for path in paths:
        data_type = _find_type(outputs, path)
        name = path[0] if len(path) == 1 else column_ids.allocate(".".join(path))
        named.append((nodes.Named(name, Column(path, type=data_type)), path))
        if len(path) > 1:
            replacements[path] = Column((name,), type=data_type)
    return named, replacements


def _narrow_outputs(project: nodes.Project, wanted: list[Path], nested: bool) -> Narrowed | None:
    """Return a projection with fewer outputs, and with fields instead of structs that it only forwards."""
    outputs = {output.name: output for output in nodes.get_outputs(project)}
    meanings = {each.name: each.expr for each in project.outputs}
    paths = [
        path if isinstance(meanings.get(path[0]), Column) else path[:1] for path in _find_paths(wanted, outputs, nested)
    ]
    paths = drop_nested_paths(paths)
    if len(paths) == len(outputs) and all(len(path) == 1 for path in paths):
        return None
    named, replacements = _name_paths(paths, outputs)
    order = {name: position for position, name in enumerate(outputs)}
    kept = []
    for each, path in sorted(named, key=lambda pair: order[pair[1][0]]):
        meaning = meanings[path[0]]
        if len(path) > 1:
            assert isinstance(meaning, Column)
            meaning = Column((*meaning.path, *path[1:]), type=each.expr.type if isinstance(each.expr, Column) else None)
        kept.append(nodes.Named(each.name, meaning))
    return Narrowed(nodes.Project(project.source, tuple(kept), project.protects), replacements)


def _narrow_join(join: nodes.Join, wanted: list[Path], nested: bool) -> Narrowed | None:
    needed = drop_nested_paths([*wanted, *collect_paths(nodes.get_expressions(join))])
    sides: list[nodes.Node] = []
    replacements: dict[Path, Column] = {}
    for side in (join.left, join.right):
        names = {output.name for output in nodes.get_outputs(side)}
        found = _narrow(side, [path for path in needed if path[0] in names], nested)
        sides.append(side if found is None else found.node)
        replacements |= {} if found is None else found.replacements
    if sides[0] is join.left and sides[1] is join.right:
        return None
    narrowed = Narrowed(nodes.replace_sources(join, tuple(sides)), replacements)
    return replace(narrowed, node=narrowed.rewrite(narrowed.node))


def _narrow_union(union: nodes.Union, wanted: list[Path]) -> Narrowed | None:
    names = {path[0] for path in wanted}
    positions = [position for position, column in enumerate(union.columns) if column.name in names]
    if len(positions) == len(union.columns):
        return None
    sources = []
    for source in union.sources:
        outputs = nodes.get_outputs(source)
        own = (outputs[position] for position in positions)
        sources.append(nodes.Project(source, tuple(nodes.Named(each.name, each.column) for each in own)))
    return Narrowed(nodes.Union(tuple(sources), tuple(union.columns[position] for position in positions)), {})


def _narrow_aggregate(aggregate: nodes.Aggregate, wanted: list[Path]) -> Narrowed | None:
    """Return an aggregation without the aggregates that are not read; its keys stay, because they define the groups."""
    names = {path[0] for path in wanted}
    kept = tuple(each for each in aggregate.aggregates if each.name in names)
    if not kept and not aggregate.keys:
        # Without keys the result is one row. One aggregate must stay, so that the row exists.
        kept = aggregate.aggregates[:1]
    if len(kept) == len(aggregate.aggregates):
        return None
    return Narrowed(replace(aggregate, aggregates=kept), {})
