"""The embedded engine: DuckDB computes the predicates that Arrow cannot, each as a column of its own.

AND, OR and NOT over them, and everything else, keep the meaning that they have here.
"""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot.errors import SqlglotError

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.bind import place_of
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions import COMPARISONS, type_of
from tamis.expr.nodes import (
    NULL,
    Call,
    Column,
    Expr,
    Literal,
    columns_of,
    fold,
    operands_of,
    transform,
    walk,
    with_args,
)
from tamis.expr.patterns import DEFAULT_ESCAPE
from tamis.expr.printer import shown, to_sql
from tamis.expr.sql_syntax import DEEPEST, with_large_stack
from tamis.scan.engine_errors import explain_engine_error, explain_translation_error, unknown_function
from tamis.scan.spark_calls import UnknownFunction
from tamis.scan.spark_functions import explain_unknown, macros_of, to_duckdb
from tamis.scan.spark_operators import PLAIN
from tamis.types import decimal_digits, is_number

_LOGIC = frozenset(("and", "or", "not"))


class EmbeddedPredicates:
    """A predicate of which DuckDB evaluates the parts that Arrow cannot."""

    def __init__(self, predicate: Expr) -> None:
        self._parts: list[Expr] = []
        self._values: dict[Expr, str] = {}
        self._names: dict[str, None] = {}
        # Names of columns that no column of the predicate has.
        self._prefix = "given"
        while any(column.path[0].casefold().startswith(self._prefix) for column in columns_of(predicate)):
            self._prefix += "_"
        remaining = fold(predicate, self._without_part, lambda node: operands_of(node) if _is_logic(node) else ())
        self._text = " and ".join(shown(part) for part in self._parts)
        rewritten = [fold(part, self._with_values, _engine_arguments) for part in self._parts]
        try:
            selected = [f"({duckdb_sql(part)}) AS part{index}" for index, part in enumerate(rewritten)]
        except UnknownFunction as error:
            raise EvaluationError(explain_unknown(error.name, self._place_of(error.name))) from None
        except SqlglotError as error:
            reason = explain_translation_error(error)
            raise EvaluationError(f"the embedded engine has no words for {self._text}: {reason}") from error
        self._query = f"SELECT {', '.join(selected)} FROM rows_of_batch"
        self._evaluators = {name: Evaluator(value) for value, name in self._values.items()}
        self._remaining = Evaluator(remaining)
        self._connections = threading.local()
        is_joined = isinstance(predicate, Call) and predicate.function in ("and", "or")
        self._joined = predicate if isinstance(predicate, Call) and is_joined else None

    def _without_part(self, node: Expr, args: tuple[Expr, ...]) -> Expr:
        """The predicate with a column in place of each part that goes to the engine."""
        if _is_logic(node):
            return with_args(node, args)
        if can_evaluate(node):
            return node
        self._parts.append(node)
        return Column((f"{self._prefix}{len(self._parts) - 1}",), type=types.BOOLEAN)

    def _with_values(self, node: Expr, args: tuple[Expr, ...]) -> Expr:
        """A part with a column in place of each value that Arrow computes: the engine may mean something else by it."""
        match node:
            case Call("case"):
                # What stands in a branch is for the rows of that branch: only the columns are given.
                return transform(node, lambda each: self._given(each) if isinstance(each, Column) else each)
            case Call("sql"):
                # Text that nobody took apart: its columns are known by their names only.
                self._names |= dict.fromkeys(column.path[0] for column in columns_of(node))
                return node
            case Literal():
                return node
            case Call() if not can_evaluate(node):
                return with_args(node, args)
            case _:
                return self._given(node)

    def _given(self, value: Expr) -> Column:
        """The column in which the engine finds a value that Arrow computes."""
        if isinstance(value, Column) and isinstance(value.type, pa.BaseExtensionType):
            self._names[value.path[0]] = None
            return value
        name = self._values.setdefault(value, f"{self._prefix}_value{len(self._values)}")
        return Column((name,), type=type_of(value))

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """The value of the predicate for each row."""
        if not batch.num_rows:
            return pa.array([], pa.bool_())
        try:
            answers = self._answers(batch)
        except EvaluationError:
            if self._joined is None:
                raise
            return _one_after_another(self._joined, batch)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        parts = {f"{self._prefix}{index}": answer for index, answer in enumerate(answers)}
        return self._remaining(pa.record_batch(columns | parts))

    def check(self, schema: pa.Schema) -> None:
        """Raise what evaluating over rows of a schema would raise whatever their values: unknown functions, say."""
        names = dict.fromkeys(column.path[0] for part in self._parts for column in columns_of(part))
        empty = {name: pa.array([], schema.field(name).type) for name in names}
        # A batch needs some column.
        self._answers(pa.record_batch({**empty, f"{self._prefix}_row": pa.nulls(0)}))

    def _answers(self, batch: pa.RecordBatch) -> list[pa.BooleanArray]:
        """What the engine says of each part."""
        connection = self._connection()
        given = {f"{self._prefix}_row": pa.nulls(batch.num_rows)}
        given |= {name: batch.column(name) for name in self._names}
        given |= {name: evaluate(batch) for name, evaluate in self._evaluators.items()}
        connection.register("rows_of_batch", pa.table(given))
        try:
            found = connection.sql(self._query).to_arrow_table().combine_chunks()
            return [pc.cast(column.combine_chunks(), pa.bool_()) for column in found.columns]
        except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            given_texts = {name: shown(value) for value, name in self._values.items()}
            reason = explain_engine_error(error, given_texts, self._parts)
            place = self._place_of(unknown_function(error))
            raise EvaluationError(f"the embedded engine cannot evaluate {self._text}{place}: {reason}") from error
        finally:
            connection.unregister("rows_of_batch")

    def _place_of(self, function: str | None) -> str:
        """Where a function, or else the first of the parts, stood in the text."""
        calls = (node for part in self._parts for node in walk(part) if isinstance(node, Call))
        return place_of(next((call for call in calls if call.function == function), self._parts[0]))

    def _connection(self) -> duckdb.DuckDBPyConnection:
        found: duckdb.DuckDBPyConnection | None = getattr(self._connections, "connection", None)
        if found is None:
            found = self._connections.connection = sealed_connection(self._query)
        return found


def _one_after_another(predicate: Call, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The value of an AND or an OR of which each condition is asked only of the rows that those before left open.

    Spark asks in that order, so that `size(xs) > 0 AND xs[0] = 5` does not fail where a list is empty.
    """
    is_and = predicate.function == "and"
    found = pa.array([is_and] * batch.num_rows, pa.bool_())
    for condition in operands_of(predicate):
        is_open = pc.fill_null(found, True) if is_and else pc.invert(pc.fill_null(found, False))
        rows = batch.filter(is_open)
        evaluate = Evaluator(condition) if can_evaluate(condition) else EmbeddedPredicates(condition).evaluate
        joined = pc.and_kleene if is_and else pc.or_kleene
        found = pc.replace_with_mask(found, is_open, joined(found.filter(is_open), evaluate(rows)))
    return found


def sealed_connection(query: str) -> duckdb.DuckDBPyConnection:
    """An engine for one query over batches, with the functions that it needs.

    One thread keeps the order of rows; UTC makes the answer independent of where it runs. Files, extensions and the
    network are none of its business.
    """
    found = duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": "false"})
    found.execute("SET TimeZone = 'UTC'")
    for macro in macros_of(query):
        found.execute(macro)
    return found


def _is_logic(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in _LOGIC


def duckdb_sql(predicate: Expr) -> str:
    """A predicate in DuckDB's words, with our meaning of LIKE (backslash escapes) and CAST (no silent NULL)."""
    text = text_for_engine(predicate)
    try:
        return to_duckdb(text)
    except RecursionError:
        return with_large_stack(lambda: to_duckdb(text), DEEPEST)


def text_for_engine(expr: Expr) -> str:
    """An expression as text in Spark's dialect that `to_duckdb` turns into one of our meaning."""
    return to_sql(fold(transform(expr, _in_our_meaning), _with_plain_operators, operands_of))


_NUMBERS_ONLY = {"%": "spark_remainder", "div": "spark_whole_quotient"}


def _with_plain_operators(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """An operator as a plain one where the types of its operands are known and it means what it means in Spark."""
    if not isinstance(node, Call):
        return node
    if node.function in _OF_ONE_TYPE:
        args = _without_floats(node, args)
    elif node.function == "negate" and pa.types.is_unsigned_integer(type_of(node.args[0]) or types.NULL):
        return Call("negate", (_cast_to(SIGNED[str(type_of(node.args[0]))], args[0]),))
    found = with_args(node, args)
    plain, of_numbers = PLAIN.get(node.function), _NUMBERS_ONLY.get(node.function)
    operator = _TRIED.get(node.function, node.function)
    if (plain is None and of_numbers is None and operator not in _ARITHMETIC) or len(node.args) != 2:
        return found
    one, other = (type_of(arg) for arg in node.args)
    if one is None or other is None:
        return found
    are_numbers = is_number(one) and is_number(other)
    if are_numbers and operator in _ARITHMETIC:
        args = (
            _operand(operator, node.args[0], args[0], one, other),
            _operand(operator, node.args[1], args[1], other, one),
        )
        if node.function == "try_divide":
            return Call("spark_try_quotient", (*args, _digits(node.args[0], one), _digits(node.args[1], other)))
        if node.function == "*" and (scale := _rounded_scale(one, other)) is not None:
            return Call("spark_rounded_product", (*args, Literal(scale, pa.int32())))
        found = with_args(node, args)
    if node.function == "/" and are_numbers:
        return Call("spark_quotient", (*args, _digits(node.args[0], one), _digits(node.args[1], other)))
    if of_numbers is not None:
        return Call(of_numbers, args) if are_numbers else found
    is_compared = node.function in COMPARISONS or node.function == "<=>"
    if is_compared and are_numbers and pa.types.is_float32(one) != pa.types.is_float32(other):
        args = tuple(
            _cast_to("double", arg) if pa.types.is_float32(own) else arg
            for arg, own in zip(args, (one, other), strict=True)
        )
    are_alike = is_compared and one == other and not pa.types.is_nested(one)
    return Call(plain, args) if plain is not None and (are_numbers or are_alike) else found


_ARITHMETIC = frozenset(("+", "-", "*", "/", "%", "div"))
_TRIED = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%", "mod": "%"}
"""Functions whose operands have the types of an operator's."""
SIGNED = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)"}
"""What Spark makes of whole numbers without a sign, which it does not have."""
_OF_ONE_TYPE = frozenset(("coalesce", "ifnull", "nvl", "greatest", "least", "array", "case", "if", "nvl2", "nullif",
                          "decode"))  # fmt: skip


def _operand(function: str, node: Expr, arg: Expr, own: pa.DataType, other: pa.DataType) -> Expr:
    """An operand of two numbers in the type that Spark gives it, where the engine would give it another."""
    if pa.types.is_float32(own) and (function == "/" or not pa.types.is_float32(other)):
        return _cast_to("double", arg)
    if pa.types.is_unsigned_integer(own):
        return _cast_to(SIGNED[str(own)], arg)
    if isinstance(node, Literal) and pa.types.is_integer(own) and pa.types.is_integer(other):
        return Literal(node.value, pa.int32()) if other.bit_width < 32 and abs(node.value or 0) < 2**31 else arg
    if function == "*" and pa.types.is_decimal(own) and (pa.types.is_decimal(other) or pa.types.is_integer(other)):
        # The engine computes a product of at most 18 digits each with 18 digits.
        digits, (more, _) = decimal_digits(own), decimal_digits(other)
        return _cast_to(f"decimal(19,{digits[1]})", arg) if digits[0] <= 18 and digits[0] + more > 18 else arg
    return arg


def _rounded_scale(one: pa.DataType, other: pa.DataType) -> int | None:
    """The scale that Spark rounds a product of decimals to, where all digits of it would be more than 38."""
    if not (pa.types.is_decimal(one) and pa.types.is_decimal(other)):
        return None
    scale = one.scale + other.scale
    whole = one.precision + other.precision + 1 - scale
    rounded = max(38 - whole, min(scale, 6))
    return int(rounded) if whole + scale > 38 and rounded < scale else None


def _digits(node: Expr, data_type: pa.DataType) -> Literal:
    """How many digits the type of an operand has in Spark, where it is a decimal or a literal; else NULL."""
    if isinstance(node, Literal) and pa.types.is_integer(data_type) and not node.is_null:
        return Literal(len(str(abs(node.value))), pa.int32())
    return Literal(decimal_digits(data_type)[0], pa.int32()) if pa.types.is_decimal(data_type) else NULL


def _without_floats(call: Call, args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Arguments of which one is returned: floats are doubles where others are numbers of another type."""
    first = 1 if call.function in ("if", "nvl2") else 0
    is_value = [index >= first for index in range(len(args))]
    if call.function == "case":
        is_value = [index % 2 == 1 or index == len(args) - 1 for index in range(len(args))]
    elif call.function == "decode":
        # What is compared: the results have a type of their own.
        is_value = [index == 0 or (index % 2 == 1 and index < len(args) - 1) for index in range(len(args))]
    known = [type_of(arg) if is_one else None for arg, is_one in zip(call.args, is_value, strict=True)]
    if all(each is None or pa.types.is_float32(each) or not is_number(each) for each in known):
        return args
    return tuple(
        _cast_to("double", arg) if each is not None and pa.types.is_float32(each) else arg
        for arg, each in zip(args, known, strict=True)
    )


def _cast_to(name: str, value: Expr) -> Expr:
    return Call("cast", (value, Literal(name, types.STRING)))


def _in_our_meaning(node: Expr) -> Expr:
    match node:
        case Literal(value=int() as count, type=unit) if pa.types.is_time32(unit):
            # DuckDB counts times of day in microseconds.
            return Literal(count * (1_000_000 // types.UNITS_PER_SECOND[unit.unit]), types.TIME)
        case Call("substring", (value, Literal(value=0), *length)):
            # Position 0 is the first character in Spark, and one before it in DuckDB.
            return Call("substring", (value, Literal(1, types.LONG), *length))
        case Call("round", (value, digits)) if pa.types.is_float64(type_of(value) or types.NULL):
            return Call("spark_round_float", (value, digits))
        case Call("round", (value, digits)) if pa.types.is_float32(type_of(value) or types.NULL):
            return Call("spark_round_single", (value, digits))
        case Call("bround", (value, *digits)) if pa.types.is_float64(type_of(value) or types.NULL):
            return Call("spark_bround_float", (value, *(digits or [Literal(0, types.LONG)])))
        case Call("reverse", (value,)) if pa.types.is_nested(type_of(value) or types.NULL):
            return Call("duckdb_list_reverse", (value,))
        case Call("length" | "char_length" | "character_length" | "len", (value,)) if is_binary(type_of(value)):
            return Call("duckdb_octet_length", (value,))
        case Call("cast" | "try_cast" as function, (value, target)) if _is_instant(type_of(value)):
            # Arrow gives it to the engine without its zone, and such a timestamp is no number.
            return Call(function, (Call("spark_as_instant", (value,)), target))
        case Call("concat" | "concat_ws", args):
            return with_args(node, tuple(map(_as_text, args)))
        case Call("like", (value, pattern)):
            return Call("like", (value, pattern, Literal(DEFAULT_ESCAPE, types.STRING)))
        case _:
            return node


def _is_instant(data_type: pa.DataType | None) -> bool:
    return data_type is not None and pa.types.is_timestamp(data_type) and data_type.tz is not None


def _as_text(value: Expr) -> Expr:
    """A value that is joined to texts."""
    return Call("cast", (value, Literal("string", types.STRING))) if has_text_of_its_own(type_of(value)) else value


def has_text_of_its_own(data_type: pa.DataType | None) -> bool:
    """Whether Spark writes values of a type in another way than the engine does."""
    return data_type is not None and (pa.types.is_floating(data_type) or pa.types.is_timestamp(data_type))


def is_binary(data_type: pa.DataType | None) -> bool:
    return data_type is not None and (pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))


def _engine_arguments(node: Expr) -> tuple[Expr, ...]:
    """Where to look for values that Arrow computes: not inside those, and not in text that nobody took apart."""
    if not isinstance(node, Call) or node.function in ("sql", "case") or can_evaluate(node):
        return ()
    return operands_of(node)
