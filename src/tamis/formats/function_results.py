"""The columns in which plain functions return a table's files, for every format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, make_argument_error, suggest_arguments

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


def concat_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return batches of a schema as one, which is empty without any."""
    return pa.concat_batches([pa.RecordBatch.from_pylist([], schema), *batches])


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
    _check_address("array_address", array_address)
    if schema_address is not None:
        _check_address("schema_address", schema_address)
    if schema_address is None:
        batch._export_to_c(array_address)
    else:
        batch._export_to_c(array_address, schema_address)


def check_column_addresses(schema: pa.Schema, array_addresses: object, schema_addresses: object) -> None:
    """Raise unless there is one address for each column, and none of them twice."""
    seen: dict[int, str] = {}
    for name, addresses in (("array_addresses", array_addresses), ("schema_addresses", schema_addresses)):
        if isinstance(addresses, str | bytes | Mapping) or not isinstance(addresses, Sequence):
            raise make_argument_error(name, f"a list of {len(schema)} addresses, one for each column", addresses)
        if len(addresses) != len(schema):
            raise InvalidArgument(
                f"{name} must have one address for each of the {len(schema)} columns ({', '.join(schema.names)}), "
                f"found {len(addresses)}"
            )
        for number, address in enumerate(addresses):
            place = f"{name}[{number}]"
            _check_address(place, address)
            if address in seen:
                raise InvalidArgument(f"{place} and {seen[address]} are the same address: each column needs its own")
            seen[address] = place


def export_columns(batch: pa.RecordBatch, array_addresses: Sequence[int], schema_addresses: Sequence[int]) -> int:
    """Write each column of a batch to its own `ArrowArray` and `ArrowSchema`, and return the number of rows.

    The addresses were checked with `check_column_addresses`.
    """
    addresses = zip(array_addresses, schema_addresses, strict=True)
    for field, column, (array_address, schema_address) in zip(batch.schema, batch.columns, addresses, strict=True):
        # An array alone is exported without its name.
        field._export_to_c(schema_address)
        column._export_to_c(array_address)
    return int(batch.num_rows)


def _check_address(name: str, address: object) -> None:
    if not isinstance(address, int) or isinstance(address, bool) or not 0 < address < 2**64:
        raise InvalidArgument(f"{name} must be the address of a struct of Arrow's C Data Interface, found {address!r}")
