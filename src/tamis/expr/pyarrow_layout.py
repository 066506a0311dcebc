"""The tree of a `pyarrow.compute.Expression`, in prefix order.

pyarrow has no API to inspect an expression, but it serialises one: an Arrow file with a single batch, whose
schema metadata is the tree as a list of pairs (`call`, name), (`field_ref`, name), (`literal`, column of the batch),
(`options`, column of the batch), (`end`, name), with (`nested_field_ref`, n) before n field references.
pyarrow exposes metadata as a dict, which loses repeated keys; Arrow's C data interface, whose layout is stable, has
all pairs. Any other format is an error; nothing is guessed.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import ExpressionError

ADVICE = "write the filter as SQL text instead"


@dataclass(frozen=True, slots=True)
class Layout:
    """The tree as pairs, and the values to which its `literal` and `options` pairs refer."""

    pairs: tuple[tuple[str, str], ...]
    values: pa.RecordBatch

    def value(self, index: str) -> pa.Scalar:
        if not index.isdecimal() or int(index) >= self.values.num_columns:
            raise unknown_layout_error(f"no value {index!r}")
        return self.values.column(int(index))[0]


def read_layout(expression: pc.Expression) -> Layout:
    try:
        reduced = expression.__reduce__()
    except pa.ArrowException as error:
        raise ExpressionError(
            f"a pyarrow expression could not be serialised ({error}): name columns with pc.field(name), or {ADVICE}"
        ) from error
    match reduced:
        case (_, (pa.Buffer() as buffer,)):
            pass
        case _:
            raise unknown_layout_error("no buffer")
    try:
        reader = pa.ipc.open_file(buffer)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError) as error:
        raise unknown_layout_error(str(error)) from error
    if len(batches) != 1 or batches[0].num_rows != 1:
        raise unknown_layout_error(f"{len(batches)} batches")
    try:
        pairs = tuple((key.decode(), value.decode()) for key, value in read_metadata_pairs(reader.schema))
    except UnicodeDecodeError as error:
        raise ExpressionError(f"a pyarrow expression names a column that is not UTF-8: {ADVICE}") from error
    return Layout(pairs, batches[0])


def unknown_layout_error(detail: str) -> ExpressionError:
    return ExpressionError(
        f"pyarrow {pa.__version__} serialises expressions in an unsupported format ({detail}): {ADVICE}"
    )


class _ArrowSchema(ctypes.Structure):
    """The beginning of `struct ArrowSchema` of the C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        # Not a C string: it has length prefixes, and the bytes may contain zeros.
        ("metadata", ctypes.c_void_p),
    )


def read_metadata_pairs(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """Return the metadata of a schema as pairs in order, repeated keys included."""
    capsule = schema.__arrow_c_schema__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    address = _ArrowSchema.from_address(get_pointer(capsule, b"arrow_schema")).metadata
    if not address:
        return []
    # A count, then the key and the value of each pair, each with a length prefix; all integers are native int32.
    (count,) = struct.unpack("=i", ctypes.string_at(address, 4))
    address += 4
    texts: list[bytes] = []
    for _ in range(2 * count):
        (length,) = struct.unpack("=i", ctypes.string_at(address, 4))
        texts.append(ctypes.string_at(address + 4, length))
        address += 4 + length
    # The capsule owns the memory that was read above, so it must live until here.
    del capsule
    return list(zip(texts[::2], texts[1::2], strict=True))
