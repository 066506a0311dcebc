"""Export of batches to another runtime, such as a JVM, through Arrow's C Data Interface.

Within Python this is not needed: record batches have `__arrow_c_array__` and `__arrow_c_stream__`.
"""

from __future__ import annotations

import pyarrow as pa

from tamis.errors import InvalidArgument


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
            raise InvalidArgument(f"{name} is the address of a struct of Arrow's C Data Interface, not {address!r}")
    if schema_address is None:
        batch._export_to_c(array_address)
    else:
        batch._export_to_c(array_address, schema_address)
