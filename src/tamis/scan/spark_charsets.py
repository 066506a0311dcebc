"""`encode` and `decode`: texts as bytes of the character sets that Spark knows, in DuckDB's words.

Characters are written as hexadecimal digits of their code units, and read from them.
"""

from __future__ import annotations

from tamis.scan.spark_calls import Macros

_WRONG = "error('the character set must be one of US-ASCII, ISO-8859-1, UTF-8, UTF-16, UTF-16BE, UTF-16LE and UTF-32')"
_NO_TEXT = "error('decode: the bytes are no text of that character set')"
_NO_CHARACTERS = "error('encode: the character set does not have all characters of a text')"
_SWAPPED = "'(..)(..)', '\\2\\1', 'g'"
_SWAPPED_4 = "'(..)(..)(..)(..)', '\\4\\3\\2\\1', 'g'"


def _each(function: str, parts: str) -> str:
    return f"coalesce(list_aggregate(list_transform({parts}, lambda c: {function}), 'string_agg', ''), '')"


_SINGLE_BYTES = _each("printf('%02X', unicode(c))", "string_split(x, '')")
_FOUR_BYTES = _each("printf('%08X', unicode(c))", "string_split(x, '')")
_OF_BYTES = _each("chr(CAST('0x' || c AS INTEGER))", "regexp_extract_all(x, '..')")
_OF_FOUR_BYTES = _each("chr(CAST('0x' || c AS INTEGER))", "regexp_extract_all(x, '........')")

MACROS: Macros = {
    "encode": (
        ("x", "charset"),
        "CASE WHEN x IS NULL OR charset IS NULL THEN NULL "
        "WHEN upper(charset) = 'UTF-8' THEN encode(x) "
        "WHEN upper(charset) = 'US-ASCII' "
        f"THEN CASE WHEN strlen(x) = length(x) THEN encode(x) ELSE {_NO_CHARACTERS} END "
        "WHEN upper(charset) = 'ISO-8859-1' THEN CASE WHEN strlen(x) = length(x) THEN encode(x) "
        "WHEN regexp_full_match(x, '(?s)[\\x{00}-\\x{FF}]*') "
        f"THEN unhex({_SINGLE_BYTES}) ELSE {_NO_CHARACTERS} END "
        f"WHEN NOT regexp_full_match(upper(charset), 'UTF-(16|16BE|16LE|32)') THEN {_WRONG} "
        "WHEN x = '' THEN unhex('') "
        "WHEN upper(charset) = 'UTF-16' THEN unhex('FEFF' || spark_code_units(x)) "
        "WHEN upper(charset) = 'UTF-16BE' THEN unhex(spark_code_units(x)) "
        f"WHEN upper(charset) = 'UTF-16LE' THEN unhex(regexp_replace(spark_code_units(x), {_SWAPPED})) "
        f"ELSE unhex({_FOUR_BYTES}) END",
    ),
    "code_units": (
        ("x",),
        _each(
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
        f"ELSE {_NO_TEXT} END "
        f"WHEN charset = 'ISO-8859-1' THEN {_OF_BYTES} "
        f"WHEN NOT regexp_full_match(charset, 'UTF-(16|16BE|16LE|32)') THEN {_WRONG} "
        "WHEN charset = 'UTF-16BE' THEN spark_of_code_units(x) "
        f"WHEN charset = 'UTF-16LE' THEN spark_of_code_units(regexp_replace(x, {_SWAPPED})) "
        "WHEN charset = 'UTF-16' AND starts_with(x, 'FEFF') THEN spark_of_code_units(substring(x, 5)) "
        "WHEN charset = 'UTF-16' AND starts_with(x, 'FFFE') "
        f"THEN spark_of_code_units(regexp_replace(substring(x, 5), {_SWAPPED})) "
        "WHEN charset = 'UTF-16' THEN spark_of_code_units(x) "
        "WHEN starts_with(x, '0000FEFF') THEN spark_of_code_points(substring(x, 9)) "
        "WHEN starts_with(x, 'FFFE0000') "
        f"THEN spark_of_code_points(regexp_replace(substring(x, 9), {_SWAPPED_4})) ELSE spark_of_code_points(x) END",
    ),
    "of_code_units": (
        ("x",),
        f"CASE WHEN length(x) % 4 <> 0 THEN {_NO_TEXT} ELSE "
        + _each(
            "CASE WHEN length(c) = 8 THEN chr(65536 + (CAST('0x' || left(c, 4) AS INTEGER) - 55296) * 1024 "
            "+ CAST('0x' || right(c, 4) AS INTEGER) - 56320) ELSE chr(CAST('0x' || c AS INTEGER)) END",
            "regexp_extract_all(x, 'D[89AB]..D[CDEF]..|....')",
        )
        + " END",
    ),
    "of_code_points": (
        ("x",),
        f"CASE WHEN length(x) % 8 <> 0 THEN {_NO_TEXT} ELSE {_OF_FOUR_BYTES} END",
    ),
}
