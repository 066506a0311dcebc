"""Validation of a checkpoint's schema, so that its rows can be read as actions.

Writers use different types for numbers and strings, which are cast while reading. That actions are structs cannot be
fixed by a cast, so it is checked before any row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, to_one_line
from tamis.parquet.leaves import FieldPath

_KINDS: dict[FieldPath, tuple[str, Callable[[pa.DataType], bool]]] = {
    **{(action,): ("struct", pa.types.is_struct) for action in ("add", "protocol", "metaData", "sidecar")},
    **{
        ("add", name): ("struct", pa.types.is_struct)
        for name in ("deletionVector", "partitionValues_parsed", "stats_parsed")
    },
    ("add", "partitionValues"): ("map", pa.types.is_map),
}
"""The nested columns with their kinds, parents before children."""


def check_columns(schema: pa.Schema, location: str) -> None:
    """Raise CorruptFile where a nested column of a checkpoint is not of its kind, struct or map."""
    for path, (kind, is_kind) in _KINDS.items():
        found = _find_type(schema, path)
        if found is not None and not is_kind(found):
            raise CorruptFile(
                f"the checkpoint '{location}' has the column {'.'.join(path)} of type {types.type_name(found)}, "
                f"expected a {kind}"
            )


@contextmanager
def translate_cast_errors(location: str) -> Iterator[None]:
    """Turn Arrow's cast errors into a CorruptFile that names the checkpoint."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise CorruptFile(
            f"the checkpoint '{location}' has values that do not convert to the type of an action: {to_one_line(error)}"
        ) from error


def _find_type(schema: pa.Schema, path: FieldPath) -> pa.DataType | None:
    parent: pa.Schema | pa.DataType = schema
    for name in path:
        index = parent.get_field_index(name)
        if index < 0:
            return None
        parent = parent.field(index).type
    return parent
