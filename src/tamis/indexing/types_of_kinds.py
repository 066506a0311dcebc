"""The pieces of metadata that an index has of a column, and their types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tamis import types
from tamis.skipping.metadata import KINDS


def types_of_kinds(data_type: pa.DataType) -> Mapping[str, pa.DataType]:
    """By kind, of a column of some type: only floats have NaN.

    >>> [kind for kind in types_of_kinds(pa.int8())]
    ['lower', 'upper', 'null_count', 'lower_exact', 'upper_exact']
    """
    by_kind = {"lower": data_type, "upper": data_type, "null_count": types.LONG, "nan_count": types.LONG}
    kinds = [kind for kind in KINDS if kind != "nan_count" or pa.types.is_floating(data_type)]
    return {kind: by_kind.get(kind, types.BOOLEAN) for kind in kinds}
