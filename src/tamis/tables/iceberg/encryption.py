"""Encrypted tables, which are unsupported: the metadata of each make_encryption_error file has a key."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import UnsupportedFeature


def reject_encrypted(keys: pa.Array, paths: pa.Array, location: str) -> None:
    """Raise if a file has key metadata; `location` is the manifest or manifest list that names the files."""
    if keys.null_count == len(keys):
        return
    has_key = pc.fill_null(pc.greater(pc.binary_length(keys), 0), False)
    found = paths.filter(has_key)
    if len(found):
        raise make_encryption_error(f"'{found[0].as_py()}', listed in '{location}',")


def make_encryption_error(what: str) -> UnsupportedFeature:
    """Return the error for an encrypted file."""
    return UnsupportedFeature(f"{what} is encrypted, which Tamis does not support: read the table with Spark")
