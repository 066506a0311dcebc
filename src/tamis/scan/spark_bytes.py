"""Macros for binary values, number bases and type names: `hex`, `base64`, `conv`, `to_binary`, `typeof`."""

from __future__ import annotations

from tamis.scan.spark_calls import Macros
from tamis.scan.spark_text_macros import write_map

_HEX = "[0-9A-Fa-f]*"

_TYPE_NAMES = write_map(
    {
        "VARCHAR": "string",
        "BLOB": "binary",
        "TINYINT": "tinyint",
        "SMALLINT": "smallint",
        "INTEGER": "int",
        "BIGINT": "bigint",
        "FLOAT": "float",
        "DOUBLE": "double",
        "BOOLEAN": "boolean",
        "DATE": "date",
        "TIMESTAMP WITH TIME ZONE": "timestamp",
        "TIMESTAMP": "timestamp_ntz",
        '"NULL"': "void",
    }
)
_CONTINUATION = "[89AB]."
_VALID = (
    f"[0-7].|(?:C[2-9A-F]|D.){_CONTINUATION}|(?:E0[AB].|E[1-9A-CEF]{_CONTINUATION}|ED[89].){_CONTINUATION}"
    f"|(?:F0[9AB].|F[123]{_CONTINUATION}|F48.){_CONTINUATION}{_CONTINUATION}"
)
_CUT_OFF = f"E0[AB].|E[1-9A-CEF]{_CONTINUATION}|ED[89].|(?:F0[9AB].|F[123]{_CONTINUATION}|F48.)(?:{_CONTINUATION})?"
"""Regular expressions over hexadecimal digits: valid UTF-8 characters, and characters that are cut off."""


def _write_base64_decoding(decoded: str, otherwise: str) -> str:
    """Write SQL that gives `decode_or_raise` where the text `x` is valid base64 without blanks, and else `otherwise`."""
    return (
        "CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(x, '[A-Za-z0-9+/]*={0,2}') AND "
        "CASE WHEN contains(x, '=') THEN length(x) % 4 = 0 ELSE length(x) % 4 <> 1 END "
        f"THEN {decoded} ELSE {otherwise} END"
    )


_PADDED_BASE64 = "from_base64(rpad(x, CAST((length(x) + 3) // 4 * 4 AS INTEGER), '='))"


def _write_to_binary(otherwise: str, otherwise_format: str, strict: str) -> str:
    return (
        "CASE WHEN x IS NULL OR format IS NULL THEN NULL WHEN lower(format) = 'hex' THEN "
        f"CASE WHEN regexp_full_match(x, '{_HEX}') THEN unhex(x) ELSE {otherwise} END "
        "WHEN lower(format) IN ('utf-8', 'utf8') THEN encode(x) "
        f"WHEN lower(format) = 'base64' AND regexp_matches(x, '=\\s') THEN {otherwise} "
        f"WHEN lower(format) = 'base64' THEN spark_{strict}(regexp_replace(x, '\\s', '', 'g')) "
        f"ELSE {otherwise_format} END"
    )


MACROS: Macros = {
    "hex": [
        (("x BLOB",), "hex(x)"),
        (("x VARCHAR",), "hex(x)"),
        (("x BOOLEAN",), "hex(spark_text_of(x))"),
        (("x DATE",), "hex(spark_text_of(x))"),
        (("x TIMESTAMP",), "hex(spark_text_of(x))"),
        (("x TIMESTAMPTZ",), "hex(spark_text_of(x))"),
        (("x",), "hex(spark_bigint(x))"),
    ],
    "unhex": (("x",), f"CASE WHEN regexp_full_match(x, '{_HEX}') THEN unhex(x) END"),
    "bin": (("x",), "CASE WHEN typeof(x) = 'BOOLEAN' THEN error('bin takes a number') ELSE bin(spark_bigint(x)) END"),
    "base64": (("x",), "rtrim(regexp_replace(to_base64(x), '.{76}', '\\0' || chr(13) || chr(10), 'g'), "
        "chr(13) || chr(10))"),
    "unbase64": (("x",), "spark_decoded_base64(regexp_replace(x, '[^A-Za-z0-9+/=]', '', 'g'))"),
    "decoded_base64": (("x",), _write_base64_decoding(_PADDED_BASE64, "error('a text is not valid base64')")),
    "try_decoded_base64": (("x",), _write_base64_decoding(_PADDED_BASE64, "NULL")),
    "to_binary": (
        ("x", "format"),
        _write_to_binary("error('a text does not match the format of to_binary')",
                   "error('the format of to_binary must be hex, utf-8 or base64')", "decoded_base64"),
    ),
    "try_to_binary": (("x", "format"), _write_to_binary("NULL", "NULL", "try_decoded_base64")),
    "conv": (
        ("x", "radix", "target"),
        "CASE WHEN x IS NULL OR radix IS NULL OR target IS NULL THEN NULL "
        "WHEN radix < 2 OR radix > 36 OR abs(target) < 2 OR abs(target) > 36 OR x = '' THEN NULL "
        "ELSE spark_conv_printed(spark_conv_digits(ltrim(trim(x, ' '), '-'), radix), "
        "starts_with(trim(x, ' '), '-'), target) END",
    ),
    "conv_digits": (
        # The value of the leading characters that are digits of the radix.
        ("text", "radix"),
        "list_reduce(string_split(regexp_extract(upper(text), '^[' || "
        "left('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', CAST(radix AS INTEGER)) || ']*'), ''), "
        "lambda v, c: CASE WHEN v * radix + CAST(strpos('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', c) AS UHUGEINT) "
        "> 18446744073709551616 THEN CAST(CAST(error('a number is too large for conv') AS VARCHAR) AS UHUGEINT) "
        "WHEN c = '' THEN v "
        "ELSE v * CAST(radix AS UHUGEINT) + CAST(strpos('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', c) - 1 AS UHUGEINT) "
        "END, CAST(0 AS UHUGEINT))",
    ),
    "conv_printed": (
        ("x", "is_negative", "target"),
        # A negative value wraps around at 64 bits; Spark leaves values beyond 64 bits unchanged.
        "spark_conv_signed(CASE WHEN NOT is_negative THEN x WHEN x >= 9223372036854775808 AND target < 0 "
        "THEN CAST(9223372036854775809 AS UHUGEINT) WHEN x >= 9223372036854775808 "
        "THEN CAST(18446744073709551615 AS UHUGEINT) WHEN x = 0 THEN x "
        "ELSE CAST(18446744073709551616 AS UHUGEINT) - x END, target)",
    ),
    "conv_signed": (
        ("x", "target"),
        "CASE WHEN target < 0 AND x >= 9223372036854775808 "
        "THEN '-' || spark_in_radix(CAST(18446744073709551616 AS UHUGEINT) - x, -target) "
        "ELSE spark_in_radix(x, abs(target)) END",
    ),
    "in_radix": (
        ("x", "radix"),
        "CASE WHEN x = 0 THEN '0' ELSE (list_reduce(range(64), lambda s, i: "
        "{'v': s.v // CAST(radix AS UHUGEINT), 't': CASE WHEN s.v = 0 THEN s.t ELSE "
        "substring('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', CAST(s.v % CAST(radix AS UHUGEINT) AS INTEGER) + 1, 1) "
        "|| s.t END}, {'v': CAST(x AS UHUGEINT), 't': ''})).t END",
    ),
    "typeof": (("x",), "spark_type_name(typeof(x))"),
    "type_name": (
        ("x",),
        f"CASE WHEN {_TYPE_NAMES}[x] IS NOT NULL THEN {_TYPE_NAMES}[x] WHEN x LIKE 'DECIMAL(%)' THEN lower(x) "
        f"WHEN {_TYPE_NAMES}[left(x, length(x) - 2)] IS NOT NULL AND x LIKE '%[]' "
        f"THEN 'array<' || {_TYPE_NAMES}[left(x, length(x) - 2)] || '>' "
        "ELSE error('typeof does not support this type of the embedded engine') END",
    ),
    "is_valid_utf8": [
        (("x BLOB",), "CASE WHEN x IS NOT NULL THEN TRY(decode(x)) IS NOT NULL END"),
        (("x",), "CASE WHEN x IS NOT NULL THEN TRUE END"),
    ],
    "validate_utf8": [(("x BLOB",), "decode(x)"), (("x",), "spark_text_of(x)")],
    "make_valid_utf8": [
        (("x BLOB",), "CASE WHEN TRY(decode(x)) IS NULL AND x IS NOT NULL THEN spark_made_valid(hex(x)) "
                      "ELSE decode(x) END"),
        (("x",), "spark_text_of(x)"),
    ],
    "made_valid": (
        # A truncated character becomes one replacement character, and so does each other invalid byte.
        ("digits",),
        f"array_to_string(list_transform(regexp_extract_all(digits, '{_VALID}|{_CUT_OFF}|..'), "
        f"lambda c: CASE WHEN regexp_full_match(c, '{_VALID}') THEN decode(unhex(c)) ELSE chr(65533) END), '')",
    ),
    "try_validate_utf8": [(("x BLOB",), "TRY(decode(x))"), (("x",), "spark_text_of(x)")],
}  # fmt: skip
