"""S: strings and bytes. Bounds are not values, and patterns are at most prefixes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from builders.skipping.units import (
    ALL_NULL,
    FULLY_MATCHED,
    KEPT,
    SKIPPED,
    TEXT,
    Unit,
    explain_unused,
    find_outcome,
    find_outcomes,
)
from tamis.errors import ParseError

BYTES = pa.binary()
LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # The values are 'aaaa…' to 'aaaz…', cut to four characters and rounded up.
        ("x = 'aaaa'", KEPT),
        ("x = 'aaab'", KEPT),
        ("x = 'aaaaxyz'", KEPT),
        ("x = 'aaac'", SKIPPED),
        ("x = 'aaa'", SKIPPED),
        ("x > 'aaab'", SKIPPED),
        ("x >= 'aaab'", KEPT),
        ("x < 'aaaa'", SKIPPED),
        ("x <= 'aaaa'", KEPT),
        ("x >= 'aaaa'", FULLY_MATCHED),
        ("x <= 'aaab'", FULLY_MATCHED),
        ("x <> 'aaaa'", KEPT),
        ("x LIKE 'aaaa%'", KEPT),
        ("x LIKE 'aaa%'", FULLY_MATCHED),
        ("x LIKE 'aaaxyz%'", SKIPPED),
        ("x LIKE 'aaaaxyz%'", KEPT),
        ("x IN ('aaaa', 'aaab')", KEPT),
        ("x NOT IN ('aaaa', 'aaab')", KEPT),
        ("substr(x, 1, 4) = 'aaaa'", KEPT),
        ("substr(x, 1, 3) = 'aaa'", FULLY_MATCHED),
        ("length(x) = 4", KEPT),
    ],
)
def test_S1_S2_truncated_bounds_are_bounds_and_never_values(where, expected):
    assert find_outcome(where, TEXT, Unit("aaaa", "aaab")) == expected


def test_S1_one_value_between_equal_bounds_is_that_value_even_if_truncated():
    assert find_outcome("length(x) = 4", TEXT, Unit("aaaa", "aaaa")) == FULLY_MATCHED


@pytest.mark.parametrize("data_type", [TEXT, pa.large_string()])
@pytest.mark.parametrize(
    ("where", "lower", "upper", "expected"),
    [
        # Texts compare by code point, which is the order of their UTF-8 bytes, and not as a language sorts them.
        ("x > 'z'", "a", "é", KEPT),
        ("x > 'z'", "a", "zz", KEPT),
        ("x < 'a'", "Z", "ZZ", FULLY_MATCHED),
        ("x = 'e'", "f", "é", SKIPPED),
        ("x >= '日'", "a", "é", SKIPPED),
        ("x < '日'", "a", "é", FULLY_MATCHED),
        # In UTF-16 this character would sort below the other.
        ("x > '\uffff'", "\U00010000", "\U00010001", FULLY_MATCHED),
        ("x = ''", "", "a", KEPT),
        ("x < ''", "", "a", SKIPPED),
        ("x > ''", "", "", SKIPPED),
        ("x = 'a'", "a\x00", "b", SKIPPED),
    ],
)
def test_the_order_of_texts_is_that_of_code_points(data_type, where, lower, upper, expected):
    assert find_outcome(where, data_type, Unit(lower, upper)) == expected


@pytest.mark.parametrize(
    ("where", "lower", "upper", "expected"),
    [
        ("x > X'7FFF'", b"\x80\x00", b"\xff\xff", FULLY_MATCHED),
        ("x < X'0100'", b"\x80\x00", b"\xff\xff", SKIPPED),
        ("x = X'8000'", b"\x80\x00", b"\x80\x00", FULLY_MATCHED),
        ("x IN (X'0000', X'FFFF')", b"\x01\x00", b"\xff\xfe", SKIPPED),
        ("x IN (X'0000', X'FFFF')", b"\x01\x00", b"\xff\xff", KEPT),
        ("x = X'80'", b"\x80\x00", b"\xff\xff", SKIPPED),  # shorter, so smaller
        ("x BETWEEN X'7F00' AND X'8000'", b"\x80\x00", b"\xff\xff", KEPT),
    ],
)
@pytest.mark.parametrize("data_type", [BYTES, pa.large_binary(), pa.binary(2)])
def test_S6_bytes_and_uuids_compare_unsigned(where, lower, upper, expected, data_type):
    assert find_outcome(where, data_type, Unit(lower, upper)) == expected


@pytest.mark.parametrize(
    ("where", "lower", "upper", "expected"),
    [
        # One character, any text, and what is escaped.
        ("x LIKE 'a_c'", "aa", "az", KEPT),
        ("x LIKE 'a_c'", "b", "c", SKIPPED),
        ("x LIKE 'a_c'", "abc", "abc", KEPT),
        ("x LIKE 'a%c'", "aa", "az", KEPT),
        ("x LIKE 'a%c'", "b", "c", SKIPPED),
        ("x LIKE 'a%c%'", "b", "c", SKIPPED),
        ("x LIKE '%'", "a", "z", FULLY_MATCHED),
        ("x LIKE '%%'", "a", "z", FULLY_MATCHED),
        ("x LIKE 'ab%%'", "ab", "abz", FULLY_MATCHED),
        ("x LIKE 'ab%_'", "ab", "abz", KEPT),
        ("x LIKE '_'", "a", "z", KEPT),
        ("x LIKE '%c'", "d", "z", KEPT),
        ("x LIKE '_%'", "a", "z", KEPT),
        ("x LIKE ''", "", "", FULLY_MATCHED),
        ("x LIKE ''", "a", "b", SKIPPED),
        (r"x LIKE 'a\\%'", "a%", "a%", FULLY_MATCHED),
        (r"x LIKE 'a\\%'", "a&", "az", SKIPPED),
        (r"x LIKE 'a\\%'", "a", "az", KEPT),
        (r"x LIKE 'a\\%%'", "a%", "a%z", FULLY_MATCHED),
        (r"x LIKE 'a\\_%'", "a_", "a_z", FULLY_MATCHED),
        (r"x LIKE 'a\\_%'", "aa", "az", SKIPPED),
        (r"x LIKE 'a\\\\%'", "a\\", "a\\z", FULLY_MATCHED),
        ("x LIKE 'a!%%' ESCAPE '!'", "a%", "a%z", FULLY_MATCHED),
        ("x LIKE 'a!%%' ESCAPE '!'", "aa", "az", SKIPPED),
        (r"x LIKE 'a\\b%' ESCAPE '!'", "a\\b", "a\\bz", FULLY_MATCHED),
        # NOT turns "may match" into "may not": only what surely matches may be skipped.
        ("x NOT LIKE 'a_c'", "abc", "abc", KEPT),
        ("x NOT LIKE 'a%c'", "aa", "az", KEPT),
        ("x NOT LIKE 'a%c'", "b", "c", FULLY_MATCHED),
        (r"x NOT LIKE 'a\\%'", "a%", "a%", SKIPPED),
        ("x NOT LIKE '%c'", "a", "z", KEPT),
        ("x NOT LIKE ''", "", "", SKIPPED),
    ],
)
def test_S7_patterns(where, lower, upper, expected):
    assert find_outcome(where, TEXT, Unit(lower, upper)) == expected


@pytest.mark.parametrize(
    ("prefix", "lower", "upper", "expected"),
    [
        # The text after all that start with the prefix does not exist, or needs a shorter prefix.
        (LAST, LAST, LAST + LAST, FULLY_MATCHED),
        (LAST, "a", LAST, KEPT),
        (LAST, "a", "z", SKIPPED),
        ("a" + LAST, "a" + LAST, "a" + LAST + "z", FULLY_MATCHED),
        ("a" + LAST, "b", "c", SKIPPED),
        ("a" + LAST, "a" + LAST, "b", KEPT),
        (LAST + LAST, LAST, LAST, SKIPPED),
        # After U+D7FF come surrogates, which are no characters.
        ("a\ud7ff", "a\ud7ff", "a\ud7ffz", FULLY_MATCHED),
        ("a\ud7ff", "a\ue000", "b", SKIPPED),
        ("a\ud7ff", "a\ud7ff", "a\ue000", KEPT),
        ("", "", LAST, FULLY_MATCHED),
    ],
)
def test_S8_prefixes_without_a_successor(prefix, lower, upper, expected):
    assert find_outcome(f"startswith(x, '{prefix}')", TEXT, Unit(lower, upper)) == expected
    assert find_outcome(f"x LIKE '{prefix}%'", TEXT, Unit(lower, upper)) == expected
    negated = {FULLY_MATCHED: SKIPPED, SKIPPED: FULLY_MATCHED, KEPT: KEPT}[expected]
    assert find_outcome(f"NOT startswith(x, '{prefix}')", TEXT, Unit(lower, upper)) == negated


@pytest.mark.parametrize(
    ("prefix", "lower", "upper", "expected"),
    [
        ("FF", b"\xff", b"\xff\xff", FULLY_MATCHED),
        ("FF", b"a", b"\xfe", SKIPPED),
        ("61FF", b"b", b"c", SKIPPED),
        ("61FF", b"a\xff", b"b", KEPT),
        ("61FF", b"a\xff", b"a\xffz", FULLY_MATCHED),
    ],
)
def test_S8_prefixes_of_bytes_without_a_successor(prefix, lower, upper, expected):
    assert find_outcome(f"startswith(x, X'{prefix}')", BYTES, Unit(lower, upper)) == expected


@pytest.mark.parametrize("where", ["x COLLATE UTF8_LCASE = 'a'", "x = 'a' COLLATE UNICODE_CI"])
def test_S9_another_collation_is_rejected(where):
    with pytest.raises(ParseError, match="collation"):
        find_outcome(where, TEXT, Unit("A", "Z"))


@pytest.mark.parametrize("where", ["collate(x, 'UTF8_LCASE') = 'a'", "lower(x) = 'a'"])
def test_S9_under_another_collation_bounds_are_unusable(where):
    assert find_outcome(where, TEXT, Unit("A", "Z")) == KEPT
    assert explain_unused(where, TEXT, Unit("A", "Z")) is not None


def test_upper_and_lower_do_not_preserve_order_but_decide_a_single_value():
    assert find_outcome("lower(x) = 'a'", TEXT, Unit("A", "A")) == FULLY_MATCHED
    assert find_outcome("lower(x) = 'a'", TEXT, Unit("B", "B")) == SKIPPED
    assert find_outcome("lower(x) = 'a'", TEXT, ALL_NULL) == SKIPPED


@pytest.mark.parametrize(
    ("where", "lower", "upper", "expected"),
    [
        # A prefix of constant length keeps the order of texts; where it starts later it does not.
        ("substr(x, 1, 2) < 'ab'", "ab", "b", SKIPPED),
        ("substr(x, 1, 2) <= 'ab'", "abz", "b", KEPT),
        ("substr(x, 2, 1) = 'z'", "aa", "ab", KEPT),
        ("substr(x, 2) = 'z'", "aa", "ab", KEPT),
        ("substr(x, -1) = 'z'", "aa", "ab", KEPT),
        ("right(x, 1) = 'z'", "aa", "ab", KEPT),
        ("left(x, 2) = 'éa'", "é", "éa", KEPT),
        ("left(x, 2) = 'éa'", "éa", "éaz", FULLY_MATCHED),
        ("left(x, 3) LIKE 'ab%'", "ac", "b", SKIPPED),
        ("left(x, 1) = 'ab'", "ab", "abz", SKIPPED),
    ],
)
def test_substrings(where, lower, upper, expected):
    assert find_outcome(where, TEXT, Unit(lower, upper)) == expected


def test_a_list_of_texts_is_searched_by_code_point():
    units = [Unit("b", "y"), Unit("zz", "日"), Unit("日本", LAST), Unit("Z", "Zz")]
    assert find_outcomes(f"x IN ('é', 'a', '{LAST}', 'Z')", {"x": (TEXT, units)}) == [SKIPPED, KEPT, KEPT, KEPT]
