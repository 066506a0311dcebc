"""Rows as other libraries have them, imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.errors import MissingDependency

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars


def pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    try:
        import pandas  # noqa: F401  # pyarrow's own error does not say how to get it
    except ImportError as error:
        raise MissingDependency("to_pandas() needs pandas: pip install 'tamis[pandas]'") from error
    return rows.to_pandas()


def polars_frame(rows: pa.Table) -> polars.DataFrame:
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("to_polars() needs polars: pip install 'tamis[polars]'") from error
    frame = polars.from_arrow(rows)
    assert isinstance(frame, polars.DataFrame)
    return frame


def duckdb_relation(rows: Any, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """A relation over whatever gives an Arrow stream, which it asks for each time it is used."""
    import duckdb

    return duckdb.from_arrow(rows) if connection is None else connection.from_arrow(rows)
