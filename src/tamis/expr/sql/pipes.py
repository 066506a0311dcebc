"""Spark's pipe syntax, `FROM orders |> WHERE amount > 5 |> AGGREGATE sum(amount) GROUP BY region`, as nested SELECTs.

| operator                   | becomes                                                                             |
|----------------------------|-------------------------------------------------------------------------------------|
| `WHERE c`, `JOIN …`        | a clause of the SELECT so far, or of a SELECT around it if it has a projection      |
| `SELECT a, b`              | the projection                                                                      |
| `EXTEND e AS z`            | `SELECT *, e AS z`                                                                  |
| `SET x = e`                | `SELECT * REPLACE (e AS x)`, one SELECT for each assignment                         |
| `DROP x`                   | `SELECT * EXCEPT (x)`                                                               |
| `AS t`                     | `SELECT * FROM (…) AS t`                                                            |
| `AGGREGATE f GROUP BY k`   | `SELECT k, f … GROUP BY k`; a number is the position of an input column             |
| `UNION ALL q`, `PIVOT (…)` | the same over the query so far                                                      |
| `ORDER BY`, `LIMIT`, …     | a clause of the SELECT so far                                                       |

A query around another keeps the name of its only table, so that `t.x` still refers to the column `x` of `t`.
"""

from __future__ import annotations

from typing import Any

from sqlglot import TokenType, exp

from tamis.expr.functions.aggregates import is_aggregate

GENERATED = "tamis_generated"
"""The mark of syntax that Tamis generated, and that the user did not write."""

_SOURCE_CLAUSES = {"expressions", "from_", "joins", "where", "laterals", "kind"}
_ORDER_CLAUSES = {"order", "sort", "cluster", "distribute"}
_END_CLAUSES = {"limit", "offset"}
_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)


def parse_pipes(parser: Any, query: exp.Query) -> exp.Query:
    """Parse the pipe operators that follow a query; `parser` is sqlglot's, at the first `|>`."""
    with_ = query.args.get("with_")
    if with_ is not None:
        query.set("with_", None)
    if isinstance(query, exp.Values):
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=query))
    if not isinstance(query, exp.Subquery) and _list_clauses(query) & (_ORDER_CLAUSES | _END_CLAUSES):
        parser.raise_error("a query with ORDER BY or LIMIT needs brackets before |>")
    found = query
    while parser._match(TokenType.PIPE_GT):
        found = _parse_operator(parser, found)
    if with_ is not None:
        found.set("with_", with_)
    return found


def _parse_operator(parser: Any, query: exp.Query) -> exp.Query:
    kind = parser._curr.token_type if parser._curr else None
    word = parser._curr.text.upper() if parser._curr else ""
    if kind is TokenType.WHERE:
        return _parse_where_operator(parser, query)
    if kind is TokenType.SELECT:
        return _parse_select_operator(parser, query)
    if word in ("EXTEND", "SET", "DROP", "AGGREGATE"):
        parser._advance()
        return {"EXTEND": _parse_extend, "SET": _parse_set, "DROP": _parse_drop, "AGGREGATE": _parse_aggregate}[word](
            parser, query
        )
    if kind is TokenType.ALIAS:
        parser._advance()
        name = parser._parse_id_var(any_token=False)
        if name is None:
            parser.raise_error("|> AS needs a name")
        return _wrap(query, name)
    if kind in (TokenType.PIVOT, TokenType.UNPIVOT):
        source = _to_subquery(query)
        source.set("pivots", parser._parse_pivots())
        return _select_star(source)
    if kind is TokenType.TABLE_SAMPLE:
        # A sample precedes the alias of its source.
        source = _to_subquery(query)
        alias = source.args.get("alias")
        source.set("alias", None)
        source.set("sample", parser._parse_table_sample())
        return _select_star(exp.Subquery(this=_select_star(source), alias=alias))
    if kind in _SET_OPERATIONS:
        return _parse_set_operator(parser, query)
    if kind in parser.QUERY_MODIFIER_PARSERS:
        return _parse_modifier(parser, query)
    return _parse_join_operator(parser, query)


# --- The query so far -------------------------------------------------------------------------------------------------


def _list_clauses(query: exp.Expr) -> set[str]:
    return {key for key, value in query.args.items() if value}


def _is_open(query: exp.Query, *, allowed: set[str] = _SOURCE_CLAUSES) -> bool:
    """Return whether a query is `SELECT * FROM …`, to which further clauses can be added."""
    is_star = isinstance(query, exp.Select) and len(query.expressions) == 1 and _is_bare_star(query.expressions[0])
    return is_star and query.args.get("from_") is not None and _list_clauses(query) <= allowed


def _is_bare_star(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Star) and not _list_clauses(tree)


def _parse_table_name(query: exp.Query) -> exp.Identifier | None:
    """Return the name of the only table of a query, or None."""
    if not isinstance(query, exp.Select) or query.args.get("joins") or query.args.get("laterals"):
        return None
    source = query.args.get("from_")
    if source is None or source.this.args.get("joins"):
        return None
    alias = source.this.args.get("alias")
    name = alias.this if alias is not None else source.this.this if isinstance(source.this, exp.Table) else None
    return name.copy() if isinstance(name, exp.Identifier) else None


def _to_subquery(query: exp.Query, name: exp.Identifier | None = None) -> exp.Subquery:
    name = name or _parse_table_name(query)
    inner = query.this if isinstance(query, exp.Subquery) and _list_clauses(query) == {"this"} else query
    return exp.Subquery(this=inner, alias=None if name is None else exp.TableAlias(this=name))


def _select_star(source: exp.Expr) -> exp.Select:
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))


def _wrap(query: exp.Query, name: exp.Identifier | None = None) -> exp.Select:
    return _select_star(_to_subquery(query, name))


def _open(query: exp.Query) -> exp.Select:
    """Return a query without a projection: the query itself, or a SELECT around it."""
    if isinstance(query, exp.Select) and _is_open(query):
        return query
    return _wrap(query)


# --- Operators --------------------------------------------------------------------------------------------------------


def _parse_where_operator(parser: Any, query: exp.Query) -> exp.Query:
    where = parser._parse_where()
    _refuse_aggregates(parser, where, "WHERE")
    found = _open(query)
    known = found.args.get("where")
    if known is not None:
        where = exp.Where(this=exp.and_(known.this, where.this, copy=False))
    found.set("where", where)
    return found


def _parse_select_operator(parser: Any, query: exp.Query) -> exp.Query:
    select = parser._parse_select(consume_pipe=False, parse_set_operation=False)
    if not isinstance(select, exp.Select) or _list_clauses(select) - {
        "expressions",
        "distinct",
        "hint",
        "group",
        "windows",
    }:
        parser.raise_error("|> SELECT takes columns, GROUP BY and WINDOW; write other clauses as separate operators")
    found = _open(query)
    for key in ("expressions", "distinct", "hint", "group", "windows"):
        found.set(key, select.args.get(key))
    return found


def _parse_extend(parser: Any, query: exp.Query) -> exp.Query:
    items = parser._parse_expressions()
    if not items:
        parser.raise_error("|> EXTEND needs columns")
    for each in items:
        if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            parser.raise_error("|> EXTEND takes no *")
        _refuse_aggregates(parser, each, "EXTEND")
    found = _open(query)
    found.set("expressions", [exp.Star(), *items])
    _parse_windows(parser, found)
    return found


def _parse_set(parser: Any, query: exp.Query) -> exp.Query:
    while True:
        name = parser._parse_id_var()
        if name is None or not parser._match(TokenType.EQ):
            parser.raise_error("|> SET needs assignments, as in SET amount = amount * 2")
        value = parser._parse_disjunction()
        _refuse_aggregates(parser, value, "SET")
        star = exp.Star(replace=[exp.alias_(value, name)])
        star.meta[GENERATED] = True
        query = _open(query)
        query.set("expressions", [star])
        if not parser._match(TokenType.COMMA):
            break
    _parse_windows(parser, query)
    return query


def _parse_drop(parser: Any, query: exp.Query) -> exp.Query:
    names = parser._parse_csv(lambda: _parse_dropped_column(parser, query))
    if not names:
        parser.raise_error("|> DROP needs columns")
    if len({name.name.lower() for name in names}) < len(names):
        parser.raise_error("|> DROP names a column twice")
    found = _open(query)
    found.set("expressions", [exp.Star(except_=names)])
    return found


def _parse_dropped_column(parser: Any, query: exp.Query) -> exp.Expr | None:
    """Parse a column, optionally qualified by the name of its table."""
    name = parser._parse_id_var()
    table = _parse_table_name(query)
    while parser._match(TokenType.DOT):
        if table is None or name.name.lower() != table.name.lower():
            parser.raise_error("|> DROP takes columns, not fields of structs")
        name, table = parser._parse_id_var(any_token=True), None
    return name  # type: ignore[no-any-return]


def _parse_windows(parser: Any, query: exp.Query) -> None:
    if parser._curr is not None and parser._curr.token_type is TokenType.WINDOW:
        query.set("windows", parser._parse_window_clause())


_GROUPINGS = ("ROLLUP", "CUBE", "GROUPING", "ALL")


def _parse_aggregate(parser: Any, query: exp.Query) -> exp.Query:
    has_group = parser._match(TokenType.GROUP_BY, advance=False)
    items = [] if has_group else parser._parse_expressions()
    for each in items:
        if not _find_aggregates(each):
            parser.raise_error("|> AGGREGATE takes aggregate functions; other expressions belong into GROUP BY")
    names = _list_column_names(query)
    found = _open(query)
    keys: list[exp.Expr] = []
    if parser._match(TokenType.GROUP_BY):
        if parser._curr is not None and parser._curr.text.upper() in _GROUPINGS:
            parser.raise_error(f"|> AGGREGATE takes no {parser._curr.text.upper()}: write a SELECT with it")
        keys = parser._parse_csv(parser._parse_expression)
        if parser._match(TokenType.WITH):
            parser.raise_error("|> AGGREGATE takes no WITH ROLLUP or WITH CUBE: write a SELECT with it")
    if not items and not keys:
        parser.raise_error("|> AGGREGATE needs aggregate functions or GROUP BY")
    keys = [_resolve_key(parser, each, names) for each in keys]
    found.set("expressions", [*keys, *items])
    if keys:
        group = [each.this.copy() if isinstance(each, exp.Alias) else each.copy() for each in keys]
        found.set("group", exp.Group(expressions=group))
    return found


def _list_column_names(query: exp.Query) -> list[str] | None:
    """Return the column names of a query, or None if they depend on a table."""
    while isinstance(query, exp.SetOperation | exp.Subquery) and isinstance(query.this, exp.Query):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    if len(query.expressions) == 1 and isinstance(query.expressions[0], exp.Star) and _list_clauses(query) <= {
        *_SOURCE_CLAUSES, *_ORDER_CLAUSES, *_END_CLAUSES
    }:  # fmt: skip
        star, source = query.expressions[0], query.args.get("from_")
        if source is None or query.args.get("joins") or query.args.get("laterals"):
            return None
        alias = source.this.args.get("alias")
        columns = [each.name for each in alias.columns] if alias is not None else []
        if columns and isinstance(source.this, exp.Values):
            found: list[str] | None = columns
        elif isinstance(source.this, exp.Subquery) and isinstance(source.this.this, exp.Query) and not columns:
            found = _list_column_names(source.this.this)
        else:
            return None
        dropped = {each.name.lower() for each in star.args.get("except_") or ()}
        return None if found is None else [each for each in found if each.lower() not in dropped]
    names = [each.alias_or_name for each in query.expressions]
    return None if "*" in names or "" in names else names


def _resolve_key(parser: Any, key: exp.Expr, names: list[str] | None) -> exp.Expr:
    """Resolve a key of AGGREGATE: a number is the position of an input column."""
    value = key.this if isinstance(key, exp.Alias) else key
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdecimal():
        return key
    position = int(value.name)
    if names is not None and not 0 < position <= len(names or ()):
        parser.raise_error(f"the key {position} is not the position of an input column: there are {len(names or ())}")
    name = make_input_column_name(position) if names is None else names[position - 1]
    column = exp.column(exp.to_identifier(name, quoted=True))
    if isinstance(key, exp.Alias):
        key.set("this", column)
        return key
    return column


def make_input_column_name(position: int) -> str:
    """Return a name for the input column at a position. No query can write such a name."""
    return f"\x00input {position}"


def parse_input_column_name(name: str) -> int | None:
    """Return the position in a name that `make_input_column_name` made, or None for other names."""
    return int(name.removeprefix("\x00input ")) if name.startswith("\x00input ") else None


def _parse_set_operator(parser: Any, query: exp.Query) -> exp.Query:
    left = query if not _list_clauses(query) & (_ORDER_CLAUSES | _END_CLAUSES) else _wrap(query)
    found = parser.parse_set_operation(left)
    if not isinstance(found, exp.SetOperation):
        parser.raise_error("a set operation needs a query")
    return found  # type: ignore[no-any-return]


def _parse_modifier(parser: Any, query: exp.Query) -> exp.Query:
    """Parse ORDER BY, SORT BY, DISTRIBUTE BY, CLUSTER BY, LIMIT, OFFSET or WINDOW."""
    kind = parser._curr.token_type
    key, clause = parser.QUERY_MODIFIER_PARSERS[kind](parser)
    if key not in _ORDER_CLAUSES | _END_CLAUSES:
        parser.raise_error("no such pipe operator")
    # A LIMIT applies after an OFFSET of the same SELECT.
    applied_after = {"limit": {"limit"}, "offset": _END_CLAUSES}.get(key, _ORDER_CLAUSES | _END_CLAUSES)
    if not isinstance(query, exp.Select) or _list_clauses(query) & applied_after:
        query = _wrap(query)
    query.set(key, clause)
    if key == "limit" and parser._curr is not None and parser._curr.token_type is TokenType.OFFSET:
        query.set("offset", parser._parse_offset())
    if parser._curr is not None and parser._curr.token_type in parser.QUERY_MODIFIER_PARSERS:
        parser.raise_error(f"|> is missing before {parser._curr.text.upper()}")
    return query


def _parse_join_operator(parser: Any, query: exp.Query) -> exp.Query:
    word = parser._curr.text if parser._curr is not None else "the end"
    index = parser._index
    join: Any = None if word == "," else parser._parse_join()
    if join is None:
        parser._retreat(index)
        parser.raise_error(f"{word!r} is not a pipe operator")
    is_kept = join.args.get("side") not in ("RIGHT", "FULL")
    # A filter before an inner or a left join may be applied after it.
    found = query if _is_open(query, allowed=_SOURCE_CLAUSES - ({"where"} if not is_kept else set())) else _wrap(query)
    found.append("joins", join)
    return found


# --- Aggregate functions ----------------------------------------------------------------------------------------------


def _find_aggregates(tree: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query | exp.Window):
            continue
        if isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and is_aggregate(node.name)):
            found.append(node)
        stack += list(node.iter_expressions())
    return found


def _refuse_aggregates(parser: Any, tree: exp.Expr, operator: str) -> None:
    if _find_aggregates(tree):
        parser.raise_error(f"|> {operator} takes no aggregate functions: write |> AGGREGATE")
