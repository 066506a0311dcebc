"""Maps of texts as JSON objects, all rows at once."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

_NEEDS_ESCAPES = '[\\\\"\\x00-\\x1f]'


def map_to_json(maps: pa.MapArray) -> pa.StringArray:
    """Each map as the text of a JSON object, its keys in their order; `{}` where there is no map.

    >>> maps = pa.array([[("day", "1"), ("city", None)], [("q", 'a"b')], None], pa.map_(pa.string(), pa.string()))
    >>> map_to_json(maps).to_pylist()
    ['{"day": "1", "city": null}', '{"q": "a\\\\"b"}', '{}']
    """
    quoted = pc.binary_join_element_wise(_quoted(maps.keys), _quoted(maps.items), ": ", null_handling="replace",
                                         null_replacement="null")  # fmt: skip
    entries = pa.ListArray.from_arrays(maps.offsets, quoted)
    joined = pc.binary_join(entries, ", ")
    if maps.null_count:
        joined = pc.if_else(maps.is_null(), "", joined)
    return pc.binary_join_element_wise("{", joined, "}", "")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    plain = pc.binary_join_element_wise('"', texts, '"', "")
    is_odd = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPES), False)
    if not pc.any(is_odd, min_count=0).as_py():
        return plain
    # Few partition values have quotes in them.
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(plain, is_odd, pa.array(escaped, pa.string()))
