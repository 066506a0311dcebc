"""What the databases mean by the same words, and how each writes a value.

| what                   | here, as in Spark       | PostgreSQL          | SQLite                  | DuckDB            |
|------------------------|-------------------------|---------------------|-------------------------|-------------------|
| order of texts         | by bytes of UTF-8       | by collation: "C"   | by collation: BINARY    | by collation: "C" |
| equality of texts      | of all bytes            | by collation        | by collation            | by collation      |
| LIKE                   | regards case            | regards case        | does not: GLOB          | regards case      |
| NaN                    | largest, equals itself  | same                | there is none           | same              |
| NULL in an order       | first, last with DESC   | said in the query   | said in the query       | said in the query |
| dates                  | days                    | same                | texts in the same order | same              |
| types of columns       | each value has it       | same                | looked up first         | same              |
| integers that overflow | an error beyond 64 bits | an error, earlier   | become floats           | an error, earlier |

What is not equal, and cannot be said so that it is, is not asked of the database: arithmetic, division, functions of
letters (`upper`), sums and averages of floats, casts that could change a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from tamis.expr.literals import format_date, format_timestamp
from tamis.expr.nodes import Literal
from tamis.types import is_text

_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""The years 1 to 9999, which every database writes alike."""

_FIRST_SECOND, _LAST_SECOND = _FIRST_DAY * 86400, (_LAST_DAY + 1) * 86400


def family_of(data_type: pa.DataType | None) -> str | None:
    """Values of one family compare with each other in a database as they do here; None where none do."""
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
"""Values of which a group has one spelling: not floats, of which 0.0 and -0.0 are equal."""


@dataclass(frozen=True)
class Dialect:
    """A database, as far as what it is asked depends on it."""

    name: str
    """As sqlglot calls it."""
    collation: str
    """The collation that compares texts by their bytes."""
    families: frozenset[str]
    """Of which values compare there as they do here."""
    functions: frozenset[str]
    """That mean the same there."""
    joins: frozenset[str]
    write: Callable[[Literal, str], exp.Expr | None]
    """A value of a family as it stands in a query; None where it cannot stand there."""
    has_wide_sums: bool = True
    """Whether a sum of integers is of a wider type than they are."""
    has_like: bool = True
    """Whether LIKE tells upper from lower case; else there is GLOB."""


def _written(types: dict[str, str]) -> Callable[[Literal, str], exp.Expr | None]:
    """How values are written where types have names; `types` are those of families."""

    def write(literal: Literal, family: str) -> exp.Expr | None:
        value = literal.value
        match family:
            case "boolean":
                return exp.Boolean(this=bool(value))
            case "integer":
                return exp.Literal.number(int(value))
            case "decimal":
                return _decimal(value)
            case "text":
                return _text(value)
            case "single" | "double":
                return exp.cast(exp.Literal.string(_float(value)), types[family])
            case "date" | "timestamp" | "instant":
                moment = _moment(literal, family)
                return None if moment is None else exp.cast(exp.Literal.string(moment), types[family])
        return None

    return write


def is_writable(text: str) -> bool:
    """Whether a text can stand in a query: PostgreSQL has none with zero characters, and half a character is none."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _text(value: str) -> exp.Expr | None:
    return exp.Literal.string(value) if is_writable(value) else None


def _decimal(value: Decimal) -> exp.Expr:
    return exp.Literal.number(format(value, "f"))


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _moment(literal: Literal, family: str) -> str | None:
    if family == "date":
        return format_date(literal.value) if _FIRST_DAY <= literal.value <= _LAST_DAY else None
    if not _FIRST_SECOND * 1_000_000 <= literal.value < _LAST_SECOND * 1_000_000:
        return None
    return format_timestamp(literal.value, "us") + ("+00:00" if family == "instant" else "")


def _written_in_sqlite(literal: Literal, family: str) -> exp.Expr | None:
    value = literal.value
    match family:
        case "boolean":
            return exp.Literal.number(int(value))
        case "integer":
            # The smallest integer is read as the negation of one that is too large, which is a float.
            return exp.Literal.number(int(value)) if value > -(2**63) else None
        case "text":
            return _text(value)
        case "double":
            # SQLite does not read every decimal fraction as the float that is nearest to it.
            return _exact_fraction(value)
        case "date":
            moment = _moment(literal, family)
            return None if moment is None else exp.Literal.string(moment)
    return None


def _exact_fraction(value: float) -> exp.Expr | None:
    """A float as a quotient of an integer and a power of two, both of which SQLite reads without rounding."""
    if not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    if abs(numerator) >= 2**53 or denominator > 2**62:
        return None
    parts = (exp.Literal.number(f"{number}.0") for number in (numerator, denominator))
    return exp.paren(exp.Div(this=next(parts), expression=next(parts)))


_ALL = frozenset(family for _, family in _FAMILIES)
_FUNCTIONS = frozenset(("coalesce", "case", "cast"))
_JOINS = frozenset(("inner", "left", "right", "full"))

POSTGRESQL = Dialect(
    "postgres",
    "C",
    _ALL,
    _FUNCTIONS | {"length", "substring"},
    _JOINS,
    _written({
        "single": "real", "double": "double precision", "date": "date",
        "timestamp": "timestamp", "instant": "timestamptz",
    }),
)  # fmt: skip

DUCKDB = Dialect(
    "duckdb",
    "C",
    _ALL,
    _FUNCTIONS | {"length", "substring"},
    _JOINS,
    _written({
        "single": "float", "double": "double", "date": "date",
        "timestamp": "timestamp", "instant": "timestamptz",
    }),
)  # fmt: skip

SQLITE = Dialect(
    "sqlite",
    "BINARY",
    frozenset(("boolean", "integer", "double", "text", "date")),
    _FUNCTIONS,
    frozenset(("inner", "left")),
    _written_in_sqlite,
    has_wide_sums=False,
    has_like=False,
)
