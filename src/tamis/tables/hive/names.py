"""Names of partition directories: `day=2024-03-01`, escaped the way Hive and Spark do.

Each `%XX` stands for one character, the one with that code: `%C3%A9` is `Ã©` and not `é`, because Hive never goes
through UTF-8. A `%` that no two hexadecimal digits follow is a `%`.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a directory whose rows have NULL (or, on Hive and Spark, the empty text) in the column."""

_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_TO_ESCAPE = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")

# A name may hold any character, a line break too, hence (?s).
_DIRECTORY = r"(?s)^(?P<column>[^=]*)=(?P<value>.*)$"


def unescape(text: str) -> str:
    """The text that was escaped; applied once, so that `%2541` is `%41`.

    >>> unescape("10%3A30"), unescape("100%"), unescape("%zz%20")
    ('10:30', '100%', '%zz ')
    """
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text


def escape(text: str) -> str:
    """The text as Hive and Spark write it: space, `+` and letters of any script stay as they are.

    >>> escape("10:30 a=b"), escape("é")
    ('10%3A30 a%3Db', 'é')
    """
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def directory_name(column: str, value: str | None) -> str:
    """The name of the directory of a value. Hive has no empty values: they are written as NULL.

    >>> directory_name("at", "10:30"), directory_name("at", None)
    ('at=10%3A30', 'at=__HIVE_DEFAULT_PARTITION__')
    """
    return f"{escape(column)}={escape(value) if value else HIVE_NULL}"


def split_directory_name(name: str) -> tuple[str, str] | None:
    """Column and value of a partition directory, both unescaped; None for any other directory.

    The first `=` divides, since an escaped column name has none. The value may be `HIVE_NULL`, and may be empty.

    >>> split_directory_name("a=b=c"), split_directory_name("data")
    (('a', 'b=c'), None)
    """
    column, equals, value = name.partition("=")
    return (unescape(column), unescape(value)) if equals else None


def split_directory_names(names: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Columns and values of many partition directories, unescaped; a value is null where the directory says NULL.

    Both are null for a name without `=`.
    """
    parts = pc.extract_regex(names, _DIRECTORY)
    columns, values = pc.struct_field(parts, "column"), pc.struct_field(parts, "value")
    values = pc.if_else(pc.equal(values, HIVE_NULL), pa.scalar(None, pa.string()), values)
    return unescape_all(columns), unescape_all(values)


def unescape_all(texts: pa.StringArray) -> pa.StringArray:
    """`unescape` of every text. Few names are escaped: Python sees only those, each distinct one once."""
    escaped = pc.fill_null(pc.match_substring(texts, "%"), False)
    if not pc.any(escaped, min_count=0).as_py():
        return texts
    distinct = texts.filter(escaped).dictionary_encode()
    plain = pa.array([unescape(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, escaped, plain.take(distinct.indices))
