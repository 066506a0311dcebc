"""The Arrow kernel of each function: the row semantics of the language.

Every kernel takes the call and the values of its arguments (arrays, or scalars for constants) and returns a value.
Values are in *evaluation form* (see `find_evaluation_type`): timestamps as UTC without a zone, no dictionaries,
no views, no half floats. NaN is larger than every number and equal to itself, and -0.0 equals 0.0:
Arrow's comparisons follow IEEE 754, so the results for floats are corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib

from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.functions.calendar import add_interval, cast_to_date, cast_to_unit, truncate_to_unit
from tamis.expr.nodes import Call, Literal
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.types import count_decimal_digits, get_integer_range, is_number, is_text, type_from_name

Value: TypeAlias = "pa.Array | pa.Scalar"
Kernel: TypeAlias = "Callable[[Call, list[Value]], Value]"

# This is an element of an array, because `pa.scalar` imports pandas, and that would slow down the import of this
# module.
_UNKNOWN = pa.nulls(1, pa.bool_())[0]

_NULLS = (pa.NullArray, pa.NullScalar)
_FLOATS = frozenset((lib.Type_HALF_FLOAT, lib.Type_FLOAT, lib.Type_DOUBLE))


def find_evaluation_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are evaluated."""
    if pa.types.is_dictionary(data_type):
        return find_evaluation_type(data_type.value_type)
    if pa.types.is_timestamp(data_type):
        return pa.timestamp(data_type.unit)
    if pa.types.is_float16(data_type):
        return pa.float32()
    if pa.types.is_fixed_size_binary(data_type) or pa.types.is_binary_view(data_type):
        return pa.binary()
    if pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_date64(data_type):
        return pa.date32()
    return data_type


_CONVERTED_TYPE_IDS = frozenset(
    (
        lib.Type_DICTIONARY,
        lib.Type_TIMESTAMP,
        lib.Type_HALF_FLOAT,
        lib.Type_FIXED_SIZE_BINARY,
        lib.Type_BINARY_VIEW,
        lib.Type_STRING_VIEW,
        lib.Type_DATE64,
    )
)
"""The types whose evaluation form differs. This test is ten times as fast as `find_evaluation_type`."""


def to_evaluation_form(values: pa.Array) -> pa.Array:
    if values.type.id not in _CONVERTED_TYPE_IDS and not isinstance(values, pa.ExtensionArray):
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    target = find_evaluation_type(values.type)
    if target == values.type:
        return values
    if pa.types.is_timestamp(target):
        return values.view(target)
    return pc.cast(values, target)


def to_arrow_scalar(literal: Literal) -> pa.Scalar:
    """Return a literal as an Arrow scalar, in the type that kernels evaluate it in."""
    return pa.scalar(literal.value, find_evaluation_type(literal.type))


# --- Comparison -----------------------------------------------------------------------------------------------------

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(operator: str, left: Value, right: Value) -> Value:
    if isinstance(left, _NULLS) or isinstance(right, _NULLS):
        return _make_nulls_like(left, right)
    result = _COMPARE[operator](left, right)
    if left.type.id in _FLOATS or right.type.id in _FLOATS:
        result = _correct_nan(operator, left, right, result)
    return result


def _correct_nan(operator: str, left: Value, right: Value, result: Value) -> Value:
    """Correct comparisons with NaN, which are FALSE in IEEE 754 (TRUE for `<>`): here NaN is the largest value."""
    if not (_has_nan(left) or _has_nan(right)):
        return result
    # NULL where a side is NULL, so that everything computed from it is NULL there too.
    left_nan, right_nan = _is_nan(left), _is_nan(right)
    match operator:
        case "=":
            with_nan = pc.and_(left_nan, right_nan)
        case "<>":
            with_nan = pc.xor(left_nan, right_nan)
        case "<":
            with_nan = pc.and_(pc.invert(left_nan), right_nan)
        case "<=":
            with_nan = right_nan
        case ">":
            with_nan = pc.and_(left_nan, pc.invert(right_nan))
        case _:
            with_nan = left_nan
    return pc.if_else(pc.or_(left_nan, right_nan), with_nan, result)


def _has_nan(value: Value) -> bool:
    if not pa.types.is_floating(value.type):
        return False
    nan = pc.is_nan(value)
    return bool((pc.any(nan, min_count=0) if isinstance(value, pa.Array) else nan).as_py())


def _is_nan(value: Value) -> Value:
    return pc.is_nan(value) if pa.types.is_floating(value.type) else pc.if_else(pc.is_valid(value), False, _UNKNOWN)


def null_safe_equal(call: Call, args: list[Value]) -> Value:
    left, right = args
    equal = pc.fill_null(compare("=", left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _make_nulls_like(*values: Value) -> Value:
    for value in values:
        if isinstance(value, pa.Array):
            return pa.nulls(len(value), pa.bool_())
    return _UNKNOWN


def is_in(call: Call, args: list[Value]) -> Value:
    value, items = args
    if pa.types.is_null(value.type):
        return _make_nulls_like(value)
    has_null = items.null_count > 0
    found = pc.is_in(_replace_negative_zero(value), value_set=_replace_negative_zero(items.drop_null()))
    if _has_nan(items):
        # Arrow compares bit patterns, and NaN has many.
        found = pc.or_(found, pc.fill_null(pc.is_nan(value), False))
    known = pc.or_(found, pa.scalar(False)) if not has_null else pc.if_else(found, True, _UNKNOWN)
    return pc.if_else(pc.is_valid(value), known, _UNKNOWN)


def to_arrow_array(literals: tuple[Any, ...]) -> pa.Array:
    """Return the values of literals of one type, which may include NULL literals, as an array."""
    data_type = next((item.type for item in literals if not pa.types.is_null(item.type)), types.NULL)
    return pa.array([item.value for item in literals], find_evaluation_type(data_type))


def _replace_negative_zero(value: Value) -> Value:
    return pc.add(value, pa.scalar(0.0, value.type)) if pa.types.is_floating(value.type) else value


def any_between(call: Call, args: list[Value]) -> Value:
    """Return whether any of the sorted items is in [lower, upper]: the first item that is not below `lower` decides."""
    lower, upper, items = args
    if isinstance(lower, pa.Scalar) or isinstance(upper, pa.Scalar):
        return _make_nulls_like(lower, upper)
    known = pc.and_(pc.is_valid(lower), pc.is_valid(upper))
    haystack, needles = _to_searchable(items), _to_searchable(lower)
    position = np.searchsorted(haystack, needles, side="left")
    inside = position < len(items)
    candidate = items.take(pa.array(np.minimum(position, len(items) - 1)))
    below_upper = pc.less_equal(candidate, upper)
    return pc.if_else(known, pc.and_(pa.array(inside), below_upper), _UNKNOWN)


def _to_searchable(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return values in a form that numpy can search; nulls become an arbitrary value, which the caller masks."""
    data_type = values.type
    if pa.types.is_temporal(data_type):
        values = values.view(pa.int64() if data_type.bit_width == 64 else pa.int32())
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return np.asarray(pc.fill_null(values, 0))
    fill: Any = b"" if types.is_bytes(data_type) else "" if types.is_text(data_type) else False
    if pa.types.is_decimal(data_type):
        fill = Decimal(0)
    return np.array(pc.fill_null(values, pa.scalar(fill, data_type)).to_pylist(), dtype=object)


# --- Logic and NULL -------------------------------------------------------------------------------------------------


def _combine_with(combine: Callable[[Value, Value], Value]) -> Kernel:
    return lambda call, args: reduce(combine, map(_to_boolean, args))


and_, or_ = _combine_with(pc.and_kleene), _combine_with(pc.or_kleene)


def _to_boolean(value: Value) -> Value:
    # Testing the class is five times as fast as testing the type, and a deep predicate does it at every level.
    return _make_nulls_like(value) if isinstance(value, _NULLS) else value


def _apply(compute: Callable[..., Value]) -> Kernel:
    """Return the kernel that computes a function of the arguments."""
    return lambda call, args: compute(*args)


not_ = _apply(lambda value: pc.invert(_to_boolean(value)))
is_null, is_not_null = _apply(pc.is_null), _apply(pc.is_valid)


def case(call: Call, args: list[Value]) -> Value:
    result = args[-1]
    for condition, value in zip(reversed(args[:-1:2]), reversed(args[1::2]), strict=True):
        result = pc.if_else(pc.fill_null(_to_boolean(condition), False), value, result)
    return result


def coalesce(call: Call, args: list[Value]) -> Value:
    # Arrow does not support coalesce for the type null. Such an argument matters only if there are no others.
    typed = [arg for arg in args if not pa.types.is_null(arg.type)]
    return pc.coalesce(*typed) if typed else args[0]


partition_filter = _apply(lambda predicate, json: predicate)


# --- Text -----------------------------------------------------------------------------------------------------------


def like(call: Call, args: list[Value]) -> Value:
    escape = args[2].as_py() if len(args) > 2 else DEFAULT_ESCAPE
    pattern = parse_like(args[1].as_py(), escape)
    if pattern.is_exact:
        return pc.equal(args[0], pa.scalar(pattern.prefix))
    if pattern.is_prefix:
        return pc.starts_with(args[0], pattern.prefix)
    return pc.match_substring_regex(args[0], pattern.regex)


startswith = _apply(lambda text, prefix: pc.starts_with(text, prefix.as_py()))
endswith = _apply(lambda text, suffix: pc.ends_with(text, suffix.as_py()))
contains = _apply(lambda text, part: pc.match_substring(text, part.as_py()))


MULTI_LETTER_UPPERCASE = (
    "ßŉǰΐΰևẖẗẘẙẚὐὒὔὖᾀᾁᾂᾃᾄᾅᾆᾇᾈᾉᾊᾋᾌᾍᾎᾏᾐᾑᾒᾓᾔᾕᾖᾗᾘᾙᾚᾛᾜᾝᾞᾟᾠᾡᾢᾣᾤᾥᾦᾧᾨᾩᾪᾫᾬᾭᾮᾯᾲᾳᾴᾶᾷᾼῂῃῄῆῇῌῒΐῖῗῢΰῤῦῧῲῳῴῶῷῼﬀﬁﬂﬃﬄﬅﬆﬓﬔﬕﬖﬗ"
)
"""Letters whose upper case is several letters (`ß` and `SS`), which Arrow and DuckDB map to one letter."""


def _make_case_kernel(simple: Callable[[Value], Value], exact: Callable[[str], str], letters: str) -> Kernel:
    """Return the kernel of `upper` or `lower`: Arrow maps letter by letter, which is wrong for the given `letters`."""

    def kernel(call: Call, args: list[Value]) -> Value:
        [text] = args
        found = simple(text)
        is_rare = pc.match_substring_regex(text, f"[{letters}]")
        if isinstance(text, pa.Scalar):
            return pa.scalar(exact(text.as_py()), found.type) if is_rare.as_py() else found
        if not pc.any(is_rare).as_py():
            return found
        is_rare = pc.fill_null(is_rare, False)
        corrected = pa.array([exact(each) for each in text.filter(is_rare).to_pylist()], found.type)
        return pc.replace_with_mask(found, is_rare, corrected)

    return kernel


upper = _make_case_kernel(pc.utf8_upper, str.upper, MULTI_LETTER_UPPERCASE)
lower = _make_case_kernel(pc.utf8_lower, str.lower, "İΣ")


def substring(call: Call, args: list[Value]) -> Value:
    start = max(args[1].as_py() - 1, 0)
    if len(args) == 2:
        return pc.utf8_slice_codeunits(args[0], start)
    return pc.utf8_slice_codeunits(args[0], start, start + max(args[2].as_py(), 0))


length = _apply(lambda text: pc.cast(pc.utf8_length(text), types.LONG))


# --- Arithmetic -----------------------------------------------------------------------------------------------------


def add(call: Call, args: list[Value]) -> Value:
    left, right = args
    if pa.types.is_interval(left.type):
        left, right = right, left
    if pa.types.is_interval(right.type):
        return add_interval(left, right, sign=1)
    if pa.types.is_date(left.type):
        return _add_days(left, right, pc.add_checked)
    return pc.add_checked(*_to_common_numbers(left, right))


def subtract(call: Call, args: list[Value]) -> Value:
    left, right = args
    if pa.types.is_interval(right.type):
        return add_interval(left, right, sign=-1)
    if pa.types.is_date(left.type):
        return _add_days(left, right, pc.subtract_checked)
    return pc.subtract_checked(*_to_common_numbers(left, right))


def _add_days(date: Value, days: Value, combine: Callable[[Value, Value], Value]) -> Value:
    shifted = combine(pc.cast(date, pa.int32()), pc.cast(days, pa.int32()))
    return pc.cast(shifted, types.DATE)


multiply = _apply(lambda left, right: pc.multiply_checked(*_to_common_numbers(left, right)))
negate = _apply(lambda number: pc.negate_checked(_to_wide_number(number)))
absolute = _apply(lambda number: pc.abs_checked(_to_wide_number(number)))


def _to_common_numbers(left: Value, right: Value) -> tuple[Value, Value]:
    """Return both sides as 64-bit integers, as doubles, or as decimals with as many digits as the types need."""
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return pc.cast(left, types.DOUBLE, safe=False), pc.cast(right, types.DOUBLE, safe=False)
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return _to_decimal(left), _to_decimal(right)
    return _to_wide_number(left), _to_wide_number(right)


def _to_decimal(value: Value) -> Value:
    if pa.types.is_decimal(value.type):
        return value
    return pc.cast(value, pa.decimal128(*types.count_decimal_digits(value.type)))


def _to_wide_number(value: Value) -> Value:
    if pa.types.is_floating(value.type):
        return pc.cast(value, types.DOUBLE)
    return pc.cast(value, types.LONG) if pa.types.is_integer(value.type) else value


# --- Time -----------------------------------------------------------------------------------------------------------


DATE_TRUNC_UNITS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month", "mm": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip

TRUNC_UNITS = {name: unit for name, unit in DATE_TRUNC_UNITS.items() if unit in ("year", "quarter", "month", "week")}


def date_trunc(call: Call, args: list[Value]) -> Value:
    value = args[1]
    if pa.types.is_date(value.type):
        value = pc.cast(value, pa.timestamp("us"))
    return truncate_to_unit(value, DATE_TRUNC_UNITS[args[0].as_py()])


def trunc(call: Call, args: list[Value]) -> Value:
    date = cast_to_date(args[0]) if pa.types.is_timestamp(args[0].type) else args[0]
    return truncate_to_unit(date, TRUNC_UNITS[args[1].as_py()])


# --- Metadata functions ---------------------------------------------------------------------------------------------


def element_at(call: Call, args: list[Value]) -> Value:
    return look_up_key(args[0], args[1].as_py())


# --- Vectorised lookup of a key in a column of maps -------------------------------------------------------------------


def look_up_key(map_array: pa.MapArray, key: Any) -> pa.Array:
    """Return the value of a key in every map: null if the map is null or lacks the key, the last of repeated keys.

    Arrow's own `map_lookup` searches map by map. This function compares all keys in one pass and assigns the matches
    to their rows: 45 ms against 90 ms for a million maps of three keys.

    >>> maps = pa.array([[("a", 1), ("a", 2)], [("b", 3)], None], pa.map_(pa.string(), pa.int64()))
    >>> look_up_key(maps, "a").to_pylist()
    [2, None, None]
    """
    if not isinstance(map_array, pa.MapArray):
        raise TypeMismatch(f"expected a map column to look up {key!r}, found {getattr(map_array, 'type', None)}")
    # A slice shares the children of the whole array: the offsets say which entries belong to the slice.
    offsets = map_array.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    keys = map_array.keys.slice(first, end - first)
    positions = (
        pc.indices_nonzero(pc.equal(keys, pa.scalar(key, _get_decoded_type(keys.type)))).to_numpy().astype(np.int64)
    )
    starts = offsets[:-1] - first
    if (
        len(positions) == len(map_array)
        and not map_array.null_count
        and (starts <= positions).all()
        and (positions < offsets[1:] - first).all()
    ):
        # Each map has the key once, as the partition values of nearly all files do.
        return map_array.items.take(pa.array(positions + first))
    found = np.full(len(map_array), -1, dtype=np.int64)
    row_of_entry = np.repeat(np.arange(len(map_array), dtype=np.int32), np.diff(offsets))
    # The last of several matches in a map is assigned last, and so wins.
    found[row_of_entry[positions]] = positions + first
    missing = found < 0
    if map_array.null_count:
        # A null map may still have entries, which are ignored.
        missing |= map_array.is_null().to_numpy(zero_copy_only=False)
    return map_array.items.take(pa.array(found, mask=missing))


def _get_decoded_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


# --- Casts, as in Spark's ANSI mode: `cast` raises for a value out of range, and `try_cast` returns NULL --------------

_INTEGER = r"^[+-]?[0-9]{1,38}$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# Only dates and times that exist, because Arrow's parser raises for others: 29 February exists in leap years only.
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    rf"02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_DATE = rf"^{_DAY}$"
_TIMESTAMP = rf"^{_DAY}(?:[ T]{_TIME})?$"


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow casts as Spark does; the embedded engine runs other casts."""
    source = find_evaluation_type(source)
    if source == find_evaluation_type(target):
        return True
    if pa.types.is_boolean(source):
        return bool(pa.types.is_integer(target) or pa.types.is_floating(target))
    if pa.types.is_integer(source):
        return bool(is_number(target) or is_text(target))
    if pa.types.is_floating(source):
        return bool(pa.types.is_integer(target) or pa.types.is_floating(target))
    if pa.types.is_decimal(source) and pa.types.is_integer(target):
        return True
    if pa.types.is_decimal(source):
        return bool(pa.types.is_floating(target) or (pa.types.is_decimal(target) and target.scale >= source.scale))
    if pa.types.is_date(source) or pa.types.is_timestamp(source):
        return bool(pa.types.is_date32(target) or pa.types.is_timestamp(target))
    if pa.types.is_time(source) and pa.types.is_time(target):
        return types.UNITS_PER_SECOND[source.unit] <= types.UNITS_PER_SECOND[target.unit]
    return is_text(source) and can_try_cast(source, target)


def can_try_cast(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return not pa.types.is_uint64(target)
    return bool(
        is_text(find_evaluation_type(source))
        and (
            is_text(target)
            or pa.types.is_integer(target)
            or target == types.DOUBLE
            or pa.types.is_date32(target)
            or (pa.types.is_timestamp(target) and target.unit == "us")
        )
    )


def cast(call: Call, args: list[Value]) -> Value:
    return cast_value(args[0], find_evaluation_type(type_from_name(args[1].as_py())))


def cast_value(value: Value, target: pa.DataType) -> Value:
    source = value.type
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return pc.cast(pc.trunc(value), target)
    if pa.types.is_decimal(source) and pa.types.is_integer(target):
        return pc.cast(pc.trunc(value), target, safe=True)
    if pa.types.is_timestamp(source):
        return cast_to_date(value) if pa.types.is_date(target) else cast_to_unit(value, target.unit)
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        return _cast_to_decimal(value, target)
    if is_text(source) and not is_text(target):
        parsed = _parse(value, target)
        unparsed = pc.and_(pc.is_valid(value), pc.is_null(parsed))
        if pc.any(unparsed).as_py() if isinstance(value, pa.Array) else unparsed.as_py():
            bad = value.filter(unparsed)[0] if isinstance(value, pa.Array) else value
            raise pa.ArrowInvalid(f"{bad.as_py()!r} is not a valid {types.type_name(target)}; use try_cast to get NULL")
        return parsed
    loses_digits = pa.types.is_floating(target)
    return pc.cast(value, target, safe=not loses_digits)


def _cast_to_decimal(value: Value, target: pa.DataType) -> Value:
    """Cast integers to a decimal type that holds these values; Arrow wants one that holds all values of their type."""
    wide = pa.decimal256(count_decimal_digits(value.type)[0] + target.scale, target.scale)
    return pc.cast(pc.cast(value, wide), target)


def try_cast(call: Call, args: list[Value]) -> Value:
    target = find_evaluation_type(type_from_name(args[1].as_py()))
    if pa.types.is_floating(args[0].type):
        return _to_integer_or_null(args[0], target)
    return args[0] if is_text(target) else _parse(args[0], target)


def _to_integer_or_null(number: Value, target: pa.DataType) -> Value:
    """Truncate floats to integers; NULL for NaN and values out of range."""
    smallest, largest = get_integer_range(target)
    whole = pc.trunc(pc.cast(number, types.DOUBLE))
    # No double equals the largest 64-bit integer, but one equals its successor.
    fits = pc.and_(pc.greater_equal(whole, float(smallest)), pc.less(whole, float(largest + 1)))
    return pc.cast(pc.if_else(fits, whole, pa.scalar(None, types.DOUBLE)), target)


def _parse(text: Value, target: pa.DataType) -> Value:
    """Parse text into another type; NULL where the text is invalid."""
    text = pc.utf8_trim_whitespace(text)
    if pa.types.is_integer(target):
        smallest, largest = get_integer_range(target)
        number = pc.cast(_keep_matching(text, _INTEGER, sign=True), pa.decimal128(38, 0))
        wide = pa.decimal128(38, 0)
        fits = pc.and_(
            pc.greater_equal(number, pa.scalar(smallest).cast(wide) if smallest >= -(2**63) else number),
            pc.less_equal(number, pa.array([largest], pa.uint64()).cast(pa.decimal128(20, 0)).cast(wide)[0]),
        )
        return pc.cast(pc.if_else(fits, number, pa.scalar(None, wide)), target)
    if target == types.DOUBLE:
        return pc.cast(_keep_matching(text, _NUMBER, sign=True), target)
    pattern = _DATE if pa.types.is_date(target) else _TIMESTAMP
    return pc.cast(_keep_matching(text, pattern), target)


def _keep_matching(text: Value, pattern: str, sign: bool = False) -> Value:
    kept = pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, text.type))
    # Arrow does not accept a leading plus.
    return pc.utf8_ltrim(kept, characters="+") if sign else kept
