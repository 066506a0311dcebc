"""The Arrow types that Tamis works with, their SQL names and their properties.

A literal holds the *physical* value of its type, so that nothing is rounded:
days for dates, a count of the type's unit since the epoch for timestamps (UTC) and times,
`(months, days, nanoseconds)` for intervals, `decimal.Decimal` for decimals, plain Python for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from tamis.errors import TypeMismatch, add_article, suggest_name

UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

NULL = pa.null()
BOOLEAN = pa.bool_()
LONG = pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
BINARY = pa.binary()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
TIME = pa.time64("us")
INTERVAL = pa.month_day_nano_interval()

_TYPES_BY_NAME: dict[str, pa.DataType] = {
    "void": NULL,
    "boolean": BOOLEAN,
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": LONG,
    "utinyint": pa.uint8(),
    "usmallint": pa.uint16(),
    "uint": pa.uint32(),
    "ubigint": pa.uint64(),
    "float": pa.float32(),
    "double": DOUBLE,
    "string": STRING,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"),
    "time": TIME,
    "time_s": pa.time32("s"),
    "time_ms": pa.time32("ms"),
    "time_ns": pa.time64("ns"),
    "interval": INTERVAL,
}

# Other common spellings of the same types.
_ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "int8": "tinyint",
    "short": "smallint",
    "int16": "smallint",
    "integer": "int",
    "int32": "int",
    "long": "bigint",
    "int64": "bigint",
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uint",
    "uint64": "ubigint",
    "real": "float",
    "float32": "float",
    "float64": "double",
    "str": "string",
    "varchar": "string",
    "char": "string",
    "text": "string",
    "bytes": "binary",
    "timestamp_ltz": "timestamp",
    "null": "void",
}

_NAMES_BY_TYPE = {data_type: name for name, data_type in _TYPES_BY_NAME.items()}

_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\s*(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?")


class UnsupportedType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The type of a column that Tamis cannot read: the column is in the schema, and reading its values is an error.

    `kind` is the table's own name for the type. It has no comparisons and no bounds.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(BINARY, "tamis.not_read")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.kind.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> UnsupportedType:
        return cls(serialized.decode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnsupportedType) and other.kind == self.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __str__(self) -> str:
        return self.kind


# Registered, so that a schema survives pickling and a round trip through a file.
pa.register_extension_type(UnsupportedType(""))


def find_unsupported_field(schema: pa.Schema) -> tuple[str, str] | None:
    """Return the name and type of the first field, nested ones included, that has an unsupported type, or None."""
    stack = [(field.name, field.type) for field in reversed(schema)]
    while stack:
        name, data_type = stack.pop()
        if isinstance(data_type, UnsupportedType):
            return name, data_type.kind
        inner = [data_type.field(index) for index in range(data_type.num_fields)]
        stack += [(f"{name}.{field.name}", field.type) for field in reversed(inner)]
    return None


def type_name(data_type: pa.DataType) -> str:
    """Return the SQL name of a type, or Arrow's name if SQL has no name for it.

    >>> type_name(pa.int64()), type_name(pa.decimal128(10, 2)), type_name(pa.list_(pa.int8()))
    ('bigint', 'decimal(10,2)', 'array<tinyint>')
    """
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in data_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)}, {type_name(data_type.item_type)}>"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    return _NAMES_BY_TYPE.get(data_type) or str(data_type)


def type_name_with_article(data_type: pa.DataType) -> str:
    """Return the SQL name of a type with its article: `an int`."""
    return add_article(type_name(data_type))


def is_type_name(name: str) -> bool:
    """Return whether `type_from_name` accepts a name without parameters."""
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered) in _TYPES_BY_NAME


def type_from_name(name: str) -> pa.DataType:
    """Return the type of a SQL name, in Spark's, DuckDB's or Arrow's spelling.

    >>> type_from_name("LONG"), type_from_name("decimal(10, 2)")
    (DataType(int64), Decimal128Type(decimal128(10, 2)))
    """
    lowered = name.strip().lower()
    if match := _DECIMAL.fullmatch(lowered):
        precision, scale = int(match[1] or 10), int(match[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
        raise TypeMismatch(f"no type {name!r}: a decimal has 1 to 38 digits and no larger scale")
    data_type = _TYPES_BY_NAME.get(_ALIASES.get(lowered, lowered))
    if data_type is None:
        hint = suggest_name(name, [*_TYPES_BY_NAME, *_ALIASES])
        raise TypeMismatch(f"no type {name!r}.{hint} Types: {', '.join(sorted(_TYPES_BY_NAME))}, decimal(p,s)")
    return data_type


def replace_view_types(data_type: pa.DataType) -> pa.DataType:
    """Return the type with string and binary views replaced, which many of Arrow's kernels do not accept."""
    if pa.types.is_string_view(data_type):
        return STRING
    if pa.types.is_binary_view(data_type):
        return BINARY
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(replace_view_types(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(replace_view_types(data_type.value_type)))
    if pa.types.is_large_list(data_type):
        return pa.large_list(data_type.value_field.with_type(replace_view_types(data_type.value_type)))
    if pa.types.is_map(data_type):
        item = data_type.item_field.with_type(replace_view_types(data_type.item_type))
        return pa.map_(data_type.key_field.with_type(replace_view_types(data_type.key_type)), item)
    return data_type


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def find_field_type(data_type: pa.DataType | None, path: Iterable[str]) -> pa.DataType | None:
    """Return the type of a field inside of a struct type; None if the type is unknown or the field is missing."""
    for name in path:
        index = data_type.get_field_index(name) if data_type is not None and pa.types.is_struct(data_type) else -1
        data_type = data_type.field(index).type if data_type is not None and index >= 0 else None
    return data_type


def is_list(data_type: pa.DataType) -> bool:
    """Return whether a type is a list of any kind."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_(data_type) for is_ in kinds)


def is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def is_ordered(data_type: pa.DataType) -> bool:
    """Return whether `<` is defined: intervals, structs, lists and maps have no order here."""
    return bool(
        is_number(data_type)
        or is_text(data_type)
        or is_bytes(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_time(data_type)
        or pa.types.is_duration(data_type)
    )


def count_decimal_digits(data_type: pa.DataType) -> tuple[int, int]:
    """Return the precision and scale of a decimal that holds every value of a decimal or integer type.

    >>> count_decimal_digits(pa.decimal128(10, 2)), count_decimal_digits(pa.int8()), count_decimal_digits(pa.uint64())
    ((10, 2), (3, 0), (20, 0))
    """
    if pa.types.is_decimal(data_type):
        return data_type.precision, data_type.scale
    return len(str(get_integer_range(data_type)[1])), 0


def find_common_number_type(numbers: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type in which numbers of several types compare: double for any float; None if none holds them all."""
    if any(map(pa.types.is_floating, numbers)):
        return DOUBLE
    if all(map(pa.types.is_integer, numbers)):
        return pa.decimal128(20, 0) if any(map(pa.types.is_uint64, numbers)) else LONG
    digits = [count_decimal_digits(each) for each in numbers]
    scale = max(scale for _, scale in digits)
    precision = max(precision - its_scale for precision, its_scale in digits) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def get_integer_range(data_type: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type.

    >>> get_integer_range(pa.int8()), get_integer_range(pa.uint8())
    ((-128, 127), (0, 255))
    """
    bits = data_type.bit_width
    if pa.types.is_unsigned_integer(data_type):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def can_hold_numbers(table_type: pa.DataType, file_type: pa.DataType) -> bool:
    """Return whether the first type holds every number of the second, so that a cast keeps values distinct and ordered.

    >>> can_hold_numbers(pa.int64(), pa.int32()), can_hold_numbers(pa.float64(), pa.int64())
    (True, False)
    """
    if pa.types.is_floating(file_type):
        return bool(pa.types.is_floating(table_type) and file_type.bit_width <= table_type.bit_width)
    scale = file_type.scale if pa.types.is_decimal(file_type) else 0
    if scale < 0:
        return False
    if pa.types.is_integer(file_type):
        smallest, largest = get_integer_range(file_type)
    else:
        largest = 10 ** (file_type.precision - scale) - 1
        smallest = -largest
    if pa.types.is_floating(table_type):
        exact = 2 ** {16: 11, 32: 24, 64: 53}[table_type.bit_width]
        return scale == 0 and -exact <= smallest and largest <= exact
    if pa.types.is_integer(table_type):
        lowest, highest = get_integer_range(table_type)
        return scale == 0 and lowest <= smallest and largest <= highest
    limit = 10 ** (table_type.precision - table_type.scale)
    return bool(scale <= table_type.scale and largest < limit)


SIGNED_TYPES = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)"}
"""The signed SQL types in which Spark reads unsigned integers, which it does not have, by their Arrow names."""


def is_formatted_differently(data_type: pa.DataType | None) -> bool:
    """Return whether Spark and DuckDB format values of a type differently."""
    return data_type is not None and (pa.types.is_floating(data_type) or pa.types.is_timestamp(data_type))


def is_binary(data_type: pa.DataType | None) -> bool:
    return data_type is not None and (pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))
