"""Plans for people and for programs: before and after the rules, what each rule did, what each scan will read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tamis.errors import InvalidArgument, counted
from tamis.expr.nodes import Expr
from tamis.expr.printer import shown
from tamis.pushdown.connector import Connector
from tamis.pushdown.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Limit,
    Named,
    Node,
    Project,
    Sort,
    SortKey,
    Sql,
    TableScan,
    TopN,
    Union,
    Values,
    outputs_of,
    sources_of,
    walk_plan,
)
from tamis.pushdown.optimizer import RuleAccount
from tamis.pushdown.policies.redaction import SILENCE, is_silent, visible_plan

FORMATS = ("text", "json")
_SHOWN_TEXT = 160


def explain(
    query: str,
    before: Node,
    after: Node,
    accounts: Sequence[RuleAccount],
    connectors: Mapping[str, Connector],
    format: str = "text",
    names: Sequence[str] | None = None,
) -> str:
    """What becomes of a query, in words or as JSON. Of a table under a policy nothing is told but what was asked.

    `names` are those of the columns that are returned; None where only the engine knows them.
    """
    if format not in FORMATS:
        raise InvalidArgument(f"no format {format!r}. Formats: {', '.join(FORMATS)}")
    found = facts(query, before, after, accounts, connectors, names)
    return json.dumps(found, indent=2, ensure_ascii=False) if format == "json" else _text(found)


def facts(
    query: str,
    before: Node,
    after: Node,
    accounts: Sequence[RuleAccount],
    connectors: Mapping[str, Connector],
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What `explain` tells, as values."""
    if is_silent(before):
        asked = visible_plan(before)
        return {"query": query, "returns": _returns(asked, names), "before": tree_of(asked, {}), "note": SILENCE}
    return {
        "query": query,
        "returns": _returns(before, names),
        "before": tree_of(before, connectors),
        "after": tree_of(after, connectors),
        "rules": [
            {"rule": each.name, "applied": each.applied, "milliseconds": round(each.seconds * 1000, 3)}
            for each in accounts
        ],
        "scans": [_scan(node, connectors) for node in walk_plan(after) if isinstance(node, TableScan)],
    }


def _returns(plan: Node, names: Sequence[str] | None) -> list[dict[str, str]]:
    """The columns of the answer, and what a plan calls them: in its own way, since two may have one name."""
    told = [output.name for output in outputs_of(plan)]
    return [{"name": name, "column": column} for name, column in zip(names or told, told, strict=False)]


def tree_of(plan: Node, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    """A plan as nested values."""
    return {
        "node": type(plan).__name__,
        "what": _what(plan, connectors),
        "columns": [output.name for output in outputs_of(plan)],
        "sources": [tree_of(source, connectors) for source in sources_of(plan)],
    }


def plan_text(plan: Node, connectors: Mapping[str, Connector] | None = None) -> str:
    """A plan as text, a line a node, sources further to the right."""
    return "\n".join(_lines(tree_of(plan, connectors or {}), 0))


def _text(found: Mapping[str, Any]) -> str:
    returned = [_renamed(each["column"], each["name"]) for each in found["returns"]]
    lines = ["Query", f"  {' '.join(found['query'].split())}"]
    lines += [f"  returns {', '.join(returned)}"] if returned else []
    lines += ["", "As it was asked", *_lines(found["before"], 1)]
    if "note" in found:
        return "\n".join([*lines, "", found["note"]])
    lines += ["", "As it will run", *_lines(found["after"], 1), "", "Rules"]
    used = [each for each in found["rules"] if each["applied"]]
    width = max((len(each["rule"]) for each in used), default=0)
    lines += [f"  {each['rule']:<{width}}  {each['applied']:>3} ×  {each['milliseconds']:.1f} ms" for each in used]
    if not used:
        lines.append("  none applied")
    lines += ["", "Scans"]
    for scan in found["scans"]:
        known = [f"{'' if scan['rows_are_exact'] else 'at most '}{counted(scan['rows'], 'row')}"
                 if scan["rows"] is not None else "", f"{scan['bytes']:,} bytes"
                 if scan["bytes"] is not None else ""]  # fmt: skip
        told = ", ".join(filter(None, known))
        lines.append(f"  {scan['reads']}{f' ({told})' if told else ''}")
    if not found["scans"]:
        lines.append("  none")
    return "\n".join(lines)


def _lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    lines = [f"{'  ' * depth}{tree['node']}{' ' if tree['what'] else ''}{tree['what']}"]
    for source in tree["sources"]:
        lines += _lines(source, depth + 1)
    return lines


def _scan(scan: TableScan, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    connector = connectors[scan.connector]
    known = connector.properties(scan.handle)
    return {
        "connector": scan.connector,
        "reads": connector.describe(scan.handle),
        "rows": known.rows,
        "rows_are_exact": known.rows_are_exact,
        "bytes": known.bytes,
    }


# --- Nodes ------------------------------------------------------------------------------------------------------------


def _what(node: Node, connectors: Mapping[str, Connector]) -> str:
    match node:
        case TableScan():
            known = connectors.get(node.connector)
            return repr(node.handle) if known is None else known.describe(node.handle)
        case Filter():
            return shown(node.predicate)
        case Project():
            return ", ".join(map(_named, node.outputs))
        case Aggregate():
            keys = f" by {', '.join(map(_named, node.keys))}" if node.keys else ""
            return (", ".join(map(_call, node.aggregates)) or "distinct") + keys
        case Join():
            pairs = [f"{shown(one)} = {shown(other)}" for one, other in node.criteria]
            conditions = " and ".join([*pairs, *([shown(node.filter)] if node.filter is not None else [])])
            prunes = f", prunes the {node.prunes} side at run time" if node.prunes else ""
            return f"{node.kind}{f' on {conditions}' if conditions else ''}{prunes}"
        case Sort():
            return _order(node.keys)
        case TopN():
            return f"{node.count} by {_order(node.keys)}"
        case Limit():
            offset = f" after {node.offset}" if node.offset else ""
            return f"{node.count}{offset}"
        case Union():
            return f"of {len(node.sources)}"
        case Values():
            return counted(node.rows.num_rows, "row")
        case Sql():
            text = " ".join(node.text.split())
            return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]} …"


def _named(each: Named) -> str:
    return _renamed(_value(each.expr), each.name)


def _renamed(value: str, name: str) -> str:
    return name if value in (name, f"`{name}`") else f"{value} as {name}"


def _value(expr: Expr) -> str:
    return shown(expr)


def _call(call: AggregateCall) -> str:
    args = ", ".join(map(shown, call.args)) or "*"
    kept = f" where {shown(call.filter)}" if call.filter is not None else ""
    text = f"{call.function}({'distinct ' if call.distinct else ''}{args}){kept}"
    return f"{text} as {call.name}"


def _order(keys: Sequence[SortKey]) -> str:
    return ", ".join(
        f"{shown(key.expr)}{' descending' if key.descending else ''}"
        f"{'' if key.nulls_first is not key.descending else ', nulls first' if key.nulls_first else ', nulls last'}"
        for key in keys
    )
