"""Names of partition directories: H1 (escapes), H2 (the first `=`), H3 (NULL)."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.hive.tables import escape
from tamis.formats.hive.tree import HIVE_NULL, split_directory_name, split_directory_names, unescape, unescape_all


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        ("plain", "plain"),
        ("10%3A30", "10:30"),
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("%20", " "),
        ("a+b c", "a+b c"),
        ("%C3%A9", "é"),
        ("x%c3%b1%C3%B1y", "xññy"),
        ("%E6%97%A5%E6%9C%AC%F0%9F%98%80", "日本😀"),
        ("%C3%A9%25", "é%"),
        ("%C3%83%C2%B1", "Ã±"),
        ("%C3%B1%FF", "Ã±ÿ"),
        ("%C3", "Ã"),
        ("%C3%28", "Ã("),
        ("%ED%A0%80", "í\xa0\x80"),
        ("é", "é"),
        ("%FF", "ÿ"),
        ("%00", "\0"),
        ("%2541", "%41"),
        ("100%", "100%"),
        ("%4", "%4"),
        ("%zz", "%zz"),
        ("%4z", "%4z"),
        ("%%41", "%A"),
        ("%-1", "%-1"),
        ("% 1", "% 1"),
        ("%٣٣", "%٣٣"),
        ("", ""),
    ],
)
def test_H1_utf8_runs_are_utf8_other_escapes_one_character_and_a_malformed_percent_stays(
    escaped: str, text: str
) -> None:
    assert unescape(escaped) == text


@given(st.text())
def test_H1_escaped_names_round_trip(text: str) -> None:
    assert unescape(escape(text)) == text


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a=b", ("a", "b")),
        ("a=b=c", ("a", "b=c")),
        ("a%3Db=c", ("a=b", "c")),
        ("a=", ("a", "")),
        ("=b", ("", "b")),
        ("_a=1", ("_a", "1")),
        ("a.b=1", ("a.b", "1")),
        ("data", None),
        ("", None),
        (f"a={HIVE_NULL}", ("a", None)),
        ("a=%5F_HIVE_DEFAULT_PARTITION__", ("a", HIVE_NULL)),
    ],
)
def test_H2_a_name_is_split_at_the_first_equals(name: str, parts: tuple[str, str | None] | None) -> None:
    assert split_directory_name(name) == parts


def test_H1_H2_H3_many_names_together() -> None:
    names = ["a=1", "a=b=c", "a%2Eb=x%3Ay", f"a={HIVE_NULL}", "plain", "a=", "a=x\ny", "a=100%"]
    columns, values = split_directory_names(pa.array(names))
    assert columns.to_pylist() == ["a", "a", "a.b", "a", None, "a", "a", "a"]
    assert values.to_pylist() == ["1", "b=c", "x:y", None, None, "", "x\ny", "100%"]


def test_no_names() -> None:
    columns, values = split_directory_names(pa.array([], pa.string()))
    assert (len(columns), len(values)) == (0, 0)


@given(st.lists(st.none() | st.text(alphabet="%0123456789ABCDEFabcxé=", max_size=8)))
def test_H1_many_strings_are_unescaped_as_each_alone(texts: list[str | None]) -> None:
    found = unescape_all(pa.array(texts, pa.string())).to_pylist()
    assert found == [None if text is None else unescape(text) for text in texts]
