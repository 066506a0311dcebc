"""Encrypted tables, which are not read: metadata says of each file whether there is a key to it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import UnsupportedFeature


def refuse_encrypted(keys: pa.Array, paths: pa.Array, place: str) -> None:
    """An error where one of some files, of which `place` tells, has a key."""
    if keys.null_count == len(keys):
        return
    has_key = pc.fill_null(pc.greater(pc.binary_length(keys), 0), False)
    found = paths.filter(has_key)
    if len(found):
        raise encrypted(f"'{found[0].as_py()}', of which '{place}' tells,")


def encrypted(what: str) -> UnsupportedFeature:
    """The error for what is encrypted."""
    return UnsupportedFeature(f"{what} is encrypted, which Tamis does not read: read the table with Spark")
