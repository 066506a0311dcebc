"""Tables at a version: `orders VERSION AS OF 3`, `orders TIMESTAMP AS OF '2024-03-01'`.

The version becomes a part of the table's name, so that plans, texts and messages need not know of it.
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
from tamis.pushdown.scopes import NotModelled, Now, Scope
from tamis.pushdown.sql_trees import shorten_names
from tamis.pushdown.zones import instant, instant_of_text
from tamis.tables.moments import EPOCH

_NAMED = re.compile(r"(?P<name>.*) (?P<kind>VERSION|TIMESTAMP) AS OF (?P<state>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class State:
    """Which of the states that a table had is meant."""

    version: str | None = None
    """A number, or the name of a branch or a tag."""
    timestamp: str | None = None


def name_states(tree: exp.Expr, moment: datetime) -> None:
    """Make the version that a table is asked for a part of its name, in place."""
    for table in list(tree.find_all(exp.Table)):
        asked = table.args.get("version") or table.args.get("when")
        if asked is None:
            continue
        last = table.this
        if not isinstance(asked, exp.Version) or not isinstance(last, exp.Identifier):
            raise InvalidArgument(f"{table.name or 'what'} is asked for at a version in a way that is not known here")
        if asked.args.get("kind") != "AS OF":
            raise InvalidArgument(f"{table.name} is asked for at one state: write VERSION AS OF or TIMESTAMP AS OF")
        kind = "TIMESTAMP" if asked.name.upper() == "TIMESTAMP" else "VERSION"
        state = _moment(asked.expression, table.name, moment) if kind == "TIMESTAMP" else _version(asked.expression)
        table.set("version", None)
        table.set("when", None)
        if not table.alias:
            parts = tuple(part.name for part in table.parts)
            block = table.find_ancestor(exp.Select)
            if len(parts) > 1 and block is not None:
                shorten_names(block, parts)
            table.set("alias", exp.TableAlias(this=exp.to_identifier(last.name, quoted=True)))
        table.set("this", exp.to_identifier(f"{last.name} {kind} AS OF {state}", quoted=True))


def split_state(name: str) -> tuple[str, State] | None:
    """The name of a table, and the state that it is asked for; None where it is asked for as it is.

    >>> split_state("orders VERSION AS OF 3")
    ('orders', State(version='3', timestamp=None))
    """
    found = _NAMED.fullmatch(name)
    if found is None:
        return None
    state = State(version=found["state"]) if found["kind"] == "VERSION" else State(timestamp=found["state"])
    return found["name"], state


def _version(tree: exp.Expr) -> str:
    if not isinstance(tree, exp.Literal):
        raise InvalidArgument(
            f"VERSION AS OF {tree.sql('spark')}: a version is a number, a branch or a tag by its name"
        )
    return str(tree.this)


def _moment(tree: exp.Expr, table: str, now: datetime) -> str:
    zone = now.tzinfo or UTC
    try:
        if isinstance(tree, exp.Literal) and tree.is_string:
            return _text_of_instant(instant_of_text(tree.this, zone)) or str(tree.this)
        return _text_of(evaluate_constant(Scope().expression(tree, Now(now))), table, zone)
    except InvalidArgument:
        raise
    except (NotModelled, TamisError, OverflowError) as error:
        raise InvalidArgument(
            f"{table} TIMESTAMP AS OF {tree.sql('spark')}: a moment is a text, a timestamp, or what is computed of "
            f"constants: {error}"
        ) from error


def _text_of_instant(microseconds: int | None) -> str | None:
    return None if microseconds is None else (EPOCH + timedelta(microseconds=microseconds)).isoformat()


def _text_of(value: Literal, table: str, zone: tzinfo) -> str:
    if value.is_null or value.type is None:
        raise InvalidArgument(f"{table} TIMESTAMP AS OF NULL: give a moment")
    if pa.types.is_string(value.type):
        return _text_of_instant(instant_of_text(value.value, zone)) or str(value.value)
    if pa.types.is_date(value.type):
        return _text_of_instant(instant(EPOCH + timedelta(days=value.value), zone)) or ""
    if pa.types.is_timestamp(value.type):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[value.type.unit]
        return (EPOCH + timedelta(microseconds=value.value * 10**6 // per_second)).astimezone(UTC).isoformat()
    raise InvalidArgument(f"{table} TIMESTAMP AS OF {value.value!r}: a moment is a text, a date or a timestamp")
