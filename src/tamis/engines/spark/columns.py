"""Compile expressions into Spark Columns that evaluate exactly as Arrow's kernels do.

If Spark's semantics differ, the expression is rewritten: timestamps are in UTC without a zone, so that the session's
time zone has no effect; long lists are searched by bisection. An overflow or a failed cast is an error in Arrow; the
Column returns NULL there, and a second Column marks the rows for which this happened. Functions on which both engines
differ (the upper case of ß, strings as numbers) are unsupported, and the caller keeps the unit.
"""

from __future__ import annotations

import json
import math
import operator
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.engines.spark.spark_types import to_metadata_type
from tamis.errors import EvaluationError
from tamis.expr.functions.kernels import DATE_TRUNC_UNITS, TRUNC_UNITS, find_evaluation_type
from tamis.expr.functions.table import find_function, find_pattern, is_comparison, is_instant, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold
from tamis.expr.sql.printer import to_display_sql
from tamis.types import count_decimal_digits, get_integer_range, is_bytes, is_number, is_text, type_name

MAX_COMPARED_ITEMS = 64
"""Longer lists are searched by bisection."""

_COMPARE = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_MICROSECONDS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000}


_NUMBER = r"\A[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))\z"
"""The texts that are numbers for a partition filter, as in `tamis.expr.functions.partition_values`."""


@dataclass(frozen=True, slots=True)
class CompiledColumn:
    """A value as a Column, and a Column that is TRUE for rows where its evaluation fails; None if it never fails."""

    value: Any
    failed: Any = None


class ColumnCompiler:
    """Compiles expressions for one kind of session. `read` returns the Column of a name, in the types of metadata.

    `instant` returns the unconverted Column of a timestamp with a zone. It is compared with constants directly, so
    that Spark's readers can push the comparison down. None if there are no such columns.
    """

    def __init__(
        self, functions: Any, read: Callable[[Column], Any], instant: Callable[[Column], Any] | None = None
    ) -> None:
        self._f = functions
        self._constants = Constants(functions)
        self._read = read
        self._instant = instant

    def compile(self, expr: Expr) -> CompiledColumn:
        """Return the Column of an expression; raise `EvaluationError` if Spark has no equivalent."""
        return fold(expr, self._compile_node)

    def _compile_node(self, node: Expr, args: tuple[CompiledColumn, ...]) -> CompiledColumn:
        match node:
            case Column():
                return CompiledColumn(self._read(node))
            case Literal():
                return CompiledColumn(self._constants.column(node))
            case Call():
                failed = _combine_any(arg.failed for arg in args)
                values = [arg.value for arg in args]
                instants = self._convert_instants(node)
                made = self._make_call(node, values if instants is None else instants)
                if isinstance(made, _Fallible):
                    known = [value.isNotNull() for value in (values if made.given is None else (made.given,))]
                    own = _combine_all([*known, made.value.isNull()])
                    return CompiledColumn(made.value, own if failed is None else failed | own)
                return CompiledColumn(made, failed)

    def _make_call(self, call: Call, values: list[Any]) -> Any:
        """Return the Column of a call: the row of its function names Spark's function, or a method of this class."""
        known = find_function(call.function)
        if known is not None and known.spark.rule is not None:
            return getattr(self, known.spark.rule)(call, values)
        if known is None or known.spark.function is None:
            raise make_unsupported_error(call)
        made = getattr(self._f, known.spark.function)(*values)
        # Spark counts in ints.
        return made.cast("bigint") if known.returns == types.LONG else made

    def _convert_instants(self, call: Call) -> list[Any] | None:
        """Return the operands of a comparison of an instant with constants, in Spark's storage type; else None."""
        if self._instant is None or not (is_comparison(call) or call.function == "in"):
            return None
        columns = [arg for arg in call.args[:2] if isinstance(arg, Column)]
        constants = [arg for arg in call.args if isinstance(arg, Literal)]
        if len(columns) != 1 or len(constants) + 1 != len(call.args) or not is_instant(columns[0].type):
            return None
        operands = call.args[:1] if call.function == "in" else call.args
        return [
            self._constants.instant(arg) if isinstance(arg, Literal) else self._instant(columns[0]) for arg in operands
        ]

    # --- Comparison, logic, NULL ----------------------------------------------------------------------------------

    def compare(self, call: Call, values: list[Any]) -> Any:
        if any(map(_is_void, call.args)):
            return self._compare_null_safe(call, values) if call.function == "<=>" else self._null_boolean()
        left, right = values
        return left.eqNullSafe(right) if call.function == "<=>" else _COMPARE[call.function](left, right)

    def _compare_null_safe(self, call: Call, values: list[Any]) -> Any:
        return _combine_all([value.isNull() for value in values])

    def _null_boolean(self) -> Any:
        return self._f.lit(None).cast("boolean")

    def junction(self, call: Call, values: list[Any]) -> Any:
        booleans = [
            self._null_boolean() if _is_void(arg) else value for arg, value in zip(call.args, values, strict=True)
        ]
        return _combine_balanced(booleans, (lambda a, b: a & b) if call.function == "and" else (lambda a, b: a | b))

    def negation(self, call: Call, values: list[Any]) -> Any:
        return self._null_boolean() if _is_void(call.args[0]) else ~values[0]

    def case(self, call: Call, values: list[Any]) -> Any:
        pairs = list(zip(values[:-1:2], values[1::2], strict=True))
        found = self._f.when(*pairs[0])
        for condition, value in pairs[1:]:
            found = found.when(condition, value)
        return found.otherwise(values[-1])

    # --- Lists ----------------------------------------------------------------------------------------------------

    def member(self, call: Call, values: list[Any]) -> Any:
        f, value = self._f, values[0]
        literals = [item for item in call.args[1:] if isinstance(item, Literal)]
        data_type = type_of(call.args[0])
        if len(literals) + 1 != len(call.args) or data_type is None:
            raise make_unsupported_error(call)
        if pa.types.is_null(data_type):
            return self._null_boolean()
        items = [item for item in literals if not item.is_null]
        numbers = [item for item in items if not _is_nan(item)]
        found = f.lit(False)
        if numbers and len(numbers) <= MAX_COMPARED_ITEMS:
            has_instants = self._convert_instants(call) is not None
            made = [
                self._constants.instant(item) if has_instants else self._constants.column(_normalize_zero(item))
                for item in numbers
            ]
            # Spark's set of a long IN list distinguishes -0.0 and 0.0.
            positive = value + f.lit(0.0).cast(to_sql_type(data_type)) if pa.types.is_floating(data_type) else value
            found = positive.isin(*made)
        elif numbers:
            given = value
            if self._convert_instants(call) is not None:
                given = self._constants.timestamp(f.unix_micros(value))
            found = self._any_between(given, given, sorted(numbers, key=lambda item: item.value))
        if len(numbers) < len(items):
            found = found | f.isnan(value)
        if len(items) < len(literals):
            found = f.when(found, f.lit(True)).otherwise(self._null_boolean())
        return f.when(value.isNull(), self._null_boolean()).otherwise(found)

    def any_between(self, call: Call, values: list[Any]) -> Any:
        items = [item for item in call.args[2:] if isinstance(item, Literal)]
        return self._any_between(values[0], values[1], items)

    def _any_between(self, lower: Any, upper: Any, items: Sequence[Literal]) -> Any:
        """Return a Column that is TRUE if one of the sorted items is in [lower, upper]."""
        f = self._f
        if len(items) <= MAX_COMPARED_ITEMS:
            made = [self._constants.column(item) for item in items]
            found = _combine_balanced([(lower <= item) & (upper >= item) for item in made], lambda a, b: a | b)
        else:
            texts, convert = self._constants.array(items)
            size = len(items)
            steps = [1 << power for power in reversed(range(size.bit_length()))]

            def step(position: Any, length: Any) -> Any:
                end = position + length
                is_below = (end <= size) & (convert(f.get(texts, end - 1)) < lower)
                return f.when(is_below, end).otherwise(position)

            below = f.aggregate(f.array(*(f.lit(length) for length in steps)), f.lit(0), step)
            found = f.coalesce(convert(f.get(texts, below)) <= upper, f.lit(False))
        return f.when(lower.isNotNull() & upper.isNotNull(), found).otherwise(self._null_boolean())

    # --- Text -----------------------------------------------------------------------------------------------------

    def like(self, call: Call, values: list[Any]) -> Any:
        pattern = find_pattern(call)
        if pattern is None:
            raise make_unsupported_error(call)
        # Spark rejects unnecessary escape characters, so the pattern is escaped again.
        escaped = "".join(_escape(part) if isinstance(part, str) else part.sign for part in pattern.parts)
        return self._f.like(values[0], self._f.lit(escaped))

    def substring(self, call: Call, values: list[Any]) -> Any:
        match call.args[1:]:
            case (Literal(value=int() as start),) if start >= 0:
                return self._f.substr(values[0], self._f.lit(max(start, 1)))
            case (Literal(value=int() as start), Literal(value=int() as length)) if start >= 0:
                return self._f.substr(values[0], self._f.lit(max(start, 1)), self._f.lit(max(length, 0)))
            case _:
                raise make_unsupported_error(call)

    # --- Arithmetic -----------------------------------------------------------------------------------------------

    def arithmetic(self, call: Call, values: list[Any]) -> Any:
        operands = [type_of(arg) for arg in call.args]
        result = type_of(call)
        if result is None or not all(data_type is not None and is_number(data_type) for data_type in operands):
            return self._shift_date(call, values)
        if pa.types.is_floating(result):
            left, right = (value.cast("double") for value in values)
            return {"+": left + right, "-": left - right, "*": left * right}[call.function]
        combine = {"+": self._f.try_add, "-": self._f.try_subtract, "*": self._f.try_multiply}[call.function]
        if pa.types.is_decimal(result):
            digits = [count_decimal_digits(data_type) for data_type in operands]
            return combine(*(value.cast(f"decimal({p},{s})") for value, (p, s) in zip(values, digits, strict=True)))
        return _Fallible(combine(*(value.cast("bigint") for value in values)))

    def _shift_date(self, call: Call, values: list[Any]) -> Any:
        """Return a date shifted by a number of days; intervals are unsupported."""
        match call:
            case Call("+" | "-" as sign, (day, count)) if _is_date(day) and _is_integer(count):
                start = self._f.unix_date(values[0]).cast("bigint")
                moved = start + values[1] if sign == "+" else start - values[1]
                return _Fallible(self._f.date_from_unix_date(moved.try_cast("int")))
            case _:
                raise make_unsupported_error(call)

    def negate(self, call: Call, values: list[Any]) -> Any:
        f, data_type = self._f, type_of(call.args[0]) or types.NULL
        if pa.types.is_floating(data_type):
            return -values[0].cast("double")
        if pa.types.is_decimal(data_type):
            return -values[0]
        return _Fallible(f.try_subtract(f.lit(0).cast("bigint"), values[0].cast("bigint")))

    def absolute(self, call: Call, values: list[Any]) -> Any:
        f, data_type = self._f, type_of(call.args[0]) or types.NULL
        if pa.types.is_floating(data_type):
            return f.abs(values[0].cast("double"))
        if pa.types.is_decimal(data_type):
            return f.abs(values[0])
        value = values[0].cast("bigint")
        return _Fallible(f.when(value < 0, f.try_subtract(f.lit(0).cast("bigint"), value)).otherwise(value))

    # --- Time -----------------------------------------------------------------------------------------------------

    def date_trunc(self, call: Call, values: list[Any]) -> Any:
        match call.args:
            case (Literal(value=str() as name), _) if name in DATE_TRUNC_UNITS:
                unit = DATE_TRUNC_UNITS[name]
            case _:
                raise make_unsupported_error(call)
        value = values[1].cast("timestamp_ntz")
        if unit == "microsecond":
            return value
        if unit in _MICROSECONDS:
            count = self._constants.microseconds_since_epoch(value)
            return self._constants.timestamp(
                count - self._f.pmod(count, self._f.lit(_MICROSECONDS[unit]).cast("bigint"))
            )
        day = value.cast("date")
        return (day if unit == "day" else self._f.trunc(day, unit)).cast("timestamp_ntz")

    def trunc(self, call: Call, values: list[Any]) -> Any:
        match call.args:
            case (_, Literal(value=str() as name)) if name in TRUNC_UNITS:
                return self._f.trunc(values[0].cast("date"), TRUNC_UNITS[name])
            case _:
                raise make_unsupported_error(call)

    # --- Casts, metadata ------------------------------------------------------------------------------------------

    def cast(self, call: Call, values: list[Any]) -> Any:
        source, target = _to_evaluation_type(type_of(call.args[0])), _to_evaluation_type(type_of(call))
        if source is None or target is None:
            raise make_unsupported_error(call)
        if source == target or (is_text(source) and is_text(target)):
            return values[0]
        stored = to_metadata_type(target)
        numbers = is_number(target) and (is_number(source) or pa.types.is_boolean(source))
        is_day = [
            pa.types.is_date(each) or (pa.types.is_timestamp(each) and each.unit == "us") for each in (source, target)
        ]
        if stored is None or not (numbers or all(is_day) or (is_text(target) and pa.types.is_integer(source))):
            raise make_unsupported_error(call)
        value = values[0].try_cast(to_sql_type(stored))
        # Each timestamp has a date, but the midnight of some dates is out of the range of timestamps.
        is_safe = call.function == "try_cast" or pa.types.is_timestamp(source)
        return value if is_safe else _Fallible(value)

    def element_at(self, call: Call, values: list[Any]) -> Any:
        source = type_of(call.args[0])
        if source is not None and not (pa.types.is_map(source) and is_text(source.key_type)):
            raise make_unsupported_error(call)
        return self._f.try_element_at(*values)

    def partition_value(self, call: Call, values: list[Any]) -> Any:
        """Parse a partition value as `tamis.expr.functions.partition_values` does, if Spark parses its type alike."""
        match call.args:
            case (_, Literal(value=str() as name)):
                target = types.type_from_name(name)
            case _:
                raise make_unsupported_error(call)
        f = self._f
        text = f.nullif(values[0], f.lit(""))
        if is_text(target):
            return text
        if is_bytes(target):
            return text.cast("binary")
        if pa.types.is_boolean(target):
            return _Fallible(f.when(text.rlike(r"(?i)\A(true|false)\z"), f.lower(text) == "true"), text)
        stored = to_metadata_type(target)
        if not pa.types.is_integer(target) or stored is None:
            raise make_unsupported_error(call)
        smallest, largest = get_integer_range(target)
        whole = f.when(text.rlike(r"\A[+-]?[0-9]{1,38}\z"), text.try_cast("decimal(38,0)"))
        fits = (whole >= f.lit(str(smallest)).cast("decimal(38,0)")) & (
            whole <= f.lit(str(largest)).cast("decimal(38,0)")
        )
        return _Fallible(f.when(fits, whole.cast(to_sql_type(stored))), text)

    def try_partition_value(self, call: Call, values: list[Any]) -> Any:
        """Parse a partition value, NULL where it is invalid for its type."""
        if type_of(call) == types.DOUBLE:
            return self._f.when(values[0].rlike(_NUMBER), values[0].try_cast("double"))
        found = self.partition_value(call, values)
        return found.value if isinstance(found, _Fallible) else found

    def partition_filter(self, call: Call, values: list[Any]) -> Any:
        return values[0]


@dataclass(frozen=True, slots=True)
class _Fallible:
    """A value that is NULL for non-NULL arguments (or a non-NULL `given`) only if its evaluation fails."""

    value: Any
    given: Any = None


def make_unsupported_error(node: Expr) -> EvaluationError:
    function = f" for {node.function!r}" if isinstance(node, Call) else ""
    return EvaluationError(f"Spark has no equivalent expression{function}, needed for {to_display_sql(node)}")


def _escape(character: str) -> str:
    return f"\\{character}" if character in "%_\\" else character


def _to_evaluation_type(data_type: pa.DataType | None) -> pa.DataType | None:
    return None if data_type is None else find_evaluation_type(data_type)


def _is_void(expr: Expr) -> bool:
    """Return whether an expression is an untyped NULL. Functions of metadata may have no recorded type."""
    return bool(type_of(expr) == types.NULL)


def _is_date(expr: Expr) -> bool:
    return bool(pa.types.is_date(type_of(expr) or types.NULL))


def _is_integer(expr: Expr) -> bool:
    return bool(pa.types.is_integer(type_of(expr) or types.NULL))


def _is_nan(literal: Literal) -> bool:
    return isinstance(literal.value, float) and math.isnan(literal.value)


def _normalize_zero(literal: Literal) -> Literal:
    return Literal(0.0, literal.type) if isinstance(literal.value, float) and literal.value == 0 else literal


def _combine_any(columns: Any) -> Any:
    found = [column for column in columns if column is not None]
    return _combine_balanced(found, lambda a, b: a | b) if found else None


def _combine_all(columns: list[Any]) -> Any:
    return _combine_balanced(columns, lambda a, b: a & b)


def _combine_balanced(columns: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine columns pairwise, so that the expression tree has minimal depth."""
    while len(columns) > 1:
        pairs = [columns[start : start + 2] for start in range(0, len(columns), 2)]
        columns = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return columns[0]


# --- Constants as Columns: in the types of metadata (see `tamis.engines.spark.spark_types`), as instants, or many a

EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


class Constants:
    """Creates constants for one kind of session."""

    def __init__(self, functions: Any) -> None:
        self._f = functions

    def column(self, literal: Literal) -> Any:
        """Return a constant in the type of metadata."""
        f, value, data_type = self._f, literal.value, find_evaluation_type(literal.type)
        if pa.types.is_null(data_type):
            return f.lit(None)
        if pa.types.is_interval(data_type):
            return None  # the compiler of the enclosing expression reads it from the node
        target = _to_metadata_type(literal)
        if value is None:
            return f.lit(None).cast(to_sql_type(target))
        if pa.types.is_date(data_type):
            return f.date_from_unix_date(f.lit(value))
        if pa.types.is_timestamp(data_type):
            return self.timestamp(f.lit(to_microseconds(literal)).cast("bigint"))
        if pa.types.is_decimal(target):
            return f.lit(str(value)).cast(to_sql_type(target))
        if pa.types.is_boolean(data_type) or is_text(data_type) or target in (types.BINARY, types.DOUBLE):
            return f.lit(value)
        return f.lit(value).cast(to_sql_type(target))

    def instant(self, literal: Literal) -> Any:
        """Return an instant in Spark's storage type, independent of the session's time zone."""
        if literal.is_null:
            return self._f.lit(None).cast("timestamp")
        return self._f.timestamp_micros(self._f.lit(to_microseconds(literal)).cast("bigint"))

    def timestamp(self, microseconds: Any) -> Any:
        """Return the timestamp without a zone for a number of microseconds since the epoch."""
        return self._f.timestamp_add("MICROSECOND", microseconds, self._f.expr(EPOCH))

    def microseconds_since_epoch(self, timestamp: Any) -> Any:
        """Return the microseconds from the epoch to a timestamp without a zone."""
        return self._f.timestamp_diff("MICROSECOND", self._f.expr(EPOCH), timestamp)

    def array(self, items: Sequence[Literal]) -> tuple[Any, Callable[[Any], Any]]:
        """Return many constants as one array of strings or numbers, and a function that converts its items to values.

        Spark would need minutes to analyse a Column for each of a hundred thousand items.
        """
        f, data_type, target = self._f, find_evaluation_type(items[0].type), _to_metadata_type(items[0])
        values = [item.value for item in items]
        if is_text(data_type):
            return self._make_array(values, "string"), lambda item: item
        if target == types.BINARY:
            return self._make_array([b64encode(value).decode() for value in values], "string"), f.unbase64
        if pa.types.is_date(data_type):
            return self._make_array(values, "int"), f.date_from_unix_date
        if pa.types.is_timestamp(data_type):
            return self._make_array([to_microseconds(item) for item in items], "bigint"), self.timestamp
        if pa.types.is_integer(target):
            return self._make_array(values, "bigint"), lambda item: item
        return self._make_array([str(value) for value in values], "string"), lambda item: item.cast(to_sql_type(target))

    def _make_array(self, values: list[Any], item_type: str) -> Any:
        return self._f.from_json(self._f.lit(json.dumps(values)), f"array<{item_type}>")


def to_sql_type(data_type: pa.DataType) -> str:
    """Return Spark's name for a type of metadata."""
    return type_name(data_type)


def to_microseconds(literal: Literal) -> int:
    """Return a timestamp as a count of microseconds since the epoch."""
    count = int(literal.value) * 1_000_000
    whole, rest = divmod(count, types.UNITS_PER_SECOND[literal.type.unit])
    if rest or abs(whole) >= 2**63:
        raise EvaluationError(
            f"{to_display_sql(literal)} is not a whole number of microseconds in the range of Spark's timestamps"
        )
    return whole


def _to_metadata_type(literal: Literal) -> pa.DataType:
    target = to_metadata_type(find_evaluation_type(literal.type))
    if target is None:
        raise EvaluationError(f"Spark does not support constants of type {type_name(literal.type)}")
    return target
