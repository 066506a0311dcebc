"""Batches handed to a foreign runtime, such as a JVM, at addresses that it gives: Arrow's C Data Interface.

Within Python nobody needs this: record batches have `__arrow_c_array__` and `__arrow_c_stream__`.
"""

from __future__ import annotations

import pyarrow as pa

from tamis.errors import InvalidArgument


def export_batch(batch: pa.RecordBatch, array_address: int, schema_address: int | None = None) -> None:
    """Put a batch into the structs `ArrowArray` and `ArrowSchema` at these addresses, without a copy of its data.

    The runtime owns what it finds there and calls `release` when it is done. Addresses that are not those of such
    structs make the process fail in ways that no check can foresee.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidArgument(f"a record batch is exported, not {type(batch).__name__}")
    for name, address in (("array_address", array_address), ("schema_address", schema_address)):
        if address is None and name == "schema_address":
            continue
        if not isinstance(address, int) or isinstance(address, bool) or not 0 < address < 2**64:
            raise InvalidArgument(f"{name} is the address of a struct of Arrow's C Data Interface, not {address!r}")
    if schema_address is None:
        batch._export_to_c(array_address)
    else:
        batch._export_to_c(array_address, schema_address)
