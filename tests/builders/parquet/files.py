"""Single files of small row groups, what a scan finds in them, and files with wrong footers."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tamis


def read_file(path: Path) -> pa.Table:
    """Return all rows of a file as pyarrow reads them, with INT96 columns as instants in UTC."""
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    rows = file.read()
    wide = {
        column.path for column in map(file.schema.column, range(len(file.schema))) if column.physical_type == "INT96"
    }
    fields = [
        field.with_type(pa.timestamp("us", field.type.tz or "UTC")) if field.name in wide else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def write_table(path: Path, columns: dict[str, pa.Array], rows: int = 2, **options: object) -> tamis.Table:
    """Write a file of small row groups, with the number of each row, and open it."""
    count = len(next(iter(columns.values())))
    table = pa.table({"row": pa.array(range(count), pa.int64()), **columns})
    pq.write_table(table, path / "f.parquet", row_group_size=rows, **options)
    return tamis.open(path / "f.parquet")


def find_rows(table: tamis.Table, where: str) -> list[int]:
    """Return the numbers of the matching rows."""
    return table.scan(where, columns=["row"]).to_arrow()["row"].to_pylist()


def count_kept_row_groups(table: tamis.Table, where: str) -> tuple[int, int]:
    (level,) = (each for each in table.scan(where).plan().report.to_dict()["levels"] if each["level"] == "row_groups")
    return level["kept"], level["total"]


def patch_footer(table: tamis.Table, **replacements: tuple[bytes, bytes]) -> tamis.Table:
    """Return the table with other bytes of the same length in its footer."""
    path = Path(table.uri.removeprefix("file://"))
    content = path.read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    body, footer = content[: -8 - length], content[-8 - length :]
    for old, new in replacements.values():
        assert len(old) == len(new)
        assert old in footer
        footer = footer.replace(old, new)
    other = path.with_name("patched.parquet")
    other.write_bytes(body + footer)
    return tamis.open(other)
