"""Plans as text and back: the output of `explain`, with further properties in brackets.

    Project `t.a` + 1 as y
      Filter `t.b` = 1 [row filter]
        TableScan t where a > 5 limit 3 [protected, 10 rows]

Column ids are `t.a`, `t.b`, … for the tables of `builders.query.plans`. An arrow names the outputs of a scan if they
are not these, and those of a union: `Union of 2 → c BIGINT, d STRING`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from builders.query.plans import COLUMNS, FakeConnector, FakeHandle, expr, fake, scan
from tamis.errors import TableNotFound
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, and_, find_columns
from tamis.query.plan.column_ids import ColumnIds
from tamis.query.plan.explain import format_lines, plan_to_dict
from tamis.query.plan.nodes import (
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
    TableScan,
    TopN,
    Union,
    get_outputs,
    walk_plan,
)
from tamis.query.sql.planner import plan_query, read_query
from tamis.query.sql.scopes import Field
from tamis.query.sql.sources import PlannedSource
from tamis.types import LONG, type_from_name, type_name

# --- Printing ---------------------------------------------------------------------------------------------------------


def print_plan(plan: Node) -> str:
    """Return what `explain` prints, with outputs and marks added."""
    connector = FakeConnector()
    lines = format_lines(plan_to_dict(plan, {"fake": connector, "other": connector}))
    nodes = list(walk_plan(plan))
    return "\n".join(
        f"{line}{_print_outputs(node)}{_print_marks(node)}" for line, node in zip(lines, nodes, strict=True)
    )


def _print_outputs(node: Node) -> str:
    match node:
        case Union():
            return f" → {', '.join(f'{each.name} {type_name(each.type)}' for each in node.columns)}"
        case TableScan():
            own = fake(node.handle)
            names = [output.name for output in node.columns]
            return "" if names == [f"{own.table}.{name}" for name, _ in own.columns] else f" → {', '.join(names)}"
        case _:
            return ""


def _print_marks(node: Node) -> str:
    marks = []
    match node:
        case TableScan():
            rows = fake(node.handle).rows
            marks += ["protected"] if node.is_protected else []
            marks += [] if rows == _DEFAULT_ROWS else ["unknown rows" if rows is None else f"{rows} rows"]
            marks += [] if node.connector == "fake" else [f"connector {node.connector}"]
        case Filter(protects=True):
            marks.append("row filter")
        case Project(protects=True):
            marks.append("masks")
    return f" [{', '.join(marks)}]" if marks else ""


_DEFAULT_ROWS = FakeHandle("t").rows


# --- Parsing ----------------------------------------------------------------------------------------------------------


def parse_plan(text: str) -> Node:
    """Return the plan that a text describes."""
    lines = [line for line in text.splitlines() if line.strip()]
    (plan,) = _parse_siblings(0, lines)
    return plan


def _parse_siblings(depth: int, lines: list[str]) -> list[Node]:
    starts = [index for index, line in enumerate(lines) if _get_depth(line) == depth]
    ends = [*starts[1:], len(lines)][: len(starts)]
    return [
        _parse_node(lines[start].strip(), _parse_siblings(depth + 1, lines[start + 1 : end]))
        for start, end in zip(starts, ends, strict=True)
    ]


def _get_depth(line: str) -> int:
    return (len(line) - len(line.lstrip(" "))) // 2


def _parse_node(line: str, sources: list[Node]) -> Node:
    line, marks = _take_marks(line)
    line, _, outputs = line.partition(" → ")
    kind, _, what = line.partition(" ")
    match kind:
        case "TableScan":
            return _parse_scan(what, outputs, marks)
        case "Filter":
            return Filter(sources[0], expr(what, *sources), "row filter" in marks)
        case "Project":
            named = tuple(_parse_output(each, sources[0]) for each in _split(what, ", "))
            return Project(sources[0], named, "masks" in marks)
        case "Aggregate":
            return _parse_aggregate(what, sources[0])
        case "Join":
            return _parse_join(what, *sources)
        case "Sort":
            return Sort(sources[0], _parse_order(what, sources[0]))
        case "TopN":
            count, keys = what.split(" by ", 1)
            return TopN(sources[0], _parse_order(keys, sources[0]), int(count))
        case "Limit":
            count, _, offset = what.partition(" after ")
            return Limit(sources[0], int(count), int(offset or 0))
        case "Union":
            return Union(tuple(sources), tuple(_parse_typed(each) for each in outputs.split(", ")))
        case _:
            raise AssertionError(f"expected a node, found {line!r}")


def _take_marks(line: str) -> tuple[str, list[str]]:
    found = re.fullmatch(r"(.*) \[([\w ,]+)\]", line)
    return (found[1], found[2].split(", ")) if found else (line, [])


def _parse_scan(what: str, outputs: str, marks: list[str]) -> TableScan:
    found = re.fullmatch(r"(\w+)(?: where (.*?))?(?: ordered Sort (.*?))?(?: (limit|top) (\d+)(?: by (.*))?)?", what)
    assert found, f"expected a table, found {what!r}"
    table, predicate, order, _, count, keys = found.groups()
    made = scan(table, protects="protected" in marks)
    plain = Union((), tuple(Output(name, kind) for name, kind in COLUMNS.items()))
    handle = FakeHandle(table)
    for mark in marks:
        if mark.endswith(" rows"):
            handle = replace(handle, rows=None if mark == "unknown rows" else int(mark.removesuffix(" rows")))
        if mark.startswith("connector "):
            made = replace(made, connector=mark.removeprefix("connector "))
    if predicate:
        handle = replace(handle, predicate=expr(predicate, plain))
    if order:
        handle = replace(handle, order=_parse_order(order, plain))
    if count:
        handle = replace(handle, limit=int(count), top=_parse_order(keys, plain) if keys else None)
    if outputs:
        types = (column.type for column in made.columns)
        columns = tuple(Output(name, kind) for name, kind in zip(outputs.split(", "), types, strict=True))
        made = replace(made, columns=columns)
    return replace(made, handle=handle)


def _parse_output(text: str, source: Node) -> Named:
    value, found, name = text.rpartition(" as ")
    if found:
        return Named(name, expr(value, source))
    types = {output.name: output.type for output in get_outputs(source)}
    return Named(text, Column((text,), type=types[text]))


def _parse_aggregate(what: str, source: Node) -> Aggregate:
    calls, _, keys = what.partition(" by ") if not what.startswith("by ") else ("distinct", "", what)
    named = tuple(_parse_output(each, source) for each in _split(keys, ", ")) if keys else ()
    aggregates = () if calls == "distinct" else tuple(_parse_call(each, source) for each in _split(calls, ", "))
    return Aggregate(source, named, aggregates)


def _parse_call(text: str, source: Node) -> AggregateCall:
    found = re.fullmatch(r"(\w+)\((distinct )?(.*?)\)(?: where (.*))? as (\w+)", text)
    assert found, f"expected an aggregate, found {text!r}"
    function, distinct, args, condition, name = found.groups()
    parsed = () if args == "*" else tuple(expr(each, source) for each in _split(args, ", "))
    kind = type_of(parsed[0]) if function in ("min", "max") else LONG
    return AggregateCall(name, function, parsed, bool(distinct), expr(condition, source) if condition else None, kind)


def _parse_join(what: str, left: Node, right: Node) -> Join:
    found = re.fullmatch(r"(\w+)(?: on (.*?))?(?:, dynamic filter on the (left|right) side)?", what)
    assert found, f"expected a join, found {what!r}"
    kind, conditions, side = found.groups()
    criteria: list[tuple[Expr, Expr]] = []
    others: list[Expr] = []
    for each in _split(conditions, " and ") if conditions else []:
        parsed = expr(each, left, right)
        match parsed:
            case Call("=", (one, other)) if _reads_only(one, left) and _reads_only(other, right):
                criteria.append((one, other))
            case _:
                others.append(parsed)
    return Join(left, right, kind, tuple(criteria), and_(*others) if others else None, side)


def _reads_only(value: Expr, node: Node) -> bool:
    names = {output.name for output in get_outputs(node)}
    return bool(find_columns(value)) and all(column.path[0] in names for column in find_columns(value))


def _parse_order(text: str, source: Node) -> tuple[SortKey, ...]:
    keys: list[SortKey] = []
    for each in _split(text, ", "):
        if each in ("nulls first", "nulls last"):
            keys[-1] = replace(keys[-1], nulls_first=each == "nulls first")
        else:
            descending = each.endswith(" descending")
            keys.append(SortKey(expr(each.removesuffix(" descending"), source), descending, not descending))
    return tuple(keys)


def _parse_typed(text: str) -> Output:
    name, kind = text.split(" ", 1)
    return Output(name, type_from_name(kind))


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside of brackets and quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'`":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif depth == 0 and index >= start and text.startswith(separator, index):
            parts.append(text[start:index])
            start = index + len(separator)
    return [*parts, text[start:]]


# --- From SQL ---------------------------------------------------------------------------------------------------------


def plan_sql(text: str) -> Node:
    """Return the plan of a query over the tables t, u and v, before any rule."""
    return plan_query(read_query(text), _Tables()).plan


class _Tables:
    has_policies = False

    def check(self, text: str, tree: object) -> None:
        """Allow every query."""

    def scan(self, name: tuple[str, ...], column_ids: ColumnIds) -> PlannedSource:
        if name not in (("t",), ("u",), ("v",)):
            raise TableNotFound(f"no table {'.'.join(name)}")
        ids = column_ids.allocate_scan(name[0], COLUMNS)
        made = scan(name[0])
        columns = tuple(Output(each, kind) for each, kind in zip(ids, COLUMNS.values(), strict=True))
        fields = (Field.of(column, each, kind) for (column, kind), each in zip(COLUMNS.items(), ids, strict=True))
        return PlannedSource(replace(made, columns=columns), tuple(fields))
