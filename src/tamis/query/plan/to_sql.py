"""Printing of a plan as one Spark SQL text over named relations: its scans and literal rows.

Every column is named by its column id, which is unique in the plan, so nested queries need no table qualifiers.
Adjacent nodes become one SELECT where the meaning is the same:

    Project(TopN(Filter(TableScan)))   SELECT … FROM `tamis_scan_1` WHERE … ORDER BY … LIMIT …
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tamis.expr.nodes import Column, Expr
from tamis.expr.sql.printer import to_sql
from tamis.query.connectors.lake_handle import is_sum_scan
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.query.plan.nodes import (
    UNLIMITED,
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Limit,
    Named,
    Node,
    Output,
    Project,
    Sort,
    SortKey,
    Sql,
    TableScan,
    TopN,
    Union,
    Values,
    get_outputs,
    get_sources,
    walk_plan,
)


@dataclass(frozen=True, slots=True)
class PrintedPlan:
    """A SQL text, and by name the plan nodes that are its relations. Their columns are named by column ids."""

    text: str
    leaves: tuple[tuple[str, Node], ...]


def print_plan(
    plan: Node,
    *,
    expression: Callable[[Expr], str] = to_sql,
    is_leaf: Callable[[Node], bool] = lambda node: False,
) -> PrintedPlan:
    """Print a plan as SQL. `is_leaf` selects further nodes, besides scans and values, to print as relations."""
    texts = [node.text.lower() for node in walk_plan(plan) if isinstance(node, Sql)]
    prefix = "tamis"
    while any(prefix in text for text in texts):
        # A text may define a table of any name, which would shadow a relation.
        prefix += "_"
    printer = _Printer(expression, is_leaf, prefix, find_common_subplans(plan))
    text = printer.block(plan).text()
    if printer.commons:
        # The text may begin with its own WITH.
        text = f"WITH {', '.join(printer.commons)} {_wrap_with(text)}"
    return PrintedPlan(text, tuple(printer.leaves))


def _wrap_with(text: str) -> str:
    return f"SELECT * FROM ({text}) AS `whole`" if text.lstrip(" (")[:4].upper() == "WITH" else text


@dataclass(frozen=True, slots=True)
class _Block:
    """An unfinished SELECT. Empty clauses can still be added."""

    source: str
    columns: tuple[str, ...]
    """The column ids that it returns."""
    where: tuple[str, ...] = ()
    outputs: tuple[str, ...] | None = None
    """The SELECT list; None for the unchanged columns."""
    group: tuple[str, ...] | None = None
    order: str = ""
    limit: str = ""
    is_join: bool = False
    whole: str | None = field(default=None)
    """The SQL text of a finished SELECT."""

    @property
    def is_bare(self) -> bool:
        """Whether it only selects the columns of its source."""
        return self.whole is None and not (self.where or self.outputs is not None or self.order or self.limit)

    @property
    def is_open(self) -> bool:
        """Whether a WHERE can still be added."""
        return self.whole is None and self.outputs is None and not self.order and not self.limit

    def text(self) -> str:
        if self.whole is not None:
            return self.whole
        outputs = self.outputs if self.outputs is not None else tuple(map(quote_spark_name, self.columns))
        parts = [f"SELECT {', '.join(outputs) or '1 AS `nothing`'} FROM {self.source}"]
        if self.where:
            parts.append(f"WHERE {' AND '.join(self.where)}")
        if self.group:
            parts.append(f"GROUP BY {', '.join(self.group)}")
        return " ".join(filter(None, (*parts, self.order, self.limit)))


class _Printer:
    def __init__(
        self,
        expression: Callable[[Expr], str],
        is_leaf: Callable[[Node], bool],
        prefix: str,
        shared: Mapping[int, int],
    ) -> None:
        self._expression = expression
        self._prefix = prefix
        self._shared = shared
        self._columns: dict[int, tuple[str, ...]] = {}
        self.commons: list[str] = []
        """The common subplans as entries of a WITH clause."""
        self._is_leaf = is_leaf
        self._count = 0
        self.leaves: list[tuple[str, Node]] = []

    def block(self, node: Node) -> _Block:
        number = self._shared.get(id(node))
        return self._print_node(node) if number is None else self._reference_common(node, number)

    def _reference_common(self, node: Node, number: int) -> _Block:
        """Print a common subplan as a reference to its WITH entry, with the column ids of this use."""
        name = quote_spark_name(f"{self._prefix}_shared_{number}")
        columns = tuple(output.name for output in get_outputs(node))
        if number not in self._columns:
            text = self._print_node(node).text()
            self._columns[number] = columns
            self.commons.append(f"{name} AS ({text})")
        own = self._columns[number]
        pairs = zip(own, columns, strict=True)
        outputs = tuple(
            quote_spark_name(one) if one == other else f"{quote_spark_name(one)} AS {quote_spark_name(other)}"
            for one, other in pairs
        )
        return _Block(name, columns, outputs=outputs)

    def _print_node(self, node: Node) -> _Block:
        columns = tuple(output.name for output in get_outputs(node))
        if self._is_leaf(node):
            return self._add_leaf("scan", node, columns)
        match node:
            case TableScan():
                return self._add_leaf("scan", node, columns)
            case Values():
                return self._add_leaf("rows", node, columns)
            case Filter():
                below = self.block(node.source)
                below = below if below.is_open else self._wrap(below)
                return replace(below, where=(*below.where, f"({self._expression(node.predicate)})"))
            case Project():
                below = self.block(node.source)
                below = below if below.whole is None and below.outputs is None else self._wrap(below)
                outputs = tuple(self._format_output(each.expr, each.name) for each in node.outputs)
                return replace(below, outputs=outputs, columns=columns)
            case Aggregate():
                return self._print_aggregate(node, columns)
            case Join():
                return self._print_join(node, columns)
            case Sort():
                return self._print_sort(node.source, node.keys)
            case TopN():
                return replace(self._print_sort(node.source, node.keys), limit=f"LIMIT {node.count}")
            case Limit():
                below = self.block(node.source)
                below = below if below.whole is None and not below.limit else self._wrap(below)
                return replace(below, limit=_format_limit(node.count, node.offset))
            case Union():
                return self._print_union(node, columns)
            case Sql():
                return self._print_sql(node, columns)

    def _add_leaf(self, kind: str, node: Node, columns: tuple[str, ...]) -> _Block:
        name = f"{self._prefix}_{kind}_{len(self.leaves) + 1}"
        self.leaves.append((name, node))
        return _Block(quote_spark_name(name), columns)

    def _wrap(self, block: _Block) -> _Block:
        self._count += 1
        return _Block(f"({block.text()}) AS `t{self._count}`", block.columns)

    def _format_output(self, expr: Expr, name: str) -> str:
        if isinstance(expr, Column) and expr.path == (name,):
            return quote_spark_name(name)
        return f"{self._expression(expr)} AS {quote_spark_name(name)}"

    def _print_aggregate(self, node: Aggregate, columns: tuple[str, ...]) -> _Block:
        below = self.block(node.source)
        below = below if below.is_open else self._wrap(below)
        keys = [self._format_output(key.expr, key.name) for key in node.keys]
        calls = [f"{self._format_call(each)} AS {quote_spark_name(each.name)}" for each in node.aggregates]
        group = tuple(self._expression(key.expr) for key in node.keys)
        # Without keys there is one group, and the query may use none of its values.
        outputs = (*keys, *calls) or ("count(*) AS `nothing`",)
        text = replace(below, outputs=outputs, columns=columns, group=group).text()
        return _Block("", columns, whole=text)

    def _format_call(self, call: AggregateCall) -> str:
        distinct = "DISTINCT " if call.distinct else ""
        args = ", ".join(map(self._expression, call.args)) or "*"
        kept = f" FILTER (WHERE {self._expression(call.filter)})" if call.filter is not None else ""
        return f"{call.function}({distinct}{args}){kept}"

    def _print_join(self, node: Join, columns: tuple[str, ...]) -> _Block:
        left, right = self.block(node.left), self.block(node.right)
        left = left if left.is_bare else self._wrap(left)
        right = right if right.is_bare and not right.is_join else self._wrap(right)
        conditions = [f"{self._format_operand(one)} = {self._format_operand(other)}" for one, other in node.criteria]
        if node.filter is not None:
            conditions.append(f"({self._expression(node.filter)})")
        kinds = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}
        kind = kinds.get(node.kind, node.kind.upper())
        if node.kind in ("inner", "cross"):
            kind = "INNER" if conditions else "CROSS"
        condition = "" if kind == "CROSS" else f" ON {' AND '.join(conditions) or 'TRUE'}"
        return _Block(f"{left.source} {kind} JOIN {right.source}{condition}", columns, is_join=True)

    def _format_operand(self, expr: Expr) -> str:
        text = self._expression(expr)
        return text if isinstance(expr, Column) else f"({text})"

    def _print_sort(self, source: Node, keys: Sequence[SortKey]) -> _Block:
        below = self.block(source)
        below = below if below.is_open else self._wrap(below)
        texts = [
            f"{self._format_operand(key.expr)} {'DESC' if key.descending else 'ASC'} "
            f"NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in keys
        ]
        return replace(below, order=f"ORDER BY {', '.join(texts)}")

    def _print_union(self, node: Union, columns: tuple[str, ...]) -> _Block:
        texts = []
        for source in node.sources:
            block = self.block(source)
            if block.columns != columns:
                names = zip(block.columns, columns, strict=True)
                wrapped = self._wrap(block)
                block = replace(
                    wrapped,
                    outputs=tuple(f"{quote_spark_name(own)} AS {quote_spark_name(name)}" for own, name in names),
                )
            elif block.order or block.limit:
                block = self._wrap(block)
            texts.append(block.text())
        return _Block("", columns, whole=" UNION ALL ".join(texts))

    def _print_sql(self, node: Sql, columns: tuple[str, ...]) -> _Block:
        inputs = {name: f"({self.block(source).text()})" for name, source in node.inputs}
        if not inputs:
            return _Block("", columns, whole=node.text)

        def relation(match: re.Match[str]) -> str:
            # TABLESAMPLE precedes the alias, which is then optional.
            return inputs[match[1]] + (match[2] or f" AS {quote_spark_name(match[1])}")

        names = "|".join(map(re.escape, inputs))
        text = re.sub(f"`({names})`( TABLESAMPLE)?", relation, node.text)
        return _Block("", columns, whole=text)


def quote_spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _format_limit(count: int, offset: int) -> str:
    limit = f"LIMIT {count}" if count < UNLIMITED else ""
    return f"{limit} OFFSET {offset}".strip() if offset else limit


# --- Common subplans: parts of a plan that occur several times, up to their column ids, and run once ------------------
#
# A common table expression is planned for each of its uses. If two of them are still equal after the rules, running
# both would be a waste.


def find_common_subplans(plan: Node) -> dict[int, int]:
    """Return a number for each node of a common subplan, by the node's `id()`. Equal subplans share a number."""
    scans = [(node.connector, node.handle) for node in walk_plan(plan) if isinstance(node, TableScan)]
    if len(set(scans)) == len(scans):
        return {}
    numbers: dict[Node, list[int]] = {}
    for node in walk_plan(plan):
        # A node that only filters or renames a scan streams through the engine; sharing would materialise it.
        if isinstance(node, Aggregate | Join | TopN | Limit) or is_sum_scan(node):
            named = _Renamer().node(node)
            if named is not None:
                numbers.setdefault(named, []).append(id(node))
    groups = [members for members in numbers.values() if len(members) > 1]
    return {member: number for number, members in enumerate(groups) for member in members}


class _Renamer:
    """Renames the columns of a subplan by their order, so that equal subplans compare equal."""

    def __init__(self) -> None:
        self._names: dict[str, Column] = {}

    def node(self, node: Node) -> Node | None:
        """Return the subplan with renamed columns; None if it contains SQL text, literal rows or random values."""
        sources = [self.node(source) for source in get_sources(node)]
        if None in sources or isinstance(node, Sql | Values):
            return None
        below = [source for source in sources if source is not None]
        match node:
            case TableScan():
                return replace(node, columns=self._rename_outputs(node.columns))
            case Union():
                return replace(node, sources=tuple(below), columns=self._rename_outputs(node.columns))
            case Filter(predicate=predicate):
                return (
                    None
                    if (kept := self._rename_expr(predicate)) is None
                    else replace(node, source=below[0], predicate=kept)
                )
            case Project():
                outputs = self._rename_named(node.outputs)
                return None if outputs is None else replace(node, source=below[0], outputs=outputs)
            case Aggregate():
                return self._rename_aggregate(node, below[0])
            case Join():
                return self._rename_join(node, below[0], below[1])
            case Sort() | TopN():
                keys = self._rename_keys(node.keys)
                return None if keys is None else replace(node, source=below[0], keys=keys)
            case Limit():
                return replace(node, source=below[0])

    def _make_name(self, column_id: str) -> str:
        found = self._names.setdefault(column_id, Column((f"c{len(self._names)}",)))
        return found.path[0]

    def _rename_outputs(self, outputs: Sequence[Output]) -> tuple[Output, ...]:
        return tuple(Output(self._make_name(each.name), each.type) for each in outputs)

    def _rename_expr(self, expr: Expr) -> Expr | None:
        return substitute(expr, self._names) if is_deterministic(expr) else None

    def _rename_named(self, given: Sequence[Named]) -> tuple[Named, ...] | None:
        values = [self._rename_expr(each.expr) for each in given]
        if None in values:
            return None
        pairs = zip(given, values, strict=True)
        return tuple(Named(self._make_name(each.name), value) for each, value in pairs if value is not None)

    def _rename_keys(self, keys: Sequence[SortKey]) -> tuple[SortKey, ...] | None:
        values = [self._rename_expr(key.expr) for key in keys]
        if None in values:
            return None
        return tuple(replace(key, expr=value) for key, value in zip(keys, values, strict=True) if value is not None)

    def _rename_aggregate(self, node: Aggregate, source: Node) -> Node | None:
        aggregates = []
        for call in node.aggregates:
            args = [self._rename_expr(arg) for arg in call.args]
            kept = None if call.filter is None else self._rename_expr(call.filter)
            if None in args or (kept is None) is not (call.filter is None):
                return None
            known = tuple(arg for arg in args if arg is not None)
            aggregates.append(replace(call, name="", args=known, filter=kept))
        keys = self._rename_named(node.keys)
        if keys is None:
            return None
        named = [
            replace(each, name=self._make_name(call.name))
            for each, call in zip(aggregates, node.aggregates, strict=True)
        ]
        return Aggregate(source, keys, tuple(named))

    def _rename_join(self, node: Join, left: Node, right: Node) -> Node | None:
        sides = [self._rename_expr(each) for pair in node.criteria for each in pair]
        kept = None if node.filter is None else self._rename_expr(node.filter)
        if None in sides or (kept is None) is not (node.filter is None):
            return None
        known = [each for each in sides if each is not None]
        criteria = tuple(zip(known[::2], known[1::2], strict=True))
        return replace(node, left=left, right=right, criteria=criteria, filter=kept)
