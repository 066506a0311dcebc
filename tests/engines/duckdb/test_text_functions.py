"""Functions of texts and bytes on the embedded engine return the values of Spark 4.2."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pytest

import tamis
from builders.parquet.files import find_rows, write_table
from tamis.engines.duckdb.functions.regexps import translate_regexp, translate_replacement
from tamis.errors import TamisError

TEXTS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "s": ["a1,b", "Zé9", None],
        "b": [b"ab", b"\x00", None],
    }
)

CONSTANTS = [
    # Arguments that are not texts
    ("contains(12, '1')", True),
    ("contains(true, 'ru')", True),
    ("contains(x'12', 12)", False),
    ("contains(x'ff00', x'00')", True),
    ("contains(x'1210', x'21')", False),
    ("contains('a', NULL)", None),
    ("startswith(12, 1)", True),
    ("endswith(12.5, '5')", True),
    ("endswith(x'ff00', x'ff')", False),
    ("length(x'ff00')", 2),
    ("length(12.50)", 5),
    ("length('🤦🏼‍♂️')", 5),
    ("bit_length(12)", 16),
    ("lower(TRUE)", "true"),
    ("upper(x'6162')", "AB"),
    ("reverse(123)", "321"),
    ("reverse('e\\u0301x')", "x\u0301e"),
    ("reverse(x'6162')", b"ba"),
    ("trim(12)", "12"),
    ("trim(BOTH 1 FROM 1231)", "23"),
    ("trim('\\u00a0a\\u00a0')", "\u00a0a\u00a0"),
    ("btrim(x'6162', x'62')", "a"),
    ("ltrim('xy', 'xyaxy')", "axy"),
    ("concat()", ""),
    ("concat(1)", "1"),
    ("concat(x'61', x'62')", b"ab"),
    ("concat('a', x'62')", "ab"),
    ("concat_ws(',', 1, true, 1.5D, DATE'2020-01-01')", "1,true,1.5,2020-01-01"),
    ("concat_ws(',', array('a'), NULL, array())", "a"),
    ("concat_ws(',')", ""),
    ("overlay(x'aabbcc', x'00ff', 2, 1)", b"\xaa\x00\xff\xcc"),
    ("overlay('abc', 'X', -1)", "Xabc"),
    ("substring(x'aabbcc', -2, 1)", b"\xbb"),
    ("substring('abc', 2, -1)", ""),
    ("substring('abc', -5, 3)", "a"),
    ("substring(12345, 2, 3)", "234"),
    ("left(x'6162', 5)", b"ab"),
    ("right(x'6162', 1)", "b"),
    ("repeat(12, 2)", "1212"),
    ("repeat('a', -1)", ""),
    ("lpad('abc', 5, '')", "abc"),
    ("lpad('abc', -3, 'x')", ""),
    ("lpad(x'aa', 3, x'0b')", b"\x0b\x0b\xaa"),
    ("rpad(x'aa', 3)", b"\xaa\x00\x00"),
    ("lpad('abc', 5, x'57')", "WWabc"),
    ("lpad('abc', '5', 'x')", "xxabc"),
    ("replace(1213, 1, 9)", "9293"),
    ("translate('abcba', 'abb', 'xyz')", "xycyx"),
    ("char(321)", "A"),
    ("char(-1)", ""),
    # Letters
    ("upper('ßŉéﬁ')", "SSʼNÉFI"),
    ("lower('ÀÉSSΑΣ İ')", "àéssας i̇"),
    ("initcap('ǆabc ßa o''NEIL')", "ǅabc Ssa O'neil"),
    ("initcap('ΑΣ ΑΣΑ')", "Ας Ασα"),
    ("soundex('Tymczak')", "T522"),
    ("soundex('BHB')", "B000"),
    ("soundex('é')", "é"),
    ("levenshtein('äbc', 'abc', 1)", 1),
    ("levenshtein('🤦a', 'a')", 1),
    ("levenshtein('kitten', 'sitting', 2)", -1),
    # Positions
    ("elt(2, 'a', 2)", "2"),
    ("elt(1, x'61', x'62')", b"a"),
    ("elt(NULL, 'a')", None),
    ("instr('abcabc', 'b')", 2),
    ("locate('b', 'abc', NULL)", 0),
    ("locate('', 'abc', 10)", 1),
    ("position('🤦' IN 'x🤦')", 2),
    ("substring_index('aaaaa', 'aa', 2)", "a"),
    ("substring_index('www.apache.org', '.', -2)", "apache.org"),
    ("split_part('11.12.13', '.', -1)", "13"),
    ("find_in_set('', 'a,')", 2),
    ("split('hello', '', 3)", ["h", "e", "llo"]),
    ("split('oneAtwoBthreeC', '[ABC]', 2)", ["one", "twoBthreeC"]),
    ("split('', 'x')", [""]),
    # Numbers
    ("hex(1.7D)", "1"),
    ("hex(true)", "74727565"),
    ("unhex('XX')", None),
    ("unhex('ABC')", b"\n\xbc"),
    ("bin(13.9D)", "1101"),
    ("conv('-10', 16, -10)", "-16"),
    ("conv('-1', 10, 16)", "FFFFFFFFFFFFFFFF"),
    ("conv('12x', 10, 16)", "C"),
    ("to_number('12,454.8-', '99,999.9S')", Decimal("-12454.8")),
    ("to_number('<00,454.8>', '00,000.9PR')", Decimal("-454.8")),
    ("to_number('1,45', '99,999')", Decimal(145)),
    ("try_to_number('a', '999')", None),
    ("to_char(454, '99,999')", "   454"),
    ("to_char(-12454.8, 'S99,999.9')", "-12,454.8"),
    ("to_char(-5, '999PR')", "  <5>"),
    ("to_char(78.12, '$99.99')", "$78.12"),
    ("to_char(4545, '999')", "###"),
    ("to_char(x'00ff', 'hex')", "00FF"),
    ("format_number(12332.123456, '##################.###')", "12332.123"),
    ("format_number(0.5, '#.##')", "0.5"),
    ("format_string('%5s|%-5s|%08.2f', 'ab', 'cd', -1.5D)", "   ab|cd   |-0001.50"),
    ("format_string('%2$s %1$,d %%', 1234567, 'a')", "a 1,234,567 %"),
    ("format_string('%X', -1)", "FFFFFFFF"),
    ("luhn_check('79927398713')", True),
    ("luhn_check('٣')", False),
    # Bytes
    ("crc32('Spark')", 1557323817),
    ("hash('Spark', 123)", 1262264271),
    ("hash(1L)", -1712319331),
    ("xxhash64('Spark', 123)", -7770970918500510695),
    ("xxhash64('The quick brown fox jumps over the lazy dog')", -6152153990451020481),
    ("base64(x'00ff')", "AP8="),
    ("unbase64('YQ')", b"a"),
    ("to_binary(' ab cd ', 'base64')", b"i\xb7\x1d"),
    ("make_valid_utf8(x'61C328E2')", "a\ufffd(\ufffd"),
    ("is_valid_utf8(x'80')", False),
    ("try_validate_utf8(x'80')", None),
    ("quote('Don''t')", "'Don\\'t'"),
    # URLs
    ("url_encode('a b*~é')", "a+b*%7E%C3%A9"),
    ("try_url_decode('%zz')", None),
    ("parse_url('http://u:p@h.com:8080/a/b?x=1&y=2#frag', 'AUTHORITY')", "u:p@h.com:8080"),
    ("parse_url('http://u:p@h.com:8080/a/b?x=1&y=2#frag', 'QUERY', 'y')", "2"),
    ("parse_url('http://h_x.com/a', 'HOST')", None),
    ("parse_url('http://[::1]:80/a', 'HOST')", "[::1]"),
    ("try_parse_url('inva lid://x', 'HOST')", None),
    # Regular expressions
    ("'a\\rb' RLIKE 'a.b'", False),
    ("'a\\u000bb' RLIKE '\\\\s'", True),
    ("12 RLIKE '^1'", True),
    ("'a' RLIKE '\\\\p{Lower}'", True),
    ("regexp_extract('100-200', '(\\\\d+)-(\\\\d+)')", "100"),
    ("regexp_extract('ab', '(?<n>a)', 1)", "a"),
    ("regexp_extract_all('a1b2', '([a-z])(\\\\d)?', 2)", ["1", "2"]),
    ("regexp_replace('abc', '(b)', '$10')", "ab0c"),
    ("regexp_replace('100-200', '(\\\\d+)', 'num', 5)", "100-num"),
    ("regexp_instr('a😀b', 'b')", 4),
    ("regexp_count('aaa', 'aa')", 1),
    ("regexp_substr('abc', 'x')", None),
    # LIKE
    ("12 LIKE '1%'", True),
    ("x'6162' LIKE 'a%'", True),
    ("'İ' ILIKE 'i̇'", True),
    ("'a' LIKE ANY ('x', NULL)", None),
    ("'a%' LIKE ALL ('a\\\\%', 'a_')", True),
    ("typeof(1.5)", "decimal(2,1)"),
    ("typeof(array('a'))", "array<string>"),
]

REJECTED = [
    ("length(array(1))", "must be a text"),
    ("split_part('a', '.', 0)", "counts from 1"),
    ("elt(3, 'a', 'b')", "elt has 2 values"),
    ("to_number('45', '000')", "does not match the format"),
    ("to_number('5', 'x')", "not a number format"),
    ("to_binary('ab', 'foo')", "not a format"),
    ("md5(12)", "a text or bytes"),
    ("url_decode('%zz')", "two hexadecimal digits"),
    ("parse_url('inva lid://x', 'HOST')", "not a valid URL"),
    ("'aa' RLIKE '(a)\\\\1'", "RE2 does not support"),
    ("'ab' RLIKE 'a(?=b)'", "looks ahead"),
    ("'aa' RLIKE 'a++'", "possessive"),
    ("regexp_extract('a', '(a)', 2)", "1 groups, not 2"),
    ("regexp_replace('abc', 'b*', 'x')", "matches the empty text"),
    ("regexp_replace('abc', '(b)', '$2')", "the group 2"),
    ("'ab' LIKE 'a\\\\b'", "the escape character must precede"),
    ("hash(1 + 1)", "computed value"),
    ("sha2('a', 512)", "only 256 bits"),
    ("format_string('%x', 1.5D)", "%d and %x support only whole numbers"),
    ("levenshtein('a', 'b', NULL)", "the threshold is NULL"),
    ("sentences('a')", "Spark's sentences"),
    ("collation('a')", "Spark's collation"),
    ("randstr(3)", "Spark's randstr"),
]


@pytest.fixture(scope="module")
def session() -> tamis.Session:
    made = tamis.connect()
    made.register("t", TEXTS)
    return made


def test_a_function_of_constants_returns_the_value_of_spark(session: tamis.Session) -> None:
    query = ", ".join(f"{expression} AS v{number}" for number, (expression, _) in enumerate(CONSTANTS))
    found = session.sql(f"SELECT {query}").to_arrow().to_pylist()[0]
    assert {e: found[f"v{n}"] for n, (e, _) in enumerate(CONSTANTS)} == dict(CONSTANTS)


@pytest.mark.parametrize(("expression", "message"), REJECTED, ids=[expression for expression, _ in REJECTED])
def test_what_spark_rejects_or_duckdb_cannot_compute_is_an_error(
    session: tamis.Session, expression: str, message: str
) -> None:
    with pytest.raises(TamisError, match=re.escape(message)):
        session.sql(f"SELECT {expression}").to_arrow()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("encode(s, 'UTF-16BE')", [b"\0a\x001\0,\0b", b"\0Z\0\xe9\x009", None]),
        ("encode(s, 'utf-16')", [b"\xfe\xff\0a\x001\0,\0b", b"\xfe\xff\0Z\0\xe9\x009", None]),
        ("encode(s, 'UTF-16LE')", [b"a\x001\0,\0b\0", b"Z\0\xe9\x009\0", None]),
        ("encode(s, 'UTF-32')", [b"\0\0\0a\0\0\x001\0\0\0,\0\0\0b", b"\0\0\0Z\0\0\0\xe9\0\0\x009", None]),
        ("encode(s, 'ISO-8859-1')", [b"a1,b", b"Z\xe99", None]),
        ("encode(s, NULL)", [None, None, None]),
        ("decode(b, 'ISO-8859-1')", ["ab", "\0", None]),
        ("decode(encode(s, 'UTF-16LE'), 'UTF-16LE')", ["a1,b", "Zé9", None]),
        ("decode(encode(s || '😀', 'UTF-16'), 'UTF-16')", ["a1,b😀", "Zé9😀", None]),
        ("decode(encode(s || '😀', 'UTF-32'), 'UTF-32')", ["a1,b😀", "Zé9😀", None]),
        ("decode(id, 1, 'one', 2, 'two')", ["one", "two", None]),
        ("decode(s, NULL, 'none', 'some')", ["some", "some", "none"]),
    ],
)
def test_Q9_texts_are_encoded_in_a_character_set(
    session: tamis.Session, expression: str, expected: list[object]
) -> None:
    found = session.sql(f"SELECT {expression} AS v, count(*) OVER () FROM t ORDER BY id").to_arrow()
    assert found["v"].to_pylist() == expected


@pytest.mark.parametrize(
    "expression",
    [
        "encode('é', 'US-ASCII')",
        "encode('€', 'ISO-8859-1')",
        "encode('a', 'latin1')",
        "decode(x'E9', 'US-ASCII')",
        "decode(x'00', 'UTF-16')",
        "decode(x'D83D', 'UTF-16BE')",
    ],
)
def test_Q9_a_character_outside_of_the_character_set_is_an_error(session: tamis.Session, expression: str) -> None:
    with pytest.raises(TamisError):
        session.sql(f"SELECT {expression}").to_arrow()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("mask(s)", ["xn,x", "Xxn", None]),
        ("mask(s, 'Q', 'q', 'd', 'o')", ["qdoq", "Qqd", None]),
        ("mask(s, NULL, 'q', NULL, 'o')", ["q1oq", "Zq9", None]),
        ("mask(s, NULL, NULL, NULL, NULL)", ["a1,b", "Zé9", None]),
        ("mask(s, otherChar => '*', lowerChar => NULL)", ["an*b", "Xén", None]),
        ("mask('😀', NULL, NULL, NULL, '*')", ["**"] * 3),
        ("to_binary(s, NULL)", [None] * 3),
        ("try_to_binary(s, CAST(NULL AS STRING))", [None] * 3),
        ("lpad(s, 3, NULL)", [None] * 3),
        ("lpad(b, NULL)", [None] * 3),
        ("split(s, ',', NULL)", [None] * 3),
        ("overlay(s, NULL, 1)", [None] * 3),
        ("concat_ws(NULL, s)", [None] * 3),
        ("regexp_extract(s, '(a)', NULL)", [None] * 3),
        ("parse_url(s, NULL)", [None] * 3),
        ("to_char(id, NULL)", [None] * 3),
        ("format_string(NULL, s)", [None] * 3),
        ("locate('a', s, NULL)", [0] * 3),
        ("format_string('%s', s)", ["a1,b", "Zé9", "null"]),
    ],
)
def test_Q10_an_option_that_is_null(session: tamis.Session, expression: str, expected: list[object]) -> None:
    found = session.sql(f"SELECT {expression} AS v, count(*) OVER () FROM t ORDER BY id").to_arrow()
    assert found["v"].to_pylist() == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("mask(s) = 'Xxn'", [1]),
        ("mask(s, NULL, 'q', NULL, 'o') = 'q1oq'", [0]),
        ("encode(s, 'UTF-16BE') = X'005A00E90039'", [1]),
        ("upper(s) = 'STRASSE'", [2]),
        ("lower(u) = 'ας'", [0]),
        ("s LIKE ANY ('a%', '%9')", [0, 1]),
        ("s RLIKE '\\\\d$'", [1]),
        ("lpad(b, 3) = X'006162'", [0]),
        ("contains(b, X'00')", [1]),
        ("luhn_check(i)", [2]),
        ("elt(i - 16, s, 'x') = 'a1,b'", [0]),
    ],
)
def test_text_functions_in_the_filter_of_a_scan(tmp_path, where: str, expected: list[int]) -> None:
    columns = {
        "s": pa.array(["a1,b", "Zé9", "straße"]),
        "u": pa.array(["ΑΣ", "x", None]),
        "b": pa.array([b"ab", b"\x00", None]),
        "i": pa.array([17, 17, 18], pa.int32()),
    }
    assert find_rows(write_table(tmp_path, columns, rows=3), where) == expected


def test_nested_calls_are_bound_in_little_time(session: tamis.Session) -> None:
    """DuckDB binds the arguments of an overloaded macro twice, so not every level may be one."""
    expression = "s"
    for _ in range(6):
        expression = f"mask(upper(trim(substring(concat(lpad({expression}, 6, '*'), 'x'), 1, 4))), NULL, NULL, NULL)"
    assert session.sql(f"SELECT {expression} AS v FROM t WHERE id = 1").to_arrow()["v"].to_pylist() == ["****"]


@pytest.mark.parametrize(
    ("java", "searched", "matched"),
    [
        ("a.b", "a[^\\n\\r\\x{85}\\x{2028}\\x{2029}]b", None),
        ("(?s)a.b", "(?s)a.b", None),
        ("a$", "a(?:\\r\\n|[\\n\\r\\x{85}\\x{2028}\\x{2029}])?\\z", "a\\z"),
        ("\\u00e9[\\s\\d]", "[\\x{00e9}][\\t\\n\\x0B\\f\\r \\d]", None),
        ("(?<n>a){2,3}?", "(a){2,3}?", None),
        ("\\Qa.b\\E", "a\\.b", None),
    ],
)
def test_regular_expressions_of_java_are_translated_to_re2(java: str, searched: str, matched: str | None) -> None:
    found = translate_regexp(java)
    assert (found.search_pattern, found.match_pattern) == (searched, matched or searched)


def test_groups_of_replacements_are_translated() -> None:
    assert translate_replacement("<$1\\$>", 1) == "<\\1$>"
