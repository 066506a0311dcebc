"""Errors for unknown and ambiguous names in a query, phrased with the names that the user wrote.

An engine that rejects a query reports internal names. This module resolves the names in the original syntax tree
against the columns that the session knows. Its result is advisory: it is used after an engine has rejected a query, or
to decide whether to try an engine. It reports nothing for sources that only engines know.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tamis.errors import AmbiguousColumn, ExpressionError, UnknownColumn, format_position
from tamis.expr.functions.table import find_spark_function
from tamis.expr.names import refuse_quoted_names, resolve
from tamis.expr.nodes import Call, Name, Unbound
from tamis.expr.sql.refusals import find_position
from tamis.expr.sql.syntax import is_in_double_quotes, retry_with_large_stack, to_sql_text
from tamis.query.plan.column_ids import ColumnIds
from tamis.query.sql.scopes import UnsupportedSql, find_references, fold_parts, is_known, is_same_name
from tamis.query.sql.sources import Tables, get_table_parts, has_plain_name
from tamis.query.sql.trees import has_free_star, may_have_several_columns

_Fields = tuple[pa.Field, ...]
_Commons = Mapping[str, _Fields | None]
"""The columns of common table expressions by their folded names; None if only an engine knows them."""


def _takes_names(function: str) -> bool:
    """Return whether an argument may be the name of a unit, a key or a field, which a column may also have."""
    row = find_spark_function(function)
    return row is not None and "literal" in row.arguments


def find_name_error(tree: exp.Expr, tables: Tables) -> ExpressionError | None:
    """Return an error for the first unknown or ambiguous name of a query; None if there is none."""
    return _find_first(_check_query(tree, tables).errors)


def find_quoted_name_error(tree: exp.Expr, tables: Tables) -> ExpressionError | None:
    """Return an error for the first text in double quotes that is the name of a column; None if there is none."""
    has_quotes = any(map(is_in_double_quotes, tree.find_all(exp.Literal)))
    return _find_first(_check_query(tree, tables).quoted) if has_quotes else None


def _check_query(tree: exp.Expr, tables: Tables) -> _NameChecker:
    names = _NameChecker(tables)
    retry_with_large_stack(lambda: names.query(tree, {}, None))
    return names


def _find_first(errors: list[tuple[int, ExpressionError]]) -> ExpressionError | None:
    return min(errors, key=lambda each: each[0], default=(0, None))[1]


def has_unknown_function(tree: exp.Expr) -> bool:
    """Return whether a query calls a function that Tamis does not know. An engine may have it."""
    return any(not is_known(call.name) for call in tree.find_all(exp.Anonymous))


@dataclass(frozen=True, slots=True)
class _Source:
    """An item of FROM. Its columns are None if only an engine knows them."""

    name: tuple[str, ...]
    fields: _Fields | None
    table: str = ""
    """The name of the table, if the query uses an alias."""

    def is_called(self, parts: Sequence[str]) -> bool:
        count = len(parts)
        return 0 < count <= len(self.name) and fold_parts(self.name[-count:]) == fold_parts(parts)

    def has(self, name: str) -> bool:
        return any(each.name.casefold() == name.casefold() for each in self.fields or ())

    @property
    def display_name(self) -> str:
        return self.table or ".".join(self.name) or "the subquery"


@dataclass
class _Level:
    """The names that are visible in one SELECT."""

    sources: list[_Source]
    aliases: set[str] = field(default_factory=set)
    merged: set[str] = field(default_factory=set)
    """Columns that USING merges."""
    outer: _Level | None = None

    @property
    def has_known_columns(self) -> bool:
        return all(source.fields is not None for source in self.sources)


class _NameChecker:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.errors: list[tuple[int, ExpressionError]] = []
        self.quoted: list[tuple[int, ExpressionError]] = []
        """The errors for texts in double quotes that are names of columns. Spark accepts them."""

    # --- Queries ------------------------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, commons: _Commons, outer: _Level | None) -> _Fields | None:
        """Check the names of a query; return its columns, if they are known."""
        commons = self._check_commons(tree, commons, outer)
        match tree:
            case exp.Select():
                return self._check_select(tree, commons, outer)
            case exp.SetOperation():
                found = self.query(tree.this, commons, outer)
                self.query(tree.expression, commons, outer)
            case exp.Subquery(this=exp.Query() as inner):
                found = self.query(inner, commons, outer)
            case _:
                return None
        level = _Level([_Source((), found)], outer=outer)
        for key in ("order", "limit", "offset"):
            if tree.args.get(key) is not None:
                self._check_names(tree.args[key], level, commons)
        return found

    def _check_commons(self, tree: exp.Expr, commons: _Commons, outer: _Level | None) -> _Commons:
        clause = tree.args.get("with_")
        if clause is None:
            return commons
        known = dict(commons)
        for each in clause.expressions:
            name = each.alias.casefold()
            if clause.recursive or not isinstance(each.this, exp.Query):
                known[name] = None
            else:
                known[name] = _rename_fields(self.query(each.this, known, outer), each.args.get("alias"))
        return known

    def _check_select(self, tree: exp.Select, commons: _Commons, outer: _Level | None) -> _Fields | None:
        level = _Level([], outer=outer)
        if tree.args.get("from_") is not None:
            self._add_source(tree.args["from_"].this, level, commons)
        for join in tree.args.get("joins") or ():
            self._check_join(join, level, commons)
        for view in tree.args.get("laterals") or ():
            self._check_names(view.this, level, commons)
            level.sources.append(_Source((view.alias,), None))
        if tree.args.get("pivots"):
            level.sources.append(_Source((), None))
        level.aliases = {each.alias.casefold() for each in tree.expressions if isinstance(each, exp.Alias)}
        for key, value in tree.args.items():
            if key not in ("from_", "joins", "laterals", "with_"):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, exp.Expr):
                        self._check_names(part, level, commons)
        for join in tree.args.get("joins") or ():
            if join.args.get("on") is not None:
                self._check_names(join.args["on"], level, commons)
        return self._find_outputs(tree, level)

    def _find_outputs(self, tree: exp.Select, level: _Level) -> _Fields | None:
        found: list[pa.Field] = []
        for each in tree.expressions:
            if isinstance(each, exp.Star) and not any(each.args.values()):
                if not level.has_known_columns:
                    return None
                found += [field for source in level.sources for field in source.fields or ()]
            elif isinstance(each, exp.Aliases) or has_free_star(each) or may_have_several_columns(each):
                return None
            else:
                found.append(pa.field(each.alias_or_name or to_sql_text(each), pa.null()))
        return tuple(found)

    # --- Sources ------------------------------------------------------------------------------------------------------

    def _add_source(self, tree: exp.Expr, level: _Level, commons: _Commons) -> None:
        level.sources.append(self._make_source(tree, level, commons))
        for join in tree.args.get("joins") or ():
            self._check_join(join, level, commons)

    def _check_join(self, join: exp.Expr, level: _Level, commons: _Commons) -> None:
        before = list(level.sources)
        self._add_source(join.this, level, commons)
        after = level.sources[len(before) :]
        for using in join.args.get("using") or ():
            level.merged.add(using.name.casefold())
            for side in (before, after):
                if all(source.fields is not None for source in side) and not any(
                    source.has(using.name) for source in side
                ):
                    self._add_unknown(using, (using.name,), side)
        if join.args.get("method"):
            names = [{each.name.casefold() for source in side for each in source.fields or ()}
                     for side in (before, after)]  # fmt: skip
            level.merged |= names[0] & names[1]
        if join.args.get("kind") in ("SEMI", "ANTI"):
            # Its columns are visible in the join condition only.
            level.merged |= {each.name.casefold() for source in after for each in source.fields or ()}

    def _make_source(self, tree: exp.Expr, level: _Level, commons: _Commons) -> _Source:
        alias = tree.args.get("alias")
        is_changed = any(tree.args.get(key) for key in ("pivots", "laterals"))
        match tree:
            case exp.Table() if has_plain_name(tree):
                parts = get_table_parts(tree)
                folded = tree.name.casefold()
                fields = commons[folded] if len(parts) == 1 and folded in commons else self._find_table_columns(parts)
                name, table = ((tree.alias,), ".".join(parts)) if tree.alias else (parts, "")
            case exp.Subquery(this=exp.Query() as inner):
                fields, name, table = self.query(inner, commons, level.outer), (tree.alias,), ""
            case _:
                fields, name, table = None, (tree.alias,), ""
        return _Source(tuple(filter(None, name)), None if is_changed else _rename_fields(fields, alias), table)

    def _find_table_columns(self, parts: tuple[str, ...]) -> _Fields:
        found = self._tables.scan(parts, ColumnIds())
        return tuple(pa.field(each.name, each.type or pa.null()) for each in found.fields)

    # --- Names --------------------------------------------------------------------------------------------------------

    def _check_names(self, tree: exp.Expr, level: _Level, commons: _Commons) -> None:
        stack = [tree]
        while stack:
            node = stack.pop()
            if isinstance(node, exp.Query):
                self.query(node, commons, level)
            elif isinstance(node, exp.Column):
                self._check_column(node, level)
            elif isinstance(node, exp.Star):
                self._check_star(node, level)
            elif is_in_double_quotes(node):
                self._check_quoted(node, level)
            elif isinstance(node, exp.Anonymous) and _takes_names(node.name):
                stack += (each for each in node.expressions if not is_in_double_quotes(each))
            else:
                stack += node.iter_expressions()

    def _check_quoted(self, text: exp.Expr, level: _Level) -> None:
        is_key = isinstance(text.parent, exp.Group | exp.Ordered)
        names = list(level.aliases) if is_key else []
        around: _Level | None = level
        while around is not None:
            names += [each.name for source in around.sources for each in source.fields or ()]
            around = around.outer
        try:
            refuse_quoted_names([Name((text.this,), position=find_position(text))], names, "query")
        except ExpressionError as error:
            self.quoted.append((find_position(text) or 0, error))

    def _check_column(self, column: exp.Column, level: _Level) -> None:
        if isinstance(column.this, exp.Star):
            self._check_star(column.this, level)
            parts = tuple(column.args[key].name for key in ("catalog", "db", "table") if column.args.get(key))
            if level.has_known_columns and not any(
                source.is_called(parts) or _has_column(source, parts) for source in level.sources
            ):
                self._add_unknown_source(column, (*parts, "*"), level)
            return
        try:
            top, parts = next(find_references(column))
        except UnsupportedSql:
            return
        around: _Level | None = level
        while around is not None:
            if self._is_found(top, parts, around):
                return
            around = around.outer
        self._add_not_found(top, parts, level)

    def _check_star(self, star: exp.Star, level: _Level) -> None:
        for each in star.args.get("except_") or ():
            if level.has_known_columns and not any(source.has(each.name) for source in level.sources):
                self._add_unknown(each, (each.name,), level.sources)

    def _is_found(self, top: exp.Expr, parts: Sequence[str], level: _Level) -> bool:
        """Return whether the search ends at this level: the name is found, or its error is recorded, or it may be a
        column that only the engine knows."""
        for count in range(len(parts) - 1, 0, -1):
            called = [source for source in level.sources if source.is_called(parts[:count])]
            if any(source.fields is None for source in called):
                return True
            if any(source.has(parts[count]) for source in called):
                self._check_fields(top, parts[count:], called)
                return True
        owners = [source for source in level.sources if source.has(parts[0])]
        folded = parts[0].casefold()
        if len(owners) > 1 and folded not in level.merged and level.has_known_columns:
            self._add_ambiguous(top, parts, owners)
        elif owners:
            self._check_fields(top, parts, owners)
        return (
            bool(owners)
            or folded in level.aliases
            or not level.has_known_columns
            or (len(parts) == 1 and any(source.is_called(parts) for source in level.sources))
        )

    def _check_fields(self, top: exp.Expr, parts: Sequence[str], owners: Sequence[_Source]) -> None:
        """Check that a column has the requested fields."""
        fields = [each for source in owners for each in source.fields or () if is_same_name(each.name, parts[0])]
        if len(parts) > 1 and len(fields) == 1 and not pa.types.is_null(fields[0].type):
            self._resolve(top, parts, fields, owners[0].display_name)

    def _add_not_found(self, top: exp.Expr, parts: Sequence[str], level: _Level) -> None:
        around: _Level | None = level
        while around is not None:
            for count in range(len(parts) - 1, 0, -1):
                called = [source for source in around.sources if source.is_called(parts[:count])]
                if called:
                    return self._add_unknown(top, parts[count:], called)
            around = around.outer
        if len(parts) > 1:
            return self._add_unknown_source(top, parts, level)
        if level.sources:
            return self._add_unknown(top, parts, level.sources)
        return self._add_error(
            top, UnknownColumn(f"no column {parts[0]!r}{_format_position(top)}: there is no FROM clause")
        )

    def _add_unknown(self, top: exp.Expr, parts: Sequence[str], sources: Sequence[_Source]) -> None:
        fields = {each.name.casefold(): each for source in sources for each in source.fields or ()}
        display_name = " and ".join(dict.fromkeys(source.display_name for source in sources))
        self._resolve(top, parts, list(fields.values()), display_name)

    def _resolve(self, top: exp.Expr, parts: Sequence[str], fields: Sequence[pa.Field], display_name: str) -> None:
        column = Name(tuple(map(str, parts)), position=find_position(top))
        try:
            resolve(column, pa.schema(fields), display_name, "query", context=_find_comparison(top, column))
        except ExpressionError as error:
            self._add_error(top, error)

    def _add_ambiguous(self, top: exp.Expr, parts: Sequence[str], owners: Sequence[_Source]) -> None:
        names = [".".join(source.name) for source in owners]
        both = ", ".join(names[:-1]) + f" and {names[-1]}"
        if len(set(map(str.casefold, names))) < len(names):
            remedy = f"Give each its own alias in FROM: several are called {names[0]}"
        else:
            remedy = "Write " + " or ".join(f"{name}.{'.'.join(parts)}" for name in names)
        self._add_error(top, AmbiguousColumn(f"{parts[0]!r} is a column of {both}{_format_position(top)}. {remedy}"))

    def _add_unknown_source(self, top: exp.Expr, parts: Sequence[str], level: _Level) -> None:
        names = [".".join(source.name) for source in level.sources if source.name]
        hidden = next((source for source in level.sources if is_same_name(source.table, parts[0])), None)
        near = difflib.get_close_matches(parts[0].casefold(), [name.casefold() for name in names], n=1, cutoff=0.6)
        if hidden is not None:
            hint = f"It has the alias {hidden.name[0]}: write {hidden.name[0]}.{'.'.join(parts[1:])}"
        else:
            meant = [name for name in names if name.casefold() in near]
            hint = f"Did you mean {meant[0]!r}? " if meant else ""
            hint += f"In FROM: {', '.join(names) or 'no named source'}."
        self._add_error(
            top,
            UnknownColumn(
                f"no column {'.'.join(parts)!r}{_format_position(top)}: nothing in FROM is called {parts[0]!r}. {hint}"
            ),
        )

    def _add_error(self, top: exp.Expr, error: ExpressionError) -> None:
        self.errors.append((find_position(top) or 0, error))


def _format_position(tree: exp.Expr) -> str:
    position = find_position(tree)
    return "" if position is None else f" (at: query, {format_position(position)})"


def _find_comparison(top: exp.Expr, column: Name) -> Unbound | None:
    """Return the comparison around a name, for hints: beside a string column it may be an unquoted string."""
    if not isinstance(top.parent, exp.Binary | exp.In):
        return None
    others = [each for each in top.parent.iter_expressions() if each is not top and isinstance(each, exp.Column)]
    return Call("=", (column, *(Name((each.name,)) for each in others)))


def _rename_fields(fields: _Fields | None, alias: exp.Expr | None) -> _Fields | None:
    names = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
    if fields is None or len(names) > len(fields):
        return None
    return (*(each.with_name(name) for each, name in zip(fields, names, strict=False)), *fields[len(names) :])


def _has_column(source: _Source, parts: Sequence[str]) -> bool:
    """Return whether a source has a column of this name, qualified by the source or not."""
    return source.has(parts[0]) or (source.is_called(parts[:-1]) and source.has(parts[-1]))
