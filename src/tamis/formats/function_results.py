"""The columns in which plain functions return a table's files, for every format."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, suggest_arguments

UNKNOWN = -1
"""The value of an unknown record count, size or modification time."""

FILE_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("num_records", pa.int64()),
        ("partition_values", pa.string()),
    ]
)
"""`modification_time` is in milliseconds, `partition_values` is JSON."""

# --- Conversion of whole columns of string maps to JSON ---------------------------------------------------------------

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


# --- Export of batches to another runtime, such as a JVM, through Arrow's C Data Interface ----------------------------
#
# Within Python this is not needed: record batches have `__arrow_c_array__` and `__arrow_c_stream__`.


@suggest_arguments("tamis.delta.export_batch")
def export_batch(batch: pa.RecordBatch, array_address: int, schema_address: int | None = None) -> None:
    """Write a batch to the structs `ArrowArray` and `ArrowSchema` at these addresses, without copying its data.

    The runtime owns the structs and calls `release` when it is done. An address that is not that of such a struct
    crashes the process, and cannot be checked.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidArgument(f"expected a record batch to export, found {type(batch).__name__}")
    for name, address in (("array_address", array_address), ("schema_address", schema_address)):
        if address is None and name == "schema_address":
            continue
        if not isinstance(address, int) or isinstance(address, bool) or not 0 < address < 2**64:
            raise InvalidArgument(
                f"{name} must be the address of a struct of Arrow's C Data Interface, found {address!r}"
            )
    if schema_address is None:
        batch._export_to_c(array_address)
    else:
        batch._export_to_c(array_address, schema_address)
