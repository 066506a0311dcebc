"""Normalisation of a query for all engines, with an error for syntax that Spark SQL does not have.

sqlglot parses more than Spark does: `SELECT DISTINCT ON`, `ASOF JOIN`, `{'a': 1}`. An engine may give such syntax its
own meaning, so this module refuses it. Equivalent forms of Spark SQL become one:

| as written                          | normalised                                                                 |
|-------------------------------------|----------------------------------------------------------------------------|
| `GROUP BY ALL`                      | the positions of the columns without aggregate functions                   |
| `ROLLUP`, `CUBE`, `GROUPING SETS`   | one `GROUPING SETS` of expressions, with positions resolved to columns     |
| `grouping_id()`, `grouping__id`     | `grouping_id` of all keys                                                  |
| `LIMIT 1 + 1`                       | `LIMIT 2`                                                                  |
| `LEFT JOIN u`, without a condition  | `LEFT JOIN u ON TRUE`                                                      |
| `f(input => x)`                     | `f(x)`                                                                     |
| `DECIMAL`, `TIME_MS`                | `DECIMAL(10, 0)`, `TIME`                                                   |
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tamis.errors import ExpressionError, ParseError, format_count
from tamis.expr.bind import bind
from tamis.expr.evaluate import can_evaluate, evaluate_constant
from tamis.expr.functions.aggregates import find_aggregate
from tamis.expr.functions.table import UNBOUNDED
from tamis.expr.nodes import find_columns
from tamis.expr.sql.parse import to_expression
from tamis.expr.sql.pipes import GENERATED
from tamis.expr.sql.refusals import find_position, make_unsupported_syntax_error, refuse_foreign_value
from tamis.expr.sql.syntax import to_sql_text
from tamis.formats.source import TABLE_FORMATS
from tamis.query.sql.common_tables import check_commons
from tamis.query.sql.conditions import check_conditions, check_names
from tamis.query.sql.grouping import check_positions, normalise_groups, parse_position
from tamis.types import is_type_name, type_from_name


def normalise_query(tree: exp.Query) -> exp.Query:
    """Normalise a query in place and return it; raise `ParseError` for syntax that Spark SQL does not have."""
    for node in list(tree.walk()):
        refuse_foreign_syntax(node)
        if isinstance(node, exp.Anonymous):
            check_arity(node)
    for join in tree.find_all(exp.Join):
        _add_join_condition(join)
    for call in list(tree.find_all(exp.Kwarg)):
        _resolve_named_arguments(call)
    for node in tree.find_all(exp.Limit, exp.Offset):
        node.set("expression", _make_row_count(node))
    for clause in tree.find_all(exp.With):
        check_commons(clause)
    for select in list(tree.find_all(exp.Select)):
        check_conditions(select)
        check_names(select)
        check_positions(select)
        normalise_groups(select)
        _replace_having_aliases(select)
    return tree


def _replace_having_aliases(select: exp.Select) -> None:
    """Replace aliases in a HAVING without FROM: the engine does not resolve the types of aliases of constants there."""
    having = select.args.get("having")
    if having is None or select.args.get("from_") is not None:
        return
    meant = {each.alias.casefold(): each.this for each in select.expressions if isinstance(each, exp.Alias)}
    for column in list(having.find_all(exp.Column)):
        found = None if column.table else meant.get(column.name.casefold())
        if found is not None and column.find_ancestor(exp.Select) is select:
            column.replace(exp.Paren(this=found.copy()))


# --- Syntax of other dialects -----------------------------------------------------------------------------------------

_SELECT_CLAUSES = frozenset((
    "expressions", "hint", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows", "order",
    "limit", "offset", "laterals", "sort", "cluster", "distribute", "with_", "sample", "pivots", "kind",
))  # fmt: skip

_FOREIGN_SYNTAX: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Fetch: ("Spark's SQL has no FETCH", "Write LIMIT"),
    exp.Lock: ("Spark's SQL has no FOR UPDATE", "Remove it"),
    exp.Into: ("Spark's SQL has no SELECT INTO", "Remove it"),
}

_FILE_READERS = frozenset(("read_parquet", "parquet_scan", "delta_scan", "iceberg_scan", "read_csv", "read_csv_auto",
                           "read_json", "read_json_auto"))  # fmt: skip
"""DuckDB's functions that read files."""

_JOIN_KINDS = frozenset(("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"))


def refuse_foreign_syntax(node: exp.Expr) -> None:
    """Raise if a node is syntax that Spark does not have. Type names are normalised."""
    refuse_foreign_value(node)
    for kind, (message, hint) in _FOREIGN_SYNTAX.items():
        if isinstance(node, kind):
            raise make_unsupported_syntax_error(node, message, hint)
    match node:
        case exp.Select():
            for key, value in node.args.items():
                if value and key not in _SELECT_CLAUSES:
                    raise make_unsupported_syntax_error(node, f"Spark's SELECT has no {key.strip('_').upper()}")
            distinct = node.args.get("distinct")
            if distinct is not None and distinct.args.get("on"):
                raise make_unsupported_syntax_error(
                    node, "Spark's SQL has no DISTINCT ON", "Write QUALIFY row_number() OVER (…) = 1"
                )
            if node.args.get("kind"):
                raise make_unsupported_syntax_error(node, f"Spark's SQL has no SELECT AS {node.args['kind']}")
        case exp.Star():
            if (node.args.get("replace") or node.args.get("rename")) and not node.meta.get(GENERATED):
                raise make_unsupported_syntax_error(
                    node, "* does not accept REPLACE or RENAME", "Write * EXCEPT (x), and add the column"
                )
            if isinstance(node.parent, exp.Binary) or node.args.get("ilike"):
                raise make_unsupported_syntax_error(node, "* is not a value", "Name the column")
        case exp.Join():
            method, name = node.args.get("method") or "", node.args.get("kind") or ""
            if method not in ("", "NATURAL") or name not in _JOIN_KINDS:
                raise make_unsupported_syntax_error(node, f"Spark's SQL has no {method or name} JOIN")
        case exp.SetOperation() if any(node.args.get(key) for key in ("by_name", "side", "kind", "on")):
            raise make_unsupported_syntax_error(
                node, "Spark's set operations match columns by position", "Remove BY NAME"
            )
        case exp.WindowSpec() if node.args.get("exclude"):
            raise make_unsupported_syntax_error(node, "Spark's windows have no EXCLUDE")
        case exp.WindowSpec() if str(node.args.get("kind")).upper() == "GROUPS":
            raise make_unsupported_syntax_error(
                node, "Spark's windows have no GROUPS", "Write ROWS BETWEEN or RANGE BETWEEN"
            )
        case exp.Order() if isinstance(node.parent, exp.Anonymous):
            raise make_unsupported_syntax_error(
                node,
                f"{node.parent.name} does not accept ORDER BY among its arguments",
                "Sort the rows in a subquery, or the list with array_sort",
            )
        case exp.Alias() if not isinstance(node.args.get("alias"), exp.Identifier):
            raise make_unsupported_syntax_error(node, "an alias must be a name", "Write a field as a.b")
        case exp.CTE() if any(node.args.get(key) for key in ("scalar", "materialized", "key_expressions")):
            raise make_unsupported_syntax_error(node, "a common table expression must be NAME AS (query)")
        case exp.Pivot() if any(node.args.get(key) for key in ("using", "into", "group")) or not node.args.get(
            "fields"
        ):
            raise make_unsupported_syntax_error(node, "Spark's PIVOT must be PIVOT (sum(x) FOR y IN (…))")
        case exp.Table(this=exp.Anonymous() as call) if call.name.lower() in _FILE_READERS:
            path = next((each.name for each in call.expressions if isinstance(each, exp.Literal)), "path")
            format = next((each for each in TABLE_FORMATS if each in call.name.lower()), None)
            by_path = "Register" if format is None else f"Write {format}.`{path}`, or register"
            raise make_unsupported_syntax_error(
                node, f"Spark's SQL has no {call.name}", f"{by_path} the table with c.register(name, table)"
            )
        case exp.Table() if any(node.args.get(key) for key in ("only", "partition", "changes", "rows_from")):
            raise make_unsupported_syntax_error(node, "a table must be a plain name")
        case exp.WithinGroup() if not _is_ordered_set(node.this):
            raise make_unsupported_syntax_error(node, f"{_find_function_name(node.this)} does not accept WITHIN GROUP")
        case exp.DataType() if isinstance(node.this, exp.DType):
            _normalise_type(node, node.this)
        case exp.Window():
            _check_window(node)
        case exp.Pivot() if not node.args.get("unpivot"):
            _check_pivot(node)
        case exp.Order() if isinstance(node.parent, exp.Select):
            _check_order(node, node.parent)
        case exp.TableSample(args={"percent": exp.Literal() as share}) if float(share.name) > 100:
            raise make_unsupported_syntax_error(node, f"a sample has at most 100 percent of the rows, not {share.name}")
        case exp.Anonymous(expressions=[_, nth]) if node.name.lower() == "nth_value" and parse_position(nth) == 0:
            raise make_unsupported_syntax_error(node, "nth_value counts from 1")
        case exp.Subquery() if isinstance(node.parent, exp.From | exp.Join):
            _check_lateral_reference(node)
        case exp.Interval() if (
            isinstance(node.unit, exp.Var) and node.unit.name.upper().removesuffix("S") not in _UNITS
        ):
            raise make_unsupported_syntax_error(
                node, f"invalid unit of time {node.unit.name.lower()!r}", f"Units: {', '.join(_UNITS).lower()}"
            )
        case _:
            pass


_TYPES = frozenset((
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "TEXT", "VARCHAR", "CHAR", "BINARY",
    "VARBINARY", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "TIME", "INTERVAL",
    "ARRAY", "LIST", "MAP", "STRUCT", "NULL", "VARIANT", "UTINYINT", "USMALLINT", "UINT", "UBIGINT",
))  # fmt: skip
_UNITS = (
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND",
)  # fmt: skip


def _normalise_type(node: exp.DataType, kind: exp.DType) -> None:
    """Give a type the name that engines share; raise `ParseError` for a type unknown to Spark and `tamis.types`."""
    name = str(node.args["kind"]) if kind is exp.DType.USERDEFINED else kind.name
    if kind is exp.DType.DECIMAL and not node.expressions:
        # DuckDB's default would be DECIMAL(18, 3).
        node.set("expressions", [exp.DataTypeParam(this=exp.Literal.number(number)) for number in (10, 0)])
    elif name.upper() == "VOID":
        raise make_unsupported_syntax_error(node, "a cast to VOID is always NULL", "Write NULL")
    elif kind is exp.DType.USERDEFINED and is_type_name(name):
        if pa.types.is_time(type_from_name(name)):  # DuckDB has one name for all times of day
            node.set("this", exp.DType.TIME)
            node.set("kind", None)
    elif kind.name not in _TYPES:
        raise make_unsupported_syntax_error(node, f"Spark's SQL has no type '{name.lower()}'")


def _check_pivot(pivot: exp.Pivot) -> None:
    """Raise if a value of a PIVOT is not a constant. DuckDB reads a column there as a string with its name."""
    for field in pivot.args.get("fields") or ():
        for each in field.expressions if isinstance(field, exp.In) else ():
            value = each.this if isinstance(each, exp.Alias | exp.PivotAlias) else each
            if next(value.find_all(exp.Column), None) is not None:
                raise make_unsupported_syntax_error(
                    each, "the values of PIVOT must be constants", "Write a string as 'text'"
                )
            if any(call.name.lower() == "map" for call in value.find_all(exp.Anonymous)):
                raise make_unsupported_syntax_error(each, "PIVOT compares values, and maps cannot be compared")


def _check_order(order: exp.Order, select: exp.Select) -> None:
    """Raise if ORDER BY has an IN or EXISTS with a subquery that is neither a column nor a grouping key."""
    group = select.args.get("group")
    known = {to_sql_text(each.unalias()) for each in (*select.expressions, *(group.expressions if group else ()))}
    for test in order.find_all(exp.In, exp.Exists):
        if (isinstance(test, exp.Exists) or test.args.get("query")) and to_sql_text(test) not in known:
            raise make_unsupported_syntax_error(
                test, "ORDER BY does not accept IN or EXISTS with a subquery", "Select it under an alias"
            )


def _check_lateral_reference(subquery: exp.Subquery) -> None:
    """Raise if a subquery in FROM refers to its neighbours without LATERAL, which DuckDB allows."""
    inner, around = subquery.this, subquery.parent.parent if subquery.parent is not None else None
    if not isinstance(inner, exp.Select) or inner.args.get("from_") is not None or around is None:
        return
    if around.find_ancestor(exp.Query, exp.Lateral) is not None or inner.args.get("with_"):
        return
    aliases = {each.alias.casefold() for each in inner.expressions if isinstance(each, exp.Alias)}
    for column in inner.find_all(exp.Column):
        own = column.find_ancestor(exp.Select) is inner and column.find_ancestor(exp.Lambda) is None
        if own and (column.table or column.name.casefold() not in aliases):
            raise make_unsupported_syntax_error(
                column, f"no column {to_sql_text(column)}: the subquery has no FROM", "Write LATERAL before it"
            )


def _find_function_name(node: exp.Expr) -> str:
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node.name.lower() if isinstance(node, exp.Anonymous) else node.key


def _is_ordered_set(node: exp.Expr) -> bool:
    row = find_aggregate(_find_function_name(node))
    return row is not None and row.is_ordered_set


def _check_window(window: exp.Window) -> None:
    """Raise for OVER without a window, and if the window of a percentile has an order or a frame: percentiles need
    whole partitions."""
    name = _find_function_name(window.this)
    if window.args.get("over") and window.args.get("alias") is None and "partition_by" not in window.args:
        # sqlglot parses it, and prints OVER ().
        raise make_unsupported_syntax_error(
            window, "OVER needs a window", "Write OVER () for all rows, or OVER (PARTITION BY … ORDER BY …)"
        )
    row = find_aggregate(name)
    if row is None or not row.needs_whole_partition:
        return
    spec: exp.Expr | None = window
    named = window.args.get("alias")
    select = window.find_ancestor(exp.Select)
    if named is not None and select is not None:
        known = {each.name.lower(): each for each in select.args.get("windows") or ()}
        spec = known.get(named.name.lower())
    for each in (window, spec):
        if each is not None and (each.args.get("order") is not None or each.args.get("spec") is not None):
            raise make_unsupported_syntax_error(
                window, f"{name} needs a whole partition: its window cannot have ORDER BY or a frame"
            )


def _add_join_condition(join: exp.Join) -> None:
    """Add ON TRUE to an outer or semi join without a condition."""
    if join.kind == "CROSS" and (join.args.get("on") is not None or join.args.get("using")):
        join.set("kind", "INNER")
    has_condition = join.args.get("on") is not None or join.args.get("using") or join.args.get("method")
    if not has_condition and (join.side or join.kind in ("SEMI", "ANTI")) and join.kind != "CROSS":
        join.set("on", exp.true())


# --- Arguments by name ------------------------------------------------------------------------------------------------

_MASK = [exp.Literal.string(each) for each in ("X", "x", "n")]
_PARAMETERS: dict[str, tuple[tuple[str, exp.Expr | None], ...]] = {
    **dict.fromkeys(
        ("explode", "explode_outer", "posexplode", "posexplode_outer"), (("collection", None),)
    ),
    **dict.fromkeys(("inline", "inline_outer"), (("input", None),)),
    "mask": (
        ("str", None), ("upperchar", _MASK[0]), ("lowerchar", _MASK[1]), ("digitchar", _MASK[2]),
        ("otherchar", exp.null()),
    ),
}  # fmt: skip
"""The parameters of functions that accept named arguments, with their defaults."""


def _resolve_named_arguments(argument: exp.Kwarg) -> None:
    call = argument.parent
    if not isinstance(call, exp.Anonymous):
        raise make_unsupported_syntax_error(argument, "only arguments of functions can be named")
    names = [each.this.name.lower() for each in call.expressions if isinstance(each, exp.Kwarg)]
    if not names:
        return
    known = _PARAMETERS.get(call.name.lower())
    if known is None:
        raise make_unsupported_syntax_error(
            argument, f"{call.name} does not accept named arguments", "Pass them by position"
        )
    values: dict[str, exp.Expr] = {}
    for index, each in enumerate(call.expressions):
        if isinstance(each, exp.Kwarg):
            name = each.this.name.lower()
            if name not in dict(known):
                raise make_unsupported_syntax_error(each, f"{call.name} has no parameter {name}")
            value = each.expression
        elif any(isinstance(before, exp.Kwarg) for before in call.expressions[:index]) or index >= len(known):
            raise make_unsupported_syntax_error(each, f"{call.name}: positional arguments must precede named ones")
        else:
            name, value = known[index][0], each
        if name in values:
            raise make_unsupported_syntax_error(each, f"{call.name} has two values for {name}")
        values[name] = value
    last = max(index for index, (name, _) in enumerate(known) if name in values)
    arguments: list[exp.Expr] = []
    for name, default in known[: last + 1]:
        given = values.get(name, default)
        if given is None:
            raise make_unsupported_syntax_error(argument, f"{call.name} needs {name}")
        arguments.append(given.copy())
    call.set("expressions", arguments)


# --- Limits -----------------------------------------------------------------------------------------------------------

_INTEGERS = ("TINYINT", "SMALLINT", "INT")


def _make_row_count(node: exp.Expr) -> exp.Expr:
    """Return the number of a LIMIT or OFFSET as a literal: a constant int that is not NULL and not negative."""
    given = node.expression
    if isinstance(node, exp.Limit) and given.name.upper() == "ALL" and isinstance(given, exp.Column | exp.Var):
        return given
    if any(value for key, value in node.args.items() if key != "expression"):
        raise make_unsupported_syntax_error(node, f"{node.key.upper()} must be a number of rows")
    value = _evaluate_integer(given)
    if value is None or not 0 <= value < 2**31:
        raise ParseError(
            f"{node.key.upper()} must be a constant whole number of rows, found {to_sql_text(given)}",
            position=find_position(given),
        )
    return exp.Literal.number(value)


def _evaluate_integer(tree: exp.Expr) -> int | None:
    """Return the value of a constant expression if it is an int, as the number of a LIMIT is in Spark."""
    if any(getattr(cast.to.this, "name", "") not in _INTEGERS for cast in tree.find_all(exp.Cast)):
        return None
    try:
        bound = bind(to_expression(tree), pa.schema([]))
        if find_columns(bound) or not can_evaluate(bound):
            return None
        value = evaluate_constant(bound)
    except ExpressionError:
        return None
    is_whole = isinstance(value.value, int) and value.type is not None and pa.types.is_integer(value.type)
    return int(value.value) if is_whole else None


# --- The number of arguments of Spark's aggregate and window functions. DuckDB accepts others with its own meaning
#
# In DuckDB `max(x, 2)` is the list of the two largest values, and `count()` a count of rows.


def check_arity(call: exp.Anonymous) -> None:
    """Raise if an aggregate or window function has more or fewer arguments than in Spark."""
    row = find_aggregate(call.name)
    if row is None:
        return
    args = [each for arg in call.expressions for each in (arg.expressions if isinstance(arg, exp.Distinct) else [arg])]
    if row.name == "count" and any(isinstance(arg, exp.Column) and isinstance(arg.this, exp.Star) for arg in args):
        raise make_unsupported_syntax_error(call, "count does not accept t.*", "Write count(*), or name the columns")
    if any(isinstance(arg, exp.Star) or isinstance(arg.this, exp.Star) for arg in args):
        # A star has an unknown number of columns.
        return
    if not row.fewest <= len(args) <= row.most:
        raise _make_error(call, row.fewest, row.most, len(args))
    if row.has_flag and len(args) == 2 and not isinstance(args[1], exp.Boolean):
        raise make_unsupported_syntax_error(call, f"the second argument of {call.name} must be TRUE or FALSE")


def _make_error(call: exp.Anonymous, fewest: int, most: int, given: int) -> ParseError:
    if most == UNBOUNDED:
        wanted = f"at least {format_count(fewest, 'argument')}"
    elif fewest == most:
        wanted = format_count(fewest, "argument") if fewest else "no arguments"
    else:
        wanted = f"{fewest} to {most} arguments"
    hint = "Write count(*)" if call.name.lower() == "count" else None
    return make_unsupported_syntax_error(call, f"{call.name} takes {wanted}, not {given}", hint)
