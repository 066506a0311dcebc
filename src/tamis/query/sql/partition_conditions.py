"""Conditions on the texts of partition values: `WHERE partition_text('year') = '2024'`.

Only the scan of a table knows these texts, so such a condition, which may have columns of this table too, becomes a
part of its table, as a version does:

    SELECT … FROM sales WHERE partition_text('year') = '2024' AND id > 7
    SELECT … FROM `sales WHERE partition_text('year') = '2024'` AS sales WHERE id > 7

Beside other tables, `partition_text(s.year)` names the table.
"""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from tamis.errors import ExpressionError, format_position
from tamis.expr.nodes import Unbound
from tamis.expr.sql.parse import to_expression
from tamis.expr.sql.refusals import find_position
from tamis.expr.sql.syntax import to_sql_text
from tamis.formats.source import TableSource
from tamis.query.sql.scopes import get_name_parts
from tamis.query.sql.table_versions import rename_table
from tamis.query.sql.trees import find_filterable_tables, split_conjuncts

_ADVICE = (
    "it is tested while the files of a table are listed, so write it as a condition of its own in the WHERE of the "
    "SELECT that reads the table, as in SELECT … FROM sales WHERE partition_text('year') = '2024'"
)


class PartitionedTables(Protocol):
    """The tables of a query that can be filtered by the texts of their partition values."""

    def find_source(self, name: tuple[str, ...]) -> TableSource | None:
        """Return what a table that is read from files has; None for other tables, and if there is none."""
        ...

    def add_partition_filter(self, name: tuple[str, ...], filtered: tuple[str, ...], where: Unbound) -> None:
        """Add a table of the name `filtered`: the rows of another table whose partitions satisfy `where`."""


def move_partition_conditions_into_tables(tree: exp.Expr, tables: PartitionedTables) -> None:
    """Move each condition on the texts of partition values from WHERE into its table, in place."""
    if not any(map(_is_partition_text, tree.find_all(exp.Anonymous))):
        return
    # Inner queries come first: when the WHERE around them is taken apart, they have no such conditions left.
    for select in reversed(list(tree.find_all(exp.Select))):
        where = select.args.get("where")
        if where is None or select.args.get("from_") is None:
            continue
        others: list[exp.Expr] = []
        found: dict[int, tuple[exp.Table, list[exp.Expr]]] = {}
        for conjunct in split_conjuncts(where.this):
            partitions = _list_partitions(conjunct)
            if not partitions or conjunct.find(exp.Query) is not None:
                others.append(conjunct)
                continue
            table = _find_table(select, conjunct, partitions, tables)
            found.setdefault(id(table), (table, []))[1].append(conjunct)
        for table, conditions in found.values():
            condition = exp.and_(*(_strip_qualifiers(each, table) for each in conditions))
            name = get_name_parts(table)
            filtered = f"{name[-1]} WHERE {to_sql_text(condition)}"
            tables.add_partition_filter(name, (*name[:-1], filtered), to_expression(condition))
            rename_table(table, filtered)
        if found:
            select.set("where", exp.Where(this=exp.and_(*others, copy=False)) if others else None)
    for call in filter(_is_partition_text, tree.find_all(exp.Anonymous)):
        raise _make_error(f"{to_sql_text(call)} is not in a place where it can be tested", call, _ADVICE)


def _find_table(select: exp.Select, conjunct: exp.Expr, partitions: list[str], tables: PartitionedTables) -> exp.Table:
    """Return the table of a SELECT that a condition is about."""
    text = _describe(conjunct)
    sources = find_tables(select)
    named = (each for each in sources if isinstance(each, exp.Table) and isinstance(each.this, exp.Identifier))
    plain = [table for table in named if not _is_common(table)]
    filterable = {id(table) for table in find_filterable_tables(select)}
    own = [table for table in plain if id(table) in filterable]
    columns = list(conjunct.find_all(exp.Column))
    of_columns = [table for table in own if all(_is_of(column, table, select, tables) for column in columns)]
    found = [table for table in of_columns if _has_partitions(tables, table, partitions)]
    if len(found) > 1:
        name = found[0].alias_or_name
        raise _make_error(
            f"{text} may be about {' or '.join(each.alias_or_name for each in found)}", conjunct,
            f"name the table, as in partition_text({name}.{partitions[0]}), or write the condition in a subquery over "
            f"one of them, as in FROM (SELECT * FROM {found[0].name} WHERE {text})",
        )  # fmt: skip
    if found:
        return found[0]
    has_known_tables = all(any(_is_qualified(column, each) for each in own) for column in columns
                           if _is_partition_text(column.parent) and len(column.parts) > 1)  # fmt: skip
    if own and not of_columns and has_known_tables:
        raise _make_error(
            f"{text} combines the texts of partition values with columns of several sources", conjunct,
            "compare the partition column itself, or write the condition in a subquery over one table, as in "
            "FROM (SELECT * FROM sales WHERE …)",
        )  # fmt: skip
    if of_columns and len(sources) == 1:
        # The table reports that it has no such partition.
        return of_columns[0]
    for table in plain:
        if id(table) not in filterable and _has_partitions(tables, table, partitions):
            raise _make_error(
                f"{table.alias_or_name} is sampled, pivoted, renamed or null-extended before {text} could be tested, "
                "so no table that it could filter is in this FROM", conjunct,
                f"write the condition in a subquery, as in FROM (SELECT * FROM {table.name} WHERE …)",
            )  # fmt: skip
    raise _make_error(f"no table that {text} could filter is in this FROM", conjunct, _ADVICE)


def _is_of(column: exp.Column, table: exp.Table, select: exp.Select, tables: PartitionedTables) -> bool:
    """Return whether a name is that of a column of a table, and of nothing else that is visible in the SELECT."""
    if _is_qualified(column, table):
        return True
    views = [name.name.casefold() for view in select.args.get("laterals") or () if view.args.get("alias") is not None
             for name in (view.args["alias"], *view.args["alias"].columns)]  # fmt: skip
    first = column.parts[0].name.casefold()
    is_foreign = _is_partition_text(column.parent) and len(column.parts) > 1
    if is_foreign or len(find_tables(select)) > 1 or first in views:
        return False
    is_alone = not views and select.find_ancestor(exp.Select) is None
    source = tables.find_source(get_name_parts(table))
    return is_alone or source is None or first in (name.casefold() for name in source.schema.names)


def _is_qualified(column: exp.Column, table: exp.Table) -> bool:
    """Return whether a column is written with the name of a table before it."""
    parts = column.parts
    return len(parts) > 1 and parts[0].name.casefold() == table.alias_or_name.casefold()


def _strip_qualifiers(condition: exp.Expr, table: exp.Table) -> exp.Expr:
    """Return a copy of a condition whose columns are written without the name of their table."""

    def strip(node: exp.Expr) -> exp.Expr:
        if not (isinstance(node, exp.Column) and _is_qualified(node, table)):
            return node
        if _is_partition_text(node.parent):
            return exp.Literal.string(node.parts[1].name)
        names = [part.copy() for part in node.parts[1:]]
        return exp.Column(**dict(zip(("this", "table", "db"), reversed(names), strict=False)))

    return condition.copy().transform(strip)


def find_tables(select: exp.Select) -> list[exp.Expr]:
    """Return the sources of a FROM."""
    return [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]


def _has_partitions(tables: PartitionedTables, table: exp.Table, partitions: list[str]) -> bool:
    source = tables.find_source(get_name_parts(table))
    return source is not None and {name.casefold() for name in partitions} <= {
        each.casefold() for each in source.partition_texts
    }


def _is_common(table: exp.Table) -> bool:
    """Return whether a name is that of a common table expression around it."""
    if table.args.get("db") is not None:
        return False
    query = table.find_ancestor(exp.Query)
    while query is not None:
        clause = query.args.get("with_")
        if clause is not None and any(each.alias.casefold() == table.name.casefold() for each in clause.expressions):
            return True
        query = query.find_ancestor(exp.Query)
    return False


def _list_partitions(tree: exp.Expr) -> list[str]:
    """Return the names of the partitions whose texts a condition reads."""
    calls = filter(_is_partition_text, tree.find_all(exp.Anonymous))
    return [call.expressions[0].name if len(call.expressions) == 1 else "" for call in calls]


def _is_partition_text(call: exp.Expr | None) -> bool:
    return isinstance(call, exp.Anonymous) and call.name.lower() == "partition_text"


def _describe(conjunct: exp.Expr) -> str:
    """Return the text of a condition for messages, with the comparisons of a `PartitionFilter` alone."""

    def shorten(node: exp.Expr) -> exp.Expr:
        is_filter = isinstance(node, exp.Anonymous) and node.name == "partition_filter"
        return node.expressions[0] if is_filter else node

    return to_sql_text(conjunct.copy().transform(shorten))


def _make_error(what: str, tree: exp.Expr, advice: str) -> ExpressionError:
    position = find_position(tree)
    where = "" if position is None else f" (at: query, {format_position(position)})"
    return ExpressionError(f"{what}{where}: {advice}")
