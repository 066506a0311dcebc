"""Time travel: `orders VERSION AS OF 3`, `orders TIMESTAMP AS OF '2024-03-01'`.

The version becomes a part of the table's name, so that plans, SQL texts and messages need no special case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import pyarrow as pa
from sqlglot import exp

from tamis.errors import InvalidArgument, TamisError
from tamis.expr.evaluate import evaluate_constant
from tamis.expr.nodes import Literal
from tamis.formats.time_travel import EPOCH
from tamis.query.plan.time_zones import parse_instant, to_instant
from tamis.query.sql.scopes import QueryTime, Scope, UnsupportedSql
from tamis.query.sql.trees import shorten_names

_NAME_WITH_STATE = re.compile(r"(?P<name>.*) (?P<kind>VERSION|TIMESTAMP) AS OF (?P<state>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableState:
    """A state of a table, by version or by timestamp."""

    version: str | None = None
    """A number, or the name of a branch or a tag."""
    timestamp: str | None = None


def move_versions_into_names(tree: exp.Expr, now: datetime) -> None:
    """Move the version of each table into its name, in place. `now` is the timestamp of the query."""
    for table in list(tree.find_all(exp.Table)):
        asked = table.args.get("version") or table.args.get("when")
        if asked is None:
            continue
        last = table.this
        if not isinstance(asked, exp.Version) or not isinstance(last, exp.Identifier):
            raise InvalidArgument(
                f"unsupported time travel syntax for {table.name or 'a source'}: "
                "write table VERSION AS OF or table TIMESTAMP AS OF"
            )
        if asked.args.get("kind") != "AS OF":
            raise InvalidArgument(
                f"time travel of {table.name} needs a single state: write VERSION AS OF or TIMESTAMP AS OF"
            )
        kind = "TIMESTAMP" if asked.name.upper() == "TIMESTAMP" else "VERSION"
        state = (
            _evaluate_timestamp(asked.expression, table.name, now)
            if kind == "TIMESTAMP"
            else _parse_version(asked.expression)
        )
        table.set("version", None)
        table.set("when", None)
        rename_table(table, f"{last.name} {kind} AS OF {state}")


def rename_table(table: exp.Table, name: str) -> None:
    """Change the last part of a table's name, in place. The query around it refers to it as before."""
    if not table.alias:
        parts = tuple(part.name for part in table.parts)
        block = table.find_ancestor(exp.Select)
        if len(parts) > 1 and block is not None:
            shorten_names(block, parts)
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    table.set("this", exp.to_identifier(name, quoted=True))


def split_table_state(name: str) -> tuple[str, TableState] | None:
    """Split a table name into the name and the requested state; return None if it requests the current state.

    >>> split_table_state("orders VERSION AS OF 3")
    ('orders', TableState(version='3', timestamp=None))
    """
    found = _NAME_WITH_STATE.fullmatch(name)
    if found is None:
        return None
    state = TableState(version=found["state"]) if found["kind"] == "VERSION" else TableState(timestamp=found["state"])
    return found["name"], state


def _parse_version(tree: exp.Expr) -> str:
    if not isinstance(tree, exp.Literal):
        raise InvalidArgument(
            f"VERSION AS OF {tree.sql('spark')}: expected a version number, or the name of a branch or tag"
        )
    return str(tree.this)


def _evaluate_timestamp(tree: exp.Expr, table: str, now: datetime) -> str:
    zone = now.tzinfo or UTC
    try:
        if isinstance(tree, exp.Literal) and tree.is_string:
            return _format_instant(parse_instant(tree.this, zone)) or str(tree.this)
        return _format_value(evaluate_constant(Scope().resolve_expression(tree, QueryTime(now))), table, zone)
    except InvalidArgument:
        raise
    except (UnsupportedSql, TamisError, OverflowError) as error:
        raise InvalidArgument(
            f"{table} TIMESTAMP AS OF {tree.sql('spark')}: expected a string, a timestamp or a constant expression: "
            f"{error}"
        ) from error


def _format_instant(microseconds: int | None) -> str | None:
    return None if microseconds is None else (EPOCH + timedelta(microseconds=microseconds)).isoformat()


def _format_value(value: Literal, table: str, zone: tzinfo) -> str:
    if value.is_null or value.type is None:
        raise InvalidArgument(f"{table} TIMESTAMP AS OF NULL: expected a timestamp")
    if pa.types.is_string(value.type):
        return _format_instant(parse_instant(value.value, zone)) or str(value.value)
    if pa.types.is_date(value.type):
        return _format_instant(to_instant(EPOCH + timedelta(days=value.value), zone)) or ""
    if pa.types.is_timestamp(value.type):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[value.type.unit]
        return (EPOCH + timedelta(microseconds=value.value * 10**6 // per_second)).astimezone(UTC).isoformat()
    raise InvalidArgument(f"{table} TIMESTAMP AS OF {value.value!r}: expected a string, a date or a timestamp")
