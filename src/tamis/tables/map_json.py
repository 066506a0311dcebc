"""Conversion of whole columns of string maps to JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

_NEEDS_ESCAPES = '[\\\\"\\x00-\\x1f]'


def map_to_json(maps: pa.MapArray) -> pa.StringArray:
    """Convert each map to a JSON object with its keys in order; `{}` for null.

    >>> maps = pa.array([[("day", "1"), ("city", None)], [("q", 'a"b')], None], pa.map_(pa.string(), pa.string()))
    >>> map_to_json(maps).to_pylist()
    ['{"day": "1", "city": null}', '{"q": "a\\\\"b"}', '{}']
    """
    quoted = pc.binary_join_element_wise(_quote(maps.keys), _quote(maps.items), ": ", null_handling="replace",
                                         null_replacement="null")  # fmt: skip
    entries = pa.ListArray.from_arrays(maps.offsets, quoted)
    joined = pc.binary_join(entries, ", ")
    if maps.null_count:
        joined = pc.if_else(maps.is_null(), "", joined)
    return pc.binary_join_element_wise("{", joined, "}", "")


def _quote(texts: pa.StringArray) -> pa.StringArray:
    plain = pc.binary_join_element_wise('"', texts, '"', "")
    is_odd = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPES), False)
    if not pc.any(is_odd, min_count=0).as_py():
        return plain
    # Few partition values need escapes.
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(plain, is_odd, pa.array(escaped, pa.string()))
