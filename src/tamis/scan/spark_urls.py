"""Macros for `parse_url`, `url_encode` and the like, which split URLs as Java's class `URI` does."""

from __future__ import annotations

from tamis.scan.spark_calls import Macros

_ESCAPES = "'%[0-9A-Fa-f]{2}', '_', 'g'"
_SCHEME = "^(?:([A-Za-z][A-Za-z0-9+.-]*):)?"
_REST = "^(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_TOP_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_BYTE = "[0-9]{1,3}"
_HOST = rf"\[[0-9A-Fa-f:.]+\]|{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}|(?:{_LABEL}\.)+{_TOP_LABEL}\.?|{_LABEL}\.?"
_SERVER = rf"^(?:([^@\[\]]*)@)?({_HOST})(?::[0-9]*)?$"
_FORBIDDEN = r"[\x00-\x20\x22<>\\^`{|}\x7F]|[\p{Z}\p{Cc}]"


def _write_decoding(otherwise: str) -> str:
    return (
        f"CASE WHEN contains(regexp_replace(x, {_ESCAPES}), '%') THEN {otherwise} "
        "ELSE url_decode(replace(x, '+', ' ')) END"
    )


def _write_validity_check(url: str) -> str:
    """Write SQL for whether a text is not a valid URI."""
    return (
        rf"regexp_matches(regexp_replace({url}, {_ESCAPES}), '{_FORBIDDEN}|%|#.*#') "
        f"OR regexp_matches({url}, '^[^/?#]*:') AND NOT regexp_matches({url}, '^[A-Za-z][A-Za-z0-9+.-]*:[^#]') "
        f"OR regexp_matches({url}, '^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//$') "
        rf"OR regexp_matches(regexp_replace({url}, '{_REST}', ''), '^[^?#]*[\[\]]') "
    )


def _strip_delimiter(value: str) -> str:
    """Write SQL that removes the leading delimiter of a part; NULL if the part is empty."""
    return f"CASE WHEN {value} <> '' THEN substring({value}, 2) END"


_AUTHORITY = "regexp_extract(x, '^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)', 1)"
_PATH = f"regexp_extract(x, '{_REST}([^?#]*)', 1)"
_QUERY = _strip_delimiter("regexp_extract(x, '^[^?#]*(\\?[^#]*)', 1)")
_REF = _strip_delimiter("regexp_extract(x, '^[^#]*(#.*)', 1)")
_OPAQUE = "regexp_matches(x, '^[A-Za-z][A-Za-z0-9+.-]*:[^/]')"


def _write_parsing(otherwise: str) -> str:
    return (
        f"CASE WHEN x IS NULL OR part IS NULL THEN NULL WHEN {_write_validity_check('x')} THEN {otherwise} "
        f"WHEN part = 'PROTOCOL' THEN nullif(regexp_extract(x, '{_SCHEME}', 1), '') WHEN part = 'REF' THEN {_REF} "
        f"WHEN {_OPAQUE} THEN NULL WHEN part = 'PATH' THEN {_PATH} WHEN part = 'QUERY' THEN {_QUERY} "
        f"WHEN part = 'FILE' THEN {_PATH} || coalesce('?' || {_QUERY}, '') "
        f"WHEN part = 'AUTHORITY' THEN nullif({_AUTHORITY}, '') "
        f"WHEN part = 'HOST' THEN nullif(regexp_extract({_AUTHORITY}, '{_SERVER}', 2), '') "
        f"WHEN part = 'USERINFO' AND contains({_AUTHORITY}, '@') AND regexp_matches({_AUTHORITY}, '{_SERVER}') "
        f"THEN regexp_extract({_AUTHORITY}, '{_SERVER}', 1) END"
    )


def _write_query_value(name: str) -> str:
    found = _strip_delimiter(f"regexp_extract(spark_{name}(x, 'QUERY'), '(?:&|^)' || key || '(=[^&]*)', 1)")
    return (
        "CASE WHEN key IS NULL OR part <> 'QUERY' THEN NULL WHEN NOT regexp_full_match(key, '[A-Za-z0-9_.-]*') "
        "THEN error('a key of parse_url may only have letters, digits, _, - and .') "
        f"ELSE {found} END"
    )


MACROS: Macros = {
    "url_encode": (("x",), "replace(replace(replace(url_encode(x), '%20', '+'), '~', '%7E'), '%2A', '*')"),
    "url_decode": (("x",), _write_decoding("error('a text has a % without two hexadecimal digits after it')")),
    "try_url_decode": (("x",), _write_decoding("NULL")),
    "url_part": (("x", "part"), _write_parsing("error('a text is not a valid URL')")),
    "try_url_part": (("x", "part"), _write_parsing("NULL")),
    "parse_url": [
        (("x", "part"), "spark_url_part(x, part)"),
        (("x", "part", "key"), _write_query_value("url_part")),
    ],
    "try_parse_url": [
        (("x", "part"), "spark_try_url_part(x, part)"),
        (("x", "part", "key"), _write_query_value("try_url_part")),
    ],
}
