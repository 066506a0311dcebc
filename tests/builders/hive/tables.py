"""Small Hive-style tables: files by pyarrow, directories as Hive and Spark name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.formats.hive.tree import HIVE_NULL

_TO_ESCAPE = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def escape(text: str) -> str:
    """Escape a column or value in a directory name like Hive and Spark."""
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def write_hive_table(root: Path, parts: list[tuple[Mapping[str, str | None], pa.Table]], **options: Any) -> Path:
    """Write one file for each part, in the directory of its partition values (None and the empty text are NULL)."""
    for index, (values, rows) in enumerate(parts):
        folder = root
        for name, value in values.items():
            # Hive writes an empty text as NULL, since a directory name cannot end in "=".
            folder = folder / f"{escape(name)}={escape(value) if value else HIVE_NULL}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / f"part-{index:04d}.parquet", **options)
    return root
