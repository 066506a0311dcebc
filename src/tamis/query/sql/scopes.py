"""Name resolution: scopes with the columns of a query's sources, and expressions over them.

Names resolve without regard to case. SQL that plan nodes do not support raises `UnsupportedSql`, which never leaves
this package: the caller keeps the text of the query instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tamis.errors import AmbiguousColumn, ExpressionError
from tamis.expr.bind import bind
from tamis.expr.functions.aggregates import AGGREGATES, find_aggregate
from tamis.expr.functions.spark_semantics import has_spark_comparisons
from tamis.expr.functions.table import ALIASES, FUNCTIONS, is_nondeterministic
from tamis.expr.nodes import AnyExpr, Column, Expr
from tamis.expr.normalise import freeze_current_time
from tamis.expr.sql.parse import to_expression
from tamis.expr.sql.pipes import parse_input_column_name
from tamis.query.engine import query_engine
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.query.plan.time_zones import add_zone_to_literals, convert_to_instants

# --- Function kinds -------------------------------------------------------------------------------------------------
#
# Classification of SQL functions: scalar functions, aggregates, and generators.
#
# An unknown function may be any of these: the SQL around it is unsupported, and runs as text.


_SQLGLOT_AGGREGATES = frozenset(
    name.lower() for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.AggFunc) for name in kind.sql_names()
)


def is_scalar(name: str) -> bool:
    """Return whether a function is known to be scalar: one value for one row, independent of other rows."""
    lowered = name.lower()
    if find_aggregate(lowered) is not None:
        return False
    if lowered in FUNCTIONS or lowered in ALIASES or is_nondeterministic(lowered):
        return True
    return lowered in _list_scalar_functions() and lowered not in _SQLGLOT_AGGREGATES


@cache
def _list_scalar_functions() -> frozenset[str]:
    return frozenset(name.lower() for name in Spark.Parser.FUNCTIONS) | query_engine().list_scalar_functions()


def is_known(name: str) -> bool:
    """Return whether a function is known. An engine may have others."""
    lowered = name.lower()
    known = (_list_scalar_functions(), FUNCTIONS, ALIASES, AGGREGATES, _SQLGLOT_AGGREGATES)
    return is_nondeterministic(lowered) or any(lowered in each for each in known)


class UnsupportedSql(Exception):
    """Unsupported SQL: a part of a query that runs as text."""


@dataclass(frozen=True, slots=True)
class QueryTime:
    """The timestamp of a query in its time zone, and whether Spark will run it."""

    timestamp: datetime
    on_spark: bool = False


class Name(str):
    """One part of a qualified name. A back-ticked part matches exactly where columns differ only by case."""

    is_exact: bool = False

    @staticmethod
    def of(identifier: exp.Expr) -> Name:
        name = Name(identifier.name)
        name.is_exact = bool(identifier.args.get("quoted"))
        return name


@dataclass(frozen=True, slots=True)
class Field:
    """A column's name in a query, and its value in the plan."""

    name: str
    value: Expr
    type: pa.DataType | None = field(default=None, compare=False)

    @staticmethod
    def of(name: str, column_id: str, data_type: pa.DataType | None) -> Field:
        return Field(name, Column((column_id,), type=data_type), data_type)


@dataclass(frozen=True, slots=True)
class Relation:
    """A source of rows. A query may omit the first parts of its qualified name."""

    name: tuple[str, ...]
    fields: tuple[Field, ...]

    def is_called(self, parts: Sequence[str]) -> bool:
        count = len(parts)
        return 0 < count <= len(self.name) and fold_parts(self.name[-count:]) == fold_parts(parts)


@dataclass(frozen=True)
class Scope:
    """The sources of a SELECT, and the columns that USING merges."""

    relations: tuple[Relation, ...] = ()
    merged: tuple[Field, ...] = ()
    hidden: frozenset[Expr] = frozenset()
    """Columns whose value is in `merged`: they need the qualifier of their source."""
    aliases: tuple[Field, ...] = ()
    """Aliases of the SELECT, which resolve after the columns of the sources."""
    outer: Scope | None = None
    """The scope of the query around a subquery, which is searched last."""

    # --- Columns ------------------------------------------------------------------------------------------------------

    def expand_star(self) -> tuple[Field, ...]:
        own = (each for relation in self.relations for each in relation.fields if each.value not in self.hidden)
        return (*self.merged, *own)

    def expand_relation_star(self, parts: Sequence[str]) -> tuple[Field, ...]:
        """Return the columns of `orders.*`."""
        found = [relation for relation in self.relations if relation.is_called(parts)]
        if len(found) != 1:
            raise UnsupportedSql(f"no single source {'.'.join(parts)}")
        return found[0].fields

    def expand_struct_star(self, parts: Sequence[str]) -> list[tuple[str, exp.Expr]]:
        """Return the fields of `orders.address.*`, a struct column, each with its syntax tree."""
        if any(relation.is_called(parts) for relation in self.relations):
            return []
        found = self.find(parts)
        data_type = None if found is None or found[1] else found[0].type
        if data_type is None or not pa.types.is_struct(data_type):
            return []
        names = [data_type.field(index).name for index in range(data_type.num_fields)]
        return [(name, make_column_tree(parts[0], (*parts[1:], name))) for name in names]

    def find(self, parts: Sequence[str]) -> tuple[Field, tuple[str, ...]] | None:
        """Return the column that a name refers to and the fields inside of it; None if there is none."""
        if (position := parse_input_column_name(parts[0])) is not None:
            visible = self.expand_star()
            if not 0 < position <= len(visible):
                raise UnsupportedSql(f"no column {position}")
            return visible[position - 1], ()
        for count in range(len(parts) - 1, 0, -1):
            called = [relation for relation in self.relations if relation.is_called(parts[:count])]
            found = [each for relation in called for each in relation.fields if is_same_name(each.name, parts[count])]
            if found:
                return _pick_single(found, parts, parts[count]), tuple(parts[count + 1 :])
        found = [each for each in self.expand_star() if is_same_name(each.name, parts[0])]
        owners = [relation for relation in self.relations if not set(relation.fields).isdisjoint(found)]
        if len(owners) > 1:
            raise UnsupportedSql(f"several sources have {parts[0]}")
        found = found or [each for each in self.aliases if is_same_name(each.name, parts[0])]
        if found:
            return _pick_single(found, parts, parts[0]), tuple(parts[1:])
        return None if self.outer is None else self.outer.find(parts)

    def merge_with(self, other: Scope) -> Scope:
        return Scope((*self.relations, *other.relations), (*self.merged, *other.merged), self.hidden | other.hidden)

    def with_fields(self, fields: Sequence[Field]) -> Scope:
        return replace(self, relations=(*self.relations, Relation((), tuple(fields))))

    def with_outer(self, outer: Scope) -> Scope:
        return replace(self, outer=outer)

    def with_aliases(self, fields: Sequence[Field]) -> Scope:
        return replace(self, aliases=tuple(fields))

    # --- Expressions --------------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> dict[str, pa.DataType | None]:
        fields = [*self.merged, *(each for relation in self.relations for each in relation.fields)]
        around = {} if self.outer is None else self.outer.columns
        return around | {each.value.path[0]: each.type for each in fields if isinstance(each.value, Column)}

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema([(name, data_type or pa.null()) for name, data_type in self.columns.items()])

    def resolve_expression(self, tree: exp.Expr, now: QueryTime) -> Expr:
        """Return the expression of a syntax tree, bound to the columns of the sources."""
        if not isinstance(tree, exp.Condition | exp.Interval | exp.Tuple):
            raise UnsupportedSql(f"{tree.key} is not a value")
        if next(tree.find_all(exp.Query, exp.Window), None) is not None:
            raise UnsupportedSql("a subquery or a window in an expression")
        for call in tree.find_all(exp.Anonymous):
            if not is_scalar(call.name):
                raise UnsupportedSql(f"the function {call.name} may not be scalar")
        named, values = self._replace_names(tree)
        zone = now.timestamp.tzinfo or UTC
        try:
            if zone is not UTC and not add_zone_to_literals(named, zone):
                raise UnsupportedSql("a timestamp that depends on the session time zone")
            found = freeze_current_time(to_expression(named), lambda: now.timestamp)
            if zone is not UTC:
                found = convert_to_instants(found, self.columns, zone)
        except (ExpressionError, OverflowError) as error:
            raise UnsupportedSql(str(error)) from error
        meant = substitute(found, values) if values else found
        if now.on_spark and not has_spark_comparisons(meant, self.columns, is_utc=zone is UTC):
            # Binding would compare other values than Spark does.
            raise UnsupportedSql("a comparison for which Spark casts to other types")
        return self.bind_expression(meant)

    def bind_expression(self, expr: AnyExpr) -> Expr:
        """Bind an expression to the columns of the sources."""
        typed = [name for name, data_type in self.columns.items() if data_type is not None]
        try:
            return bind(expr, self._schema, typed=typed)
        except ExpressionError as error:
            raise UnsupportedSql(str(error)) from error

    def _replace_names(self, tree: exp.Expr) -> tuple[exp.Expr, dict[str, Expr]]:
        """Return the tree with names replaced by column ids, and the values of those that are not columns."""
        root = exp.Paren(this=tree.copy())
        name_fields(root)
        for pipe in list(root.find_all(exp.DPipe)):
            # concat is the same function, and its argument types are known.
            pipe.replace(exp.Anonymous(this="concat", expressions=[pipe.this, pipe.expression]))
        values: dict[str, Expr] = {}
        for top, parts in list(find_references(root)):
            found = self.find(parts)
            if found is None:
                raise UnsupportedSql(f"no column {'.'.join(parts)}")
            column, inner = found
            match column.value:
                case Column((column_id,)):
                    pass
                case value:
                    if not is_deterministic(value):
                        raise UnsupportedSql(f"{column.name} is not deterministic")
                    column_id = f"value of {column.name}"
                    values[column_id] = value
            top.replace(_copy_position(make_column_tree(column_id, inner), top))
        return root.this, values


def find_references(tree: exp.Expr) -> Iterator[tuple[exp.Expr, tuple[str, ...]]]:
    """Yield each column reference of a tree with all parts of its name, as in `a.b.c`."""
    for column in tree.find_all(exp.Column):
        parts = get_name_parts(column)
        top: exp.Expr = column
        while isinstance(top.parent, exp.Dot) and isinstance(top.parent.expression, exp.Identifier):
            if top is not top.parent.this:
                break
            top = top.parent
            parts = (*parts, Name.of(top.expression))
        yield top, parts


def get_name_parts(named: exp.Expr) -> tuple[str, ...]:
    keys = [key for key in ("catalog", "db", "table", "this") if named.args.get(key) is not None]
    if any(not isinstance(named.args[key], exp.Identifier) for key in keys):
        raise UnsupportedSql("a name that is not an identifier")
    return tuple(Name.of(named.args[key]) for key in keys)


def _pick_single(found: Sequence[Field], parts: Sequence[str], name: str) -> Field:
    if len(found) > 1 and isinstance(name, Name) and name.is_exact:
        found = [field for field in found if field.name == name] or found
    if len(found) == 1:
        return found[0]
    refuse_case_collisions(found)
    raise UnsupportedSql(f"several columns {'.'.join(parts)}")


def refuse_case_collisions(fields: Sequence[Field]) -> None:
    """Raise if two columns differ only by case, which engines do not distinguish."""
    known: dict[str, str] = {}
    for name in (each.name for each in fields):
        other = known.setdefault(name.casefold(), name)
        if other != name:
            raise AmbiguousColumn(
                f"the name {other!r} matches several columns: {other!r}, {name!r}. Back-ticks match a name "
                f"exactly, if the query is one that can be planned: write `{other}`"
            )


def make_column_tree(column_id: str, inner: Sequence[str] = ()) -> exp.Expr:
    """Return the syntax tree of a plan column. Its column id is quoted because it contains dots."""
    tree: exp.Expr = exp.Column(this=exp.to_identifier(column_id, quoted=True))
    for name in inner:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return tree


def _copy_position(named: exp.Expr, given: exp.Expr) -> exp.Expr:
    """Return `named` with the position of `given` in the query, for messages."""
    column = named.find(exp.Column)
    positions = [each.meta for each in given.find_all(exp.Identifier) if "start" in each.meta]
    if column is not None and positions:
        column.this.meta.update(min(positions, key=lambda position: int(position["start"])))
    return named


def make_hidden_name(column_id: str) -> str:
    """Return an internal name for a column, which no query can use."""
    return f"\x00{column_id}"


def name_fields(tree: exp.Expr) -> None:
    """Write field names into struct calls: they come from column names, which differ in a plan."""
    for call in list(tree.find_all(exp.Anonymous)):
        match call.name.lower():
            case "struct":
                call.replace(_name_struct_fields(call))
            case "arrays_zip":
                call.replace(_name_zipped_fields(call))


def _name_struct_fields(struct: exp.Anonymous) -> exp.Expr:
    parts: list[exp.Expr] = []
    for index, each in enumerate(struct.expressions):
        # The variable of a lambda function is an identifier.
        is_named = isinstance(each, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
        name = each.output_name if is_named and each.output_name else f"col{index + 1}"
        parts += [exp.Literal.string(name), each.this if isinstance(each, exp.Alias) else each]
    return exp.Anonymous(this="named_struct", expressions=parts)


def _name_zipped_fields(call: exp.Anonymous) -> exp.Expr:
    """Return the call with a field name after each list. `arrays_zip(a AS x)` is internal syntax of Tamis."""
    named: list[exp.Expr] = []
    for each in call.expressions:
        name = each.output_name if isinstance(each, exp.Column | exp.Dot) else ""
        named.append(exp.alias_(each.copy(), name, quoted=True) if name else each.copy())
    return exp.Anonymous(this="arrays_zip", expressions=named)


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names are the same for Spark, which ignores case."""
    return one.casefold() == other.casefold()


def fold_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a name in a form that is equal for the same names."""
    return tuple(part.casefold() for part in parts)
