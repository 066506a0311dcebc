"""Constants of files: columns that have one value in all rows of a file, as columns of the table that lists the files.

| column of the listing   | type              | meaning                                                                |
|-------------------------|-------------------|------------------------------------------------------------------------|
| `constant:day`          | the column's type | a partition column: every row has this value, whatever the file stores |
| `absent:["at", "day"]`  | struct of `value` | every row has this value if the file lacks the column; null if unknown |

A format writes these columns when it lists its files. Levels make bounds of them, readers fill columns with them.
The default value of a column is the same for all files: `tamis.parquet.footer.field_names` has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.reading.conform import Constants

_ALWAYS, _ABSENT = "constant:", "absent:"


def name_partition(column: str) -> str:
    """Return the name under which a listing has the values of a partition column."""
    return _ALWAYS + column


def name_absent(path: FieldPath) -> str:
    """Return the name under which a listing has the value of a column for files that lack it.

    >>> name_absent(("at", "day"))
    'absent:["at", "day"]'
    """
    return _ABSENT + json.dumps(path)


def make_absent_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a column of `name_absent`."""
    return pa.struct([("value", data_type)])


def make_absent_values(values: pa.Array, is_unknown: pa.BooleanArray | None = None) -> pa.StructArray:
    """Return the values of a column for files that lack it, as a listing has them."""
    return pa.StructArray.from_arrays([values], ["value"], mask=is_unknown)


def list_constants(names: Iterable[str]) -> list[str]:
    """Return those columns of a listing that are constants of files."""
    return [name for name in names if name.startswith((_ALWAYS, _ABSENT))]


def list_absent(files: pa.Table) -> dict[FieldPath, str]:
    """Return the columns whose value is known for files that lack them, with their names in the listing."""
    names = (name for name in files.column_names if name.startswith(_ABSENT))
    return {tuple(json.loads(name.removeprefix(_ABSENT))): name for name in names}


def add_partitions(files: pa.Table, partitions: pa.Table) -> pa.Table:
    """Return files with partition values, which are given by column."""
    columns = map(name_partition, partitions.column_names)
    return pa.table([*files.columns, *partitions.columns], names=[*files.column_names, *columns])


def read_partitions(files: pa.Table) -> pa.Table:
    """Return the partition values of files, by column."""
    names = [name for name in files.column_names if name.startswith(_ALWAYS)]
    return files.select(names).rename_columns([name.removeprefix(_ALWAYS) for name in names])


def read_constants(files: pa.Table) -> list[Constants]:
    """Return the constants of each file, as Arrow scalars: Python has no year 10000."""
    found: list[dict[FieldPath, pa.Scalar]] = [{} for _ in range(files.num_rows)]
    partitions = read_partitions(files)
    for name, column in zip(partitions.column_names, partitions.columns, strict=True):
        for own, value in zip(found, column, strict=True):
            own[name,] = value
    for path, name in list_absent(files).items():
        given = files[name].combine_chunks()
        values = given.field("value")
        for file in np.flatnonzero(np.asarray(given.is_valid())).tolist():
            found[file][path] = values[file]
    return list(found)
