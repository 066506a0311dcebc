"""Names in a query that mean nothing, or several things, told in the words of whoever wrote it.

An engine that refuses a query speaks of its inputs, which have names of ours. Here the tree is looked at as it was
written, with the columns that the session knows. Nothing is decided by that: it is asked when an engine refused, or
to find out whether an engine should be asked, and where a source is one that only engines know it tells nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tamis.errors import AmbiguousColumn, ExpressionError, UnknownColumn, place_in_text
from tamis.expr.names import resolve
from tamis.expr.nodes import Call, Column, Expr
from tamis.expr.sql_refusals import position_of
from tamis.expr.sql_syntax import DEEPEST, with_large_stack
from tamis.pushdown.scopes import NotModelled, chains
from tamis.pushdown.sql_functions import is_known
from tamis.pushdown.sql_sources import Tables, has_plain_name, parts_of_table
from tamis.pushdown.sql_trees import has_free_star, may_be_several, text_of
from tamis.pushdown.symbols import Symbols

_Fields = tuple[pa.Field, ...]


def wrong_name(tree: exp.Expr, tables: Tables) -> ExpressionError | None:
    """The first name that is no column of what its query reads from, or one of several; None where none is found."""

    def work() -> ExpressionError | None:
        names = _Names(tables)
        names.query(tree, {}, None)
        return min(names.wrong, key=lambda each: each[0], default=(0, None))[1]

    try:
        return work()
    except RecursionError:
        return with_large_stack(work, DEEPEST)


def has_unknown_function(tree: exp.Expr) -> bool:
    """Whether a query calls a function of which nothing is known: an engine may have it."""
    return any(not is_known(call.name) for call in tree.find_all(exp.Anonymous))


@dataclass(frozen=True, slots=True)
class _Source:
    """Something in FROM. Its columns are None where only an engine knows them."""

    name: tuple[str, ...]
    fields: _Fields | None
    table: str = ""
    """The name that it has outside of this query, where that is another."""

    def is_called(self, parts: Sequence[str]) -> bool:
        count = len(parts)
        return 0 < count <= len(self.name) and _folded(self.name[-count:]) == _folded(parts)

    def has(self, name: str) -> bool:
        return any(each.name.casefold() == name.casefold() for each in self.fields or ())

    @property
    def shown(self) -> str:
        return self.table or ".".join(self.name) or "the subquery"


@dataclass
class _Level:
    """What names can mean in one SELECT."""

    sources: list[_Source]
    aliases: set[str] = field(default_factory=set)
    merged: set[str] = field(default_factory=set)
    """Columns that USING made of two."""
    outer: _Level | None = None

    @property
    def is_told(self) -> bool:
        return all(source.fields is not None for source in self.sources)


class _Names:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.wrong: list[tuple[int, ExpressionError]] = []

    # --- Queries ------------------------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, commons: Mapping[str, _Fields | None], outer: _Level | None) -> _Fields | None:
        """Look through a query; its columns, where they can be told."""
        commons = self._commons(tree, commons, outer)
        match tree:
            case exp.Select():
                return self._select(tree, commons, outer)
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
                self._look_through(tree.args[key], level, commons)
        return found

    def _commons(
        self, tree: exp.Expr, commons: Mapping[str, _Fields | None], outer: _Level | None
    ) -> Mapping[str, _Fields | None]:
        clause = tree.args.get("with_")
        if clause is None:
            return commons
        known = dict(commons)
        for each in clause.expressions:
            name = each.alias.casefold()
            if clause.recursive or not isinstance(each.this, exp.Query):
                known[name] = None
            else:
                known[name] = _renamed(self.query(each.this, known, outer), each.args.get("alias"))
        return known

    def _select(self, tree: exp.Select, commons: Mapping[str, _Fields | None], outer: _Level | None) -> _Fields | None:
        level = _Level([], outer=outer)
        if tree.args.get("from_") is not None:
            self._add(tree.args["from_"].this, level, commons)
        for join in tree.args.get("joins") or ():
            self._join(join, level, commons)
        for view in tree.args.get("laterals") or ():
            level.sources.append(_Source((view.alias,), None))
        if tree.args.get("pivots"):
            level.sources.append(_Source((), None))
        level.aliases = {each.alias.casefold() for each in tree.expressions if isinstance(each, exp.Alias)}
        for key, value in tree.args.items():
            if key not in ("from_", "joins", "laterals", "with_"):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, exp.Expr):
                        self._look_through(part, level, commons)
        for join in tree.args.get("joins") or ():
            if join.args.get("on") is not None:
                self._look_through(join.args["on"], level, commons)
        return self._columns(tree, level)

    def _columns(self, tree: exp.Select, level: _Level) -> _Fields | None:
        found: list[pa.Field] = []
        for each in tree.expressions:
            if isinstance(each, exp.Star) and not any(each.args.values()):
                if not level.is_told:
                    return None
                found += [field for source in level.sources for field in source.fields or ()]
            elif isinstance(each, exp.Aliases) or has_free_star(each) or may_be_several(each):
                return None
            else:
                found.append(pa.field(each.alias_or_name or text_of(each), pa.null()))
        return tuple(found)

    # --- Sources ------------------------------------------------------------------------------------------------------

    def _add(self, tree: exp.Expr, level: _Level, commons: Mapping[str, _Fields | None]) -> None:
        level.sources.append(self._source(tree, level, commons))
        for join in tree.args.get("joins") or ():
            self._join(join, level, commons)

    def _join(self, join: exp.Expr, level: _Level, commons: Mapping[str, _Fields | None]) -> None:
        before = list(level.sources)
        self._add(join.this, level, commons)
        after = level.sources[len(before) :]
        for using in join.args.get("using") or ():
            level.merged.add(using.name.casefold())
            for side in (before, after):
                if all(source.fields is not None for source in side) and not any(
                    source.has(using.name) for source in side
                ):
                    self._unknown(using, (using.name,), side)
        if join.args.get("method"):
            names = [{each.name.casefold() for source in side for each in source.fields or ()}
                     for side in (before, after)]  # fmt: skip
            level.merged |= names[0] & names[1]
        if join.args.get("kind") in ("SEMI", "ANTI"):
            # Its columns are known in the condition alone.
            level.merged |= {each.name.casefold() for source in after for each in source.fields or ()}

    def _source(self, tree: exp.Expr, level: _Level, commons: Mapping[str, _Fields | None]) -> _Source:
        alias = tree.args.get("alias")
        is_changed = any(tree.args.get(key) for key in ("pivots", "laterals"))
        match tree:
            case exp.Table() if has_plain_name(tree):
                parts = parts_of_table(tree)
                folded = tree.name.casefold()
                fields = commons[folded] if len(parts) == 1 and folded in commons else self._of_table(parts)
                name, table = ((tree.alias,), ".".join(parts)) if tree.alias else (parts, "")
            case exp.Subquery(this=exp.Query() as inner):
                fields, name, table = self.query(inner, commons, level.outer), (tree.alias,), ""
            case _:
                fields, name, table = None, (tree.alias,), ""
        return _Source(tuple(filter(None, name)), None if is_changed else _renamed(fields, alias), table)

    def _of_table(self, parts: tuple[str, ...]) -> _Fields | None:
        found = self._tables.scan(parts, Symbols())
        if found is None:
            return None
        return tuple(pa.field(each.name, each.type or pa.null()) for each in found.fields)

    # --- Names --------------------------------------------------------------------------------------------------------

    def _look_through(self, tree: exp.Expr, level: _Level, commons: Mapping[str, _Fields | None]) -> None:
        stack = [tree]
        while stack:
            node = stack.pop()
            if isinstance(node, exp.Query):
                self.query(node, commons, level)
            elif isinstance(node, exp.Column):
                self._look_at(node, level)
            elif isinstance(node, exp.Star):
                self._look_at_star(node, level)
            else:
                stack += node.iter_expressions()

    def _look_at(self, column: exp.Column, level: _Level) -> None:
        if isinstance(column.this, exp.Star):
            self._look_at_star(column.this, level)
            parts = tuple(column.args[key].name for key in ("catalog", "db", "table") if column.args.get(key))
            if level.is_told and not any(source.is_called(parts) or _has(source, parts) for source in level.sources):
                self._no_source(column, (*parts, "*"), level)
            return
        try:
            top, parts = next(chains(column))
        except NotModelled:
            return
        around: _Level | None = level
        while around is not None:
            if self._is_found(top, parts, around):
                return
            around = around.outer
        self._not_found(top, parts, level)

    def _look_at_star(self, star: exp.Star, level: _Level) -> None:
        for each in star.args.get("except_") or ():
            if level.is_told and not any(source.has(each.name) for source in level.sources):
                self._unknown(each, (each.name,), level.sources)

    def _is_found(self, top: exp.Expr, parts: Sequence[str], level: _Level) -> bool:
        """Whether the search ends here: it is a column, or is wrong in a way that was told, or may be anything."""
        for count in range(len(parts) - 1, 0, -1):
            called = [source for source in level.sources if source.is_called(parts[:count])]
            if any(source.fields is None for source in called):
                return True
            if any(source.has(parts[count]) for source in called):
                self._look_inside(top, parts[count:], called)
                return True
        owners = [source for source in level.sources if source.has(parts[0])]
        folded = parts[0].casefold()
        if len(owners) > 1 and folded not in level.merged and level.is_told:
            self._several(top, parts, owners)
        elif owners:
            self._look_inside(top, parts, owners)
        return (
            bool(owners)
            or folded in level.aliases
            or not level.is_told
            or (len(parts) == 1 and any(source.is_called(parts) for source in level.sources))
        )

    def _look_inside(self, top: exp.Expr, parts: Sequence[str], owners: Sequence[_Source]) -> None:
        """Whether a column has the fields that are asked of it."""
        fields = [each for source in owners for each in source.fields or () if _same(each.name, parts[0])]
        if len(parts) > 1 and len(fields) == 1 and not pa.types.is_null(fields[0].type):
            self._resolve(top, parts, fields, owners[0].shown)

    def _not_found(self, top: exp.Expr, parts: Sequence[str], level: _Level) -> None:
        around: _Level | None = level
        while around is not None:
            for count in range(len(parts) - 1, 0, -1):
                called = [source for source in around.sources if source.is_called(parts[:count])]
                if called:
                    return self._unknown(top, parts[count:], called)
            around = around.outer
        if len(parts) > 1:
            return self._no_source(top, parts, level)
        if level.sources:
            return self._unknown(top, parts, level.sources)
        return self._add_wrong(top, UnknownColumn(f"no column {parts[0]!r}{_place(top)}: there is no FROM"))

    def _unknown(self, top: exp.Expr, parts: Sequence[str], sources: Sequence[_Source]) -> None:
        fields = {each.name.casefold(): each for source in sources for each in source.fields or ()}
        shown = " and ".join(dict.fromkeys(source.shown for source in sources))
        self._resolve(top, parts, list(fields.values()), shown)

    def _resolve(self, top: exp.Expr, parts: Sequence[str], fields: Sequence[pa.Field], shown: str) -> None:
        column = Column(tuple(map(str, parts)), position=position_of(top))
        try:
            resolve(column, pa.schema(fields), shown, "query", context=_comparison(top, column))
        except ExpressionError as error:
            self._add_wrong(top, error)

    def _several(self, top: exp.Expr, parts: Sequence[str], owners: Sequence[_Source]) -> None:
        names = [".".join(source.name) for source in owners]
        both = ", ".join(names[:-1]) + f" and {names[-1]}"
        if len(set(map(str.casefold, names))) < len(names):
            way_out = f"Give each its own alias in FROM: several are called {names[0]}"
        else:
            way_out = "Write " + " or ".join(f"{name}.{'.'.join(parts)}" for name in names)
        self._add_wrong(top, AmbiguousColumn(f"{parts[0]!r} is a column of {both}{_place(top)}. {way_out}"))

    def _no_source(self, top: exp.Expr, parts: Sequence[str], level: _Level) -> None:
        names = [".".join(source.name) for source in level.sources if source.name]
        hidden = next((source for source in level.sources if _same(source.table, parts[0])), None)
        near = difflib.get_close_matches(parts[0].casefold(), [name.casefold() for name in names], n=1, cutoff=0.6)
        if hidden is not None:
            hint = f"It has the alias {hidden.name[0]}: write {hidden.name[0]}.{'.'.join(parts[1:])}"
        else:
            meant = [name for name in names if name.casefold() in near]
            hint = f"Did you mean {meant[0]!r}? " if meant else ""
            hint += f"In FROM: {', '.join(names) or 'nothing that has a name'}."
        self._add_wrong(
            top,
            UnknownColumn(
                f"no column {'.'.join(parts)!r}{_place(top)}: nothing in FROM is called {parts[0]!r}. {hint}"
            ),
        )

    def _add_wrong(self, top: exp.Expr, error: ExpressionError) -> None:
        self.wrong.append((position_of(top) or 0, error))


def _place(tree: exp.Expr) -> str:
    position = position_of(tree)
    return "" if position is None else f" (at: query, {place_in_text(position)})"


def _comparison(top: exp.Expr, column: Column) -> Expr | None:
    """What a name is compared with: next to a column of texts it may have been meant as a text."""
    if not isinstance(top.parent, exp.Binary | exp.In):
        return None
    others = [each for each in top.parent.iter_expressions() if each is not top and isinstance(each, exp.Column)]
    return Call("=", (column, *(Column((each.name,)) for each in others)))


def _renamed(fields: _Fields | None, alias: exp.Expr | None) -> _Fields | None:
    names = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
    if fields is None or len(names) > len(fields):
        return None
    return (*(each.with_name(name) for each, name in zip(fields, names, strict=False)), *fields[len(names) :])


def _has(source: _Source, parts: Sequence[str]) -> bool:
    """Whether a source has a column of this name, with the name of the source before it or without."""
    return source.has(parts[0]) or (source.is_called(parts[:-1]) and source.has(parts[-1]))


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _folded(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in parts)


def quoted_columns(tree: exp.Expr, columns: Collection[str]) -> Iterator[str]:
    """Comparisons of constants of which one is the name of a column: `"region" = 'eu'` compares two texts."""
    names = {name.casefold() for name in columns}
    for each in tree.find_all(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.In):
        sides = [each.this, *(each.expressions if isinstance(each, exp.In) else [each.expression])]
        if all(isinstance(side, exp.Literal) for side in sides):
            texts = {side.this.casefold() for side in sides if side.is_string}
            if not texts.isdisjoint(names):
                yield text_of(each)
