"""Spark as the layers below see it: the implementation of `scan.engine.SparkScans` and `query.engine.SparkQueries`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from tamis.engines.spark.dataframe import ScanRequest, build_frame
from tamis.engines.spark.files_dataframe import FilesDataFrame
from tamis.engines.spark.queries import (
    build_frame as query_dataframe,
)
from tamis.engines.spark.queries import (
    build_text_frame as make_text_dataframe,
)
from tamis.engines.spark.queries import (
    check_query,
    find_time_zone,
    is_ansi,
)
from tamis.formats.source import TableSource
from tamis.io.listing import check_unchanged
from tamis.scan.planning.projection import reject_unsupported_types
from tamis.scan.planning.scan_planner import ScanPlanner

__all__ = [
    "check_query",
    "get_settings",
    "make_dataframe",
    "make_files_dataframe",
    "make_text_dataframe",
    "query_dataframe",
]


def get_settings(spark: Any) -> tuple[tzinfo, bool]:
    """Return the time zone of a Spark session, and whether it is in ANSI mode."""
    return find_time_zone(spark), is_ansi(spark)


def make_files_dataframe(spark: Any, source: TableSource, columns: Sequence[str] | None) -> FilesDataFrame:
    """Return the files of a table as a cached DataFrame."""
    return FilesDataFrame(spark, source, columns)


def make_dataframe(spark: Any, planner: ScanPlanner, reader: str) -> Any:
    """Return the rows of a scan as a lazy DataFrame."""
    reject_unsupported_types(planner.source.schema, planner.projection)
    with planner.name_version_of_missing_file():
        # Spark would read another file under the same path without an error.
        check_unchanged(planner.storage, planner.listing.files)
        wanted = ScanRequest(planner.source, planner.reader, planner.listing, planner.limit, planner.plan_listing)
        return build_frame(spark, wanted, reader)
