"""EXPLAIN output as text and as JSON: the plan before and after optimization, the rules applied, and the scans."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tamis.errors import InvalidArgument, format_count
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.connectors.connector import Connector
from tamis.query.plan import nodes
from tamis.query.plan.optimizer import RuleMetrics

FORMATS = ("text", "json")
_SHOWN_TEXT = 160


def explain(
    query: str,
    before: nodes.Node,
    after: nodes.Node,
    metrics: Sequence[RuleMetrics],
    connectors: Mapping[str, Connector],
    format: str = "text",
    names: Sequence[str] | None = None,
) -> str:
    """Return how a query will run, as text or as JSON. For a table under a policy it shows only the original plan.

    `names` are the names of the returned columns; None if only the engine knows them.
    """
    if format not in FORMATS:
        raise InvalidArgument(f"no format {format!r}. Formats: {', '.join(FORMATS)}")
    redacted = is_redacted(before)
    asked = redact_plan(before) if redacted else before
    found: dict[str, Any] = {
        "query": query,
        "returns": _describe_result(asked, names),
        "before": plan_to_dict(asked, {} if redacted else connectors),
    }
    if redacted:
        found["note"] = REDACTED_PLAN_NOTE
    else:
        rules = [(each.name, each.applied, round(each.seconds * 1000, 3)) for each in metrics]
        found["after"] = plan_to_dict(after, connectors)
        found["rules"] = [dict(zip(("rule", "applied", "milliseconds"), each, strict=True)) for each in rules]
        found["scans"] = [
            _describe_scan(node, connectors) for node in nodes.walk_plan(after) if isinstance(node, nodes.TableScan)
        ]
    return json.dumps(found, indent=2, ensure_ascii=False) if format == "json" else _format_text(found)


def _describe_result(plan: nodes.Node, names: Sequence[str] | None) -> list[dict[str, str]]:
    """Return the names of the result columns with their column ids, which are unique while names may repeat."""
    column_ids = [output.name for output in nodes.get_outputs(plan)]
    return [{"name": name, "column": column} for name, column in zip(names or column_ids, column_ids, strict=False)]


def plan_to_dict(plan: nodes.Node, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    return {
        "node": type(plan).__name__,
        "what": _describe_node(plan, connectors),
        "columns": [output.name for output in nodes.get_outputs(plan)],
        "sources": [plan_to_dict(source, connectors) for source in nodes.get_sources(plan)],
    }


def _format_text(found: Mapping[str, Any]) -> str:
    returned = [_format_alias(each["column"], each["name"]) for each in found["returns"]]
    lines = ["Query", f"  {' '.join(found['query'].split())}"]
    lines += [f"  returns {', '.join(returned)}"] if returned else []
    lines += ["", "Logical plan", *format_lines(found["before"], 1)]
    if "note" in found:
        return "\n".join([*lines, "", found["note"]])
    lines += ["", "Optimized plan", *format_lines(found["after"], 1), "", "Rules"]
    used = [each for each in found["rules"] if each["applied"]]
    width = max((len(each["rule"]) for each in used), default=0)
    lines += [f"  {each['rule']:<{width}}  {each['applied']:>3} ×  {each['milliseconds']:.1f} ms" for each in used]
    if not used:
        lines.append("  none applied")
    lines += ["", "Scans"]
    for scan in found["scans"]:
        known = [f"{'' if scan['rows_are_exact'] else 'at most '}{format_count(scan['rows'], 'row')}"
                 if scan["rows"] is not None else "", f"{scan['bytes']:,} bytes"
                 if scan["bytes"] is not None else ""]  # fmt: skip
        known += [f"clustered by {', '.join(scan['clustered_by'])}"] if scan["clustered_by"] else []
        size = ", ".join(filter(None, known))
        lines.append(f"  {scan['reads']}{f' ({size})' if size else ''}")
    if not found["scans"]:
        lines.append("  none")
    return "\n".join(lines)


def format_lines(tree: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Return a plan of `plan_to_dict` as text: one line per node, with sources indented."""
    lines = [f"{'  ' * depth}{tree['node']}{' ' if tree['what'] else ''}{tree['what']}"]
    for source in tree["sources"]:
        lines += format_lines(source, depth + 1)
    return lines


def _describe_scan(scan: nodes.TableScan, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    connector = connectors[scan.connector]
    known = connector.properties(scan.handle)
    return {
        "connector": scan.connector,
        "reads": connector.describe(scan.handle),
        "rows": known.rows,
        "rows_are_exact": known.rows_are_exact,
        "bytes": known.bytes,
        "partitioned_by": list(known.partitioned_by),
        "clustered_by": list(known.clustered_by),
    }


# --- Nodes ------------------------------------------------------------------------------------------------------------


def _describe_node(node: nodes.Node, connectors: Mapping[str, Connector]) -> str:
    match node:
        case nodes.TableScan():
            known = connectors.get(node.connector)
            return repr(node.handle) if known is None else known.describe(node.handle)
        case nodes.Filter():
            return to_display_sql(node.predicate)
        case nodes.Project():
            return ", ".join(map(_format_output, node.outputs))
        case nodes.Aggregate():
            keys = f" by {', '.join(map(_format_output, node.keys))}" if node.keys else ""
            return (", ".join(map(_format_call, node.aggregates)) or "distinct") + keys
        case nodes.Join():
            pairs = [f"{to_display_sql(one)} = {to_display_sql(other)}" for one, other in node.criteria]
            conditions = " and ".join([*pairs, *([to_display_sql(node.filter)] if node.filter is not None else [])])
            prunes = f", dynamic filter on the {node.dynamic_filter_side} side" if node.dynamic_filter_side else ""
            return f"{node.kind}{f' on {conditions}' if conditions else ''}{prunes}"
        case nodes.Sort():
            return _format_order(node.keys)
        case nodes.TopN():
            return f"{node.count} by {_format_order(node.keys)}"
        case nodes.Limit():
            offset = f" after {node.offset}" if node.offset else ""
            return f"{node.count}{offset}"
        case nodes.Union():
            return f"of {len(node.sources)}"
        case nodes.Values():
            return format_count(node.rows.num_rows, "row")
        case nodes.Sql():
            text = " ".join(to_sql_text(node.tree).split())
            return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]} …"


def _format_output(each: nodes.Named) -> str:
    return _format_alias(to_display_sql(each.expr), each.name)


def _format_alias(value: str, name: str) -> str:
    return name if value in (name, f"`{name}`") else f"{value} as {name}"


def _format_call(call: nodes.AggregateCall) -> str:
    args = ", ".join(map(to_display_sql, call.args)) or "*"
    kept = f" where {to_display_sql(call.filter)}" if call.filter is not None else ""
    text = f"{call.function}({'distinct ' if call.distinct else ''}{args}){kept}"
    return f"{text} as {call.name}"


def _format_order(keys: Sequence[nodes.SortKey]) -> str:
    return ", ".join(
        f"{to_display_sql(key.expr)}{' descending' if key.descending else ''}"
        f"{'' if key.nulls_first is not key.descending else ', nulls first' if key.nulls_first else ', nulls last'}"
        for key in keys
    )


# --- Redacted plans: what the user asked for, without what policies hide ----------------------------------------------
#
# The rules that applied, and what scans would read, follow from the statistics of all rows, hidden rows included: a
# filter that was dropped reveals that all rows satisfy it. So a query over a table under a policy shows only the plan
# before the rules, without the conditions of the policies.

REDACTED_PLAN_NOTE = "A table is under a policy: what is read of it, and which rules apply, is not shown."


@dataclass(frozen=True, slots=True)
class HiddenHandle:
    """Replaces a handle, whose description would reveal a policy."""

    def __repr__(self) -> str:
        return "under a policy"


def is_redacted(plan: nodes.Node) -> bool:
    """Return whether a plan reads a table under a policy."""
    return any(isinstance(node, nodes.TableScan) and node.is_protected for node in nodes.walk_plan(plan))


def redact_plan(plan: nodes.Node) -> nodes.Node:
    """Return a plan from before the rules without its policies."""

    def redact(node: nodes.Node) -> nodes.Node:
        match node:
            case nodes.TableScan(is_protected=True):
                return replace(node, handle=HiddenHandle())
            case nodes.Filter(protects=True):
                return node.source
            case nodes.Project(protects=True, source=nodes.TableScan() as scan):
                return replace(scan, columns=nodes.get_outputs(node))
            case _:
                return node

    return nodes.transform_up(plan, redact)
