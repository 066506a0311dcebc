"""Formatting and parsing of numbers: `to_char`, `to_number`, `format_number` and `format_string`.

A format is a constant, which is parsed when a query is translated. If Spark formats without a consistent rule (a zero
beside a sign, see `_ZERO_ERROR`), the result is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from sqlglot import exp

from tamis.engines.duckdb.functions.datetimes import build_time_text
from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate import calls

_FORMAT = re.compile(
    r"(?P<first>S|MI)?(?P<currency>\$)?(?P<whole>[09]+(?:[,G][09]+)*)(?:[.D](?P<part>[09]+))?(?P<last>S|MI|PR)?"
)
_ZERO_ERROR = "error('Spark formats a zero beside a sign inconsistently: use 0 instead of 9 in the format')"
_MAX_DIGITS = 38

_FLOATING = "typeof(x) IN ('DOUBLE', 'FLOAT')"

MACROS: calls.Macros = define_macros(
    rf"""
    digits_of(x):
        CASE WHEN {_FLOATING} THEN CAST(CAST(x AS DECIMAL(30, 15)) AS VARCHAR)
        WHEN typeof(x) = 'VARCHAR' THEN CAST(CAST(x AS DECIMAL(38, 18)) AS VARCHAR)
        WHEN typeof(x) LIKE 'DECIMAL%' OR typeof(x) LIKE '%INT' OR typeof(x) = 'INTEGER' THEN CAST(x AS VARCHAR)
        WHEN x IS NOT NULL THEN error('to_char takes a number for a format of digits') END
    formatted(x, whole, part, cuts, is_filled, sign, currency):
        -- `whole` and `part` count the digits before and after the point, `cuts` are the positions of separators.
        spark_placed_sign(starts_with(x, '-') AND regexp_matches(x, '[1-9]'), sign, currency,
        CASE WHEN length(spark_whole_digits(x)) > whole OR length(spark_part_digits(x)) > part
        THEN spark_cut(repeat('#', whole), cuts, ' ')
        WHEN is_filled THEN spark_cut(lpad(spark_whole_digits(x), CAST(whole AS INTEGER), '0'), cuts, ',')
        WHEN spark_whole_digits(x) = '' AND sign <> '' AND (part = 0 OR sign NOT IN ('>S', '>MI'))
        THEN {_ZERO_ERROR}
        WHEN spark_whole_digits(x) = '' AND part > 0 THEN lpad('0', CAST(whole + len(cuts) AS INTEGER), ' ')
        ELSE lpad(ltrim(spark_cut(lpad(spark_whole_digits(x), CAST(whole AS INTEGER), '0'), cuts, ','), '0,'),
        CAST(whole + len(cuts) AS INTEGER), ' ') END,
        CASE WHEN part = 0 THEN '' WHEN length(spark_whole_digits(x)) > whole OR length(spark_part_digits(x)) > part
        THEN '.' || repeat('#', part) ELSE '.' || rpad(spark_part_digits(x), CAST(part AS INTEGER), '0') END)
    whole_digits(x): ltrim(split_part(ltrim(x, '-'), '.', 1), '0')
    part_digits(x): rtrim(split_part(x, '.', 2), '0')
    cut(x, cuts, mark):
        array_to_string(list_transform(list_zip(list_concat([0], cuts), list_append(cuts, length(x))),
        lambda p: substring(x, p[1] + 1, p[2] - p[1])), mark)
    placed_sign(is_negative, sign, currency, x, part):
        CASE WHEN sign = '' THEN currency || x || part
        WHEN sign = '>S' THEN currency || x || part || CASE WHEN is_negative THEN '-' ELSE '+' END
        WHEN sign = '>MI' THEN currency || x || part || CASE WHEN is_negative THEN '-' ELSE ' ' END
        WHEN sign = '>PR' THEN CASE WHEN is_negative THEN currency || repeat(' ', length(x) - length(ltrim(x, ' ')))
        || '<' || ltrim(x, ' ') || part || '>' ELSE currency || x || part || '  ' END
        WHEN currency <> '' THEN spark_sign_of(is_negative, sign) || currency || x || part
        ELSE repeat(' ', length(x) - length(ltrim(x, ' '))) || spark_sign_of(is_negative, sign) || ltrim(x, ' ')
        || part END
    sign_of(is_negative, sign): CASE WHEN is_negative THEN '-' WHEN sign = '<S' THEN '+' ELSE ' ' END
    number_read(x, shape):
        CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(regexp_replace(x, '\s', '', 'g'), shape)
        AND regexp_matches(x, '[0-9]') THEN spark_number_of(regexp_replace(x, '\s', '', 'g'))
        ELSE error('a text does not match the format of to_number') END
    try_number_read(x, shape):
        CASE WHEN regexp_full_match(regexp_replace(x, '\s', '', 'g'), shape)
        AND regexp_matches(x, '[0-9]') THEN spark_number_of(regexp_replace(x, '\s', '', 'g')) END
    number_of(x): CASE WHEN regexp_matches(x, '[<-]') THEN '-' ELSE '' END || regexp_replace(x, '[^0-9.]', '', 'g')
    format_number(x, n):
        CASE WHEN x IS NULL OR n IS NULL OR n < 0 THEN NULL WHEN {_FLOATING} THEN
        CASE WHEN isnan(CAST(x AS DOUBLE)) THEN 'NaN' WHEN isinf(CAST(x AS DOUBLE))
        THEN CASE WHEN x < 0 THEN '-∞' ELSE '∞' END ELSE format('{{:,.' || n || 'f}}', CAST(x AS DOUBLE)) END
        ELSE CASE WHEN x < 0 THEN '-' ELSE '' END || spark_grouped(CAST(round_even(abs(x), n) AS VARCHAR), n) END
    by_pattern(x, least, least_whole, is_grouped):
        -- `x` is the result of `format_number` with the maximum number of digits of the pattern.
        CASE WHEN regexp_matches(x, 'NaN|∞') THEN x ELSE
        CASE WHEN starts_with(x, '-') AND regexp_matches(x, '[1-9]') THEN '-' ELSE '' END ||
        spark_least_whole(CASE WHEN is_grouped THEN split_part(ltrim(x, '-'), '.', 1)
        ELSE replace(split_part(ltrim(x, '-'), '.', 1), ',', '') END, least_whole) ||
        regexp_replace('.' || rpad(rtrim(split_part(x, '.', 2), '0'),
        CAST(greatest(least, length(rtrim(split_part(x, '.', 2), '0'))) AS INTEGER), '0'), '\.$', '') END
    least_whole(x, n):
        CASE WHEN n = 0 AND x = '0' THEN '' WHEN length(x) >= n THEN x
        WHEN contains(x, ',') OR n > 3 THEN error('format_number pads to at most three digits here')
        ELSE lpad(x, CAST(n AS INTEGER), '0') END
    -- format_string
    printed_text(x):
        CASE WHEN typeof(x) LIKE 'TIMESTAMP%' OR typeof(x) IN ('DATE', 'BLOB', 'TIME', 'INTERVAL')
        OR typeof(x) LIKE '%]' OR typeof(x) LIKE 'STRUCT%' OR typeof(x) LIKE 'MAP%'
        THEN error('%s supports only texts, numbers and booleans here') ELSE coalesce(spark_string(x), 'null') END
    in_width(x, width, flags):
        CASE WHEN length(x) >= width THEN x WHEN contains(flags, '-') THEN rpad(x, CAST(width AS INTEGER), ' ')
        ELSE lpad(x, CAST(width AS INTEGER), ' ') END
    printed_number(x, is_negative, width, flags):
        -- Digits without a sign.
        CASE WHEN x IS NULL THEN spark_in_width('null', width, flags) WHEN contains(flags, '0')
        AND regexp_matches(x, '[0-9]') THEN spark_sign_flag(is_negative, flags) || lpad(x, CAST(greatest(length(x),
        width - length(spark_sign_flag(is_negative, flags)) - CASE WHEN is_negative AND contains(flags, '(')
        THEN 1 ELSE 0 END) AS INTEGER), '0') || CASE WHEN is_negative AND contains(flags, '(') THEN ')' ELSE '' END
        ELSE spark_in_width(spark_sign_flag(is_negative, flags) || x || CASE WHEN is_negative
        AND contains(flags, '(') THEN ')' ELSE '' END, width, flags) END
    sign_flag(is_negative, flags):
        CASE WHEN is_negative AND contains(flags, '(') THEN '(' WHEN is_negative THEN '-'
        WHEN contains(flags, '+') THEN '+' WHEN contains(flags, ' ') THEN ' ' ELSE '' END
    whole_number(x):
        CASE WHEN typeof(x) IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', '"NULL"') THEN TRY_CAST(x AS BIGINT)
        ELSE error('%d and %x support only whole numbers') END
    printed_whole(x, width, flags):
        spark_printed_number(CASE WHEN contains(flags, ',')
        THEN format('{{:,}}', abs(CAST(spark_whole_number(x) AS HUGEINT)))
        ELSE CAST(abs(CAST(spark_whole_number(x) AS HUGEINT)) AS VARCHAR) END, x < 0, width, flags)
    printed_hex(x, width, flags):
        spark_printed_number(lower(hex(CASE WHEN typeof(x) = 'TINYINT' THEN spark_whole_number(x) & 255
        WHEN typeof(x) = 'SMALLINT' THEN spark_whole_number(x) & 65535
        WHEN typeof(x) = 'INTEGER' THEN spark_whole_number(x) & 4294967295 ELSE spark_whole_number(x) END)),
        FALSE, width, flags)
    printed_float(x, digits, width, flags):
        CASE WHEN NOT {_FLOATING} THEN error('%f supports only floats and doubles')
        WHEN x IS NULL THEN spark_in_width(left('null', digits), width, flags)
        WHEN isnan(CAST(x AS DOUBLE)) THEN spark_in_width('NaN', width, flags)
        WHEN isinf(CAST(x AS DOUBLE)) OR abs(CAST(x AS DOUBLE)) >= 1e15 OR digits > 15
        THEN error('%f supports only numbers below 10 to the 15th, and at most 15 digits')
        ELSE spark_printed_number(spark_rounded_digits(CAST(x AS VARCHAR), digits, contains(flags, ',')),
        x < 0 OR starts_with(CAST(x AS VARCHAR), '-'), width, flags) END
    rounded_digits(text, digits, is_grouped):
        -- Rounds the decimal digits, not the binary value: 1.005 is 1.01.
        spark_scaled_digits(CAST(trunc(abs(CAST(text AS DECIMAL(38, 20))) * CAST(power(10, digits) AS BIGINT)
        + 0.5) AS VARCHAR), digits, is_grouped)
    scaled_digits(text, digits, is_grouped):
        spark_joined_digits(lpad(split_part(text, '.', 1),
        CAST(greatest(length(split_part(text, '.', 1)), digits + 1) AS INTEGER), '0'), digits, is_grouped)
    joined_digits(text, digits, is_grouped):
        CASE WHEN is_grouped THEN format('{{:,}}', CAST(left(text, length(text) - digits) AS HUGEINT))
        ELSE left(text, length(text) - digits) END
        || CASE WHEN digits > 0 THEN '.' || right(text, digits) ELSE '' END
    """
)


# --- to_char and to_number ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Format:
    groups: tuple[str, ...]
    part: int
    first: str
    last: str
    currency: str

    @property
    def whole(self) -> int:
        return sum(map(len, self.groups))


def _parse_format(name: str, text: str) -> _Format:
    found = _FORMAT.fullmatch(text.upper())
    if found is None or (found["first"] and found["last"]):
        raise calls.make_unsupported_error(name, f"{text!r} is not a number format, as in '999,990.00' or 'S$999'")
    part = len(found["part"] or "")
    made = _Format(
        tuple(re.split("[,G]", found["whole"])),
        part,
        found["first"] or "",
        found["last"] or "",
        found["currency"] or "",
    )
    if made.whole + part > _MAX_DIGITS:
        raise calls.make_unsupported_error(name, f"the format {text!r} has more than {_MAX_DIGITS} digits")
    return made


def _build_to_char(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `to_char`: the format decides between numbers, bytes and times."""
    text = calls.read_constant(name, "format", args[1])
    if text.lower() == "hex":
        return calls.call_duckdb("hex", calls.as_bytes(args[0]))
    if text.lower() == "base64":
        return calls.call_macro("base64", calls.as_bytes(args[0]))
    if text.lower() == "utf-8":
        return calls.call_duckdb("decode", calls.as_bytes(args[0]))
    if _FORMAT.fullmatch(text.upper()) is None:
        return build_time_text(name, args[0], text)
    found = _parse_format(name, text)
    if len({group[0] for group in found.groups}) > 1:
        raise calls.make_unsupported_error(name, f"some groups of the format {text!r} start with 0 and some with 9")
    sign = f"<{found.first}" if found.first else f">{found.last}" if found.last else ""
    separators = [exp.Literal.number(digits) for digits in accumulate(map(len, found.groups[:-1]))]
    return calls.call_macro(
        "formatted",
        calls.call_macro("digits_of", args[0]),
        exp.Literal.number(found.whole),
        exp.Literal.number(found.part),
        exp.cast(exp.Array(expressions=separators), "array<bigint>"),
        exp.true() if found.groups[0][0] == "0" else exp.false(),
        exp.Literal.string(sign),
        exp.Literal.string(found.currency),
    )


def _build_to_number(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    text = calls.read_constant(name, "format", args[1])
    found = _parse_format(name, text)
    read = calls.call_macro(
        name.replace("to_number", "number_read"),
        calls.as_text(args[0]),
        exp.Literal.string(_write_format_regexp(found)),
    )
    kind = exp.DataType.build(f"decimal({found.whole + found.part}, {found.part})")
    return exp.Cast(this=read, to=kind)


def _write_format_regexp(found: _Format) -> str:
    """Write the regular expression of the texts that a format parses: its groups are filled from the right."""
    shape, is_needed = "", False
    for group in found.groups:
        is_exact = group[0] == "0"
        digits = f"[0-9]{{{len(group)}}}" if is_exact else f"[0-9]{{0,{len(group)}}}"
        separated = "" if not shape else f"{shape}," if is_needed else f"(?:{shape},)?"
        shape = separated + digits
        is_needed |= is_exact
    if found.part:
        shape += rf"(?:\.[0-9]{{0,{found.part}}})?"
    if found.currency:
        shape = rf"\${shape}"
    signs = {"S": "[+-]?", "MI": "-?", "": ""}
    if found.last == "PR":
        return f"(?:{shape}|<{shape}>)"
    return f"{signs[found.first]}{shape}{signs[found.last]}"


# --- format_number --------------------------------------------------------------------------------------------------

_PATTERN = re.compile(r"(?P<before>[^#0,.%\u2030E'\u00a4;-]*)(?P<whole>[#,]*[0,]*)(?:\.(?P<least>0*)(?P<most>#*))?")


def _build_format_number(args: Sequence[exp.Expr]) -> exp.Expr | None:
    text = calls.read_string_literal(args[1])
    if text is None:
        return calls.call_macro("format_number", args[0], calls.as_int(args[1]))
    found = _PATTERN.fullmatch(text)
    whole = found["whole"] if found is not None else ""
    is_grouped = "," in whole
    if found is None or not whole or (is_grouped and len(whole.rsplit(",", 1)[1]) != 3):
        raise calls.make_unsupported_error(
            "format_number", f"the pattern {text!r} has more than digits, groups of three and a point"
        )
    least, most = len(found["least"] or ""), len(found["least"] or "") + len(found["most"] or "")
    zeros = whole.count("0")
    least_whole = zeros if zeros or least else 1
    number = calls.call_macro(
        "by_pattern",
        calls.call_macro("format_number", args[0], exp.Literal.number(most)),
        exp.Literal.number(least),
        exp.Literal.number(least_whole),
        exp.true() if is_grouped else exp.false(),
    )
    if not found["before"]:
        return number
    if re.search(r"[A-Za-z]", found["before"]) or least_whole == 0:
        raise calls.make_unsupported_error("format_number", f"the pattern {text!r} has letters")
    return calls.call_duckdb(
        "regexp_replace", number, exp.Literal.string("^(-?)"), exp.Literal.string("\\1" + found["before"])
    )


# --- format_string --------------------------------------------------------------------------------------------------

_CONVERSION = re.compile(
    r"%(?:(?P<index>\d+)\$)?(?P<flags>[-#+ 0,(]*)(?P<width>\d+)?(?:\.(?P<digits>\d+))?(?P<kind>[A-Za-z%])|%|[^%]+"
)
_FLAGS = {"s": "-", "S": "-", "d": "-+ 0,(", "x": "-0", "X": "-0", "f": "-+ 0,(", "c": "-", "b": "-", "n": "", "%": ""}


def _build_format_string(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `format_string`, which formats each conversion apart, and NULL as the text null."""
    if not args:
        raise calls.make_unsupported_error(name, "it takes a format")
    if isinstance(args[0], exp.Null):
        return exp.Null()
    text = calls.read_constant(name, "format", args[0])
    parts: list[exp.Expr] = [exp.Literal.string("")]
    used = 0
    for match in _CONVERSION.finditer(text):
        kind = match["kind"]
        if kind is None and match[0] == "%":
            raise calls.make_unsupported_error(name, "a % in its format does not start a conversion")
        if kind is None or kind in ("%", "n"):
            parts.append(exp.Literal.string(match[0] if kind is None else {"%": "%", "n": "\n"}[kind]))
            continue
        if kind not in _FLAGS or set(match["flags"]) - set(_FLAGS[kind]):
            raise calls.make_unsupported_error(name, f"{match[0]} means something else to the embedded engine")
        index = int(match["index"]) - 1 if match["index"] else used
        used += 0 if match["index"] else 1
        if not 0 <= index < len(args) - 1:
            raise calls.make_unsupported_error(name, f"{match[0]} has no value")
        parts.append(_build_conversion(name, match, args[index + 1].copy()))
    return calls.join_texts(*parts)


def _build_conversion(name: str, match: re.Match[str], value: exp.Expr) -> exp.Expr:
    kind, flags = match["kind"], exp.Literal.string(match["flags"])
    width = exp.Literal.number(int(match["width"] or 0))
    if ("0" in match["flags"] or "-" in match["flags"]) and not match["width"]:
        raise calls.make_unsupported_error(name, f"{match[0]} needs a width")
    if match["digits"] and kind not in ("s", "S", "f"):
        raise calls.make_unsupported_error(name, f"{match[0]} must not have a precision")
    match kind:
        case "d":
            return calls.call_macro("printed_whole", value, width, flags)
        case "x" | "X":
            found = calls.call_macro("printed_hex", value, width, flags)
        case "f":
            digits = exp.Literal.number(int(match["digits"] or 6))
            if isinstance(value, exp.Null):
                value = exp.cast(exp.null(), "double")
            return calls.call_macro("printed_float", value, digits, width, flags)
        case "c":
            code = calls.call_duckdb("chr", calls.as_int(value))
            found = calls.call_macro(
                "in_width", calls.call_duckdb("coalesce", code, exp.Literal.string("null")), width, flags
            )
        case "b":
            truth = exp.cast(calls.call_duckdb("coalesce", value, exp.false()), "varchar")
            found = calls.call_macro("in_width", truth, width, flags)
        case _:
            found = calls.call_macro("printed_text", value)
            if match["digits"]:
                found = calls.call_duckdb("left", found, exp.Literal.number(int(match["digits"])))
            if match["width"]:
                found = calls.call_macro("in_width", found, width, flags)
    return calls.call_duckdb("upper", found) if kind in ("S", "X") else found


ROWS: calls.Rows = (
    ("to_char to_varchar", calls.BuildNamed(_build_to_char, (2,), propagates_null=True)),
    ("to_number try_to_number", calls.BuildNamed(_build_to_number, (2,), propagates_null=True)),
    ("format_number", calls.Build(_build_format_number, (2,), propagates_null=True)),
    ("format_string printf", calls.BuildNamed(_build_format_string)),
)
