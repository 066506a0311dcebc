"""What the columns of a checkpoint must be, so that its rows can be read as actions.

Writers differ in the types of numbers and texts, which are made the same when they are read. That an action is a struct
cannot be made so, and is looked at before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, one_line
from tamis.parquet.leaves import FieldPath

_KINDS: dict[FieldPath, tuple[str, Callable[[pa.DataType], bool]]] = {
    **{(action,): ("struct", pa.types.is_struct) for action in ("add", "protocol", "metaData", "sidecar")},
    **{
        ("add", name): ("struct", pa.types.is_struct)
        for name in ("deletionVector", "partitionValues_parsed", "stats_parsed")
    },
    ("add", "partitionValues"): ("map", pa.types.is_map),
}
"""The columns that are more than single values, those around others first."""


def check_columns(schema: pa.Schema, place: str) -> None:
    """An error for a checkpoint with a column that is no action, or no part of one."""
    for path, (kind, is_kind) in _KINDS.items():
        found = _type_at(schema, path)
        if found is not None and not is_kind(found):
            raise CorruptFile(
                f"the checkpoint '{place}' has the column {'.'.join(path)} as {types.type_name(found)}, and it is a "
                f"{kind} in every checkpoint"
            )


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Values that cannot be made those of an action are an error that names their checkpoint."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise CorruptFile(
            f"the checkpoint '{place}' has values of another type than an action has: {one_line(error)}"
        ) from error


def _type_at(schema: pa.Schema, path: FieldPath) -> pa.DataType | None:
    around: pa.Schema | pa.DataType = schema
    for name in path:
        index = around.get_field_index(name)
        if index < 0:
            return None
        around = around.field(index).type
    return around
