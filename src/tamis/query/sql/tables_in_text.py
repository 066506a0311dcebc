"""Where the text of a query names its tables, for an engine that analyses the text itself."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tamis.query.plan.column_ids import ColumnIds
from tamis.query.sql.parameters import number_parameters
from tamis.query.sql.planner import read_query
from tamis.query.sql.sources import Tables, get_table_parts, has_plain_name


@dataclass(frozen=True)
class TableInText:
    """A table of a query: where its name stands in the text, and its columns."""

    start: int
    end: int
    name: str
    has_alias: bool
    schema: pa.Schema


@dataclass(frozen=True)
class TablesInText:
    """The text of a query with numbered parameters, the outputs of all its SELECTs, and its tables."""

    text: str
    outputs: tuple[exp.Expr, ...]
    tables: tuple[TableInText, ...]


def find_tables_in_text(text: str, tables: Tables) -> TablesInText | None:
    """Return the tables that a query names; None if it has something that only Tamis reads, such as a version."""
    text = number_parameters(text)
    tree = read_query(text)
    commons = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
    found = []
    for each in tree.find_all(exp.Table):
        if not has_plain_name(each) or any(each.args.get(clause) for clause in ("version", "when")):
            return None
        if len(each.parts) == 1 and each.name.casefold() in commons:
            continue
        fields = tables.scan(get_table_parts(each), ColumnIds()).fields
        if any(field.type is None for field in fields):
            return None
        schema = pa.schema([(field.name, field.type) for field in fields])
        start, end = each.parts[0].meta["start"], each.parts[-1].meta["end"] + 1
        found.append(TableInText(start, end, each.name, bool(each.alias), schema))
    # A star may stand for the outputs of any query inside.
    outputs = tuple(each for select in tree.find_all(exp.Select) for each in select.expressions)
    return TablesInText(text, outputs, tuple(sorted(found, key=lambda table: table.start)))
