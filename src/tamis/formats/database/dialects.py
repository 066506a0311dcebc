"""The SQL semantics in which databases differ, and how each database writes a literal.

| semantics           | Tamis, as in Spark     | PostgreSQL        | SQLite                    | DuckDB            |
|---------------------|------------------------|-------------------|---------------------------|-------------------|
| order of strings    | by UTF-8 bytes         | by collation: "C" | by collation: BINARY      | by collation: "C" |
| equality of strings | by all bytes           | by collation      | by collation              | by collation      |
| LIKE                | case-sensitive         | case-sensitive    | case-insensitive: GLOB    | case-sensitive    |
| NaN                 | largest, equals itself | same              | does not exist            | same              |
| NULL in ORDER BY    | first, last with DESC  | explicit          | explicit                  | explicit          |
| dates               | days                   | same              | strings in the same order | same              |
| column types        | every value has it     | same              | checked before use        | same              |
| integer overflow    | error beyond 64 bits   | error, earlier    | becomes a float           | error, earlier    |

An operation whose result differs, and cannot be rewritten so that it agrees, is not pushed down: arithmetic, division,
letter case functions (`upper`), sums and averages of floats, casts that may change a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tamis.expr.literals import format_date, format_timestamp
from tamis.expr.nodes import Literal
from tamis.types import is_text

_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""The years 1 to 9999, which every database writes in the same form."""

_FIRST_SECOND, _LAST_SECOND = _FIRST_DAY * 86400, (_LAST_DAY + 1) * 86400


def quote_identifier(name: str) -> str:
    """Quote the name of a column, a table or a schema, as all of the databases do."""
    return '"' + name.replace('"', '""') + '"'


def find_type_family(data_type: pa.DataType | None) -> str | None:
    """Return the family of a type, or None. Values of one family compare in a database as they do in Tamis."""
    if data_type is None:
        return None
    for is_of, family in _FAMILIES:
        if is_of(data_type):
            return family
    return None


_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (lambda each: pa.types.is_signed_integer(each), "integer"),
    (pa.types.is_float32, "single"),
    (pa.types.is_float64, "double"),
    (pa.types.is_decimal, "decimal"),
    (is_text, "text"),
    (pa.types.is_date32, "date"),
    (lambda each: pa.types.is_timestamp(each) and each.unit == "us" and each.tz is None, "timestamp"),
    (lambda each: pa.types.is_timestamp(each) and each.unit == "us" and each.tz == "UTC", "instant"),
)

GROUPABLE = frozenset(("boolean", "integer", "decimal", "text", "date", "timestamp", "instant"))
"""Families whose equal values are identical, so that a group key is unambiguous; floats are not (0.0 = -0.0)."""


@dataclass(frozen=True)
class Dialect:
    """The capabilities of a database that decide which SQL is pushed down to it."""

    name: str
    """The name of the dialect in sqlglot."""
    collation: str
    """The collation that compares strings by their bytes."""
    families: frozenset[str]
    """Type families whose values compare in the database as they do in Tamis."""
    joins: frozenset[str]
    write: Callable[[Literal, str], exp.Expr | None]
    """Writes a literal of a family for a query; None if the database cannot represent it."""
    has_wide_sums: bool = True
    """Whether a sum of integers has a wider type than its operands."""
    has_like: bool = True
    """Whether LIKE is case-sensitive; otherwise the database has GLOB."""
    system_prefix: str | None = None
    """The prefix of the names of system tables, where they are not in a schema of their own."""


def _write_with_types(types: dict[str, str]) -> Callable[[Literal, str], exp.Expr | None]:
    """Return a literal writer for a database with named types; `types` maps families to type names."""

    def write(literal: Literal, family: str) -> exp.Expr | None:
        value = literal.value
        match family:
            case "boolean":
                return exp.Boolean(this=bool(value))
            case "integer":
                return exp.Literal.number(int(value))
            case "decimal":
                return exp.Literal.number(format(value, "f"))
            case "text":
                return _write_text(value)
            case "single" | "double":
                return exp.cast(exp.Literal.string(_format_float(value)), types[family])
            case "date" | "timestamp" | "instant":
                time = _format_time(literal, family)
                return None if time is None else exp.cast(exp.Literal.string(time), types[family])
        return None

    return write


def is_writable(text: str) -> bool:
    """Return whether a string can be a literal: PostgreSQL rejects NUL, and a lone surrogate is not a character."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _write_text(value: str) -> exp.Expr | None:
    return exp.Literal.string(value) if is_writable(value) else None


def _format_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _format_time(literal: Literal, family: str) -> str | None:
    if family == "date":
        return format_date(literal.value) if _FIRST_DAY <= literal.value <= _LAST_DAY else None
    if not _FIRST_SECOND * 1_000_000 <= literal.value < _LAST_SECOND * 1_000_000:
        return None
    return format_timestamp(literal.value, "us") + ("+00:00" if family == "instant" else "")


def _write_sqlite(literal: Literal, family: str) -> exp.Expr | None:
    value = literal.value
    match family:
        case "boolean":
            return exp.Literal.number(int(value))
        case "integer":
            # SQLite reads the smallest integer as the negation of an integer that is too large, which is a float.
            return exp.Literal.number(int(value)) if value > -(2**63) else None
        case "text":
            return _write_text(value)
        case "double":
            # SQLite does not read every decimal fraction as the float that is nearest to it.
            return _write_exact_fraction(value)
        case "date":
            time = _format_time(literal, family)
            return None if time is None else exp.Literal.string(time)
    return None


def _write_exact_fraction(value: float) -> exp.Expr | None:
    """Write a float as an integer divided by a power of two; SQLite reads both without rounding."""
    if not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    if abs(numerator) >= 2**53 or denominator > 2**62:
        return None
    parts = (exp.Literal.number(f"{number}.0") for number in (numerator, denominator))
    return exp.paren(exp.Div(this=next(parts), expression=next(parts)))


_ALL_FAMILIES = frozenset(family for _, family in _FAMILIES)
_JOINS = frozenset(("inner", "left", "right", "full"))

_TIMES = {"date": "date", "timestamp": "timestamp", "instant": "timestamptz"}

POSTGRESQL = Dialect(
    "postgres",
    "C",
    _ALL_FAMILIES,
    _JOINS,
    _write_with_types({"single": "real", "double": "double precision", **_TIMES}),
)

DUCKDB = Dialect(
    "duckdb",
    "C",
    _ALL_FAMILIES,
    _JOINS,
    _write_with_types({"single": "float", "double": "double", **_TIMES}),
)

SQLITE = Dialect(
    "sqlite",
    "BINARY",
    frozenset(("boolean", "integer", "double", "text", "date")),
    frozenset(("inner", "left")),
    _write_sqlite,
    has_wide_sums=False,
    has_like=False,
    system_prefix="sqlite_",
)
