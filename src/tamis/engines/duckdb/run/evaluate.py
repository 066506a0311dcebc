"""Predicates on the embedded engine: DuckDB evaluates the parts that Arrow cannot, each as a boolean column.

Tamis itself evaluates AND, OR and NOT over these columns, and everything else.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tamis import types
from tamis.engines.duckdb.run.errors import explain_engine_error, explain_translation_error, find_unknown_function
from tamis.engines.duckdb.translate.calls import UnknownFunction
from tamis.engines.duckdb.translate.functions import (
    DuckdbSql,
    explain_unknown_function,
    to_duckdb,
    write_macro_statements,
)
from tamis.engines.duckdb.translate.operators import PLAIN_OPERATORS
from tamis.errors import EvaluationError
from tamis.expr.bind import format_expression_position
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions.table import find_arithmetic_operator, find_spark_function, is_comparison, is_instant, type_of
from tamis.expr.nodes import (
    NULL,
    Call,
    Column,
    Expr,
    Literal,
    find_columns,
    fold,
    get_conditions,
    get_operands,
    is_logic,
    replace_args,
    replace_columns,
    transform,
    walk,
)
from tamis.expr.patterns import DEFAULT_ESCAPE
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.sql.syntax import retry_with_large_stack
from tamis.expr.sql.to_tree import to_tree
from tamis.types import SIGNED_TYPES, count_decimal_digits, is_binary, is_formatted_differently, is_number


class EmbeddedPredicates:
    """A predicate whose parts DuckDB evaluates where Arrow cannot."""

    def __init__(self, predicate: Expr) -> None:
        self._parts: list[Expr] = []
        self._values: dict[Expr, str] = {}
        self._names: dict[str, None] = {}
        # A prefix that no column of the predicate has.
        self._prefix = "given"
        while any(column.path[0].casefold().startswith(self._prefix) for column in find_columns(predicate)):
            self._prefix += "_"
        remaining = fold(predicate, self._replace_parts, get_conditions)
        self._text = " and ".join(to_display_sql(part) for part in self._parts)
        rewritten = [fold(part, self._replace_values, _list_engine_operands) for part in self._parts]
        try:
            self._query = _BatchQuery(rewritten)
        except UnknownFunction as error:
            raise EvaluationError(explain_unknown_function(error.name, self._locate(error.name))) from None
        except SqlglotError as error:
            reason = explain_translation_error(error)
            raise EvaluationError(f"the embedded engine does not support {self._text}: {reason}") from error
        self._evaluators = {name: Evaluator(value) for value, name in self._values.items()}
        self._remaining = Evaluator(remaining, shown=predicate)
        is_joined = isinstance(predicate, Call) and predicate.function in ("and", "or")
        self._joined = predicate if isinstance(predicate, Call) and is_joined else None

    def _replace_parts(self, node: Expr, args: tuple[Expr, ...]) -> Expr:
        """Replace each part of the predicate that DuckDB evaluates by a column."""
        if is_logic(node):
            return replace_args(node, args)
        if can_evaluate(node):
            return node
        self._parts.append(node)
        return Column((f"{self._prefix}{len(self._parts) - 1}",), type=types.BOOLEAN)

    def _replace_values(self, node: Expr, args: tuple[Expr, ...]) -> Expr:
        """Replace each value of a part that Arrow computes by a column: DuckDB may compute it differently."""
        match node:
            case Call("case"):
                # A branch is evaluated for its own rows only, so Arrow computes nothing in it but the columns.
                return replace_columns(node, self._pass_as_column)
            case Call("sql"):
                # Unparsed text refers to its columns by name.
                self._names |= dict.fromkeys(column.path[0] for column in find_columns(node))
                return node
            case Literal():
                return node
            case Call() if not can_evaluate(node):
                return replace_args(node, args)
            case _:
                return self._pass_as_column(node)

    def _pass_as_column(self, value: Expr) -> Column:
        """Return the column that passes a value computed by Arrow to DuckDB."""
        if isinstance(value, Column) and isinstance(value.type, pa.BaseExtensionType):
            self._names[value.path[0]] = None
            return value
        name = self._values.setdefault(value, f"{self._prefix}_value{len(self._values)}")
        return Column((name,), type=type_of(value))

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return the value of the predicate for each row."""
        if not batch.num_rows:
            return pa.array([], pa.bool_())
        try:
            values = self._evaluate_parts(batch)
        except EvaluationError:
            if self._joined is None:
                raise
            return _evaluate_in_order(self._joined, batch)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        parts = {f"{self._prefix}{index}": value for index, value in enumerate(values)}
        return self._remaining(pa.record_batch(columns | parts))

    def check(self, schema: pa.Schema) -> None:
        """Raise the errors that do not depend on values, such as the error for an unknown function."""
        names = dict.fromkeys(column.path[0] for part in self._parts for column in find_columns(part))
        empty = {name: pa.array([], schema.field(name).type) for name in names}
        # A batch needs at least one column.
        self._evaluate_parts(pa.record_batch({**empty, f"{self._prefix}_row": pa.nulls(0)}))

    def _evaluate_parts(self, batch: pa.RecordBatch) -> list[pa.BooleanArray]:
        """Return the values of each part, computed by DuckDB."""
        given = {f"{self._prefix}_row": pa.nulls(batch.num_rows)}
        given |= {name: batch.column(name) for name in self._names}
        given |= {name: evaluate(batch) for name, evaluate in self._evaluators.items()}
        try:
            return [pc.cast(column, pa.bool_()) for column in self._query.run(given)]
        except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            given_texts = {name: to_display_sql(value) for value, name in self._values.items()}
            reason = explain_engine_error(error, given_texts, self._parts)
            location = self._locate(find_unknown_function(error))
            raise EvaluationError(f"the embedded engine cannot evaluate {self._text}{location}: {reason}") from error

    def _locate(self, function: str | None) -> str:
        """Return the position of a function in the text, or else that of the first part."""
        calls = (node for part in self._parts for node in walk(part) if isinstance(node, Call))
        return format_expression_position(next((call for call in calls if call.function == function), self._parts[0]))


_ROW_MARKER = "each row"
"""A dummy column that carries the row count if no expression uses a column."""


class _BatchQuery:
    """A query for the values of expressions over the rows of a batch, in any number of threads."""

    def __init__(self, expressions: Sequence[Expr]) -> None:
        self._query = _select_values(expressions)
        self._connections = threading.local()

    def run(self, given: Mapping[str, pa.Array]) -> list[pa.Array]:
        connection: duckdb.DuckDBPyConnection | None = getattr(self._connections, "connection", None)
        if connection is None:
            connection = self._connections.connection = open_isolated_connection(self._query)
        connection.register("rows_of_batch", pa.table(given))
        try:
            found = connection.sql(self._query.text).to_arrow_table()
        finally:
            connection.unregister("rows_of_batch")
        return [column.combine_chunks() for column in found.columns]


class EmbeddedExpressions:
    """Expressions that DuckDB computes for the rows of a batch, in any number of threads."""

    def __init__(self, expressions: Sequence[Expr]) -> None:
        self._query = _BatchQuery(expressions)
        self._names = list(dict.fromkeys(column.path[0] for expr in expressions for column in find_columns(expr)))

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        columns = {name: batch.column(name) for name in self._names}
        return self._query.run({_ROW_MARKER: pa.nulls(batch.num_rows)} | columns)


def _evaluate_in_order(predicate: Call, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Evaluate an AND or an OR condition by condition, each only for the rows that the earlier ones left undecided.

    Spark evaluates in that order, so `size(xs) > 0 AND xs[0] = 5` does not fail for an empty list.
    """
    is_and = predicate.function == "and"
    found = pa.array([is_and] * batch.num_rows, pa.bool_())
    for condition in get_operands(predicate):
        is_open = pc.fill_null(found, True) if is_and else pc.invert(pc.fill_null(found, False))
        rows = batch.filter(is_open)
        evaluate = Evaluator(condition) if can_evaluate(condition) else EmbeddedPredicates(condition).evaluate
        joined = pc.and_kleene if is_and else pc.or_kleene
        found = pc.replace_with_mask(found, is_open, joined(found.filter(is_open), evaluate(rows)))
    return found


def open_isolated_connection(query: DuckdbSql) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB connection for one query over batches, with the macros that the query needs.

    One thread keeps the order of rows; UTC makes the result independent of the machine. The connection has no access to
    files, extensions and the network.
    """
    found = duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": "false"})
    found.execute("SET TimeZone = 'UTC'")
    for macro in write_macro_statements(query.macros):
        found.execute(macro)
    return found


def _select_values(expressions: Sequence[Expr]) -> DuckdbSql:
    """Return the query for the values of expressions over the rows of a batch."""

    def work() -> DuckdbSql:
        values = [exp.alias_(exp.Paren(this=to_engine_tree(expr)), f"value{i}") for i, expr in enumerate(expressions)]
        rows = exp.Table(this=exp.to_identifier("rows_of_batch"))
        return to_duckdb(exp.Select(expressions=values, from_=exp.From(this=rows)))

    return retry_with_large_stack(work)


def to_duckdb_sql(expr: Expr) -> DuckdbSql:
    """Translate an expression to DuckDB's SQL, with Spark's LIKE (backslash escapes) and CAST (no silent NULL)."""
    return retry_with_large_stack(lambda: to_duckdb(to_engine_tree(expr)))


def to_engine_tree(expr: Expr) -> exp.Expr:
    """Return the tree of an expression in Spark's dialect, in the form that `to_duckdb` translates with its meaning."""
    return to_tree(fold(transform(expr, _rewrite_for_engine), _use_plain_operators, get_operands))


_NUMBER_OPERATORS = {"%": "spark_remainder", "div": "spark_whole_quotient"}


def _use_plain_operators(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """Use DuckDB's plain operator if the types of the operands are known and it computes what Spark's operator does."""
    if not isinstance(node, Call):
        return node
    row = find_spark_function(node.function)
    if row is not None and row.alike is not None:
        args = _widen_floats(node, args, row.alike(len(args)))
    elif node.function == "negate" and pa.types.is_unsigned_integer(type_of(node.args[0]) or types.NULL):
        return Call("negate", (_cast_to(SIGNED_TYPES[str(type_of(node.args[0]))], args[0]),))
    found = replace_args(node, args)
    plain, of_numbers = PLAIN_OPERATORS.get(node.function), _NUMBER_OPERATORS.get(node.function)
    operator = find_arithmetic_operator(node.function)
    if (plain is None and of_numbers is None and operator is None) or len(node.args) != 2:
        return found
    one, other = (type_of(arg) for arg in node.args)
    if one is None or other is None:
        return found
    are_numbers = is_number(one) and is_number(other)
    if are_numbers and operator is not None:
        args = (
            _cast_operand(operator, node.args[0], args[0], one, other),
            _cast_operand(operator, node.args[1], args[1], other, one),
        )
        if node.function == "try_divide":
            return Call(
                "spark_try_quotient", (*args, _read_precision(node.args[0], one), _read_precision(node.args[1], other))
            )
        if node.function == "*" and (scale := _find_product_scale(one, other)) is not None:
            return Call("spark_rounded_product", (*args, Literal(scale, pa.int32())))
        found = replace_args(node, args)
    if node.function == "/" and are_numbers:
        return Call("spark_quotient", (*args, _read_precision(node.args[0], one), _read_precision(node.args[1], other)))
    if of_numbers is not None:
        return Call(of_numbers, args) if are_numbers else found
    is_compared = is_comparison(node)
    if is_compared and are_numbers and pa.types.is_float32(one) != pa.types.is_float32(other):
        args = tuple(
            _cast_to("double", arg) if pa.types.is_float32(own) else arg
            for arg, own in zip(args, (one, other), strict=True)
        )
    are_alike = is_compared and one == other and not pa.types.is_nested(one)
    return Call(plain, args) if plain is not None and (are_numbers or are_alike) else found


def _cast_operand(function: str, node: Expr, arg: Expr, own: pa.DataType, other: pa.DataType) -> Expr:
    """Cast an operand of two numbers to its type in Spark, where DuckDB would use another type."""
    if pa.types.is_float32(own) and (function == "/" or not pa.types.is_float32(other)):
        return _cast_to("double", arg)
    if pa.types.is_unsigned_integer(own):
        return _cast_to(SIGNED_TYPES[str(own)], arg)
    if isinstance(node, Literal) and pa.types.is_integer(own) and pa.types.is_integer(other):
        return Literal(node.value, pa.int32()) if other.bit_width < 32 and abs(node.value or 0) < 2**31 else arg
    if function == "*" and pa.types.is_decimal(own) and (pa.types.is_decimal(other) or pa.types.is_integer(other)):
        # DuckDB computes the product of two decimals of at most 18 digits with 18 digits.
        digits, (more, _) = count_decimal_digits(own), count_decimal_digits(other)
        return _cast_to(f"decimal(19,{digits[1]})", arg) if digits[0] <= 18 and digits[0] + more > 18 else arg
    return arg


def _find_product_scale(one: pa.DataType, other: pa.DataType) -> int | None:
    """Return the scale that Spark rounds a product of decimals to, if its precision would exceed 38; else None."""
    if not (pa.types.is_decimal(one) and pa.types.is_decimal(other)):
        return None
    scale = one.scale + other.scale
    whole = one.precision + other.precision + 1 - scale
    rounded = max(38 - whole, min(scale, 6))
    return int(rounded) if whole + scale > 38 and rounded < scale else None


def _read_precision(node: Expr, data_type: pa.DataType) -> Literal:
    """Return the precision of an operand in Spark if it is a decimal or an integer literal; else NULL."""
    if isinstance(node, Literal) and pa.types.is_integer(data_type) and not node.is_null:
        return Literal(len(str(abs(node.value))), pa.int32())
    return Literal(count_decimal_digits(data_type)[0], pa.int32()) if pa.types.is_decimal(data_type) else NULL


def _widen_floats(call: Call, args: tuple[Expr, ...], alike: Collection[int]) -> tuple[Expr, ...]:
    """Cast floats to doubles among the arguments with a common type, if there are numbers of other types."""
    known = [type_of(arg) if index in alike else None for index, arg in enumerate(call.args)]
    if all(each is None or pa.types.is_float32(each) or not is_number(each) for each in known):
        return args
    return tuple(
        _cast_to("double", arg) if each is not None and pa.types.is_float32(each) else arg
        for arg, each in zip(args, known, strict=True)
    )


def _cast_to(name: str, value: Expr) -> Expr:
    return Call("cast", (value, Literal(name, types.STRING)))


def _rewrite_for_engine(node: Expr) -> Expr:
    match node:
        case Literal(value=int() as count, type=unit) if pa.types.is_time32(unit):
            # DuckDB counts times of day in microseconds.
            return Literal(count * (1_000_000 // types.UNITS_PER_SECOND[unit.unit]), types.TIME)
        case Call("substring", (value, Literal(value=0), *length)):
            # Position 0 is the first character in Spark, and one before it in DuckDB.
            return Call("substring", (value, Literal(1, types.LONG), *length))
        case Call("reverse", (value,)) if pa.types.is_nested(type_of(value) or types.NULL):
            return Call("duckdb_list_reverse", (value,))
        case Call("length", (value,)) if is_binary(type_of(value)):
            return Call("duckdb_octet_length", (value,))
        case Call("cast" | "try_cast" as function, (value, target)) if is_instant(type_of(value)):
            # Arrow passes it to DuckDB without its zone, and such a timestamp cannot be cast to a number.
            return Call(function, (Call("spark_as_instant", (value,)), target))
        case Call(function, args) if (row := find_spark_function(function)) is not None and row.joins_texts:
            return replace_args(node, tuple(map(_as_text, args)))
        case Call("like", (value, pattern)):
            return Call("like", (value, pattern, Literal(DEFAULT_ESCAPE, types.STRING)))
        case _:
            return node


def _as_text(value: Expr) -> Expr:
    """Cast a value to a text before it is concatenated, where DuckDB would format it differently."""
    return Call("cast", (value, Literal("string", types.STRING))) if is_formatted_differently(type_of(value)) else value


def _list_engine_operands(node: Expr) -> tuple[Expr, ...]:
    """Return the operands in which to look for values that Arrow computes: none below such values and unparsed text."""
    if not isinstance(node, Call) or node.function in ("sql", "case") or can_evaluate(node):
        return ()
    return get_operands(node)
