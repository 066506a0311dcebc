"""Spark's functions of texts and binary values as DuckDB expressions.

Spark casts other values to texts (`contains(12, '1')`), and most functions return a text for bytes too: `spark_text` is
that cast. If a function of bytes returns bytes, its macro has an overload with parameters of type BLOB. It slices and
compares bytes by their hexadecimal digits, two per byte, because DuckDB has no functions for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    MAX_INT,
    Build,
    BuildNamed,
    CallTyped,
    Macros,
    Refused,
    Rows,
    Same,
    as_bytes,
    as_int,
    as_text,
    call_duckdb,
    call_macro,
    call_typed,
    has_null,
    is_constant,
    is_text,
    join_texts,
    make_unsupported_error,
    read_string_literal,
)

# --- Macros for `encode` and `decode` with the character sets that Spark supports -------------------------------------
#
# They convert characters through the hexadecimal digits of their code units.

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
_CHARACTERS_TO_CODE_UNITS = _write_join(
    "CASE WHEN unicode(c) > 65535 THEN printf('%04X%04X', 55296 + (unicode(c) - 65536) // 1024, "
    "56320 + (unicode(c) - 65536) % 1024) ELSE printf('%04X', unicode(c)) END",
    "string_split(x, '')",
)
_CODE_UNITS_TO_CHARACTERS = _write_join(
    "CASE WHEN length(c) = 8 THEN chr(65536 + (CAST('0x' || left(c, 4) AS INTEGER) - 55296) * 1024 "
    "+ CAST('0x' || right(c, 4) AS INTEGER) - 56320) ELSE chr(CAST('0x' || c AS INTEGER)) END",
    "regexp_extract_all(x, 'D[89AB]..D[CDEF]..|....')",
)
_BYTES_TO_CHARACTERS = _write_join("chr(CAST('0x' || c AS INTEGER))", "regexp_extract_all(x, '..')")
_4_BYTES_TO_CHARACTERS = _write_join("chr(CAST('0x' || c AS INTEGER))", "regexp_extract_all(x, '........')")

CHARSET_MACROS: Macros = define_macros(
    rf"""
    encode(x, charset):
        CASE WHEN x IS NULL OR charset IS NULL THEN NULL
        WHEN upper(charset) = 'UTF-8' THEN encode(x)
        WHEN upper(charset) = 'US-ASCII'
        THEN CASE WHEN strlen(x) = length(x) THEN encode(x) ELSE {_MISSING_CHARACTER} END
        WHEN upper(charset) = 'ISO-8859-1' THEN CASE WHEN strlen(x) = length(x) THEN encode(x)
        WHEN regexp_full_match(x, '(?s)[\x{{00}}-\x{{FF}}]*')
        THEN unhex({_CHARACTERS_TO_BYTES}) ELSE {_MISSING_CHARACTER} END
        WHEN NOT regexp_full_match(upper(charset), 'UTF-(16|16BE|16LE|32)') THEN {_UNKNOWN_CHARSET}
        WHEN x = '' THEN unhex('')
        WHEN upper(charset) = 'UTF-16' THEN unhex('FEFF' || spark_code_units(x))
        WHEN upper(charset) = 'UTF-16BE' THEN unhex(spark_code_units(x))
        WHEN upper(charset) = 'UTF-16LE' THEN unhex(regexp_replace(spark_code_units(x), {_SWAP_2_BYTES}))
        ELSE unhex({_CHARACTERS_TO_4_BYTES}) END
    decode(x, charset):
        CASE WHEN x IS NULL OR charset IS NULL THEN NULL
        WHEN upper(charset) = 'UTF-8' THEN decode(x) ELSE spark_decoded_digits(hex(x), upper(charset)) END
    decoded_digits(x, charset):
        CASE WHEN charset = 'US-ASCII' THEN CASE WHEN regexp_full_match(x, '([0-7].)*') THEN decode(unhex(x))
        ELSE {_INVALID_BYTES} END
        WHEN charset = 'ISO-8859-1' THEN {_BYTES_TO_CHARACTERS}
        WHEN NOT regexp_full_match(charset, 'UTF-(16|16BE|16LE|32)') THEN {_UNKNOWN_CHARSET}
        WHEN charset = 'UTF-16BE' THEN spark_of_code_units(x)
        WHEN charset = 'UTF-16LE' THEN spark_of_code_units(regexp_replace(x, {_SWAP_2_BYTES}))
        WHEN charset = 'UTF-16' AND starts_with(x, 'FEFF') THEN spark_of_code_units(substring(x, 5))
        WHEN charset = 'UTF-16' AND starts_with(x, 'FFFE')
        THEN spark_of_code_units(regexp_replace(substring(x, 5), {_SWAP_2_BYTES}))
        WHEN charset = 'UTF-16' THEN spark_of_code_units(x)
        WHEN starts_with(x, '0000FEFF') THEN spark_of_code_points(substring(x, 9))
        WHEN starts_with(x, 'FFFE0000')
        THEN spark_of_code_points(regexp_replace(substring(x, 9), {_SWAP_4_BYTES})) ELSE spark_of_code_points(x) END
    of_code_points(x): CASE WHEN length(x) % 8 <> 0 THEN {_INVALID_BYTES} ELSE {_4_BYTES_TO_CHARACTERS} END
    code_units(x): {_CHARACTERS_TO_CODE_UNITS}
    of_code_units(x): CASE WHEN length(x) % 4 <> 0 THEN {_INVALID_BYTES} ELSE {_CODE_UNITS_TO_CHARACTERS} END
    """
)

# --- Macros for `parse_url`, `url_encode` and the like, which split URLs as Java's class `URI` does -------------------

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


_IS_INVALID = (
    rf"regexp_matches(regexp_replace(x, {_ESCAPES}), '{_FORBIDDEN}|%|#.*#') "
    "OR regexp_matches(x, '^[^/?#]*:') AND NOT regexp_matches(x, '^[A-Za-z][A-Za-z0-9+.-]*:[^#]') "
    "OR regexp_matches(x, '^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//$') "
    rf"OR regexp_matches(regexp_replace(x, '{_REST}', ''), '^[^?#]*[\[\]]') "
)
"""SQL for whether a text is not a valid URI."""


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
        f"CASE WHEN x IS NULL OR part IS NULL THEN NULL WHEN {_IS_INVALID} THEN {otherwise} "
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


URL_MACROS: Macros = define_macros(
    rf"""
    url_encode(x): replace(replace(replace(url_encode(x), '%20', '+'), '~', '%7E'), '%2A', '*')
    url_decode(x): {_write_decoding("error('a text has a % without two hexadecimal digits after it')")}
    try_url_decode(x): {_write_decoding("NULL")}
    url_part(x, part): {_write_parsing("error('a text is not a valid URL')")}
    try_url_part(x, part): {_write_parsing("NULL")}
    parse_url(x, part): spark_url_part(x, part)
    parse_url(x, part, key): {_write_query_value("url_part")}
    try_parse_url(x, part): spark_try_url_part(x, part)
    try_parse_url(x, part, key): {_write_query_value("try_url_part")}
    """
)

MACROS: Macros = CHARSET_MACROS | URL_MACROS

# --- Calls ---------------------------------------------------------------------------------------------------------


def _build_pad(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    if is_text(args[0]):
        pad = as_text(args[2]) if len(args) == 3 else exp.Literal.string(" ")
        is_left = exp.true() if name == "lpad" else exp.false()
        return call_macro("padded_text", args[0], as_int(args[1]), pad, is_left)
    if len(args) == 2:
        return call_macro(f"{name}_default", args[0], as_int(args[1]))
    return call_macro(name, args[0], as_int(args[1]), args[2])


def _build_trim(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build a trim function: `btrim(text, characters)`, but `ltrim(characters, text)`."""
    text, characters = (*args, exp.Literal.string(" "))[:2] if len(args) == 1 or name == "btrim" else args[::-1]
    return call_duckdb(name.replace("btrim", "trim"), as_text(text), as_text(characters))


def build_trim(node: exp.Trim) -> exp.Expr:
    """Build `TRIM(BOTH 'x' FROM s)`."""
    side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    characters = node.expression if node.args.get("expression") is not None else exp.Literal.string(" ")
    return call_duckdb(side, as_text(node.this), as_text(characters))


def build_overlay(node: exp.Overlay) -> exp.Expr:
    given = [node.this, node.expression, node.args["from_"], node.args.get("for_")]
    return _build_overlay([value for value in given if value is not None])


def _build_overlay(args: Sequence[exp.Expr]) -> exp.Expr:
    if has_null(args):
        return exp.Null()
    size = as_int(args[3]) if len(args) == 4 else exp.Literal.number(-1)
    name = "overlay_text" if is_text(args[0]) and is_text(args[1]) else "overlay"
    return call_macro(name, args[0], args[1], as_int(args[2]), size)


def build_substring(text: exp.Expr, start: exp.Expr | None, size: exp.Expr | None = None) -> exp.Expr:
    """Build a substring. Position 0 is the first character in Spark, and the one before it in DuckDB."""
    if start is None:
        raise make_unsupported_error("substring", "it takes a position")
    if any(isinstance(each, exp.Null) for each in (text, start, size)):
        return exp.Null()
    first = int(start.name) if isinstance(start, exp.Literal) and start.name.isdecimal() else None
    length = size if size is not None else exp.Literal.number(MAX_INT)
    if first is not None and not start.is_string and isinstance(length, exp.Literal) and length.name.isdecimal():
        start_here = exp.Literal.number(max(first, 1))
        return (
            call_duckdb("substring", text, start_here, length)
            if is_text(text)
            else call_macro("substring_after", text, start_here, length)
        )
    return call_macro("text_part" if is_text(text) else "substring", text, as_int(start), as_int(length))


def build_position(text: exp.Expr, part: exp.Expr, start: exp.Expr | None = None) -> exp.Expr:
    """Build `position(part IN text)` or `locate(part, text, start)`."""
    if start is None:
        return exp.cast(call_duckdb("strpos", as_text(text), as_text(part)), "int")
    return call_macro("locate", as_text(part), as_text(text), as_int(start))


def _build_instr(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) == 2:
        return build_position(args[0], args[1])
    occurrence = as_int(args[3]) if len(args) == 4 else exp.Literal.number(1)
    return call_macro("occurrence", as_text(args[0]), as_text(args[1]), as_int(args[2]), occurrence)


def _build_concat_ws(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if not args:
        raise make_unsupported_error("concat_ws", "it takes a separator")
    if isinstance(args[0], exp.Null):
        return exp.cast(exp.null(), "varchar")
    parts = [_build_concat_ws_part(arg) for arg in args[1:] if not isinstance(arg, exp.Null)]
    return call_duckdb("concat_ws", as_text(args[0]), *(parts or [exp.cast(exp.null(), "varchar")]))


def _build_concat_ws_part(value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.Array):
        return exp.Array(expressions=[as_text(item) for item in value.expressions] or [exp.cast(exp.null(), "varchar")])
    return value if is_text(value) else call_macro("ws_piece", value)


def _build_elt(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) < 2:
        raise make_unsupported_error("elt", "it takes a position and values")
    if isinstance(args[0], exp.Null):
        return exp.Null()
    index, values = as_int(args[0]), args[1:]
    chosen: exp.Expr = call_macro("either", exp.true(), values[-1], values[-1].copy())
    for number, value in reversed(list(enumerate(values[:-1], 1))):
        is_it = exp.EQ(this=index.copy(), expression=exp.Literal.number(number))
        chosen = call_macro("either", is_it, value, chosen)
    outside = exp.Not(this=exp.Between(this=index, low=exp.Literal.number(1), high=exp.Literal.number(len(values))))
    error = call_duckdb("error", exp.Literal.string(f"elt has {len(values)} values, and its position is out of range"))
    missing = exp.Is(this=index.copy(), expression=exp.null())
    ifs = [exp.If(this=missing, true=exp.null()), exp.If(this=outside, true=error)]
    return exp.Paren(this=exp.Case(ifs=ifs, default=chosen))


_DEFAULT_MASKS = {"upperchar": "X", "lowerchar": "x", "digitchar": "n", "otherchar": None}


def _build_mask(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `mask(text, upper, lower, digit, other)`: NULL as a mask leaves such characters unchanged."""
    names = ("str", *_DEFAULT_MASKS)
    given: dict[str, exp.Expr] = {}
    for number, arg in enumerate(args):
        if isinstance(arg, exp.Kwarg | exp.PropertyEQ):
            name, value = arg.this.name.lower(), arg.expression
        elif number < len(names):
            name, value = names[number], arg
        else:
            raise make_unsupported_error("mask", "it takes at most 5 arguments")
        if name not in names or name in given:
            raise make_unsupported_error("mask", f"{name} is not one of its arguments, or occurs twice")
        given[name] = value
    if "str" not in given:
        raise make_unsupported_error("mask", "it takes a text")
    text = given["str"]
    if isinstance(text, exp.Null):
        return exp.Null()
    return call_macro(
        "masked",
        text if is_text(text) else call_macro("only_text", text),
        *(_read_mask(name, given) for name in _DEFAULT_MASKS),
    )


def _read_mask(name: str, given: dict[str, exp.Expr]) -> exp.Expr:
    value = given.get(name)
    if value is None:
        default = _DEFAULT_MASKS[name]
        return exp.cast(exp.null(), "varchar") if default is None else exp.Literal.string(default)
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "varchar")
    text = read_string_literal(value)
    if isinstance(value, exp.Cast) and isinstance(value.this, exp.Null):
        return value
    if text is None or len(text) != 1 or ord(text) > 0xFFFF:
        raise make_unsupported_error("mask", f"{name} must be a constant of one character, or NULL")
    return value


def _build_decode(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `decode(bytes, charset)` or `decode(value, search, result, …, default)`."""
    if len(args) < 2:
        raise make_unsupported_error(
            "decode", "it takes bytes and a character set, or a value and pairs of a search value and a result"
        )
    if len(args) == 2:
        return call_macro("decode", as_bytes(args[0]), as_text(args[1]))
    value, *rest = args
    default = rest.pop() if len(rest) % 2 else exp.null()
    ifs = [
        exp.If(this=exp.NullSafeEQ(this=value.copy(), expression=search), true=result)
        for search, result in zip(rest[::2], rest[1::2], strict=True)
    ]
    return exp.Paren(this=exp.Case(ifs=ifs, default=default))


def _build_to_binary(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    format_ = args[1] if len(args) == 2 else exp.Literal.string("hex")
    if (isinstance(format_, exp.Literal) and not format_.is_string) or not is_constant(format_):
        raise make_unsupported_error(name, "its format must be a constant text: hex, utf-8 or base64")
    text = read_string_literal(format_)
    if name == "to_binary" and text is not None and text.lower() not in ("hex", "utf-8", "utf8", "base64"):
        raise make_unsupported_error(name, f"{text!r} is not a format. Formats: hex, utf-8, base64")
    return call_macro(name, as_text(args[0]), as_text(format_))


def _build_levenshtein(args: Sequence[exp.Expr]) -> exp.Expr | None:
    distance = call_macro("levenshtein", as_text(args[0]), as_text(args[1]))
    if len(args) == 2:
        return distance
    if isinstance(args[2], exp.Null):
        raise make_unsupported_error("levenshtein", "Spark returns NULL or -1 where the threshold is NULL")
    return call_macro("within", distance, as_int(args[2]))


def _build_substring_index(args: Sequence[exp.Expr]) -> exp.Expr | None:
    is_simple = (
        len(args) == 3
        and len(read_string_literal(args[1]) or "") == 1
        and isinstance(args[2].unnest(), exp.Literal | exp.Neg)
    )
    return call_typed("substring_index" if is_simple else "until_position", args, CallTyped("text text int"))


def _build_quote(args: Sequence[exp.Expr]) -> exp.Expr | None:
    escaped = call_duckdb("replace", as_text(args[0]), exp.Literal.string("'"), exp.Literal.string("\\'"))
    return join_texts(exp.Literal.string("'"), escaped, exp.Literal.string("'"))


def _build_normalize(args: Sequence[exp.Expr]) -> exp.Expr | None:
    form = args[1] if len(args) == 2 else exp.Literal.string("NFC")
    if (read_string_literal(form) or "").upper() != "NFC":
        raise make_unsupported_error("normalize", "the embedded engine supports only the form NFC")
    return call_duckdb("nfc_normalize", as_text(args[0]))


def _build_bit_length(args: Sequence[exp.Expr]) -> exp.Expr | None:
    size = call_macro("octet_length", args[0])
    return exp.Paren(this=exp.Mul(this=size, expression=exp.Literal.number(8)))


def _as_long(value: exp.Expr) -> exp.Expr:
    return value if isinstance(value, exp.Null) else call_macro("bigint", value)


ROWS: Rows = (
    ("contains", CallTyped("any any", of_texts=".contains")),
    ("startswith", CallTyped("any any", of_texts=".starts_with")),
    ("endswith", CallTyped("any any", of_texts=".suffix")),
    ("length", CallTyped("any", "length", of_texts="text_length")),
    ("octet_length", CallTyped("any", of_texts="text_size")),
    ("bit_length", Build(_build_bit_length, (1,), propagates_null=True)),
    ("lower", CallTyped("text", "lower")),
    ("upper", CallTyped("text", "upper")),
    ("initcap", CallTyped("text")),
    ("reverse", CallTyped("any", of_texts="reverse_text")),
    ("lpad rpad", BuildNamed(_build_pad, (2, 3), propagates_null=True)),
    ("btrim trim ltrim rtrim", BuildNamed(_build_trim, (1, 2))),
    ("substring substr", Build(lambda args: build_substring(*args), (2, 3))),
    ("left", CallTyped("any int", of_texts="left_text")),
    ("right", CallTyped("text int")),
    ("overlay", Build(_build_overlay, (3, 4))),
    ("repeat", Build(lambda args: call_duckdb("repeat", as_text(args[0]), as_int(args[1])), (2,))),
    ("space", Build(lambda args: call_duckdb("repeat", exp.Literal.string(" "), as_int(args[0])), (1,))),
    ("ascii", CallTyped("text", own="ascii")),
    ("char chr", Build(lambda args: call_typed("char", [_as_long(arg) for arg in args], CallTyped("any")))),
    ("elt", Build(_build_elt)),
    ("instr", Build(_build_instr, (2, 3, 4))),
    ("locate position", Build(lambda args: build_position(args[1], args[0], *args[2:]), (2, 3))),
    ("translate", CallTyped("text text text", own="translate")),
    ("replace", Build(lambda args: call_duckdb("replace", *map(as_text, (*args, exp.Literal.string(""))[:3])), (2, 3))),
    # Without arguments it returns the empty text; `translate.nodes` translates all others.
    ("concat", Build(lambda args: None if args else exp.Literal.string(""))),
    ("concat_ws", Build(_build_concat_ws)),
    ("soundex", CallTyped("text")),
    ("levenshtein", Build(_build_levenshtein, (2, 3))),
    ("split_part", CallTyped("text text int")),
    ("substring_index", Build(_build_substring_index)),
    ("find_in_set", CallTyped("text text")),
    ("luhn_check", CallTyped("text")),
    ("mask", Build(_build_mask)),
    ("quote", Build(_build_quote, (1,))),
    ("normalize", Build(_build_normalize, (1, 2), propagates_null=True)),
    ("encode", CallTyped("text text")),
    ("decode", Build(_build_decode)),
    ("hex", CallTyped("any", of_texts=".hex")),
    ("unhex unbase64", CallTyped("text")),
    ("bin", CallTyped("any")),
    ("conv", CallTyped("text int int")),
    ("base64", Build(lambda args: call_macro("base64", as_bytes(args[0])), (1,), propagates_null=True)),
    ("to_binary try_to_binary", BuildNamed(_build_to_binary, (1, 2))),
    ("is_valid_utf8 make_valid_utf8 validate_utf8 try_validate_utf8", CallTyped("any")),
    ("md5", Build(lambda args: call_duckdb("md5", as_bytes(args[0])), (1,), propagates_null=True)),
    ("sha sha1", Build(lambda args: call_duckdb("sha1", as_bytes(args[0])), (1,), propagates_null=True)),
    ("url_encode url_decode try_url_decode", CallTyped("text")),
    ("parse_url try_parse_url", CallTyped("text text text", fewest=2)),
    ("uuid", Build(lambda args: exp.cast(call_duckdb("uuid"), "varchar"))),
    ("ilike like", Same()),
    ("sentences", Refused("the embedded engine does not know where words and sentences end")),
    ("randstr", Refused("the embedded engine draws its letters differently")),
    ("collate collation collations", Refused("the embedded engine compares texts only by their bytes")),
)
