"""Names of partition directories such as `day=2024-03-01`, escaped by Hive and Spark or by pyarrow, Polars and DuckDB.

| in the name      | is decoded to                                                                                  |
|------------------|------------------------------------------------------------------------------------------------|
| `%C3%B1`         | `ñ`: a run of bytes of 0x80 and above that is valid UTF-8, as pyarrow, Polars and DuckDB write |
| any other `%XX`  | the one character with that code, as in Hive: `%3A` is `:`, `%FF` is `ÿ`                       |
| any other `%`    | itself                                                                                         |

Spark and Hive never escape a character beyond ASCII, so the first rule does not affect the names that they write.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a directory whose rows have NULL (or, with Hive and Spark, the empty string) in the column."""

_ESCAPED = re.compile(r"(?:%[89A-Fa-f][0-9A-Fa-f])+|%[0-7][0-9A-Fa-f]")

# A name may hold any character, a line break too, hence (?s).
_DIRECTORY = r"(?s)^(?P<column>[^=]*)=(?P<value>.*)$"


def unescape(text: str) -> str:
    """Unescape a string once, so that `%2541` becomes `%41`.

    >>> unescape("10%3A30"), unescape("100%"), unescape("%zz%20"), unescape("%C3%B1"), unescape("%F1")
    ('10:30', '100%', '%zz ', 'ñ', 'ñ')
    """
    return _ESCAPED.sub(_unescape_run, text) if "%" in text else text


def _unescape_run(match: re.Match[str]) -> str:
    content = bytes.fromhex(match[0].replace("%", ""))
    try:
        return content.decode()
    except UnicodeDecodeError:
        # In Latin-1 each byte is the code of its character.
        return content.decode("latin-1")


def split_directory_name(name: str) -> tuple[str, str | None] | None:
    """Return the column and value of a partition directory, both unescaped; None for any other directory.

    The first `=` separates them, since an escaped column name has none. The value is None for NULL, and may be empty.

    >>> split_directory_name("a=b=c"), split_directory_name(f"a={HIVE_NULL}"), split_directory_name("data")
    (('a', 'b=c'), ('a', None), None)
    """
    column, equals, value = name.partition("=")
    return (unescape(column), None if value == HIVE_NULL else unescape(value)) if equals else None


def split_directory_names(names: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the columns and values of many partition directories, unescaped; a value is null for NULL.

    Both are null for a name without `=`. DuckDB writes the string `__HIVE_DEFAULT_PARTITION__` itself with an escape,
    as `%5F_HIVE_DEFAULT_PARTITION__`.
    """
    parts = pc.extract_regex(names, _DIRECTORY)
    columns, values = pc.struct_field(parts, "column"), pc.struct_field(parts, "value")
    values = pc.if_else(pc.equal(values, HIVE_NULL), pa.scalar(None, pa.string()), values)
    return unescape_all(columns), unescape_all(values)


def unescape_all(texts: pa.StringArray) -> pa.StringArray:
    """Unescape every string. Few names are escaped: Python handles only those, each distinct one once."""
    escaped = pc.fill_null(pc.match_substring(texts, "%"), False)
    if not pc.any(escaped, min_count=0).as_py():
        return texts
    distinct = texts.filter(escaped).dictionary_encode()
    plain = pa.array([unescape(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, escaped, plain.take(distinct.indices))
