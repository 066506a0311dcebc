"""Tables and their scans: versions, counts, first rows, further scans."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.pyiceberg.tables import create_table, find_latest_metadata
from tamis.errors import ExpressionError, InvalidArgument, UnknownColumn, UnsupportedFeature, VersionNotFound

ROWS = pa.table({"id": range(10), "day": [date(2024, 3, 1 + number // 5) for number in range(10)]})


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    deltalake.write_deltalake(tmp_path / "delta", ROWS.slice(0, 5), partition_by=["day"])
    deltalake.write_deltalake(tmp_path / "delta", ROWS.slice(5), mode="append")
    return tmp_path / "delta"


@pytest.fixture
def iceberg(tmp_path: Path) -> Path:
    table = create_table(tmp_path / "iceberg", ROWS.schema)
    table.append(ROWS.slice(0, 5))
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "first").commit()
    table.append(ROWS.slice(5))
    return find_latest_metadata(tmp_path / "iceberg")


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    for number, day in enumerate(("2024-03-01", "2024-03-02")):
        folder = tmp_path / "hive" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(ROWS.slice(5 * number, 5).select(["id"]), folder / "0.parquet")
    return tmp_path / "hive"


def test_a_delta_table_at_another_version(delta: Path) -> None:
    table = tamis.open(delta)
    assert table.at(version=0).count() == 5
    assert table.at(version=0).version == 0
    assert table.at(version=0).refresh().version == 1
    assert table.at(timestamp=datetime.now(UTC) + timedelta(days=1)).version == 1
    assert table.count() == 10
    with pytest.raises(VersionNotFound):
        table.at(version=7)
    with pytest.raises(UnsupportedFeature, match="no branches and tags: choose a version with version= or timestamp="):
        table.at(ref="main")


def test_an_iceberg_table_at_another_version(iceberg: Path) -> None:
    table = tamis.open(iceberg)
    assert table.at(ref="first").count() == 5
    older = table.at(ref="first").version
    assert older is not None
    assert table.at(version=older).count() == 5
    assert table.at(ref="main").version == table.version
    with pytest.raises(VersionNotFound):
        table.at(ref="second")


def test_a_table_without_versions_has_neither_at_nor_history(hive: Path) -> None:
    table = tamis.open(hive)
    with pytest.raises(UnsupportedFeature, match=r"a hive table has no versions, so there is no at\(\): refresh\(\)"):
        table.at(version=1)
    with pytest.raises(UnsupportedFeature, match=r"no history\(\)"):
        table.history()


@pytest.mark.parametrize("given", [{}, {"version": 0, "timestamp": "2024-01-01"}])
def test_another_version_is_named_once(delta: Path, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"at\(\) takes one of version=, timestamp=, ref="):
        tamis.open(delta).at(**given)
    with pytest.raises(InvalidArgument, match="version must be a whole number, found a str"):
        tamis.open(delta).at(version="0")  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["delta", "iceberg", "hive"])
def test_every_table_counts_shows_and_describes_itself(format: str, request: pytest.FixtureRequest) -> None:
    table = tamis.open(request.getfixturevalue(format))
    assert (table.count(), table.count("id < 4"), table.count(where="id < 0")) == (10, 4, 0)
    # Files that never change have a marker in place of a modification time, which is not shown.
    assert "modified_ns" not in repr(table.scan().plan().tasks)
    assert table.head(3).to_arrow().num_rows == 3
    assert table.head().count() == 5
    assert table.refresh().count() == 10
    described = table.describe()
    assert (described.format, described.files, described.version) == (format, 2, table.version)
    assert described.rows == (None if format == "hive" else 10)
    assert described.bytes == sum(table.files()["size"].to_pylist())
    content = described.to_dict()
    assert content["columns"] == {"id": "bigint", "day": "date"}
    assert "id               bigint" in str(described)


@pytest.mark.parametrize("format", ["delta", "iceberg", "hive"])
def test_files_of_all_formats_have_the_same_columns(format: str, request: pytest.FixtureRequest) -> None:
    table = tamis.open(request.getfixturevalue(format))
    files = table.files()
    assert files.column_names == ["path", "size", "num_records", "modified", *table.partition_columns]
    assert files.schema.field("modified").type == pa.timestamp("us", "UTC")
    # The manifests of Iceberg do not say when a file was written.
    written = [None if format == "iceberg" else Path(path).stat().st_mtime for path in files["path"].to_pylist()]
    found = [None if time is None else time.timestamp() for time in files["modified"].to_pylist()]
    assert found == pytest.approx(written, abs=60)
    assert table.scan("id < 3").plan().files.schema.field("modified").type == pa.timestamp("us", "UTC")
    if table.partition_columns:
        assert files.schema.field("day").type == pa.date32()


def test_an_index_of_an_iceberg_table_is_refused(iceberg: Path) -> None:
    with pytest.raises(InvalidArgument, match="index= was given, and an Iceberg table has no index"):
        tamis.open(iceberg, index="elsewhere")
    assert tamis.open(iceberg, index=False).count() == 10


# --- Further scans --------------------------------------------------------------------------------------------------


def test_scans_are_made_of_scans(hive: Path) -> None:
    scan = tamis.open(hive).scan("id >= 2")
    narrow = scan.filter("day = DATE '2024-03-01'").select("id").limit(2)
    assert narrow.schema.names == ["id"]
    assert narrow.to_arrow().to_pylist() == [{"id": 2}, {"id": 3}]
    assert scan.count() == 8
    assert scan.filter(tamis.col("id") < 5).filter("id > 2").count() == 2
    assert scan.select(["day", "id"]).schema.names == ["day", "id"]
    assert scan.limit(5).limit(3).head(4).count() == 3
    # A filter may name a column that the scan does not return.
    assert scan.select("day").filter("id = 3").to_arrow().num_rows == 1
    assert scan.to_reader().read_all() == scan.to_arrow()


def test_a_partition_filter_is_one_more_filter(hive: Path) -> None:
    scan = tamis.open(hive).scan("id >= 2", columns=["id"])
    expected = scan.filter("day = DATE '2024-03-01'").to_arrow()
    assert scan.filter(tamis.PartitionFilter.eq("day", "2024-03-01")).to_arrow() == expected
    assert (
        tamis.open(hive).scan([tamis.PartitionFilter.eq("day", "2024-03-01"), "id >= 2"]).count() == len(expected) > 0
    )


def test_what_cannot_be_made_of_a_scan_is_an_error(hive: Path) -> None:
    scan = tamis.open(hive).scan("id >= 2", columns=["id"])
    with pytest.raises(InvalidArgument, match=r"call filter\(\) before limit\(\)"):
        scan.limit(3).filter("id = 3")
    with pytest.raises(UnknownColumn, match="'day'"):
        scan.select("day")
    with pytest.raises(tamis.TamisError, match="limit must be a number of rows"):
        scan.limit(-1)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT id FROM t WHERE id > 3 ORDER BY id LIMIT 4",
        "SELECT DISTINCT day FROM t",
        "SELECT day, count(*) FROM t GROUP BY day HAVING count(*) > 100",
        "SELECT id FROM t UNION ALL SELECT id FROM t",
        "SELECT id FROM t UNION SELECT id FROM t",
        "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE b.id < 4",
        "SELECT sum(id) OVER (PARTITION BY day) FROM t",
        "VALUES (1), (2)",
        "SELECT 1",
        "SELECT id FROM t WHERE false",
    ],
)
def test_a_query_counts_its_rows(delta: Path, query: str) -> None:
    session = tamis.connect()
    session.register("t", session.open(delta))
    found = session.sql(query)
    assert found.count() == found.to_arrow().num_rows
    if "VALUES" not in query:
        duck = session.sql(query, dialect="duckdb")
        assert duck.count() == duck.to_arrow().num_rows


def test_the_sizes_of_a_table_come_from_metadata(delta: Path, iceberg: Path, hive: Path) -> None:
    for path, most in ((delta, 2), (iceberg, 2), (hive, 10)):
        table = tamis.open(path)
        described = table.describe()
        assert (table.num_files, table.size_in_bytes) == (described.files, described.bytes)
        assert 0 < table.num_files <= most


def test_the_column_mapping_mode_is_that_of_the_format(delta: Path, iceberg: Path, hive: Path, tmp_path: Path) -> None:
    assert [tamis.open(path).column_mapping_mode for path in (delta, iceberg, hive)] == [None, "id", None]
    for mode in ("name", "id"):
        mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
        column = {"name": "id", "type": "long", "nullable": True, "metadata": mapped}
        configuration = {"delta.columnMapping.mode": mode}
        DeltaLog(tmp_path / mode, [column], configuration=configuration, features=["columnMapping"]).commit()
        assert tamis.open(tmp_path / mode).column_mapping_mode == mode


def write_wide_delta_table(folder: Path, **properties: str) -> tamis.Table:
    fields = [pa.field(f"c{number}", pa.int64()) for number in range(40)]
    inner = pa.struct([("b", pa.int64()), ("raw", pa.binary()), ("tags", pa.list_(pa.string()))])
    schema = pa.schema([pa.field("day", pa.date32()), pa.field("a", inner), *fields])
    options: dict[str, Any] = {"configuration": {f"delta.{name}": value for name, value in properties.items()}}
    deltalake.write_deltalake(folder, schema.empty_table(), partition_by=["day"], **options)
    return tamis.open(folder)


def test_statistics_columns_are_found_by_path(tmp_path: Path) -> None:
    table = write_wide_delta_table(tmp_path)
    assert table.stats_column("min", "a.b") == "lower:a.b"
    assert table.stats_column("max", "A.B") == "upper:a.b"
    assert table.stats_column("null_count", "a.raw") == "null_count:a.raw"
    assert table.stats_column("num_records") == "row_count"
    # No order, other columns inside, values of partitions.
    for column in ("a.raw", "a.tags", "a", "day"):
        assert table.stats_column("min", column) is None, column
    # Three leaf columns are in `a`, so that c28 is the last of 32.
    assert (table.stats_column("max", "c28"), table.stats_column("max", "c29")) == ("upper:c28", None)
    with pytest.raises(UnknownColumn, match="no field 'c' in struct 'a'"):
        table.stats_column("min", "a.c")
    with pytest.raises(InvalidArgument, match="Statistics: min, max, null_count, num_records"):
        table.stats_column("avg", "a.b")
    with pytest.raises(InvalidArgument, match="takes the name of a column"):
        table.stats_column("min")
    with pytest.raises(InvalidArgument, match="takes no column"):
        table.stats_column("num_records", "a.b")


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"dataSkippingNumIndexedCols": "-1"}, ["lower:a.b", "lower:c0", "lower:c39"]),
        ({"dataSkippingNumIndexedCols": "4"}, ["lower:a.b", "lower:c0", None]),
        ({"dataSkippingNumIndexedCols": "0"}, [None, None, None]),
        ({"dataSkippingStatsColumns": "A, `c39`"}, ["lower:a.b", None, "lower:c39"]),
        ({"dataSkippingStatsColumns": "a.raw,c0"}, [None, "lower:c0", None]),
    ],
)
def test_properties_of_a_delta_table_choose_statistics(
    tmp_path: Path, properties: dict[str, str], found: list[str | None]
) -> None:
    table = write_wide_delta_table(tmp_path, **properties)
    assert [table.stats_column("min", name) for name in ("a.b", "c0", "c39")] == found


def test_properties_of_an_iceberg_table_choose_statistics(tmp_path: Path) -> None:
    metrics = {"default": "counts", "column.day": "full", "column.other": "none"}
    schema = ROWS.schema.append(pa.field("other", pa.int64()))
    properties = {f"write.metadata.metrics.{name}": mode for name, mode in metrics.items()}
    create_table(tmp_path / "t", schema, **properties)
    table = tamis.open(find_latest_metadata(tmp_path / "t"))
    found = {name: (table.stats_column("min", name), table.stats_column("null_count", name)) for name in schema.names}
    assert found == {"id": (None, "null_count:id"), "day": ("lower:day", "null_count:day"), "other": (None, None)}


def test_footers_have_statistics_of_all_columns(hive: Path) -> None:
    table = tamis.open(hive)
    assert (table.stats_column("min", "id"), table.stats_column("min", "day")) == ("lower:id", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [("rows.csv", "CSV is not supported: convert the file to Parquet"), ("rows.json", "JSON is not supported"),
     ("long.csv.gz", "CSV is not supported"), ("one.parqet", "Did you mean 'one.parquet'?")],
)  # fmt: skip
def test_other_files_and_misspelt_names_have_a_hint(tmp_path: Path, name: str, message: str) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "one.parquet")
    for other in ("rows.csv", "rows.json"):
        (tmp_path / other).write_text("a,b")
    (tmp_path / "long.csv.gz").write_text("a,b" * 100)
    with pytest.raises(tamis.TamisError, match=re.escape(message)):
        tamis.open(tmp_path / name)


@pytest.mark.parametrize(
    ("where", "message"),
    [("s ~ '^a'", "Write RLIKE"), ("s !~ '^a'", "Write NOT RLIKE"), ("f is nan", "Write isnan(x)"),
     ("f is not nan", "NOT isnan(x)"), ("s = ‘a’", "Use straight quotes for a text: 'a'"),
     ("s = “a b”", "Use straight quotes for a text")],
)  # fmt: skip
def test_syntax_of_others_in_a_filter_has_a_hint(tmp_path: Path, where: str, message: str) -> None:
    pq.write_table(pa.table({"s": ["a"], "f": [1.0]}), tmp_path / "one.parquet")
    with pytest.raises(ExpressionError, match=re.escape(message)):
        tamis.open(tmp_path / "one.parquet").scan(where)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("to_pandas", "table.scan().to_pandas()"), ("columns", "table.schema.names"), ("filter", "table.scan('id < 5')"),
     ("select", "table.scan(columns=['id'])"), ("limit", "table.scan(limit=5)")],
)  # fmt: skip
def test_methods_of_other_tables_say_what_to_write(tmp_path: Path, name: str, instead: str) -> None:
    pq.write_table(pa.table({"id": [1, 7]}), tmp_path / "one.parquet")
    table = tamis.open(tmp_path / "one.parquet")
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}': write {re.escape(instead)}$"):
        getattr(table, name)
    assert not hasattr(table, name)
    eval(instead, {"table": table})
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = table.nothing
