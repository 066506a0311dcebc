"""Spark's intervals as DuckDB expressions.

Spark has two types of intervals, months and microseconds, each with a first and a last field. DuckDB has one, of
months, days and microseconds. This module therefore infers the type from the expression, where it matters:

    date + INTERVAL '1' DAY          a date                    interval * 2, interval / 2   rounded half up
    date + INTERVAL '1' HOUR         a timestamp               CAST(interval AS STRING)     by the fields
    INTERVAL 1 DAY > INTERVAL 1 MONTH   an error               EXTRACT(DAY FROM interval)   a field of the type only

An interval without a known type, such as a column, is computed by DuckDB if the result is the same, and has no text.
"""

from __future__ import annotations

from sqlglot import exp

from tamis.engines.duckdb.translate.calls import (
    DUCKDB_PREFIX,
    MACRO_PREFIX,
    call_duckdb,
    call_macro,
    join_texts,
    make_unsupported_error,
    read_string_literal,
    strip_parentheses,
)
from tamis.expr.sql.intervals import (
    MONTH_FIELDS,
    TIME_FIELDS,
    IntervalLiteral,
    InvalidInterval,
    interval_from_node,
    interval_from_range,
    interval_from_text,
    interval_from_units,
)

IntervalFields = tuple[str, str]
"""The first and the last field of an interval type; `CALENDAR` for the type of `make_interval`."""

CALENDAR: IntervalFields = ("calendar", "calendar")
_YEAR_TO_MONTH: IntervalFields = ("year", "month")
_DAY_TO_SECOND: IntervalFields = ("day", "second")
_FIELDS_KEY = "interval"
_FIELD_ORDER = (*MONTH_FIELDS, *TIME_FIELDS)
_CONSTRUCTORS = {
    "make_dt_interval": _DAY_TO_SECOND,
    "make_ym_interval": _YEAR_TO_MONTH,
    "make_interval": CALENDAR,
    "try_make_interval": CALENDAR,
}
_UNIT_SIZES = {
    "year": 12,
    "month": 1,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
}


# --- Types ------------------------------------------------------------------------------------------------------------


def infer_interval_fields(node: exp.Expr | None) -> IntervalFields | None:
    """Return the fields of an interval; None for an expression that is not known to be an interval."""
    while isinstance(node, exp.Paren | exp.Alias):
        node = node.this
    if node is None:
        return None
    found: IntervalFields | None = node.meta.get(_FIELDS_KEY)
    if found is not None:
        return found
    if isinstance(node, exp.Anonymous):
        return _CONSTRUCTORS.get(node.name.lower().removeprefix(MACRO_PREFIX))
    if isinstance(node, exp.Neg):
        return infer_interval_fields(node.this)
    literal = _read_literal(node)
    return None if literal is None else (literal.first, literal.last)


def _read_literal(node: exp.Expr) -> IntervalLiteral | None:
    """Return the interval of a literal; None for other expressions."""
    try:
        return interval_from_node(node)
    except InvalidInterval as reason:
        raise make_unsupported_error("INTERVAL", str(reason)) from None


def attach_interval_fields(node: exp.Expr, fields: IntervalFields) -> exp.Expr:
    node.meta[_FIELDS_KEY] = fields
    return node


def has_months(fields: IntervalFields) -> bool:
    return fields[0] in MONTH_FIELDS


def _unite_fields(left: IntervalFields, right: IntervalFields) -> IntervalFields:
    if left == CALENDAR or right == CALENDAR:
        if left != right:
            raise make_unsupported_error("+ and -", "only one of the two intervals comes from make_interval")
        return CALENDAR
    if has_months(left) != has_months(right):
        raise make_unsupported_error("intervals", "years and months cannot be added to or compared with days and times")
    return min(left[0], right[0], key=_FIELD_ORDER.index), max(left[1], right[1], key=_FIELD_ORDER.index)


# --- Expressions ------------------------------------------------------------------------------------------------------


def translate_interval(node: exp.Expr) -> exp.Expr | None:
    """Translate an expression with an interval to a DuckDB expression; return None for all others."""
    match node:
        case exp.Interval():
            found = _read_literal(node)
            return None if found is None else _build_literal(found)
        case exp.Add() | exp.Sub():
            return _translate_sum(node)
        case exp.Mul() | exp.Div():
            return _translate_scaling(node)
        case exp.Anonymous() if node.name.lower() in _CALLS and infer_interval_fields(node.expressions[0]) is not None:
            return _translate_call(node)
        case exp.IntDiv() if infer_interval_fields(node.this) is not None:
            return _build_integer_quotient(node.this, node.expression)
        case exp.Cast():
            return _translate_cast(node)
        case _ if isinstance(node, _COMPARISONS):
            _check_comparison(node)
    return None


_COMPARISONS = (exp.In, exp.Between, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
                exp.NullSafeNEQ)  # fmt: skip
_CALLS = frozenset(
    f"{prefix}{name}" for prefix in (MACRO_PREFIX, DUCKDB_PREFIX) for name in ("abs", "sign", "signum", "div")
)


def _translate_call(node: exp.Anonymous) -> exp.Expr:
    value = node.expressions[0]
    fields = infer_interval_fields(value)
    assert fields is not None
    if node.name.lower().endswith("abs"):
        return attach_interval_fields(call_macro("interval_abs", value), fields)
    if node.name.lower().endswith("div"):
        return _build_integer_quotient(value, node.expressions[1])
    return call_macro("interval_sign", value)


def _build_integer_quotient(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Build the integer quotient of two intervals."""
    fields, others = infer_interval_fields(one), infer_interval_fields(other)
    if fields is None or others is None or CALENDAR in (fields, others):
        raise make_unsupported_error("div", "an interval is divided only by an interval")
    _unite_fields(fields, others)
    return call_macro("interval_div", _build_unit_count(one, fields), _build_unit_count(other, others))


_MAX_MICROSECONDS = 2**63 // 1000
"""The most microseconds that Arrow can count in nanoseconds."""


def _build_literal(found: IntervalLiteral) -> exp.Expr:
    node: exp.Expr = exp.Interval(this=exp.Literal.string(str(found)))
    if not found.has_months and abs(found.count) > _MAX_MICROSECONDS and found.first != "day":
        node = call_macro("span", exp.cast(exp.Literal.string(str(found.count)), "bigint"))
    return attach_interval_fields(node, (found.first, found.last))


def _translate_sum(node: exp.Add | exp.Sub) -> exp.Expr | None:
    left, right = infer_interval_fields(node.this), infer_interval_fields(node.expression)
    is_difference = isinstance(node, exp.Sub)
    if left is not None and right is not None:
        node.meta[_FIELDS_KEY] = _unite_fields(left, right)
        return None
    if left is None and right is None:
        texts = [read_string_literal(each.unnest()) is not None for each in (node.this, node.expression)]
        if not is_difference and any(texts) and any(map(_infer_kind, (node.this.unnest(), node.expression.unnest()))):
            raise make_unsupported_error("+", "a text cannot be added to a date or a timestamp: write INTERVAL '1' DAY")
        return _translate_difference(node) if isinstance(node, exp.Sub) else None
    fields = left or right
    other = node.expression if left is not None else node.this
    interval = node.this if left is not None else node.expression
    assert fields is not None
    if isinstance(other, exp.Null):
        return exp.Null()
    is_number = isinstance(other, exp.Literal) and not other.is_string
    is_text_of_months = read_string_literal(other) is not None and has_months(fields)
    if (
        is_number
        or is_text_of_months
        or (is_difference and left is not None and read_string_literal(other) is not None)
    ):
        raise make_unsupported_error("+ and -", "an interval is added only to a date, a timestamp or an interval")
    if is_difference and left is not None:
        return None
    name = "months" if has_months(fields) else "calendar" if fields == CALENDAR else "times"
    name = "days" if fields == ("day", "day") else name
    moved = exp.Neg(this=exp.Paren(this=interval)) if is_difference else interval
    return call_macro(f"plus_{name}", other, moved)


_ARITHMETIC = (exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg)


def _translate_difference(node: exp.Sub) -> exp.Expr | None:
    """Build the difference of two dates, which is an interval in Spark and a number in DuckDB."""
    one, other = strip_parentheses(node.this), strip_parentheses(node.expression)
    if any(
        isinstance(each, (exp.Literal, exp.Null, *_ARITHMETIC)) and read_string_literal(each) is None
        for each in (one, other)
    ):
        return None
    kinds = _infer_kind(one), _infer_kind(other)
    texts = [read_string_literal(one) is not None, read_string_literal(other) is not None]
    if any(texts):
        if not any(kinds):
            return None
        # A text has the type of the other side.
        kind = next(each for each in kinds if each)
        name = {"date": "text_date", "time": "text_time"}.get(kind, "text_timestamp")
        one, other = (
            call_macro(name, each) if is_text else each for each, is_text in zip((one, other), texts, strict=True)
        )
        kinds = (kind, kind)
    found = call_macro("minus", one, other)
    if kinds == ("date", "date"):
        return attach_interval_fields(found, ("day", "day"))
    return attach_interval_fields(found, _DAY_TO_SECOND) if all(kinds) else found


_DATE_CALLS = frozenset(
    f"{MACRO_PREFIX}{name}"
    for name in ("date_add", "date_sub", "add_months", "as_date", "text_date", "next_day", "last_day")
)


def _infer_kind(node: exp.Expr) -> str | None:
    """Return whether an expression is known to be a date, a timestamp or a time of day; None if it is not known."""
    if isinstance(node, exp.Cast):
        name = getattr(node.args["to"].this, "name", "")
        return {"DATE": "date", "TIME": "time"}.get(name, "timestamp" if name.startswith("TIMESTAMP") else None)
    if isinstance(node, exp.CurrentDate) or (isinstance(node, exp.Anonymous) and node.name.lower() in _DATE_CALLS):
        return "date"
    if isinstance(node, exp.CurrentTimestamp) or (
        isinstance(node, exp.Anonymous)
        and node.name.lower() in (f"{MACRO_PREFIX}text_timestamp", f"{MACRO_PREFIX}as_timestamp")
    ):
        return "timestamp"
    return None


def _translate_scaling(node: exp.Mul | exp.Div) -> exp.Expr | None:
    left, right = infer_interval_fields(node.this), infer_interval_fields(node.expression)
    if left is None and right is None:
        return None
    is_division = isinstance(node, exp.Div)
    if (left is not None and right is not None) or (is_division and left is None):
        raise make_unsupported_error("* and /", "an interval is multiplied with or divided by numbers only")
    fields = left or right
    assert fields is not None
    interval, number = (node.this, node.expression) if left is not None else (node.expression, node.this)
    if isinstance(number, exp.Null):
        return exp.Null()
    if fields == CALENDAR:
        raise make_unsupported_error("* and /", "an interval of make_interval cannot be multiplied or divided here")
    kind, made = ("months", _YEAR_TO_MONTH) if has_months(fields) else ("times", _DAY_TO_SECOND)
    return attach_interval_fields(call_macro(f"{'share' if is_division else 'times'}_{kind}", interval, number), made)


def _check_comparison(node: exp.Expr) -> None:
    operands = [node.this, *(part for key in ("expression", "low", "high") if (part := node.args.get(key)))]
    operands += node.expressions if isinstance(node, exp.In) else []
    known = [fields for each in operands if (fields := infer_interval_fields(each)) is not None]
    if not known:
        return
    if CALENDAR in known:
        raise make_unsupported_error("comparisons", "an interval of make_interval has no order")
    if any(isinstance(each, exp.Literal) for each in operands):
        raise make_unsupported_error("comparisons", "an interval is compared only with intervals")
    for fields in known[1:]:
        _unite_fields(known[0], fields)


# --- Casts and fields -------------------------------------------------------------------------------------------------


def _read_type_fields(target: exp.Expr) -> IntervalFields | None:
    """Return the fields of a type such as INTERVAL DAY TO SECOND; None for other types."""
    kind = target.this
    if not isinstance(kind, exp.Interval):
        return None
    unit: exp.Expr = kind.args["unit"]
    if isinstance(unit, exp.IntervalSpan):
        return unit.this.name.lower(), unit.expression.name.lower()
    return unit.name.lower(), unit.name.lower()


def _parse_literal(text: str, fields: IntervalFields) -> exp.Expr:
    """Parse a text that is cast to an interval type, and return it as a literal."""
    first, last = fields
    inner = text.strip()
    if inner.lower().startswith("interval"):
        literal = inner[len("interval") :].strip()
        sign = literal[0] if literal[:1] in ("+", "-") else ""
        quoted, _, units = literal.removeprefix(sign).strip().removeprefix("'").partition("'")
        named = tuple(units.lower().split(" to "))
        if (named[0].strip(), named[-1].strip()) != fields:
            raise make_unsupported_error("CAST", f"{text!r} is not an interval {first.upper()} TO {last.upper()}")
        inner = ("" if sign != "-" else "-") + quoted.removeprefix("-" if sign == "-" and quoted[:1] == "-" else "")
    try:
        found = interval_from_units([(inner, first)]) if first == last else interval_from_range(inner, first, last)
    except InvalidInterval as reason:
        raise make_unsupported_error("CAST", str(reason)) from None
    return _build_literal(IntervalLiteral(found.count, first, last))


def _translate_cast(node: exp.Cast) -> exp.Expr | None:
    target = node.args["to"]
    source = infer_interval_fields(node.this)
    wanted = _read_type_fields(target)
    name = getattr(target.this, "name", "")
    if wanted is not None:
        return _cast_to_interval(node, source, wanted)
    if name == "INTERVAL":
        text = read_string_literal(node.this)
        if source == CALENDAR:
            return exp.Paren(this=node.this)
        if text is None:
            raise make_unsupported_error(
                "CAST AS INTERVAL", "only a constant text is cast to an interval without fields"
            )
        return _parse_calendar_interval(text)
    if source is None:
        return None
    is_try = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    if source == CALENDAR:
        raise make_unsupported_error("CAST", "an interval of make_interval is not cast to a text or a number here")
    if name in ("TEXT", "VARCHAR", "CHAR"):
        return _build_text(node.this, source)
    if name in ("TINYINT", "SMALLINT", "INT", "BIGINT") or name.startswith("DECIMAL"):
        count = _build_unit_count(node.this, source)
        unit = exp.Literal.number(_UNIT_SIZES[source[1]])
        if name == "DECIMAL" or source[1] == "second":
            exact = exp.cast(count, exp.DataType.build("DECIMAL(24, 6)", dialect="duckdb"))
            value: exp.Expr = exp.Div(this=exact, expression=unit)
            if name != "DECIMAL":
                value = call_duckdb("trunc", value)
            value = exp.cast(exp.Paren(this=value), exp.DataType.build("DECIMAL(24, 6)", dialect="duckdb"))
        else:
            value = exp.Paren(this=exp.IntDiv(this=count, expression=unit))
        return (exp.TryCast if is_try else exp.Cast)(this=value, to=target)
    raise make_unsupported_error("CAST", f"an interval cannot be cast to {name}")


def _parse_calendar_interval(text: str) -> exp.Expr:
    """Parse a text with months and days, which a literal cannot have: `CAST('1 month 2 days' AS INTERVAL)`."""
    months: list[str] = []
    times: list[str] = []
    words = text.split()
    words = words[1:] if words[:1] and words[0].lower() == "interval" else words
    try:
        for number, unit in zip(words[::2], words[1::2], strict=True):
            part = interval_from_text(f"{number} {unit}")
            (months if part.has_months else times).append(f"{number} {unit}")
        counts = [interval_from_text(" ".join(parts)) for parts in (months, times) if parts]
    except ValueError:
        raise make_unsupported_error("CAST AS INTERVAL", f"{text!r} is not an interval") from None
    if not counts:
        raise make_unsupported_error("CAST AS INTERVAL", f"{text!r} is not an interval")
    return attach_interval_fields(exp.Interval(this=exp.Literal.string(" ".join(map(str, counts)))), CALENDAR)


def _cast_to_interval(node: exp.Cast, source: IntervalFields | None, wanted: IntervalFields) -> exp.Expr:
    text = read_string_literal(node.this)
    if isinstance(node.this, exp.Null):
        return exp.cast(exp.Null(), "interval")
    if text is not None:
        return _parse_literal(text, wanted)
    if source is not None:
        if source == CALENDAR or has_months(source) != has_months(wanted):
            raise make_unsupported_error("CAST", "years and months cannot be cast to days and times")
        if wanted[1] == "second" or wanted[1] == "month":
            return attach_interval_fields(exp.Paren(this=node.this), wanted)
        # Units finer than the last field are truncated.
        unit = exp.Literal.number(_UNIT_SIZES[wanted[1]])
        whole = exp.Mul(
            this=exp.Paren(this=exp.IntDiv(this=_build_unit_count(node.this, source), expression=unit)),
            expression=unit.copy(),
        )
        return attach_interval_fields(_build_interval(whole, wanted), wanted)
    number = node.this.unnest()
    inner = number.this.unnest() if isinstance(number, exp.Neg) else number
    is_number = isinstance(inner, exp.Literal | exp.Cast) or getattr(inner, "name", "").startswith(MACRO_PREFIX)
    if not is_number:
        raise make_unsupported_error("CAST", "only a number or a constant text is cast to an interval here")
    amount: exp.Expr = exp.Mul(this=exp.Paren(this=number), expression=exp.Literal.number(_UNIT_SIZES[wanted[1]]))
    return attach_interval_fields(_build_interval(call_duckdb("round", amount), wanted), wanted)


def _build_interval(count: exp.Expr, fields: IntervalFields) -> exp.Expr:
    if has_months(fields):
        return call_duckdb("to_months", exp.cast(count, "int"))
    return call_macro("span", exp.cast(count, "bigint"))


def _build_unit_count(interval: exp.Expr, fields: IntervalFields) -> exp.Expr:
    return call_macro("interval_months" if has_months(fields) else "interval_micros", interval)


def _build_text(interval: exp.Expr, fields: IntervalFields) -> exp.Expr:
    """Build the text of an interval: `INTERVAL '1 02:03' DAY TO MINUTE`."""
    first, last = fields
    name = first.upper() if first == last else f"{first.upper()} TO {last.upper()}"
    count = _build_unit_count(interval, fields)
    if has_months(fields):
        return call_macro("months_text", count, exp.Literal.string(name))
    shown = TIME_FIELDS[TIME_FIELDS.index(first) : TIME_FIELDS.index(last) + 1]
    parts: list[exp.Expr] = [
        exp.Case(
            ifs=[exp.If(this=exp.LT(this=count, expression=exp.Literal.number(0)), true=exp.Literal.string("-"))],
            default=exp.Literal.string(""),
        )
    ]
    for position, field in enumerate(shown):
        rest: exp.Expr = call_duckdb("abs", count.copy())
        if position:
            rest = exp.Mod(this=rest, expression=exp.Literal.number(_UNIT_SIZES[shown[position - 1]]))
            parts.append(exp.Literal.string(" " if shown[position - 1] == "day" else ":"))
        if field == "second":
            parts.append(call_macro("second_text", exp.Paren(this=rest)))
            continue
        whole = exp.Paren(this=exp.IntDiv(this=exp.Paren(this=rest), expression=exp.Literal.number(_UNIT_SIZES[field])))
        parts.append(exp.cast(whole, "varchar") if field == "day" else call_macro("two_digits", whole))
    return join_texts(exp.Literal.string("INTERVAL '"), *parts, exp.Literal.string(f"' {name}"))


def extract_interval_field(field: str, interval: exp.Expr) -> exp.Expr:
    """Build `EXTRACT(field FROM interval)` for a field of the interval's type."""
    fields = infer_interval_fields(interval)
    assert fields is not None
    known = (
        _FIELD_ORDER[_FIELD_ORDER.index(fields[0]) : _FIELD_ORDER.index(fields[1]) + 1]
        if fields != CALENDAR
        else _FIELD_ORDER
    )
    if field not in known:
        raise make_unsupported_error("EXTRACT", f"the interval has no {field}")
    return call_macro(f"part_{field}", interval)
