"""Few rows out of many: the questions that the benchmarks of pages and of object stores ask, and how each reader is
asked them.

Everyone is given the form that it can use best. Those who take SQL get SQL. pyarrow and Polars get comparisons, a
prefix as the range that it is, since a call of a text function would keep them from using statistics at all.
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
    """A question: the same in SQL and as comparisons that must all hold."""

    title: str
    where: str
    conditions: tuple[Condition, ...]
    columns: tuple[str, ...] | None = None
    """None asks for all."""
    is_point: bool = False
    """Whether it is what the targets are about."""

    def arguments(self) -> dict[str, Any]:
        """As plain values, which a new process can be given."""
        return asdict(self)

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> Lookup:
        return cls(**given)


ABSENT = "point on a random key that is not there, Bloom filter"
PRESENT = "point on a random key, Bloom filter"
POINT = "point on the sorted key"
LIST = "point on the sorted key, a list column returned"


def lookups(row_count: int, hash_of_row: Callable[[int], int], name_prefix: str) -> list[Lookup]:
    """The questions to a file written by `table_writers.write_paged`, in which the row with number n has id 2 n."""
    middle = row_count  # the id of the row in the middle
    point = middle + 2 * (row_count // 37)
    present = hash_of_row(row_count // 3)
    absent = present ^ 1  # hashes are even
    width = max(4, row_count // 250)
    return [
        Lookup(POINT, f"id = {point}", (("id", "=", point),), is_point=True),
        _between("narrow range on the sorted key", middle, middle + 2 * min(10_000, width)),
        Lookup(PRESENT, f"hash = {present}", (("hash", "=", present),), is_point=True),
        Lookup(ABSENT, f"hash = {absent}", (("hash", "=", absent),), is_point=True),
        Lookup(
            f"prefix of a text, '{name_prefix}'",
            f"name LIKE '{name_prefix}%'",
            (("name", ">=", name_prefix), ("name", "<", name_prefix[:-1] + chr(ord(name_prefix[-1]) + 1))),
        ),
        _between("range on the sorted key and few amounts", middle, middle + 2 * width, ("amount", ">=", 9998.0)),
        Lookup(LIST, f"id = {point}", (("id", "=", point),), ("id", "tags"), is_point=True),
    ]


def _between(title: str, first: int, last: int, *others: Condition) -> Lookup:
    where = [f"id BETWEEN {first} AND {last}", *(f"{name} {sign} {value}" for name, sign, value in others)]
    return Lookup(title, " AND ".join(where), (("id", ">=", first), ("id", "<=", last), *others))


# --- How each is asked: from a place and its storage options, a function from a lookup to a table ---------------------

Ask = Callable[[Lookup], pa.Table]
StorageOptions = Mapping[str, str] | None


def tamis_reader(place: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import tamis

    def opened() -> Any:
        return tamis.open(place, storage_options=storage_options)

    kept = opened() if keep else None
    return lambda lookup: (kept or opened()).scan(lookup.where, columns=lookup.columns).to_arrow()


def pyarrow_reader(place: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

    def opened() -> ds.Dataset:
        if storage_options is None:
            return ds.dataset(place)
        filesystem = pafs.S3FileSystem(
            access_key=storage_options["aws_access_key_id"],
            secret_key=storage_options["aws_secret_access_key"],
            region=storage_options["aws_region"],
            endpoint_override=storage_options["aws_endpoint_url"].removeprefix("http://"),
            scheme="http",
        )
        return ds.dataset(place.removeprefix("s3://"), filesystem=filesystem)

    def ask(lookup: Lookup) -> pa.Table:
        columns = None if lookup.columns is None else list(lookup.columns)
        return (kept or opened()).to_table(columns=columns, filter=_combined(lookup, ds.field))

    kept = opened() if keep else None
    return ask


def duckdb_reader(place: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import duckdb

    def opened() -> duckdb.DuckDBPyConnection:
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

    kept = opened() if keep else None
    return lambda lookup: (kept or opened()).sql(_select(lookup, f"read_parquet('{place}')")).to_arrow_table()


def polars_reader(place: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    import polars as pl

    def opened() -> pl.LazyFrame:
        return pl.scan_parquet(place, storage_options=None if storage_options is None else dict(storage_options))

    def ask(lookup: Lookup) -> pa.Table:
        frame = (opened() if kept is None else kept).filter(_combined(lookup, pl.col))
        return (frame if lookup.columns is None else frame.select(lookup.columns)).collect().to_arrow()

    kept = opened() if keep else None
    return ask


def datafusion_reader(place: str, storage_options: StorageOptions, *, keep: bool) -> Ask:
    from datafusion import SessionConfig, SessionContext
    from datafusion.object_store import AmazonS3

    def opened() -> SessionContext:
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
                bucket_name=place.removeprefix("s3://").split("/")[0],
                region=storage_options["aws_region"],
                access_key_id=storage_options["aws_access_key_id"],
                secret_access_key=storage_options["aws_secret_access_key"],
                endpoint=storage_options["aws_endpoint_url"],
                allow_http=True,
            )
            context.register_object_store("s3://", store, None)
        context.register_parquet("looked_up", place)
        return context

    kept = opened() if keep else None
    return lambda lookup: (kept or opened()).sql(_select(lookup, "looked_up")).to_arrow_table()


READERS: dict[str, Callable[..., Ask]] = {
    "tamis": tamis_reader,
    "pyarrow.dataset": pyarrow_reader,
    "DuckDB": duckdb_reader,
    "Polars": polars_reader,
    "DataFusion": datafusion_reader,
}
_MODULES = {"Polars": "polars", "DataFusion": "datafusion"}

TARGETS = {"pyarrow.dataset": 10, "Polars": 10, "DuckDB": 1, "DataFusion": 1}
"""How many times as fast as others a point lookup should be."""


def installed_readers() -> list[str]:
    """All but those whose package is missing: only what Tamis itself needs is certain to be there."""
    return [name for name in READERS if name not in _MODULES or importlib.util.find_spec(_MODULES[name]) is not None]


def _combined(lookup: Lookup, column: Callable[[str], Any]) -> Any:
    signs = {"=": eq, ">=": ge, "<=": le, "<": lt}
    return reduce(and_, [signs[sign](column(name), value) for name, sign, value in lookup.conditions])


def _select(lookup: Lookup, table: str) -> str:
    return f"SELECT {', '.join(lookup.columns or '*')} FROM {table} WHERE {lookup.where}"


def found(table: pa.Table) -> list[int]:
    """What all must agree on: how many rows there are, and which; where tags came, how many of these."""
    tags = pc.sum(pc.list_value_length(table["tags"])).as_py() if "tags" in table.column_names else 0
    return [table.num_rows, pc.sum(table["id"]).as_py() or 0, tags or 0]


# --- Preparations: imports are made here, the work is what is measured ------------------------------------------------


def prepare(
    reader: str,
    place: str,
    lookup: Mapping[str, Any],
    storage_options: StorageOptions = None,
    warm_up: str | None = None,
) -> Work:
    """The work of one reader that has seen nothing yet. With `warm_up`, the place of a small file, it has asked the
    same of that one: where bytes are counted, modules that are loaded on first use would count too."""
    asked = Lookup.from_arguments(lookup)
    make = READERS[reader]
    ask = make(place, storage_options, keep=False)
    if warm_up is not None:
        make(warm_up, storage_options, keep=False)(asked)
    return lambda: found(ask(asked))


def prepare_again(
    reader: str,
    place: str,
    lookup: Mapping[str, Any],
    before: Mapping[str, Any],
    storage_options: StorageOptions = None,
    ready: str | None = None,
) -> Work:
    """The same of a reader that has answered another lookup on this file. `ready` is asked for when it has."""
    import urllib.request

    ask = READERS[reader](place, storage_options, keep=True)
    ask(Lookup.from_arguments(before))
    if ready is not None:
        urllib.request.urlopen(urllib.request.Request(ready, method="DELETE")).close()
    asked = Lookup.from_arguments(lookup)
    return lambda: found(ask(asked))


def tamis_own_count(place: str, lookup: Mapping[str, Any]) -> Work:
    """The bytes and the requests of opening and scanning, by Tamis's own account."""
    import tamis

    asked = Lookup.from_arguments(lookup)

    def work() -> Sequence[int | None]:
        table = tamis.open(place)
        of_table = table._source.storage.counters.counts()
        scan = table.scan(asked.where, columns=asked.columns)
        scan.to_arrow()
        assert scan.report is not None
        assert scan.report.bytes_read is not None
        assert scan.report.requests is not None
        return [of_table.bytes_read + scan.report.bytes_read, of_table.requests + scan.report.requests]

    return work
