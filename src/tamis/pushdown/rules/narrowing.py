"""Nodes that return no more than what is read of them: columns, and fields inside of columns.

Only a projection or an aggregation says what it needs, so narrowing starts there and goes down node by node. What a
node needs itself, for its filter or its order, comes along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tamis.expr.nodes import Column, Expr
from tamis.pushdown.nodes import (
    Aggregate,
    Filter,
    Join,
    Limit,
    Named,
    Node,
    Output,
    Project,
    Sort,
    Sql,
    TableScan,
    TopN,
    Union,
    Values,
    outputs_of,
    with_sources,
)
from tamis.pushdown.paths import Path, field_type, outermost, paths_of, replace_paths
from tamis.pushdown.symbols import Symbols


@dataclass(frozen=True)
class Narrowed:
    """A node that returns less, and what stands in it for paths."""

    node: Node
    replacements: dict[Path, Column]


def narrowed_project(project: Project, *, nested: bool) -> Node | None:
    """A projection over narrower nodes; None where nothing below it returns too much.

    Whole columns are left out; with `nested`, of structs only the fields stay that somebody reads.
    """
    wanted = paths_of(each.expr for each in project.outputs)
    below = _narrowed_below(project.source, wanted, nested)
    if below is None or (nested and not below.replacements):
        return None
    outputs = tuple(Named(each.name, replace_paths(each.expr, below.replacements)) for each in project.outputs)
    return Project(below.node, outputs, project.protects)


def narrowed_source(source: Node, exprs: Iterable[Expr], *, nested: bool) -> Narrowed | None:
    """A node that returns what some expressions read; None where it returns nothing else."""
    found = _narrowed(source, paths_of(exprs), nested)
    return None if found is None or (nested and not found.replacements) else found


def _narrowed_below(node: Node, wanted: list[Path], nested: bool) -> Narrowed | None:
    """The node over narrower ones. It may return more than what is wanted: what it needs itself."""
    match node:
        case Filter():
            needed = outermost([*wanted, *paths_of([node.predicate])])
            found = _narrowed(node.source, needed, nested)
            if found is None:
                return None
            predicate = replace_paths(node.predicate, found.replacements)
            return Narrowed(Filter(found.node, predicate, node.protects), found.replacements)
        case Sort() | TopN():
            needed = outermost([*wanted, *paths_of(key.expr for key in node.keys)])
            found = _narrowed(node.source, needed, nested)
            if found is None:
                return None
            keys = tuple(replace(key, expr=replace_paths(key.expr, found.replacements)) for key in node.keys)
            return Narrowed(replace(node, source=found.node, keys=keys), found.replacements)
        case Limit():
            found = _narrowed(node.source, wanted, nested)
            return None if found is None else Narrowed(with_sources(node, (found.node,)), found.replacements)
        case Join():
            return _narrowed_join(node, wanted, nested)
        case Project():
            return _narrowed_outputs(node, wanted, nested)
        case Union():
            return _narrowed_union(node, wanted)
        case Aggregate():
            return _narrowed_aggregate(node, wanted)
        case _:
            return None


def _narrowed(source: Node, wanted: list[Path], nested: bool) -> Narrowed | None:
    """A node that returns what is wanted, and what it needs itself; None where it returns nothing else.

    A projection is put only over what cannot return less by itself: one in the middle would stop filters on their way.
    """
    outputs = {output.name: output for output in outputs_of(source)}
    paths = _existing(wanted, outputs, nested)
    whole = {path[0] for path in paths if len(path) == 1}
    if len(whole) == len(paths) == len(outputs):
        return None
    if not isinstance(source, TableScan | Values | Sql):
        return _narrowed_below(source, wanted, nested)
    if isinstance(source, Sql) and not source.columns:
        return None
    named, replacements = _named(paths, outputs)
    # Columns stay in the order in which they were.
    order = {name: place for place, name in enumerate(outputs)}
    ordered = sorted(named, key=lambda pair: order[pair[1][0]])
    return Narrowed(Project(source, tuple(name for name, _ in ordered)), replacements)


def _existing(wanted: list[Path], outputs: dict[str, Output], nested: bool) -> list[Path]:
    """The paths that are read, as far inside as is known to be a field."""
    found = []
    for path in wanted:
        is_field = nested and len(path) > 1 and field_type(outputs, path) is not None
        found.append(path if is_field else path[:1])
    return outermost(found)


def _named(paths: Sequence[Path], outputs: dict[str, Output]) -> tuple[list[tuple[Named, Path]], dict[Path, Column]]:
    symbols = Symbols(outputs)
    named: list[tuple[Named, Path]] = []
    replacements: dict[Path, Column] = {}
    for path in paths:
        data_type = field_type(outputs, path)
        name = path[0] if len(path) == 1 else symbols.fresh(".".join(path))
        named.append((Named(name, Column(path, type=data_type)), path))
        if len(path) > 1:
            replacements[path] = Column((name,), type=data_type)
    return named, replacements


def _narrowed_outputs(project: Project, wanted: list[Path], nested: bool) -> Narrowed | None:
    """A projection with fewer outputs, and fields in the place of structs that it only passes on."""
    outputs = {output.name: output for output in outputs_of(project)}
    meanings = {each.name: each.expr for each in project.outputs}
    paths = [
        path if isinstance(meanings.get(path[0]), Column) else path[:1] for path in _existing(wanted, outputs, nested)
    ]
    paths = outermost(paths)
    if len(paths) == len(outputs) and all(len(path) == 1 for path in paths):
        return None
    named, replacements = _named(paths, outputs)
    order = {name: place for place, name in enumerate(outputs)}
    kept = []
    for each, path in sorted(named, key=lambda pair: order[pair[1][0]]):
        meaning = meanings[path[0]]
        if len(path) > 1:
            assert isinstance(meaning, Column)
            meaning = Column((*meaning.path, *path[1:]), type=each.expr.type if isinstance(each.expr, Column) else None)
        kept.append(Named(each.name, meaning))
    return Narrowed(Project(project.source, tuple(kept), project.protects), replacements)


def _narrowed_join(join: Join, wanted: list[Path], nested: bool) -> Narrowed | None:
    own = [*(expr for pair in join.criteria for expr in pair), *([join.filter] if join.filter is not None else [])]
    needed = outermost([*wanted, *paths_of(own)])
    sides: list[Node] = []
    replacements: dict[Path, Column] = {}
    for side in (join.left, join.right):
        names = {output.name for output in outputs_of(side)}
        found = _narrowed(side, [path for path in needed if path[0] in names], nested)
        sides.append(side if found is None else found.node)
        replacements |= {} if found is None else found.replacements
    if sides[0] is join.left and sides[1] is join.right:
        return None
    criteria = tuple(
        (replace_paths(one, replacements), replace_paths(other, replacements)) for one, other in join.criteria
    )
    condition = None if join.filter is None else replace_paths(join.filter, replacements)
    made = replace(join, left=sides[0], right=sides[1], criteria=criteria, filter=condition)
    return Narrowed(made, replacements)


def _narrowed_union(union: Union, wanted: list[Path]) -> Narrowed | None:
    names = {path[0] for path in wanted}
    places = [place for place, column in enumerate(union.columns) if column.name in names]
    if len(places) == len(union.columns):
        return None
    sources = []
    for source in union.sources:
        outputs = outputs_of(source)
        own = (outputs[place] for place in places)
        sources.append(Project(source, tuple(Named(each.name, Column((each.name,), type=each.type)) for each in own)))
    return Narrowed(Union(tuple(sources), tuple(union.columns[place] for place in places)), {})


def _narrowed_aggregate(aggregate: Aggregate, wanted: list[Path]) -> Narrowed | None:
    """Aggregates that nobody reads are not computed. Keys make the groups, read or not."""
    names = {path[0] for path in wanted}
    kept = tuple(each for each in aggregate.aggregates if each.name in names)
    if not kept and not aggregate.keys:
        # One row it is, of whatever.
        kept = aggregate.aggregates[:1]
    if len(kept) == len(aggregate.aggregates):
        return None
    return Narrowed(replace(aggregate, aggregates=kept), {})
