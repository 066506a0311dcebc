"""What names mean inside of a query: the columns of its sources, and expressions over them.

Names are found without regard to case. What cannot be said with the nodes of a plan raises `NotModelled`, which never
leaves this package: whoever made the attempt takes the text of the query instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from tamis.errors import AmbiguousColumn, ExpressionError
from tamis.expr.bind import bind
from tamis.expr.clock import stop_clocks
from tamis.expr.nodes import Column, Expr
from tamis.expr.sql import expression_of
from tamis.expr.sql_pipes import position_of_input
from tamis.pushdown.spark_meaning import compares_as_spark
from tamis.pushdown.sql_functions import is_scalar
from tamis.pushdown.symbols import is_deterministic, substitute
from tamis.pushdown.zones import name_zones, place_times


class NotModelled(Exception):
    """A part of a query that stays text."""


@dataclass(frozen=True, slots=True)
class Now:
    """When a query is asked, in its zone, and whether Spark will run it."""

    moment: datetime
    on_spark: bool = False


class Name(str):
    """A part of a name; one between back-ticks tells columns apart that differ only by case."""

    is_exact: bool = False

    @staticmethod
    def of(identifier: exp.Expr) -> Name:
        name = Name(identifier.name)
        name.is_exact = bool(identifier.args.get("quoted"))
        return name


@dataclass(frozen=True, slots=True)
class Field:
    """A column as a query names it, and its value in the plan."""

    name: str
    value: Expr
    type: pa.DataType | None = field(default=None, compare=False)

    @staticmethod
    def of(name: str, symbol: str, data_type: pa.DataType | None) -> Field:
        return Field(name, Column((symbol,), type=data_type), data_type)


@dataclass(frozen=True, slots=True)
class Relation:
    """A source of rows. Its name may have several parts, of which a query may leave out the first ones."""

    name: tuple[str, ...]
    fields: tuple[Field, ...]

    def is_called(self, parts: Sequence[str]) -> bool:
        count = len(parts)
        return 0 < count <= len(self.name) and _folded(self.name[-count:]) == _folded(parts)


@dataclass(frozen=True)
class Scope:
    """The sources of a SELECT, and the columns that USING made of two."""

    relations: tuple[Relation, ...] = ()
    merged: tuple[Field, ...] = ()
    hidden: frozenset[Expr] = frozenset()
    """Columns of which `merged` has the value: they are found only by the name of their source."""
    aliases: tuple[Field, ...] = ()
    """Names that the SELECT gives, which are found after those of the sources."""
    outer: Scope | None = None
    """The scope of the query around a subquery, which is looked into last."""

    # --- Columns ------------------------------------------------------------------------------------------------------

    def visible(self) -> tuple[Field, ...]:
        """What `*` means."""
        own = (each for relation in self.relations for each in relation.fields if each.value not in self.hidden)
        return (*self.merged, *own)

    def of_relation(self, parts: Sequence[str]) -> tuple[Field, ...]:
        """What `orders.*` means."""
        found = [relation for relation in self.relations if relation.is_called(parts)]
        if len(found) != 1:
            raise NotModelled(f"no single source {'.'.join(parts)}")
        return found[0].fields

    def fields_of(self, parts: Sequence[str]) -> list[tuple[str, exp.Expr]]:
        """What `orders.place.*` means, where that is a column: its fields, and how each is written."""
        if any(relation.is_called(parts) for relation in self.relations):
            return []
        found = self.find(parts)
        data_type = None if found is None or found[1] else found[0].type
        if data_type is None or not pa.types.is_struct(data_type):
            return []
        names = [data_type.field(place).name for place in range(data_type.num_fields)]
        return [(name, symbol_tree(parts[0], (*parts[1:], name))) for name in names]

    def find(self, parts: Sequence[str]) -> tuple[Field, tuple[str, ...]] | None:
        """The column that a name means, and the fields inside of it; None where there is none."""
        if (position := position_of_input(parts[0])) is not None:
            visible = self.visible()
            if not 0 < position <= len(visible):
                raise NotModelled(f"no column {position}")
            return visible[position - 1], ()
        for count in range(len(parts) - 1, 0, -1):
            called = [relation for relation in self.relations if relation.is_called(parts[:count])]
            found = [each for relation in called for each in relation.fields if _same(each.name, parts[count])]
            if found:
                return _only(found, parts, parts[count]), tuple(parts[count + 1 :])
        found = [each for each in self.visible() if _same(each.name, parts[0])]
        owners = [relation for relation in self.relations if not set(relation.fields).isdisjoint(found)]
        if len(owners) > 1:
            raise NotModelled(f"several sources have {parts[0]}")
        found = found or [each for each in self.aliases if _same(each.name, parts[0])]
        if found:
            return _only(found, parts, parts[0]), tuple(parts[1:])
        return None if self.outer is None else self.outer.find(parts)

    def beside(self, other: Scope) -> Scope:
        return Scope((*self.relations, *other.relations), (*self.merged, *other.merged), self.hidden | other.hidden)

    def with_fields(self, fields: Sequence[Field]) -> Scope:
        return replace(self, relations=(*self.relations, Relation((), tuple(fields))))

    def within(self, outer: Scope) -> Scope:
        return replace(self, outer=outer)

    def with_aliases(self, fields: Sequence[Field]) -> Scope:
        return replace(self, aliases=tuple(fields))

    # --- Expressions --------------------------------------------------------------------------------------------------

    @cached_property
    def _columns(self) -> dict[str, pa.DataType | None]:
        fields = [*self.merged, *(each for relation in self.relations for each in relation.fields)]
        around = {} if self.outer is None else self.outer._columns
        return around | {each.value.path[0]: each.type for each in fields if isinstance(each.value, Column)}

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema([(name, data_type or pa.null()) for name, data_type in self._columns.items()])

    def expression(self, tree: exp.Expr, now: Now) -> Expr:
        """The expression that a part of a query means, bound to the columns of the sources."""
        if not isinstance(tree, exp.Condition | exp.Interval | exp.Tuple):
            raise NotModelled(f"{tree.key} is no value")
        if next(tree.find_all(exp.Query, exp.Window), None) is not None:
            raise NotModelled("a subquery or a window in an expression")
        for call in tree.find_all(exp.Anonymous):
            if not is_scalar(call.name):
                raise NotModelled(f"the function {call.name} may be one of many rows")
        named, values = self._with_symbols(tree)
        zone = now.moment.tzinfo or UTC
        try:
            if zone is not UTC and not name_zones(named, zone):
                raise NotModelled("a time of the zone of the session")
            found = stop_clocks(expression_of(named), lambda: now.moment)
            if zone is not UTC:
                found = place_times(found, self._columns, zone)
        except (ExpressionError, OverflowError) as error:
            raise NotModelled(str(error)) from error
        meant = substitute(found, values) if values else found
        if now.on_spark and not compares_as_spark(meant, self._columns, is_utc=zone is UTC):
            # Bound, it would be about other values than Spark's.
            raise NotModelled("a comparison that Spark makes of other types")
        return self.bound(meant)

    def bound(self, expr: Expr) -> Expr:
        """An expression over the columns of the sources, with their types."""
        typed = [name for name, data_type in self._columns.items() if data_type is not None]
        try:
            return bind(expr, self._schema, typed=typed)
        except ExpressionError as error:
            raise NotModelled(str(error)) from error

    def _with_symbols(self, tree: exp.Expr) -> tuple[exp.Expr, dict[str, Expr]]:
        """The tree with symbols in the place of names, and the values of symbols that are no columns themselves."""
        root = exp.Paren(this=tree.copy())
        name_fields(root)
        for pipe in list(root.find_all(exp.DPipe)):
            # The same under its other name, of which the types of arguments are known.
            pipe.replace(exp.Anonymous(this="concat", expressions=[pipe.this, pipe.expression]))
        values: dict[str, Expr] = {}
        for top, parts in list(chains(root)):
            found = self.find(parts)
            if found is None:
                raise NotModelled(f"no column {'.'.join(parts)}")
            column, inner = found
            match column.value:
                case Column((symbol,)):
                    pass
                case value:
                    if not is_deterministic(value):
                        raise NotModelled(f"{column.name} has another value each time")
                    symbol = f"value of {column.name}"
                    values[symbol] = value
            top.replace(_placed(symbol_tree(symbol, inner), top))
        return root.this, values


def chains(tree: exp.Expr) -> Iterator[tuple[exp.Expr, tuple[str, ...]]]:
    """Each name with all its parts, as in `a.b.c`, that is not inside of a subquery."""
    for column in tree.find_all(exp.Column):
        parts = parts_of(column)
        top: exp.Expr = column
        while isinstance(top.parent, exp.Dot) and isinstance(top.parent.expression, exp.Identifier):
            if top is not top.parent.this:
                break
            top = top.parent
            parts = (*parts, Name.of(top.expression))
        yield top, parts


def parts_of(named: exp.Expr) -> tuple[str, ...]:
    """The parts of the name of a column or of a table."""
    keys = [key for key in ("catalog", "db", "table", "this") if named.args.get(key) is not None]
    if any(not isinstance(named.args[key], exp.Identifier) for key in keys):
        raise NotModelled("a name that is none")
    return tuple(Name.of(named.args[key]) for key in keys)


def _only(found: Sequence[Field], parts: Sequence[str], name: str) -> Field:
    if len(found) > 1 and isinstance(name, Name) and name.is_exact:
        found = [field for field in found if field.name == name] or found
    if len(found) == 1:
        return found[0]
    refuse_twins(found)
    raise NotModelled(f"several columns {'.'.join(parts)}")


def refuse_twins(fields: Sequence[Field]) -> None:
    """Raise where two columns differ only by case, which engines do not tell apart."""
    known: dict[str, str] = {}
    for name in (each.name for each in fields):
        other = known.setdefault(name.casefold(), name)
        if other != name:
            raise AmbiguousColumn(
                f"the name {other!r} fits several columns: {other!r}, {name!r}. Between back-ticks a name is "
                f"taken exactly, where the query is one that can be planned: write `{other}`"
            )


def symbol_tree(symbol: str, inner: Sequence[str] = ()) -> exp.Expr:
    """A column of a plan as text: between back-ticks, because symbols have dots."""
    tree: exp.Expr = exp.Column(this=exp.to_identifier(symbol, quoted=True))
    for name in inner:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return tree


def _placed(named: exp.Expr, given: exp.Expr) -> exp.Expr:
    """The name of a column of a plan at the place of the name that was given, which messages tell."""
    column = named.find(exp.Column)
    places = [each.meta for each in given.find_all(exp.Identifier) if "start" in each.meta]
    if column is not None and places:
        column.this.meta.update(min(places, key=lambda place: int(place["start"])))
    return named


def hidden_name(symbol: str) -> str:
    """A name for what a query does not name itself, which no query can give to anything."""
    return f"\x00{symbol}"


def name_fields(tree: exp.Expr) -> None:
    """Let structs tell the names of their fields, which they have from columns that have other names in a plan."""
    for call in list(tree.find_all(exp.Anonymous)):
        match call.name.lower():
            case "struct":
                call.replace(_with_names(call))
            case "arrays_zip":
                call.replace(_zipped_with_names(call))


def _with_names(struct: exp.Anonymous) -> exp.Expr:
    parts: list[exp.Expr] = []
    for place, each in enumerate(struct.expressions):
        # The variable of a lambda function is an identifier.
        is_named = isinstance(each, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
        name = each.output_name if is_named and each.output_name else f"col{place + 1}"
        parts += [exp.Literal.string(name), each.this if isinstance(each, exp.Alias) else each]
    return exp.Anonymous(this="named_struct", expressions=parts)


def _zipped_with_names(call: exp.Anonymous) -> exp.Expr:
    """Each list with the name of its field behind it: `arrays_zip(a AS x)` is what only Tamis writes."""
    named: list[exp.Expr] = []
    for each in call.expressions:
        name = each.output_name if isinstance(each, exp.Column | exp.Dot) else ""
        named.append(exp.alias_(each.copy(), name, quoted=True) if name else each.copy())
    return exp.Anonymous(this="arrays_zip", expressions=named)


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _folded(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in parts)
