"""Macros for `encode` and `decode` with the character sets that Spark supports.

They convert characters through the hexadecimal digits of their code units.
"""

from __future__ import annotations

from tamis.scan.spark_calls import Macros

_UNKNOWN_CHARSET = (
    "error('the character set must be one of US-ASCII, ISO-8859-1, UTF-8, UTF-16, UTF-16BE, UTF-16LE and UTF-32')"
)
_INVALID_BYTES = "error('decode: the bytes are invalid in that character set')"
_MISSING_CHARACTER = "error('encode: the character set lacks a character of the text')"
_SWAP_2_BYTES = "'(..)(..)', '\\2\\1', 'g'"
_SWAP_4_BYTES = "'(..)(..)(..)(..)', '\\4\\3\\2\\1', 'g'"


def _write_join(function: str, parts: str) -> str:
    return f"coalesce(list_aggregate(list_transform({parts}, lambda c: {function}), 'string_agg', ''), '')"


_CHARACTERS_TO_BYTES = _write_join("printf('%02X', unicode(c))", "string_split(x, '')")
_CHARACTERS_TO_4_BYTES = _write_join("printf('%08X', unicode(c))", "string_split(x, '')")
_BYTES_TO_CHARACTERS = _write_join("chr(CAST('0x' || c AS INTEGER))", "regexp_extract_all(x, '..')")
_4_BYTES_TO_CHARACTERS = _write_join("chr(CAST('0x' || c AS INTEGER))", "regexp_extract_all(x, '........')")

MACROS: Macros = {
    "encode": (
        ("x", "charset"),
        "CASE WHEN x IS NULL OR charset IS NULL THEN NULL "
        "WHEN upper(charset) = 'UTF-8' THEN encode(x) "
        "WHEN upper(charset) = 'US-ASCII' "
        f"THEN CASE WHEN strlen(x) = length(x) THEN encode(x) ELSE {_MISSING_CHARACTER} END "
        "WHEN upper(charset) = 'ISO-8859-1' THEN CASE WHEN strlen(x) = length(x) THEN encode(x) "
        "WHEN regexp_full_match(x, '(?s)[\\x{00}-\\x{FF}]*') "
        f"THEN unhex({_CHARACTERS_TO_BYTES}) ELSE {_MISSING_CHARACTER} END "
        f"WHEN NOT regexp_full_match(upper(charset), 'UTF-(16|16BE|16LE|32)') THEN {_UNKNOWN_CHARSET} "
        "WHEN x = '' THEN unhex('') "
        "WHEN upper(charset) = 'UTF-16' THEN unhex('FEFF' || spark_code_units(x)) "
        "WHEN upper(charset) = 'UTF-16BE' THEN unhex(spark_code_units(x)) "
        f"WHEN upper(charset) = 'UTF-16LE' THEN unhex(regexp_replace(spark_code_units(x), {_SWAP_2_BYTES})) "
        f"ELSE unhex({_CHARACTERS_TO_4_BYTES}) END",
    ),
    "code_units": (
        ("x",),
        _write_join(
            "CASE WHEN unicode(c) > 65535 THEN printf('%04X%04X', 55296 + (unicode(c) - 65536) // 1024, "
            "56320 + (unicode(c) - 65536) % 1024) ELSE printf('%04X', unicode(c)) END",
            "string_split(x, '')",
        ),
    ),
    "decode": (
        ("x", "charset"),
        "CASE WHEN x IS NULL OR charset IS NULL THEN NULL "
        "WHEN upper(charset) = 'UTF-8' THEN decode(x) ELSE spark_decoded_digits(hex(x), upper(charset)) END",
    ),
    "decoded_digits": (
        ("x", "charset"),
        "CASE WHEN charset = 'US-ASCII' THEN CASE WHEN regexp_full_match(x, '([0-7].)*') THEN decode(unhex(x)) "
        f"ELSE {_INVALID_BYTES} END "
        f"WHEN charset = 'ISO-8859-1' THEN {_BYTES_TO_CHARACTERS} "
        f"WHEN NOT regexp_full_match(charset, 'UTF-(16|16BE|16LE|32)') THEN {_UNKNOWN_CHARSET} "
        "WHEN charset = 'UTF-16BE' THEN spark_of_code_units(x) "
        f"WHEN charset = 'UTF-16LE' THEN spark_of_code_units(regexp_replace(x, {_SWAP_2_BYTES})) "
        "WHEN charset = 'UTF-16' AND starts_with(x, 'FEFF') THEN spark_of_code_units(substring(x, 5)) "
        "WHEN charset = 'UTF-16' AND starts_with(x, 'FFFE') "
        f"THEN spark_of_code_units(regexp_replace(substring(x, 5), {_SWAP_2_BYTES})) "
        "WHEN charset = 'UTF-16' THEN spark_of_code_units(x) "
        "WHEN starts_with(x, '0000FEFF') THEN spark_of_code_points(substring(x, 9)) "
        "WHEN starts_with(x, 'FFFE0000') "
        f"THEN spark_of_code_points(regexp_replace(substring(x, 9), {_SWAP_4_BYTES})) ELSE spark_of_code_points(x) END",
    ),
    "of_code_units": (
        ("x",),
        f"CASE WHEN length(x) % 4 <> 0 THEN {_INVALID_BYTES} ELSE "
        + _write_join(
            "CASE WHEN length(c) = 8 THEN chr(65536 + (CAST('0x' || left(c, 4) AS INTEGER) - 55296) * 1024 "
            "+ CAST('0x' || right(c, 4) AS INTEGER) - 56320) ELSE chr(CAST('0x' || c AS INTEGER)) END",
            "regexp_extract_all(x, 'D[89AB]..D[CDEF]..|....')",
        )
        + " END",
    ),
    "of_code_points": (
        ("x",),
        f"CASE WHEN length(x) % 8 <> 0 THEN {_INVALID_BYTES} ELSE {_4_BYTES_TO_CHARACTERS} END",
    ),
}
