"""Macros for Spark's functions of texts: casts, substrings, lengths, case, padding and distances."""

from __future__ import annotations

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import MAX_INT, Macro, Macros
from tamis.expr.functions.kernels import MULTI_LETTER_UPPERCASE

# --- Letters with special case mappings ------------------------------------------------------------------------------

_TITLE_CASE_LETTERS = "Ǆǅǆ Ǉǈǉ Ǌǋǌ Ǳǲǳ"
"""Letters whose title case differs from their upper case."""


def write_map(pairs: dict[str, str]) -> str:
    entries = ", ".join(f"'{key}': '{value}'" for key, value in pairs.items())
    return f"MAP {{{entries}}}"


_UPPER = write_map({letter: letter.upper() for letter in MULTI_LETTER_UPPERCASE})
_TITLE = write_map({letter: letter.title() for letter in MULTI_LETTER_UPPERCASE + _TITLE_CASE_LETTERS.replace(" ", "")})
_CASED = r"[\p{Lu}\p{Ll}\p{Lt}]"
_CASE_IGNORABLE = r"[\p{M}\p{Lm}\p{Sk}\p{Cf}\x{27}\x{2019}.:·]"

_BYTES_NEEDED = "error('the argument must be a text or bytes')"


def _write_positions(text: str, part: str) -> str:
    """Write SQL for the start positions of a part in a text, including overlapping occurrences."""
    return f"list_filter(range(1, length({text}) + 1), lambda i: substring({text}, i, length({part})) = {part})"


def _define_for_bytes(of_bytes: str, of_text: str, *others: str) -> list[Macro]:
    """Return the overloads of a function of bytes or of a text `x`; a value of another type is cast to a text."""
    return [
        (("x BLOB", *others), of_bytes),
        (("x VARCHAR", *others), of_text.format("x")),
        (("x", *others), of_text.format("spark_text_of(x)")),
    ]


def _define_for_two(of_bytes: str, of_texts: str) -> list[Macro]:
    """Return the overloads of a function of two values `a` and `b` that are both bytes or texts."""
    return [
        (("a BLOB", "b BLOB"), of_bytes),
        (("a VARCHAR", "b VARCHAR"), of_texts.format("a", "b")),
        (("a", "b"), of_texts.format("spark_text_of(a)", "spark_text_of(b)")),
    ]


_TEXTS: Macros = define_macros(
    rf"""
    -- Casts
    bytes(x BLOB): x
    bytes(x VARCHAR): encode(x)
    bytes(x): CASE WHEN typeof(x) <> '"NULL"' THEN {_BYTES_NEEDED} ELSE CAST(NULL AS BLOB) END
    ws_piece(x VARCHAR | VARCHAR[]): x
    ws_piece(x BLOB): decode(x)
    ws_piece(x TINYINT[] | SMALLINT[] | INTEGER[] | BIGINT[] | BOOLEAN[] | DATE[] | TIMESTAMPTZ[]):
        list_transform(x, lambda e: spark_string(e))
    ws_piece(x):
        CASE WHEN typeof(x) LIKE '%]'
        THEN error('concat_ws joins texts: transform the items of the array with CAST AS STRING')
        ELSE spark_string(x) END
    char | chr(x): CASE WHEN x < 0 THEN '' ELSE chr(CAST(x & 255 AS INTEGER)) END
    lpad(x BLOB, n, pad BLOB): spark_padded_bytes(hex(x), n, hex(pad), TRUE)
    lpad(x VARCHAR, n, pad VARCHAR): spark_padded_text(x, n, pad, TRUE)
    lpad(x, n, pad): spark_padded_text(spark_text_of(x), n, spark_text_of(pad), TRUE)
    rpad(x BLOB, n, pad BLOB): spark_padded_bytes(hex(x), n, hex(pad), FALSE)
    rpad(x VARCHAR, n, pad VARCHAR): spark_padded_text(x, n, pad, FALSE)
    rpad(x, n, pad): spark_padded_text(spark_text_of(x), n, spark_text_of(pad), FALSE)
    text(x VARCHAR): x
    text(x BLOB): decode(x)
    text(x): spark_text_of(x)
    text_of(x):
        CASE WHEN typeof(x) LIKE '%]' OR typeof(x) LIKE 'STRUCT%' OR typeof(x) LIKE 'MAP%'
        THEN error('the argument must be a text: it is an array, a map or a struct') ELSE spark_string(x) END
    only_text(x VARCHAR): x
    only_text(x): CASE WHEN x IS NOT NULL OR typeof(x) <> '"NULL"' THEN error('the argument must be a text') END
    joined(a BLOB, b BLOB): a || b
    joined(a VARCHAR, b VARCHAR): a || b
    joined(a VARCHAR, b BLOB): a || decode(b)
    joined(a BLOB, b VARCHAR): decode(a) || b
    joined(a VARCHAR, b): a || spark_text_of(b)
    joined(a, b VARCHAR): spark_text_of(a) || b
    joined(a BLOB, b): spark_text_of(a) || spark_text_of(b)
    joined(a, b BLOB): spark_text_of(a) || spark_text_of(b)
    joined(a, b): spark_concat_operand(a) || spark_concat_operand(b)
    joined_alone(x BLOB): x
    joined_alone(x VARCHAR): x
    joined_alone(x VARCHAR[]): x
    joined_alone(x): spark_text_of(x)
    either(condition, a BLOB, b BLOB): CASE WHEN condition THEN a ELSE b END
    either(condition, a, b): CASE WHEN condition THEN spark_text_of(a) ELSE spark_text_of(b) END
    locate(part, x, start):
        CAST(CASE WHEN start IS NULL THEN 0 WHEN part IS NULL OR x IS NULL THEN NULL WHEN start <= 0 THEN 0
        WHEN part = '' THEN 1
        WHEN strpos(substring(x, start), part) = 0 THEN 0 ELSE strpos(substring(x, start), part) + start - 1 END
        AS INTEGER)
    occurrence(x, part, start, n):
        CAST(CASE WHEN x IS NULL OR part IS NULL OR start IS NULL OR n IS NULL THEN NULL
        WHEN n <= 0 THEN error('instr counts occurrences from 1')
        WHEN start = 0 THEN 0 WHEN part = '' THEN 1
        WHEN start > 0 THEN coalesce(list_filter({_write_positions('x', 'part')}, lambda p: p >= start)[n], 0)
        ELSE coalesce(list_reverse(list_filter({_write_positions('x', 'part')},
        lambda p: p <= length(x) + start + 1))[n], 0) END AS INTEGER)
    text_part(x, start, size):
        -- Positions before the first character count towards the size, and are empty.
        CASE WHEN start IS NULL OR size IS NULL THEN NULL ELSE substring(x, greatest(spark_offset(x, start), 0) + 1,
        greatest(spark_offset(x, start) + greatest(size, 0) - greatest(spark_offset(x, start), 0), 0)) END
    binary_part(digits, start, size):
        unhex(spark_text_part(digits, CASE WHEN start > 0 THEN 2 * CAST(start AS BIGINT) - 1
        ELSE 2 * CAST(start AS BIGINT) END, 2 * CAST(size AS BIGINT)))
    offset(x, start):
        CAST(CASE WHEN start > 0 THEN start - 1 WHEN start < 0 THEN length(x) + start ELSE start END AS BIGINT)
    left_text(x, n): CASE WHEN n <= 0 THEN left(x, 0) ELSE left(x, n) END
    right(x, n): CASE WHEN n <= 0 THEN left(x, 0) ELSE right(x, n) END
    overlay(x BLOB, part BLOB, start, size):
        spark_substring(x, 1, start - 1) || part || spark_substring(x, start +
        CASE WHEN size >= 0 THEN size ELSE octet_length(part) END, {MAX_INT})
    overlay(x BLOB, part, start, size): error('overlay replaces bytes by bytes')
    overlay(x, part BLOB, start, size): error('overlay replaces texts by texts')
    overlay(x, part, start, size): spark_overlay_text(spark_text_of(x), spark_text_of(part), start, size)
    overlay_text(x, part, start, size):
        spark_text_part(x, 1, start - 1) || part || spark_text_part(x, start +
        CASE WHEN size >= 0 THEN size ELSE length(part) END, {MAX_INT})
    split_part(x, delimiter, n):
        CASE WHEN x IS NULL OR delimiter IS NULL OR n IS NULL THEN NULL
        WHEN n = 0 THEN error('split_part counts from 1 or from -1')
        WHEN delimiter = '' THEN CASE WHEN abs(n) = 1 THEN x ELSE '' END ELSE split_part(x, delimiter, n) END
    substring_index(x, delimiter, n):
        -- The delimiter is a constant of one character.
        CASE WHEN n = 0 THEN '' WHEN n > 0 THEN array_to_string(string_split(x, delimiter)[1:n], delimiter)
        ELSE array_to_string(string_split(x, delimiter)[n:], delimiter) END
    until_position(x, delimiter, n):
        -- Occurrences may overlap, counted from either side.
        CASE WHEN x IS NULL OR delimiter IS NULL OR n IS NULL THEN NULL WHEN delimiter = '' OR n = 0 THEN ''
        WHEN len({_write_positions('x', 'delimiter')}) < abs(CAST(n AS BIGINT)) THEN x
        WHEN n > 0 THEN left(x, ({_write_positions('x', 'delimiter')})[n] - 1)
        ELSE substring(x, ({_write_positions('x', 'delimiter')})[n] + length(delimiter)) END
    find_in_set(x, texts):
        CAST(CASE WHEN x IS NULL OR texts IS NULL THEN NULL WHEN contains(x, ',') THEN 0
        ELSE coalesce(list_position(string_split(texts, ','), x), 0) END AS INTEGER)
    like_pattern(x, sign):
        CASE WHEN contains(x, sign) AND contains(replace(replace(replace(x, sign || sign, ''), sign || '%', ''),
        sign || '_', ''), sign) THEN error('in a pattern of LIKE the escape character must precede %, _ or itself')
        ELSE x END
    text_length(x): CAST(length(x) AS INTEGER)
    text_size(x): CAST(strlen(x) AS INTEGER)
    -- Transformations
    upper(x):
        CASE WHEN regexp_matches(x, '[{MULTI_LETTER_UPPERCASE}]')
        THEN list_aggregate(list_transform(string_split(x, ''), lambda c: coalesce({_UPPER}[c], upper(c))),
        'string_agg', '')
        ELSE upper(x) END
    lower(x):
        CASE WHEN contains(x, 'Σ') THEN lower(spark_last_sigma(replace(x, 'İ', 'i̇')))
        WHEN contains(x, 'İ') THEN lower(replace(x, 'İ', 'i̇')) ELSE lower(x) END
    last_sigma(x):
        -- Lower case Σ at the end of a word is ς; accents and apostrophes do not end a word.
        CASE WHEN regexp_matches(x, '{_CASE_IGNORABLE}Σ|Σ{_CASE_IGNORABLE}')
        THEN error('lower cannot decide which Σ ends a word')
        ELSE regexp_replace(x, '({_CASED})Σ([^\p{{Lu}}\p{{Ll}}\p{{Lt}}]|\z)', '\1ς\2', 'g') END
    title(x): coalesce({_TITLE}[x], upper(x))
    initcap(x):
        list_aggregate(list_transform(string_split(spark_lower(x), ' '),
        lambda w: spark_title(left(w, 1)) || substring(w, 2)), 'string_agg', ' ')
    reverse_text(x):
        -- DuckDB reverses grapheme clusters, Spark code points.
        CASE WHEN strlen(x) = length(x) AND NOT contains(x, chr(13)) THEN reverse(x)
        ELSE list_aggregate(list_reverse(string_split(x, '')), 'string_agg', '') END
    reverse(x BLOB): unhex(array_to_string(list_reverse(regexp_extract_all(hex(x), '..')), ''))
    reverse(x VARCHAR): spark_reverse_text(x)
    reverse(x):
        CASE WHEN typeof(x) LIKE '%]' THEN error('reverse of an array: see list_reverse')
        ELSE spark_reverse_text(spark_text_of(x)) END
    padded_text(x, n, pad, is_left):
        CASE WHEN x IS NULL OR n IS NULL OR pad IS NULL THEN NULL WHEN n <= 0 THEN ''
        WHEN pad = '' THEN left(x, n) WHEN is_left THEN lpad(x, n, pad) ELSE rpad(x, n, pad) END
    padded_bytes(digits, n, pad, is_left):
        CASE WHEN digits IS NULL OR n IS NULL OR pad IS NULL THEN NULL WHEN n <= 0 THEN unhex('')
        WHEN pad = '' THEN unhex(left(digits, 2 * n)) WHEN is_left THEN unhex(CASE WHEN length(digits) >= 2 * n
        THEN left(digits, 2 * n) ELSE lpad(digits, 2 * n, pad) END) ELSE unhex(rpad(digits, 2 * n, pad)) END
    masked(x, upper_case, lower_case, digit, other):
        list_aggregate(list_transform(string_split(x, ''), lambda c:
        CASE WHEN unicode(c) > 65535 THEN coalesce(other || other, c)
        WHEN regexp_full_match(c, '\p{{Lu}}') THEN coalesce(upper_case, c)
        WHEN regexp_full_match(c, '\p{{Ll}}') THEN coalesce(lower_case, c)
        WHEN regexp_full_match(c, '\p{{Nd}}') THEN coalesce(digit, c)
        WHEN c = '' THEN c ELSE coalesce(other, c) END), 'string_agg', '')
    soundex(x):
        CASE WHEN x = '' OR NOT regexp_matches(x, '^[A-Za-z]') THEN x ELSE upper(left(x, 1)) ||
        rpad(left(replace(substring(spark_runs(spark_soundex_codes(left(x, 1)) ||
        replace(spark_soundex_codes(substring(x, 2)), '7', '')), 2), '0', ''), 3), 3, '0') END
    soundex_codes(x):
        translate(regexp_replace(x, '[^A-Za-z]', '0', 'g'), 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz',
        '0123012702245501262301720201230127022455012623017202')
    runs(x): list_reduce(['0', '1', '2', '3', '4', '5', '6'], lambda t, d: regexp_replace(t, d || '+', d, 'g'), x)
    levenshtein(x, y):
        CAST(CASE WHEN strlen(x) = length(x) AND strlen(y) = length(y) THEN levenshtein(x, y)
        WHEN x IS NOT NULL AND y IS NOT NULL
        THEN spark_letter_distance(string_split(x, ''), string_split(y, ''),
        list_distinct(string_split(x || y, ''))) END AS INTEGER)
    letter_distance(x, y, letters):
        -- DuckDB compares bytes, so each distinct character is replaced by one of a single byte.
        CASE WHEN len(letters) > 126 THEN error('levenshtein compares at most 126 different characters here')
        ELSE levenshtein(spark_single_bytes(x, letters), spark_single_bytes(y, letters)) END
    single_bytes(x, letters):
        array_to_string(list_transform(list_filter(x, lambda c: c <> ''),
        lambda c: chr(CAST(list_position(letters, c) AS INTEGER))), '')
    within(distance, threshold):
        CASE WHEN threshold IS NULL THEN error('levenshtein: Spark returns NULL or -1 where the threshold is NULL')
        WHEN distance <= threshold THEN distance WHEN distance IS NOT NULL THEN -1 END
    luhn_check(x):
        CASE WHEN NOT regexp_full_match(x, '[0-9]+') THEN FALSE WHEN x IS NOT NULL THEN
        list_sum(list_transform(list_reverse(string_split(x, '')), lambda c, i:
        CASE WHEN i % 2 = 1 THEN CAST(c AS INTEGER) WHEN CAST(c AS INTEGER) > 4 THEN CAST(c AS INTEGER) * 2 - 9
        ELSE CAST(c AS INTEGER) * 2 END)) % 10 = 0 END
    """
) | {
    # Substrings
    "contains": _define_for_two("regexp_matches(hex(a), '^(?:..)*?' || hex(b))", "contains({}, {})"),
    "startswith": _define_for_two("starts_with(hex(a), hex(b))", "starts_with({}, {})"),
    "endswith": _define_for_two("suffix(hex(a), hex(b))", "suffix({}, {})"),
    "substring": _define_for_bytes(
        "spark_binary_part(hex(x), start, size)", "spark_text_part({}, start, size)", "start", "size"
    ),
    # For a start and a size that are known not to be negative.
    "substring_after": _define_for_bytes(
        "x[start:CAST(start AS BIGINT) + size - 1]", "substring({}, start, size)", "start", "size"
    ),
    "left": _define_for_bytes("CASE WHEN n <= 0 THEN x[1:0] ELSE x[1:n] END", "spark_left_text({}, n)", "n"),
    # Lengths
    "length": _define_for_bytes("CAST(octet_length(x) AS INTEGER)", "CAST(length({}) AS INTEGER)"),
    "octet_length": _define_for_bytes("CAST(octet_length(x) AS INTEGER)", "CAST(strlen({}) AS INTEGER)"),
    **{
        f"{name}_default": _define_for_bytes(
            f"spark_padded_bytes(hex(x), n, '00', {is_left})", f"spark_padded_text({{}}, n, ' ', {is_left})", "n"
        )
        for name, is_left in (("lpad", True), ("rpad", False))
    },
}  # fmt: skip

# --- Macros for binary values and number bases: `hex`, `base64`, `conv`, `to_binary` ----------------------------------

_HEX = "[0-9A-Fa-f]*"

_CONTINUATION = "[89AB]."
_VALID = (
    f"[0-7].|(?:C[2-9A-F]|D.){_CONTINUATION}|(?:E0[AB].|E[1-9A-CEF]{_CONTINUATION}|ED[89].){_CONTINUATION}"
    f"|(?:F0[9AB].|F[123]{_CONTINUATION}|F48.){_CONTINUATION}{_CONTINUATION}"
)
_CUT_OFF = f"E0[AB].|E[1-9A-CEF]{_CONTINUATION}|ED[89].|(?:F0[9AB].|F[123]{_CONTINUATION}|F48.)(?:{_CONTINUATION})?"
"""Regular expressions over hexadecimal digits: valid UTF-8 characters, and characters that are cut off."""


def _write_base64_decoding(otherwise: str) -> str:
    """Write SQL that decodes the text `x` where it is valid base64 without blanks, and else gives `otherwise`."""
    return (
        "CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(x, '[A-Za-z0-9+/]*={0,2}') AND "
        "CASE WHEN contains(x, '=') THEN length(x) % 4 = 0 ELSE length(x) % 4 <> 1 END "
        f"THEN from_base64(rpad(x, CAST((length(x) + 3) // 4 * 4 AS INTEGER), '=')) ELSE {otherwise} END"
    )


def _write_to_binary(otherwise: str, otherwise_format: str, strict: str) -> str:
    return (
        "CASE WHEN x IS NULL OR format IS NULL THEN NULL WHEN lower(format) = 'hex' THEN "
        f"CASE WHEN regexp_full_match(x, '{_HEX}') THEN unhex(x) ELSE {otherwise} END "
        "WHEN lower(format) IN ('utf-8', 'utf8') THEN encode(x) "
        f"WHEN lower(format) = 'base64' AND regexp_matches(x, '=\\s') THEN {otherwise} "
        f"WHEN lower(format) = 'base64' THEN spark_{strict}(regexp_replace(x, '\\s', '', 'g')) "
        f"ELSE {otherwise_format} END"
    )


_TO_BINARY = _write_to_binary(
    "error('a text does not match the format of to_binary')",
    "error('the format of to_binary must be hex, utf-8 or base64')",
    "decoded_base64",
)

MACROS: Macros = _TEXTS | define_macros(
    rf"""
    unhex(x): CASE WHEN regexp_full_match(x, '{_HEX}') THEN unhex(x) END
    bin(x): CASE WHEN typeof(x) = 'BOOLEAN' THEN error('bin takes a number') ELSE bin(spark_bigint(x)) END
    base64(x):
        rtrim(regexp_replace(to_base64(x), '.{{76}}', '\0' || chr(13) || chr(10), 'g'),
        chr(13) || chr(10))
    unbase64(x): spark_decoded_base64(regexp_replace(x, '[^A-Za-z0-9+/=]', '', 'g'))
    conv(x, radix, target):
        CASE WHEN x IS NULL OR radix IS NULL OR target IS NULL THEN NULL
        WHEN radix < 2 OR radix > 36 OR abs(target) < 2 OR abs(target) > 36 OR x = '' THEN NULL
        ELSE spark_conv_printed(spark_conv_digits(ltrim(trim(x, ' '), '-'), radix),
        starts_with(trim(x, ' '), '-'), target) END
    conv_digits(text, radix):
        -- The value of the leading characters that are digits of the radix.
        list_reduce(string_split(regexp_extract(upper(text), '^[' ||
        left('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', CAST(radix AS INTEGER)) || ']*'), ''),
        lambda v, c: CASE WHEN v * radix + CAST(strpos('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', c) AS UHUGEINT)
        > 18446744073709551616 THEN CAST(CAST(error('a number is too large for conv') AS VARCHAR) AS UHUGEINT)
        WHEN c = '' THEN v
        ELSE v * CAST(radix AS UHUGEINT) + CAST(strpos('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', c) - 1 AS UHUGEINT)
        END, CAST(0 AS UHUGEINT))
    conv_printed(x, is_negative, target):
        -- A negative value wraps around at 64 bits; Spark leaves values beyond 64 bits unchanged.
        spark_conv_signed(CASE WHEN NOT is_negative THEN x WHEN x >= 9223372036854775808 AND target < 0
        THEN CAST(9223372036854775809 AS UHUGEINT) WHEN x >= 9223372036854775808
        THEN CAST(18446744073709551615 AS UHUGEINT) WHEN x = 0 THEN x
        ELSE CAST(18446744073709551616 AS UHUGEINT) - x END, target)
    conv_signed(x, target):
        CASE WHEN target < 0 AND x >= 9223372036854775808
        THEN '-' || spark_in_radix(CAST(18446744073709551616 AS UHUGEINT) - x, -target)
        ELSE spark_in_radix(x, abs(target)) END
    in_radix(x, radix):
        CASE WHEN x = 0 THEN '0' ELSE (list_reduce(range(64), lambda s, i:
        {{'v': s.v // CAST(radix AS UHUGEINT), 't': CASE WHEN s.v = 0 THEN s.t ELSE
        substring('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', CAST(s.v % CAST(radix AS UHUGEINT) AS INTEGER) + 1, 1)
        || s.t END}}, {{'v': CAST(x AS UHUGEINT), 't': ''}})).t END
    is_valid_utf8(x BLOB): CASE WHEN x IS NOT NULL THEN TRY(decode(x)) IS NOT NULL END
    is_valid_utf8(x): CASE WHEN x IS NOT NULL THEN TRUE END
    validate_utf8(x BLOB): decode(x)
    validate_utf8(x): spark_text_of(x)
    make_valid_utf8(x BLOB):
        CASE WHEN TRY(decode(x)) IS NULL AND x IS NOT NULL THEN spark_made_valid(hex(x))
        ELSE decode(x) END
    make_valid_utf8(x): spark_text_of(x)
    made_valid(digits):
        -- A truncated character becomes one replacement character, and so does each other invalid byte.
        array_to_string(list_transform(regexp_extract_all(digits, '{_VALID}|{_CUT_OFF}|..'),
        lambda c: CASE WHEN regexp_full_match(c, '{_VALID}') THEN decode(unhex(c)) ELSE chr(65533) END), '')
    try_validate_utf8(x BLOB): TRY(decode(x))
    try_validate_utf8(x): spark_text_of(x)
    hex(x BLOB | VARCHAR): hex(x)
    hex(x BOOLEAN | DATE | TIMESTAMP | TIMESTAMPTZ): hex(spark_text_of(x))
    hex(x): hex(spark_bigint(x))
    decoded_base64(x): {_write_base64_decoding("error('a text is not valid base64')")}
    try_decoded_base64(x): {_write_base64_decoding("NULL")}
    to_binary(x, format): {_TO_BINARY}
    try_to_binary(x, format): {_write_to_binary("NULL", "NULL", "try_decoded_base64")}
    """
)
