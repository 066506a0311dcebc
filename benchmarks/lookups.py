"""The lookups of the benchmarks of pages and of object stores, and how each reader runs them.

Each reader gets a lookup in the form that it uses best. Readers with SQL get SQL. pyarrow and Polars get comparisons. A
prefix becomes a range there, since a call of a text function would keep them from using statistics.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import and_, eq, ge, le, lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from new_process import Work

Condition = tuple[str, str, Any]
"""A column, a comparison, a value."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A filter, as SQL and as comparisons that must all hold."""

    title: str
    where: str
    conditions: tuple[Condition, ...]
    columns: tuple[str, ...] | None = None
    """None for all."""
    is_point: bool = False
    """Whether the targets apply to it."""

    def to_arguments(self) -> dict[str, Any]:
        """Return the fields as plain values, to pass them to a new process."""
        return asdict(self)

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> Lookup:
        return cls(**given)


ABSENT = "point on a random key that is not there, Bloom filter"
PRESENT = "point on a random key, Bloom filter"
POINT = "point on the sorted key"
LIST = "point on the sorted key, a list column returned"


def list_lookups(row_count: int, hash_of_row: Callable[[int], int], name_prefix: str) -> list[Lookup]:
    """Return the lookups for a file of `table_writers.write_paged`, in which row n has the id 2 n."""
    middle = row_count  # the id of the row in the middle
    point = middle + 2 * (row_count // 37)
    present = hash_of_row(row_count // 3)
    absent = present ^ 1  # hashes are even
    width = max(4, row_count // 250)
    return [
        Lookup(POINT, f"id = {point}", (("id", "=", point),), is_point=True),
        _make_range_lookup("narrow range on the sorted key", middle, middle + 2 * min(10_000, width)),
        Lookup(PRESENT, f"hash = {present}", (("hash", "=", present),), is_point=True),
        Lookup(ABSENT, f"hash = {absent}", (("hash", "=", absent),), is_point=True),
        Lookup(
            f"prefix of a text, '{name_prefix}'",
            f"name LIKE '{name_prefix}%'",
            (("name", ">=", name_prefix), ("name", "<", name_prefix[:-1] + chr(ord(name_prefix[-1]) + 1))),
        ),
        _make_range_lookup(
            "range on the sorted key and few amounts", middle, middle + 2 * width, ("amount", ">=", 9998.0)
        ),
        Lookup(LIST, f"id = {point}", (("id", "=", point),), ("id", "tags"), is_point=True),
    ]


def _make_range_lookup(title: str, first: int, last: int, *others: Condition) -> Lookup:
    where = [f"id BETWEEN {first} AND {last}", *(f"{name} {sign} {value}" for name, sign, value in others)]
    return Lookup(title, " AND ".join(where), (("id", ">=", first), ("id", "<=", last), *others))


# --- Readers: from a location and its storage options, a function from a lookup to a table ----------------------------

Ask = Callable[[Lookup], pa.Table]
StorageOptions = Mapping[str, str] | None


def make_tamis_reader(location: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import tamis

    def open_table() -> Any:
        return tamis.open(location, storage_options=storage_options)

    kept = open_table() if keep else None
    return lambda lookup: (kept or open_table()).scan(lookup.where, columns=lookup.columns).to_arrow()


def make_pyarrow_reader(location: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

    def open_table() -> ds.Dataset:
        if storage_options is None:
            return ds.dataset(location)
        filesystem = pafs.S3FileSystem(
            access_key=storage_options["aws_access_key_id"],
            secret_key=storage_options["aws_secret_access_key"],
            region=storage_options["aws_region"],
            endpoint_override=storage_options["aws_endpoint_url"].removeprefix("http://"),
            scheme="http",
        )
        return ds.dataset(location.removeprefix("s3://"), filesystem=filesystem)

    def ask(lookup: Lookup) -> pa.Table:
        columns = None if lookup.columns is None else list(lookup.columns)
        return (kept or open_table()).to_table(columns=columns, filter=_combine(lookup, ds.field))

    kept = open_table() if keep else None
    return ask


def make_duckdb_reader(location: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import duckdb

    def open_table() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        if keep:
            connection.execute("SET parquet_metadata_cache = true")
        if storage_options is not None:
            connection.execute("LOAD httpfs")
            connection.execute(
                "CREATE SECRET (TYPE s3, USE_SSL false, URL_STYLE 'path', "
                f"KEY_ID '{storage_options['aws_access_key_id']}', SECRET '{storage_options['aws_secret_access_key']}',"
                f" ENDPOINT '{storage_options['aws_endpoint_url'].removeprefix('http://')}')"
            )
        return connection

    kept = open_table() if keep else None
    return lambda lookup: (
        (kept or open_table()).sql(_make_select(lookup, f"read_parquet('{location}')")).to_arrow_table()
    )


def make_polars_reader(location: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import polars as pl

    def open_table() -> pl.LazyFrame:
        return pl.scan_parquet(location, storage_options=None if storage_options is None else dict(storage_options))

    def ask(lookup: Lookup) -> pa.Table:
        frame = (open_table() if kept is None else kept).filter(_combine(lookup, pl.col))
        return (frame if lookup.columns is None else frame.select(lookup.columns)).collect().to_arrow()

    kept = open_table() if keep else None
    return ask


def make_datafusion_reader(location: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    from datafusion import SessionConfig, SessionContext
    from datafusion.object_store import AmazonS3

    def open_table() -> SessionContext:
        # The page index and Bloom filters are used by default, filters while decoding are not.
        settings = {"pushdown_filters": "true", "reorder_filters": "true"}
        config = reduce(
            lambda made, name: made.set(f"datafusion.execution.parquet.{name}", settings[name]),
            settings,
            SessionConfig(),
        )
        context = SessionContext(config)
        if storage_options is not None:
            store = AmazonS3(
                bucket_name=location.removeprefix("s3://").split("/")[0],
                region=storage_options["aws_region"],
                access_key_id=storage_options["aws_access_key_id"],
                secret_access_key=storage_options["aws_secret_access_key"],
                endpoint=storage_options["aws_endpoint_url"],
                allow_http=True,
            )
            context.register_object_store("s3://", store, None)
        context.register_parquet("rows", location)
        return context

    kept = open_table() if keep else None
    return lambda lookup: (kept or open_table()).sql(_make_select(lookup, "rows")).to_arrow_table()


READERS: dict[str, Callable[..., Ask]] = {
    "tamis": make_tamis_reader,
    "pyarrow.dataset": make_pyarrow_reader,
    "DuckDB": make_duckdb_reader,
    "Polars": make_polars_reader,
    "DataFusion": make_datafusion_reader,
}
_MODULES = {"Polars": "polars", "DataFusion": "datafusion"}

TARGETS = {"pyarrow.dataset": 10, "Polars": 10, "DuckDB": 1, "DataFusion": 1}
"""How many times as fast as others a point lookup should be."""


def list_readers() -> list[str]:
    """Return the readers whose packages are installed."""
    return [name for name in READERS if name not in _MODULES or importlib.util.find_spec(_MODULES[name]) is not None]


def _combine(lookup: Lookup, column: Callable[[str], Any]) -> Any:
    signs = {"=": eq, ">=": ge, "<=": le, "<": lt}
    return reduce(and_, [signs[sign](column(name), value) for name, sign, value in lookup.conditions])


def _make_select(lookup: Lookup, table: str) -> str:
    return f"SELECT {', '.join(lookup.columns or '*')} FROM {table} WHERE {lookup.where}"


def summarise(table: pa.Table) -> list[int]:
    """Return what all readers must agree on: the number of rows, the sum of the ids, and the number of tags."""
    tags = pc.sum(pc.list_value_length(table["tags"])).as_py() if "tags" in table.column_names else 0
    return [table.num_rows, pc.sum(table["id"]).as_py() or 0, tags or 0]


# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare(
    reader: str,
    location: str,
    lookup: Mapping[str, Any],
    storage_options: StorageOptions = None,
    warm_up: str | None = None,
) -> Work:
    """Return the work of one reader that has read nothing yet.

    With `warm_up`, the location of a small file, it runs the lookup on that file first: modules that are loaded on
    first use would otherwise count as bytes read.
    """
    wanted = Lookup.from_arguments(lookup)
    make = READERS[reader]
    ask = make(location, storage_options, keep=False)
    if warm_up is not None:
        make(warm_up, storage_options, keep=False)(wanted)
    return lambda: summarise(ask(wanted))


def prepare_again(
    reader: str,
    location: str,
    lookup: Mapping[str, Any],
    before: Mapping[str, Any],
    storage_options: StorageOptions = None,
    ready: str | None = None,
) -> Work:
    """Return the work of a reader that has run another lookup on this file before. It then sends DELETE to `ready`."""
    import urllib.request

    ask = READERS[reader](location, storage_options, keep=True)
    ask(Lookup.from_arguments(before))
    if ready is not None:
        urllib.request.urlopen(urllib.request.Request(ready, method="DELETE")).close()
    wanted = Lookup.from_arguments(lookup)
    return lambda: summarise(ask(wanted))


def prepare_report(location: str, lookup: Mapping[str, Any]) -> Work:
    """Return work that gives the bytes and requests of opening and scanning, as Tamis reports them."""
    import tamis

    wanted = Lookup.from_arguments(lookup)

    def work() -> Sequence[int | None]:
        table = tamis.open(location)
        of_table = table._source.storage.counters.counts()
        scan = table.scan(wanted.where, columns=wanted.columns)
        scan.to_arrow()
        assert scan.report is not None
        assert scan.report.bytes_read is not None
        assert scan.report.requests is not None
        return [of_table.bytes_read + scan.report.bytes_read, of_table.requests + scan.report.requests]

    return work
