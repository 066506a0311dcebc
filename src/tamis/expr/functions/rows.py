"""The rows of the table of functions, with the rules for their result types and their monotonicity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from tamis import types
from tamis.expr.functions import domains, kernels, spark_semantics
from tamis.expr.functions.calendar import extract_part
from tamis.expr.functions.partition_values import partition_value, try_partition_value
from tamis.expr.functions.table import (
    ENGINE_FUNCTIONS,
    METADATA_FUNCTIONS,
    UNBOUNDED,
    ArgTypes,
    Databases,
    Function,
    Monotone,
    Nulls,
    Precedence,
    Spark,
    Zones,
    register_function,
    type_of,
)
from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.expr.patterns import ANY_TEXT, LikePattern, parse_like
from tamis.types import count_decimal_digits, find_common_number_type, is_number, is_text, type_from_name

# --- Result types ---------------------------------------------------------------------------------------------------


def _get_text_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    return types.STRING if arg_types[0] is not None and is_text(arg_types[0]) else None


def _find_cast_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    match args[1]:
        case Literal(str() as name):
            return type_from_name(name)
        case _:
            return None


def _find_case_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    """Return the common type of the non-NULL values of `case(condition, value, condition, value, …, otherwise)`."""
    values = [*args[1:-1:2], args[-1]]
    return _find_common_type(values, (*arg_types[1:-1:2], arg_types[-1]))


def _find_map_value_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    return arg_types[0].item_type if arg_types[0] is not None and pa.types.is_map(arg_types[0]) else None


def _find_common_type(args: Sequence[Expr], arg_types: ArgTypes) -> pa.DataType | None:
    known = {data_type for data_type in arg_types if data_type != types.NULL}
    if len(known) == 1:
        return known.pop()
    if not known or None in known:
        return None if known else types.NULL
    typed = [_find_spark_type(arg, each) for arg, each in zip(args, arg_types, strict=True) if each != types.NULL]
    is_known = all(map(is_number, typed)) and not all(map(pa.types.is_integer, typed))
    return find_common_number_type(typed) if is_known else None


def _find_spark_type(arg: Expr, data_type: pa.DataType) -> pa.DataType:
    """Return the type of a number in Spark, where a literal is an int unless it needs more bits."""
    is_int = isinstance(arg, Literal) and data_type == types.LONG and abs(arg.value) < 2**31
    return pa.int32() if is_int else data_type


def _make_arithmetic_type_finder(operator: str) -> Callable[[tuple[Expr, ...], ArgTypes], pa.DataType | None]:
    """Return the result type: bigint for integers, so that small types do not overflow, and double for any float."""

    def returns(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
        left, right = arg_types[0], arg_types[-1]
        if left is None or right is None:
            return None
        if pa.types.is_null(left) or pa.types.is_null(right):
            return types.NULL
        if is_number(left) and is_number(right):
            return find_arithmetic_type(operator, left, right)
        return _find_time_arithmetic_type(operator, left, right)

    return returns


def _find_time_arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if operator not in ("+", "-"):
        return None
    if operator == "+" and pa.types.is_interval(left):
        left, right = right, left
    if pa.types.is_timestamp(left) and pa.types.is_interval(right):
        return left
    if pa.types.is_date(left):
        if pa.types.is_integer(right):
            return left
        if pa.types.is_interval(right):
            return left
    return None


def find_arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type of `left operator right` for two numbers, or None if no type holds every result."""
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return types.DOUBLE
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        if operator == "/":
            return types.DOUBLE
        if pa.types.is_uint64(left) or pa.types.is_uint64(right):
            return None
        return types.LONG
    if operator not in ("+", "-", "*"):
        return None
    p1, s1 = count_decimal_digits(left)
    p2, s2 = count_decimal_digits(right)
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _find_date_trunc_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    """Return the type of `date_trunc`: a timestamp, with the unit and time zone of a timestamp argument."""
    argument = arg_types[1]
    if argument is None or pa.types.is_timestamp(argument):
        return argument
    return types.TIMESTAMP if pa.types.is_date(argument) else None


# --- Monotonicity ---------------------------------------------------------------------------------------------------


def _find_order_of_sum(args: tuple[Expr, ...]) -> Monotone | None:
    match args:
        case (Literal(), Literal()):
            return None
        case (other, Literal() as constant) if _keeps_order_of(other, constant):
            return Monotone(0, keeps_order=True)
        case (Literal() as constant, other) if _keeps_order_of(other, constant):
            return Monotone(1, keeps_order=True)
        case _:
            return None


def _keeps_order_of(other: Expr, constant: Literal) -> bool:
    """Return whether adding the constant keeps the order of the other side.

    Months do not keep the order of timestamps: 30 January 23:00 and 31 January 01:00 plus a month are 29 February 23:00
    and 29 February 01:00. Dates become equal there, which keeps their order.
    """
    if isinstance(constant.value, tuple):
        other_type = type_of(other)
        return constant.value[0] == 0 or (other_type is not None and pa.types.is_date(other_type))
    return _is_finite(constant)


def _find_order_of_difference(args: tuple[Expr, ...]) -> Monotone | None:
    match args:
        case (Literal(), Literal()):
            return None
        case (other, Literal() as constant) if _keeps_order_of(other, constant):
            return Monotone(0, keeps_order=True)
        case (Literal() as constant, _) if _is_finite(constant):
            return Monotone(1, keeps_order=False)
        case _:
            return None


def _find_order_of_product(args: tuple[Expr, ...]) -> Monotone | None:
    for argument, constant in ((0, args[1]), (1, args[0])):
        # Zero times infinity is NaN, so a zero constant keeps no order.
        # A multiple of an interval has no order here.
        is_number = isinstance(constant, Literal) and not isinstance(constant.value, tuple)
        if isinstance(constant, Literal) and is_number and _is_finite(constant) and constant.value != 0:
            return Monotone(argument, keeps_order=constant.value > 0)
    return None


def _is_finite(literal: Literal) -> bool:
    value = literal.value
    return value is not None and not (isinstance(value, float) and (value != value or value in _INFINITIES))


_INFINITIES = (float("inf"), float("-inf"))


def _find_order_of_substring(args: tuple[Expr, ...]) -> Monotone | None:
    """Return the monotonicity of `substring`: only a prefix of constant length keeps the order of texts."""
    match args:
        case (_, Literal(value=0 | 1), Literal(value=int() as length)) if length >= 0:
            return Monotone(0, keeps_order=True)
        case _:
            return None


def _find_order_of_cast(args: tuple[Expr, ...]) -> Monotone | None:
    source = type_of(args[0])
    target = _find_cast_type(args, ())
    if source is None or target is None or not cast_keeps_order(source, target):
        return None
    return Monotone(0, keeps_order=True)


def cast_keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `a <= b` implies `cast(a) <= cast(b)` (rounding allowed) for all values that can be cast."""
    if source == target:
        return True
    if is_number(source) and is_number(target):
        # Arrow may round twice when it converts a decimal to a float, so the order is not guaranteed.
        return not (pa.types.is_decimal(source) and pa.types.is_floating(target))
    if pa.types.is_temporal(source) and pa.types.is_temporal(target):
        both = (source, target)
        return all(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in both)
    return is_text(source) and is_text(target)


# --- Patterns ---------------------------------------------------------------------------------------------------------


def _find_like_pattern(args: tuple[Expr, ...]) -> LikePattern | None:
    match args:
        case (_, Literal(str() as pattern)):
            return parse_like(pattern)
        case (_, Literal(str() as pattern), Literal(str() as escape)):
            return parse_like(pattern, escape)
        case _:
            return None


def _find_constant_text(form: str, args: tuple[Expr, ...]) -> LikePattern | None:
    """Return the pattern of a constant text, or of constant bytes, with a `%` where the form `%s%` has one."""
    match args:
        case (_, Literal(str() | bytes() as text)):
            characters = [text[index : index + 1] for index in range(len(text))]
            parts = (each for sign in form for each in ([ANY_TEXT] if sign == "%" else characters))
            return LikePattern(tuple(parts), text[:0])
        case _:
            return None


# --- Calls that reveal nothing of a hidden row ------------------------------------------------------------------------


def _tests_column(args: tuple[Expr, ...]) -> bool:
    """Return whether a call tests one column against literals."""
    return sum(isinstance(arg, Column) for arg in args) == 1 and all(isinstance(arg, Column | Literal) for arg in args)


def _tests_prefix_of_column(args: tuple[Expr, ...]) -> bool:
    pattern = _find_like_pattern(args) if isinstance(args[0], Column) else None
    return pattern is not None and (pattern.is_prefix or pattern.is_exact)


# --- The rows -------------------------------------------------------------------------------------------------------


def _is_plain_slice(call: Call) -> bool:
    """Return whether `substring` starts at position 1 or later, where databases agree."""
    match call.args:
        case (_, Literal(int() as start), Literal(int() as length)):
            return start >= 1 and length >= 0 and start + length < 2**31
        case _:
            return False


def _make_comparison_row(
    name: str,
    negation: str | None,
    mirrored: str,
    pyarrow: tuple[str, ...],
    of_class: str,
    polars: str,
    datafusion: str,
    aliases: tuple[str, ...] = (),
) -> Function:
    is_null_safe = name == "<=>"
    return Function(
        name, ("any", "any"), types.BOOLEAN, 2, 2, Nulls.OWN if is_null_safe else Nulls.PROPAGATES,
        kernel=kernels.null_safe_equal if is_null_safe else lambda call, args: kernels.compare(call.function, *args),
        supports=domains.have_same_ordered_type, negation=negation, mirrored=mirrored, zones=Zones.MIXED,
        is_leakproof=_tests_column, operator=Precedence.COMPARISON, aliases=aliases, pyarrow=pyarrow, polars=(polars,),
        datafusion=(datafusion,), classes=(of_class,),
        spark=Spark(rule="compare", is_same=spark_semantics.is_equivalent_comparison),
    )  # fmt: skip


def _make_logic_row(name: str, precedence: Precedence, kernel: kernels.Kernel, pyarrow: str, alias: str) -> Function:
    return Function(
        name, ("boolean",), types.BOOLEAN, 2, UNBOUNDED, Nulls.OWN, kernel=kernel, zones=Zones.NEVER,
        operator=precedence, aliases=(alias,), pyarrow=(pyarrow,),
        polars=(name.capitalize(), f"Logical{name.capitalize()}"), datafusion=(name.upper(),),
        spark=Spark(rule="junction", is_same=True),
    )  # fmt: skip


def _make_null_test_row(
    name: str,
    kernel: kernels.Kernel,
    negation: str,
    alias: str,
    polars: str,
    datafusion: tuple[str, ...],
    classes: tuple[str, ...],
    pyarrow: tuple[str, ...] = (),
) -> Function:
    return Function(
        name, ("any",), types.BOOLEAN, 1, 1, Nulls.OWN, kernel=kernel, negation=negation, zones=Zones.NEVER,
        compares_texts=False,
        is_leakproof=_tests_column, operator=Precedence.COMPARISON, aliases=(alias,), pyarrow=pyarrow,
        polars=(polars,), datafusion=datafusion, classes=classes,
        spark=Spark(alias, is_same=True),
    )  # fmt: skip


def _make_text_test_row(
    name: str, kernel: kernels.Kernel, form: str, polars: tuple[str, ...], datafusion: str, *classes: str
) -> Function:
    return Function(
        name, ("text", "text"), types.BOOLEAN, 2, 2, kernel=kernel, supports=domains.has_text_and_constants,
        pattern=partial(_find_constant_text, form), is_leakproof=_tests_column if form == "s%" else None,
        polars=polars, datafusion=(datafusion,), classes=classes,
        spark=Spark(name, is_same=True),
    )  # fmt: skip


def _make_arithmetic_row(
    name: str,
    kernel: kernels.Kernel,
    monotone: Callable[[tuple[Expr, ...]], Monotone | None],
    pyarrow: str,
    polars: str,
) -> Function:
    is_product = name == "*"
    return Function(
        name, ("number", "number") if is_product else ("any", "any"), _make_arithmetic_type_finder(name), 2, 2,
        monotone=monotone, kernel=kernel, supports=domains.is_supported_arithmetic, may_fail=domains.may_overflow,
        operator=Precedence.PRODUCT if is_product else Precedence.SUM,
        pyarrow=(pyarrow, f"{pyarrow}_checked"), polars=(polars,), datafusion=(name,),
        spark=Spark(rule="arithmetic", is_same=spark_semantics.is_equivalent_arithmetic),
    )  # fmt: skip


def _make_division_row(name: str, aliases: tuple[str, ...] = (), polars: tuple[str, ...] = ()) -> Function:
    return Function(
        name, ("number", "number"), _make_arithmetic_type_finder(name), 2, 2, Nulls.OWN,
        operator=Precedence.PRODUCT, aliases=aliases, polars=polars,
    )  # fmt: skip


def _make_calendar_part_row(
    name: str,
    fields: str,
    *larger: str,
    supports: Callable[[Call], bool] = domains.has_date_or_timestamp,
    spark: str | None = None,
) -> Function:
    return Function(
        name, ("time",), types.LONG, 1, 1, monotone=None if larger else Monotone(0, keeps_order=True),
        larger_parts=larger, extracted_as=(name, *fields.split()),
        kernel=lambda call, args: extract_part(args[0], call.function),
        supports=supports, aliases=(spark,) if spark else (),
        pyarrow=(name,), polars=(f"TemporalExpr.{name.capitalize()}",),
        spark=Spark(spark or name, is_same=True),
    )  # fmt: skip


def _list_branches(count: int) -> Sequence[int]:
    """Return the positions of the values of `case(condition, value, …, otherwise)`."""
    return [*range(1, count - 1, 2), count - 1]


def _make_engine_rows() -> tuple[Function, ...]:
    make = partial(Function, arguments=("any",), returns=lambda args, arg_types: None, fewest=0, most=UNBOUNDED)
    return (
        *(make(name, alike=range) for name in ("greatest", "least", "array", "nullif")),
        *(make(name, alike=lambda count: range(1, count)) for name in ("if", "nvl2")),
        # Only the compared values: the results have another common type.
        make("decode", alike=lambda count: [0, *range(1, count - 1, 2)]),
        *(
            make(name, typed_like=operator)
            for name, operator in (
                ("try_add", "+"), ("try_subtract", "-"), ("try_multiply", "*"), ("try_divide", "/"), ("try_mod", "%"),
            )
        ),
        make("pmod", typed_like="%"),
        make("div", operator=Precedence.PRODUCT, most=2, polars=("FloorDivide",)),
        *(
            make(
                name, arguments=("time",), larger_parts=larger, extracted_as=fields, most=1,
                pyarrow=(arrow,), polars=(f"TemporalExpr.{polars}",),
            )
            for name, fields, larger, arrow, polars in (
                ("quarter", ("quarter", "qtr"), ("year",), "quarter", "Quarter"),
                ("dayofyear", (), ("year",), "day_of_year", "OrdinalDay"),
                (
                    "second", ("second", "s", "sec", "seconds", "secs"), ("year", "month", "day", "hour", "minute"),
                    "second", "Second",
                ),
            )
        ),
        *(
            make(name, is_deterministic=False)
            for name in (
                "gen_random_uuid", "monotonically_increasing_id", "rand", "randn", "random", "shuffle", "uniform",
                "uuid", "uuidv4", "uuidv7",
            )
        ),
        # There is no session time zone, so days are in UTC.
        *(make(name, most=0, clock=literal) for name in ("now", "current_timestamp")),
        *(make(name, most=0, clock=lambda now: literal(now.date())) for name in ("current_date", "curdate")),
        make("localtimestamp", most=0, clock=lambda now: literal(now.replace(tzinfo=None))),
        make("octet_length", most=1, pyarrow=("binary_length",), polars=("StringExpr.LenBytes",)),
        *(make(name, joins_texts=True) for name in ("concat", "concat_ws")),
        *(make(name, arguments=("literal", "any")) for name in ("date_part", "datepart", "named_struct")),
    )  # fmt: skip


_ROWS = (
    _make_comparison_row("=", "<>", "=", ("equal",), "EqualTo", "Eq", "=", ("==",)),
    _make_comparison_row("<>", "=", "<>", ("not_equal", "xor"), "NotEqualTo", "NotEq", "!="),
    _make_comparison_row("<", ">=", ">", ("less",), "LessThan", "Lt", "<"),
    _make_comparison_row("<=", ">", ">=", ("less_equal",), "LessThanOrEqual", "LtEq", "<="),
    _make_comparison_row(">", "<=", "<", ("greater",), "GreaterThan", "Gt", ">"),
    _make_comparison_row(">=", "<", "<=", ("greater_equal",), "GreaterThanOrEqual", "GtEq", ">="),
    _make_comparison_row("<=>", None, "<=>", (), "EqualNullSafe", "EqValidity", "IS NOT DISTINCT FROM"),
    _make_logic_row("and", Precedence.AND, kernels.and_, "and_kleene", "&&"),
    _make_logic_row("or", Precedence.OR, kernels.or_, "or_kleene", "||"),
    Function(
        "not", ("boolean",), types.BOOLEAN, 1, 1, kernel=kernels.not_, zones=Zones.NEVER,
        operator=Precedence.NOT, aliases=("!",), pyarrow=("invert",), polars=("Boolean.Not",),
        datafusion=("Not",),
        spark=Spark(rule="negation", is_same=True),
    ),
    _make_null_test_row(
        "is_null", kernels.is_null, "is_not_null", "isnull", "Boolean.IsNull", ("IsNull", "IsUnknown"), ("IsNull",)
    ),
    _make_null_test_row(
        "is_not_null", kernels.is_not_null, "is_null", "isnotnull", "Boolean.IsNotNull", ("IsNotNull", "IsNotUnknown"),
        ("NotNull", "IsNotNull"), ("is_valid",),
    ),
    Function(
        "in", ("any", "any"), types.BOOLEAN, 2, UNBOUNDED, Nulls.OWN, kernel=kernels.is_in,
        supports=domains.has_literal_list, zones=Zones.MIXED, is_leakproof=_tests_column,
        spark=Spark(rule="member", is_same=spark_semantics.is_equivalent_in),
    ),
    Function(
        "like", ("text", "text"), types.BOOLEAN, 2, 3, kernel=kernels.like, supports=domains.has_text_and_constants,
        pattern=_find_like_pattern, is_leakproof=_tests_prefix_of_column, spark=Spark(rule="like", is_same=True),
    ),
    _make_text_test_row(
        "startswith", kernels.startswith, "s%", ("StringExpr.StartsWith",), "starts_with",
        "StartsWith", "StringStartsWith",
    ),
    _make_text_test_row("endswith", kernels.endswith, "%s", ("StringExpr.EndsWith",), "ends_with", "StringEndsWith"),
    _make_text_test_row("contains", kernels.contains, "%s%", (), "contains", "StringContains"),
    _make_arithmetic_row("+", kernels.add, _find_order_of_sum, "add", "Plus"),
    _make_arithmetic_row("-", kernels.subtract, _find_order_of_difference, "subtract", "Minus"),
    _make_arithmetic_row("*", kernels.multiply, _find_order_of_product, "multiply", "Multiply"),
    _make_division_row("/"),
    _make_division_row("%", ("mod",), ("Modulus",)),
    Function(
        "negate", ("number",), _make_arithmetic_type_finder("-"), 1, 1, monotone=Monotone(0, keeps_order=False),
        kernel=kernels.negate, supports=domains.has_number, may_fail=domains.may_overflow,
        operator=Precedence.SIGN, aliases=("negative",), pyarrow=("negate", "negate_checked"),
        polars=("Negate",), datafusion=("Negative",),
        spark=Spark(rule="negate", is_same=spark_semantics.is_equivalent_arithmetic),
    ),
    Function(
        "abs", ("number",), _make_arithmetic_type_finder("-"), 1, 1, kernel=kernels.absolute,
        supports=domains.has_number, may_fail=domains.may_overflow, pyarrow=("abs", "abs_checked"),
        polars=("Abs",), datafusion=("abs",),
        spark=Spark(rule="absolute", is_same=spark_semantics.is_equivalent_arithmetic),
    ),
    Function(
        "cast", ("any", "literal"), _find_cast_type, 2, 2, monotone=_find_order_of_cast, kernel=kernels.cast,
        supports=domains.can_cast, may_fail=domains.may_cast_fail,
        spark=Spark(rule="cast", is_same=spark_semantics.is_equivalent_cast),
    ),
    Function(
        "try_cast", ("any", "literal"), _find_cast_type, 2, 2, Nulls.OWN, kernel=kernels.try_cast,
        supports=domains.can_try_cast, spark=Spark(rule="cast", is_same=spark_semantics.is_equivalent_cast),
    ),
    Function(
        "case", ("any",), _find_case_type, 3, UNBOUNDED, Nulls.OWN, alike=_list_branches, kernel=kernels.case,
        supports=domains.can_compute_all_branches, zones=Zones.NEVER,
        spark=Spark(rule="case", is_same=spark_semantics.has_known_type),
    ),
    Function(
        "coalesce", ("any",), _find_common_type, 1, UNBOUNDED, Nulls.OWN, alike=range, kernel=kernels.coalesce,
        supports=lambda call: domains.have_one_type(call.args), zones=Zones.NEVER, aliases=("nvl", "ifnull"),
        pyarrow=("coalesce",), polars=("Coalesce", "FillNull"), datafusion=("coalesce",),
        spark=Spark("coalesce", is_same=spark_semantics.has_known_type),
    ),
    _make_calendar_part_row("year", "y years yr yrs"),
    _make_calendar_part_row("month", "mon mons months", "year"),
    _make_calendar_part_row("day", "d days", "year", "month", spark="dayofmonth"),
    _make_calendar_part_row("hour", "h hours hr hrs", "year", "month", "day", supports=domains.has_timestamp),
    _make_calendar_part_row(
        "minute", "m min mins minutes", "year", "month", "day", "hour", supports=domains.has_timestamp
    ),
    Function(
        "date_trunc", ("literal", "time"), _find_date_trunc_type, 2, 2, monotone=Monotone(1, keeps_order=True),
        kernel=kernels.date_trunc, supports=domains.can_date_trunc, may_fail=True,
        spark=Spark(rule="date_trunc", is_same=True),
    ),
    Function(
        "trunc", ("time", "literal"), types.DATE, 2, 2, monotone=Monotone(0, keeps_order=True), kernel=kernels.trunc,
        supports=domains.can_trunc, may_fail=True,
        spark=Spark(rule="trunc", is_same=True),
    ),
    Function(
        "substring", ("text", "number", "number"), _get_text_type, 2, 3, monotone=_find_order_of_substring,
        kernel=kernels.substring, supports=domains.is_plain_substring,
        spark=Spark(rule="substring", is_same=True),
        databases=Databases(dict.fromkeys(("postgres", "duckdb"), "SUBSTRING({0}, {1}, {2})"), _is_plain_slice),
    ),
    Function(
        "upper", ("text",), _get_text_type, 1, 1, kernel=kernels.upper, supports=domains.has_text,
        aliases=("ucase",), pyarrow=("utf8_upper",), polars=("StringExpr.Uppercase",), datafusion=("upper",),
    ),
    Function(
        "lower", ("text",), _get_text_type, 1, 1, kernel=kernels.lower, supports=domains.has_text,
        aliases=("lcase",), pyarrow=("utf8_lower",), polars=("StringExpr.Lowercase",), datafusion=("lower",),
    ),
    Function(
        "length", ("text",), types.LONG, 1, 1, kernel=kernels.length, supports=domains.has_text, compares_texts=False,
        aliases=("char_length", "character_length", "len"), pyarrow=("utf8_length",),
        polars=("StringExpr.LenChars",), datafusion=("character_length",),
        spark=Spark("length", is_same=True),
        databases=Databases(dict.fromkeys(("postgres", "duckdb"), "CAST(LENGTH({0}) AS BIGINT)")),
    ),
    Function(
        "element_at", ("map", "literal"), _find_map_value_type, 2, 2, Nulls.OWN, kernel=kernels.element_at,
        supports=domains.has_text_key, zones=Zones.NEVER,
        spark=Spark(
            rule="element_at",
            is_same=lambda call, ansi: isinstance(call.args[0], Column) and isinstance(call.args[1], Literal),
        ),
    ),
    Function(
        "partition_value", ("text", "literal"), _find_cast_type, 2, 2, Nulls.OWN, kernel=partition_value,
        supports=domains.has_text, may_fail=True, spark=Spark(rule="partition_value"),
    ),
    Function(
        "try_partition_value", ("text", "literal"), _find_cast_type, 2, 2, Nulls.OWN, kernel=try_partition_value,
        supports=domains.has_text, spark=Spark(rule="try_partition_value"),
    ),
    Function("partition_text", ("literal",), types.STRING, 1, 1, Nulls.OWN),
    Function(
        "partition_filter", ("boolean", "literal"), types.BOOLEAN, 2, 2, Nulls.OWN, kernel=kernels.partition_filter,
        zones=Zones.NEVER, is_leakproof=lambda args: isinstance(args[1], Literal), spark=Spark(rule="partition_filter"),
    ),
)  # fmt: skip

for _row in _ROWS:
    register_function(_row)
ENGINE_FUNCTIONS.update((_row.name, _row) for _row in _make_engine_rows())

METADATA_FUNCTIONS["any_between"] = Function(
    "any_between", ("any",), types.BOOLEAN, 2, UNBOUNDED, Nulls.OWN, kernel=kernels.any_between,
    spark=Spark(rule="any_between"),
)  # fmt: skip
