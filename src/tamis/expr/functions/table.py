"""The table of functions: everything that Tamis knows of a function is one row, and all other modules read rows.

A function that is not in the table still parses, prints and runs (the embedded engine evaluates it row by row),
but it cannot skip data, and its type is unknown.

A *monotone* function keeps or reverses the order of one argument while the others are constants.
Then the bounds of a column give bounds of the function: if `lo <= x <= hi`, then `year(lo) <= year(x) <= year(hi)`,
and for a reversing one `-hi <= -x <= -lo`. This holds for rounded arithmetic too, because rounding keeps order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum

import pyarrow as pa

from tamis import types
from tamis.errors import InvalidArgument
from tamis.expr.functions.kernels import Kernel
from tamis.expr.nodes import (
    FALSE,
    TRUE,
    AnyExpr,
    Call,
    Column,
    Expr,
    Leaf,
    Literal,
    fold,
    get_operands,
    make_unbound_error,
    not_,
    walk,
)
from tamis.expr.patterns import LikePattern
from tamis.types import can_hold_numbers, is_number, type_from_name

UNBOUNDED = 1_000_000_000
"""The maximum of a function with any number of arguments."""


class Nulls(Enum):
    """How a function treats NULL arguments."""

    PROPAGATES = "the result is NULL exactly when an argument is"
    OWN = "the function has its own rules"


@dataclass(frozen=True, slots=True)
class Monotone:
    """The argument in which a call is monotone, and whether the call keeps or reverses its order."""

    argument: int
    keeps_order: bool


ArgTypes = tuple[pa.DataType | None, ...]


class Zones(Enum):
    """Whether a function depends on the session time zone."""

    BY_TYPE = "it does where an argument or the result is an instant"
    MIXED = "it does where an instant meets a value of another type"
    NEVER = "it does not"


class Precedence(IntEnum):
    """How tightly SQL's operators bind; a call in brackets binds most tightly."""

    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    SUM = 5
    PRODUCT = 6
    SIGN = 7
    CALL = 8


@dataclass(frozen=True, slots=True)
class Spark:
    """What Spark has for a function."""

    function: str | None = None
    """The function of `pyspark.sql.functions` that computes the same for all calls that the kernel supports."""
    rule: str | None = None
    """The method of `engines.spark.columns.ColumnCompiler` that writes a call, where no such function exists."""
    is_same: bool | Callable[[Call, bool], bool] = False
    """Whether a call in Spark's SQL has the same value here, given whether Spark is in ANSI mode. True stands for all
    calls that the kernel supports."""


@dataclass(frozen=True, slots=True)
class Databases:
    """What databases have for a function."""

    sql: Mapping[str, str]
    """An SQL expression by the dialect's name in sqlglot; `{0}`, `{1}`, … stand for the arguments."""
    is_same: Callable[[Call], bool] | None = None
    """Whether databases compute a call as Tamis does; None stands for all calls."""


@dataclass(frozen=True, slots=True)
class Function:
    """All that Tamis knows of a function. Only the first five fields are needed."""

    name: str
    arguments: tuple[str, ...]
    """The kind of each argument: any, boolean, number, text, time, map, literal; the last one repeats up to `most`."""
    returns: pa.DataType | Callable[[tuple[Expr, ...], ArgTypes], pa.DataType | None]
    """The type of the result, or a function that finds it."""
    fewest: int
    most: int
    nulls: Nulls = Nulls.PROPAGATES
    monotone: Monotone | Callable[[tuple[Expr, ...]], Monotone | None] | None = None
    larger_parts: tuple[str, ...] | None = None
    """The parts of a time with whose periods this part starts again: year and month for `day`. None: it is no part."""
    extracted_as: tuple[str, ...] = ()
    """The fields of EXTRACT and `date_part` that are this part of a time."""
    alike: Callable[[int], Collection[int]] | None = None
    """The positions, of a number of arguments, that Spark casts to a common type; None: there is no such type."""
    typed_like: str | None = None
    """The operator whose operands have the same types as the arguments."""
    is_deterministic: bool = True
    """Whether it returns the same value for the same arguments."""
    clock: Callable[[datetime], Literal] | None = None
    """The value of a call without arguments that returns the current time."""
    compares_texts: bool = True
    """Whether the result depends on which texts are equal, as it does in a collation."""
    joins_texts: bool = False
    """Whether it casts its arguments to texts, to concatenate them."""
    kernel: Kernel | None = None
    """The computation over Arrow arrays; the embedded engine computes a function without one."""
    supports: Callable[[Call], bool] | None = None
    """Whether the kernel computes a call exactly as Spark does; None stands for all calls."""
    may_fail: bool | Callable[[Call], bool] = False
    """Whether the kernel fails on some values: on overflow, or on values out of range."""
    negation: str | None = None
    """The function that is TRUE where this one is FALSE, FALSE where it is TRUE, and NULL where it is NULL."""
    mirrored: str | None = None
    """The function that compares the two sides in the other order: `5 < a` is `a > 5`. Only comparisons have one."""
    pattern: Callable[[tuple[Expr, ...]], LikePattern | None] | None = None
    """What a test of a text looks for in its first argument; None if that is not a constant."""
    zones: Zones = Zones.BY_TYPE
    is_leakproof: Callable[[tuple[Expr, ...]], bool] | None = None
    """Whether a call may be tested on rows that a policy hides; None: it may not."""
    operator: Precedence | None = None
    """The precedence of a function that SQL writes as an operator."""
    aliases: tuple[str, ...] = ()
    """Other names in Spark's SQL, and in PySpark's Columns."""
    pyarrow: tuple[str, ...] = ()
    """The functions of `pyarrow.compute` that mean the same in an expression."""
    polars: tuple[str, ...] = ()
    """The operators and functions of Polars that mean the same, as its JSON names them."""
    datafusion: tuple[str, ...] = ()
    """The operators, nodes and functions of DataFusion that mean the same."""
    classes: tuple[str, ...] = ()
    """Classes of filters of pyiceberg and of Spark's data sources: of a column, or of a column and a literal."""
    spark: Spark = Spark()
    duckdb: str | None = None
    """An SQL expression of the embedded DuckDB that computes a call from all its arguments, as in `Databases`.
    None: the row of that name in `tamis.engines.duckdb.functions` says what computes it, if there is one."""
    databases: Databases = Databases({})

    def accepts(self, count: int) -> bool:
        return self.fewest <= count <= self.most

    @property
    def is_infix(self) -> bool:
        """Return whether SQL writes the name between two operands."""
        return self.operator is not None and self.most == 2


FUNCTIONS: dict[str, Function] = {}
"""The rows, by name."""

ENGINE_FUNCTIONS: dict[str, Function] = {}
"""Functions of Spark that only engines compute, as far as there is more to know of them than what computes them."""

METADATA_FUNCTIONS: dict[str, Function] = {}
"""Functions that only predicates over metadata call."""

ALIASES: dict[str, str] = {}
"""The names of functions by their aliases."""


def register_function(function: Function) -> None:
    """Add a row to the table: the function works in filters, in SQL and in `tamis.col("a").name()` from now on."""
    for name in (function.name, *function.aliases):
        if name in FUNCTIONS or name in ALIASES:
            raise InvalidArgument(f"there is a function {name!r} already: choose another name for {function.name!r}")
    if function.name != function.name.lower():
        raise InvalidArgument(f"the name of a function must be in lower case, found {function.name!r}")
    FUNCTIONS[function.name] = function
    ALIASES.update(dict.fromkeys(function.aliases, function.name))


def find_foreign_function(name: str, column: Callable[[Function], tuple[str, ...]]) -> Function | None:
    """Return the function that another library calls by a name; `column` has the names of that library."""
    return next((row for row in (*FUNCTIONS.values(), *ENGINE_FUNCTIONS.values()) if name in column(row)), None)


def find_spark_function(name: str) -> Function | None:
    """Return the row of a function of Spark by its name, or by an alias, in any case."""
    name = name.lower()
    return FUNCTIONS.get(ALIASES.get(name, name)) or ENGINE_FUNCTIONS.get(name)


def find_arithmetic_operator(name: str) -> str | None:
    """Return the arithmetic operator that a function is, or is typed like; None for other functions."""
    row = find_spark_function(name)
    if row is None or row.operator in (Precedence.SUM, Precedence.PRODUCT):
        return None if row is None else row.name
    return row.typed_like


def find_function(name: str) -> Function | None:
    """Return the row of a function, also of one that only predicates over metadata call."""
    return FUNCTIONS.get(name) or METADATA_FUNCTIONS.get(name)


def is_nondeterministic(name: str) -> bool:
    """Return whether a function returns another value for each call. The current time is fixed per query."""
    row = find_spark_function(name)
    return row is not None and not row.is_deterministic


def find_nondeterministic_function(expr: AnyExpr) -> str | None:
    """Return the name of a function in an expression that returns another value for each call; None without one."""
    for node in walk(expr):
        match node:
            case Call("sql", (Literal(str() as text), *_)):
                # The import loads sqlglot, which only unsupported syntax needs.
                from tamis.expr.sql.parse import list_functions

                names = list_functions(text)
            case Call(function):
                names = {function}
            case _:
                continue
        if found := sorted(filter(is_nondeterministic, names)):
            return found[0]
    return None


def is_comparison(call: Call[Leaf]) -> bool:
    return call.function in FUNCTIONS and FUNCTIONS[call.function].mirrored is not None


def tests_value(call: Call[Leaf]) -> bool:
    """Return whether a call is a predicate on values, and not on other predicates."""
    known = FUNCTIONS.get(call.function)
    return known is not None and known.returns == types.BOOLEAN and known.arguments[0] != "boolean"


def mirror(call: Call) -> Call:
    """Return a comparison with its sides exchanged: `5 < a` becomes `a > 5`."""
    return Call(FUNCTIONS[call.function].mirrored or call.function, call.args[::-1])


def negate(predicate: Expr) -> Expr:
    """Return the negation of a predicate, exact for TRUE, FALSE and NULL: of `a < b`, `a >= b`."""
    match predicate:
        case Literal(value=bool() as value):
            return FALSE if value else TRUE
        case Literal(value=None):
            return predicate
        case Call(function, args) if function in FUNCTIONS and (opposite := FUNCTIONS[function].negation) is not None:
            return Call(opposite, args)
        case _:
            return not_(predicate)


def find_pattern(expr: Expr) -> LikePattern | None:
    """Return what a test of a text looks for in its first argument; None for other expressions."""
    match expr:
        case Call(function, args) if function in FUNCTIONS and (find := FUNCTIONS[function].pattern) is not None:
            return find(args)
        case _:
            return None


def type_of(expr: Expr) -> pa.DataType | None:
    """Return the type of a bound expression, or None if a function is not supported."""
    if not isinstance(expr, Call):
        return expr.type
    if expr._type is None:
        fold(expr, _compute_type, lambda node: () if _is_typed(node) else get_operands(node))
    return expr._type[0] if expr._type is not None else None


def _is_typed(node: Expr) -> bool:
    return isinstance(node, Call) and node._type is not None


def _compute_type(node: Expr, arg_types: ArgTypes) -> pa.DataType | None:
    match node:
        case Column(type=data_type) | Literal(type=data_type):
            return data_type
        case Call(function, args):
            if node._type is None:
                known = FUNCTIONS.get(function)
                found = known.returns if known is not None and known.accepts(len(args)) else None
                object.__setattr__(node, "_type", (found(args, arg_types) if callable(found) else found,))
            return node._type[0] if node._type is not None else None
        case _:
            raise make_unbound_error(node)


def strip_widening_casts(value: Expr) -> Expr:
    """Return the value inside of casts to wider numbers: `CAST(i AS BIGINT)` compares with numbers as `i` does.

    Such a cast never fails, makes only NULL a NULL, and keeps values distinct and ordered. So `CAST(i AS BIGINT) < 5`
    is TRUE, FALSE and NULL for the same rows as `i < 5`, and the metadata of the column `i` (bounds, Bloom filter,
    partition values) can decide it.
    """
    while True:
        match value:
            case Call("cast" | "try_cast", (inner, Literal(value=str() as name))):
                source, target = type_of(inner), type_from_name(name)
                if source is None or not (is_number(source) and is_number(target) and can_hold_numbers(target, source)):
                    return value
                value = inner
            case _:
                return value


def find_monotone_argument(call: Call) -> Monotone | None:
    """Return the argument in which a call is monotone, or None.

    >>> from tamis.expr.nodes import Column, Literal, Call
    >>> from tamis import types
    >>> find_monotone_argument(Call("-", (Literal(10, types.LONG), Column(("a",), type=types.LONG))))
    Monotone(argument=1, keeps_order=False)
    """
    known = FUNCTIONS.get(call.function)
    found = None if known is None else known.monotone
    return found(call.args) if callable(found) else found


def may_fail(expr: Expr) -> bool:
    """Return whether any sub-expression may fail on a value."""
    return fold(expr, _may_fail, lambda node: () if _has_fallibility(node) else get_operands(node))


def _has_fallibility(node: Expr) -> bool:
    return isinstance(node, Call) and node._fallible is not None


def _may_fail(node: Expr, operands: tuple[bool, ...]) -> bool:
    if not isinstance(node, Call):
        return False
    if node._fallible is None:
        object.__setattr__(node, "_fallible", any(operands) or may_call_fail(node))
    return bool(node._fallible)


def may_call_fail(call: Call) -> bool:
    """Return whether a function that Arrow evaluates may fail on a value of its arguments' types."""
    known = find_function(call.function)
    if known is None:
        return False
    return known.may_fail(call) if callable(known.may_fail) else known.may_fail


def depends_on_zone(expr: Expr) -> bool:
    """Return whether an expression may have another value in another time zone."""
    return any(isinstance(node, Call) and call_depends_on_zone(node) for node in walk(expr))


def call_depends_on_zone(call: Call) -> bool:
    """Return whether a function depends on the time zone, regardless of its arguments' own calls."""
    known = find_function(call.function)
    given = [type_of(arg) for arg in call.args]
    match Zones.BY_TYPE if known is None else known.zones:
        case Zones.NEVER:
            return False
        case Zones.MIXED:
            typed = [each for each in given if each is not None and not pa.types.is_null(each)]
            return any(map(is_instant, typed)) and not all(map(is_instant, typed))
        case Zones.BY_TYPE:
            return any(map(is_instant, (*given, type_of(call))))


def is_instant(data_type: pa.DataType | None) -> bool:
    return data_type is not None and pa.types.is_timestamp(data_type) and data_type.tz is not None
