"""`table_info` and `list_partition_files`: plain functions over directories and their partition values."""

import json
import pickle
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import CorruptFile, InvalidArgument, MissingFile, TableNotFound, UnknownColumn
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.formats.hive.functions import list_partition_files, table_info

ROWS = pa.table({"id": [1, 2, 3], "Region": ["x", "y", "z"]})


class ListedPaths(pafs.FSSpecHandler):
    """A local file system that records the listed directories."""

    def __init__(self) -> None:
        super().__init__(fsspec.filesystem("file"))
        self.paths: list[str] = []

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        self.paths.append(selector.base_dir)
        found: list[pafs.FileInfo] = super().get_file_info_selector(selector)
        return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    root = tmp_path / "table"
    for region in ("eu", "us", "__HIVE_DEFAULT_PARTITION__"):
        for day in ("01", "02"):
            leaf = root / f"region={region}" / f"day={day}"
            leaf.mkdir(parents=True)
            pq.write_table(ROWS, leaf / "part.parquet")
    pq.write_table(ROWS, tmp_path / "secret.parquet")
    sibling = tmp_path / "table2" / "region=eu"
    sibling.mkdir(parents=True)
    pq.write_table(ROWS, sibling / "part.parquet")
    return root


def test_table_info_has_schema_partition_columns_and_directories(table: Path) -> None:
    info = table_info(table)
    assert info.partition_columns == ("region", "day")
    assert info.schema == pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.int32())])
    assert info.directories.to_pylist()[:3] == [
        {"path": "region=__HIVE_DEFAULT_PARTITION__/day=01", "region": None, "day": "01"},
        {"path": "region=__HIVE_DEFAULT_PARTITION__/day=02", "region": None, "day": "02"},
        {"path": "region=eu/day=01", "region": "eu", "day": "01"},
    ]
    assert info.directories.num_rows == 6
    assert table_info(table, partitioning={"day": "string"}).schema.field("day").type == pa.string()


def test_the_info_of_a_table_can_be_sent(table: Path) -> None:
    info = table_info(table)
    assert pickle.loads(pickle.dumps(info)) == info


F = PartitionFilter


@pytest.mark.parametrize(
    ("wanted", "paths"),
    [
        (F.eq("region", "eu"), ["region=eu/day=01", "region=eu/day=02"]),
        (F.eq("region", "eu") & F.eq("day", "02"), ["region=eu/day=02"]),
        (F.eq("day", "2"), []),
        (F.gte("day", 2).with_type("long") & F.is_not_null("region"), ["region=eu/day=02", "region=us/day=02"]),
        (F.eq("region", "eu") | F.eq("day", "01"), [
            "region=__HIVE_DEFAULT_PARTITION__/day=01", "region=eu/day=01", "region=eu/day=02", "region=us/day=01",
        ]),
        (~(F.eq("region", "eu") | F.eq("day", "01")), [
            "region=__HIVE_DEFAULT_PARTITION__/day=02", "region=us/day=02",
        ]),
        (F.is_null("region"), ["region=__HIVE_DEFAULT_PARTITION__/day=01", "region=__HIVE_DEFAULT_PARTITION__/day=02"]),
        (F.eq("REGION", "us") & F.eq("Day", "01"), ["region=us/day=01"]),
        (F.in_("region", "us", "eu") & (F.eq("day", "01") & F.neq("region", "us")), ["region=eu/day=01"]),
    ],
)  # fmt: skip
def test_table_info_keeps_the_directories_of_the_filter(table: Path, wanted: F, paths: list[str]) -> None:
    assert table_info(table, wanted).directories["path"].to_pylist() == paths


@pytest.mark.parametrize("wanted", [F.eq("id", "1"), F.is_null("id") & F.eq("region", "us"), ~F.eq("reigon", "eu")])
def test_D24_a_filter_on_another_column_is_an_error_and_never_an_empty_result(table: Path, wanted: F) -> None:
    for ask in (
        lambda: table_info(table, wanted),
        lambda: list_partition_files(table, "region=eu/day=01", wanted),
        lambda: tamis.open(table).scan(wanted).count(),
    ):
        with pytest.raises(UnknownColumn, match=r"no partition column '(id|reigon)'.*Partition columns: region, day"):
            ask()


def test_D24_a_filter_takes_partition_columns_without_regard_to_case(table: Path) -> None:
    assert list_partition_files(table, "region=eu/day=01", F.eq("Region", "eu")).num_rows == 1
    assert list_partition_files(table, "region=eu/day=01", F.eq("Region", "us")).num_rows == 0
    assert tamis.open(table).scan(F.eq("Region", "eu")).count() == tamis.open(table).scan("region = 'eu'").count() > 0


def test_directories_that_a_filter_rejects_are_not_listed_at_the_next_level(table: Path) -> None:
    listed = ListedPaths()
    table_info(
        table,
        PartitionFilter.eq("region", "us") & PartitionFilter.eq("day", "02"),
        partitioning={"region": "string", "day": "string"},
        storage_options={"filesystem": pafs.PyFileSystem(listed)},
    )
    first = "region=__HIVE_DEFAULT_PARTITION__"
    assert [path.removeprefix(f"{table}/") for path in listed.paths] == [
        str(table),
        first,
        f"{first}/day=01",
        "region=us",
    ]


def test_files_of_a_directory_with_their_values_as_json(table: Path) -> None:
    files = list_partition_files(table, "region=eu/day=01/")
    part = table / "region=eu" / "day=01" / "part.parquet"
    assert isinstance(files, pa.RecordBatch)
    assert files.schema.names == ["path", "size", "modification_time", "num_records", "partition_values"]
    assert files.to_pylist() == [
        {
            "path": str(part),
            "size": part.stat().st_size,
            "modification_time": part.stat().st_mtime_ns // 1_000_000,
            "num_records": -1,
            "partition_values": '{"region": "eu", "day": "01"}',
        }
    ]


def test_H1_H3_values_are_unescaped_and_null_is_null(tmp_path: Path) -> None:
    leaf = tmp_path / "a.b=x%2F%22é" / "c=__HIVE_DEFAULT_PARTITION__"
    leaf.mkdir(parents=True)
    pq.write_table(ROWS, leaf / "part.parquet")
    (directory,) = table_info(tmp_path).directories["path"].to_pylist()
    files = list_partition_files(tmp_path, directory)
    assert json.loads(files["partition_values"][0].as_py()) == {"a.b": 'x/"é', "c": None}


def test_every_directory_of_table_info_can_be_listed(table: Path) -> None:
    listed = [list_partition_files(table, path) for path in table_info(table).directories["path"].to_pylist()]
    assert [batch.num_rows for batch in listed] == [1] * 6


def test_a_filter_that_rejects_the_directory_lists_nothing(table: Path) -> None:
    listed = ListedPaths()
    options = {"filesystem": pafs.PyFileSystem(listed)}
    rejected = list_partition_files(table, "region=eu/day=01/", F.eq("day", "02"), storage_options=options)
    assert (rejected.num_rows, rejected.schema.names[0], listed.paths) == (0, "path", [])
    assert list_partition_files(table, "region=eu/day=01", F.eq("day", "01"), storage_options=options).num_rows == 1


@pytest.mark.parametrize(
    "directory",
    [
        "..", "../table2/region=eu", "region=eu/..", "region=eu/../../table2/region=eu", "region=eu/../region=us",
        "/", "/etc", "file:///etc", "%2e%2e", "%2E%2E/table2/region=eu", "region=eu/%2e%2e/%2e%2e/table2", "..%2fx",
        "region=eu\\..\\..", "region=eu/./day=01", "region=eu//day=01", "2/region=eu", "region", "=eu",
        "region=eu\0", "region=eu/region=us", " ",
    ],
)  # fmt: skip
def test_X7_a_directory_outside_the_table_is_refused(table: Path, directory: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a partition directory"):
        list_partition_files(table, directory)


def test_X7_absolute_paths_are_refused_even_below_the_root(table: Path) -> None:
    with pytest.raises(InvalidArgument, match="below the table's root"):
        list_partition_files(table, f"{table}/region=eu/day=01")


@pytest.mark.parametrize("prefix", ["", ".", "region=eu", "region=eu/"])
@pytest.mark.parametrize("wanted", [None, F.eq("day", "01"), F.eq("REGION", "eu") & F.gt("day", "01"), F.or_()])
def test_any_prefix_lists_the_files_of_the_leaves_below_it(table: Path, prefix: str, wanted: F | None) -> None:
    files = list_partition_files(table, prefix, wanted)
    leaves = [
        path
        for path in table_info(table, wanted).directories["path"].to_pylist()
        if not prefix.strip("./") or path.startswith("region=eu/")
    ]
    expected = pa.concat_batches([files.slice(0, 0), *(list_partition_files(table, path) for path in leaves)])
    assert files.to_pylist() == sorted(expected.to_pylist(), key=lambda file: file["path"])


def test_a_prefix_lists_only_directories_that_the_filter_keeps(table: Path) -> None:
    listed = ListedPaths()
    options = {"filesystem": pafs.PyFileSystem(listed)}
    assert list_partition_files(table, "region=us", F.eq("day", "02"), storage_options=options).num_rows == 1
    assert [path.removeprefix(f"{table}/") for path in listed.paths] == [
        "region=us", "region=us/day=01", "region=us/day=02"
    ]  # fmt: skip
    assert list_partition_files(table, "region=us/", F.eq("region", "eu"), storage_options=options).num_rows == 0
    assert list_partition_files(table, "region=us/day=0", F.eq("region", "eu"), storage_options=options).num_rows == 0
    assert len(listed.paths) == 3


def test_files_in_plain_directories_below_a_leaf_belong_to_it(table: Path) -> None:
    more = table / "region=eu" / "day=01" / "batch"
    more.mkdir()
    pq.write_table(ROWS, more / "part.parquet")
    for prefix in ("region=eu", "region=eu/day=01"):
        assert str(more / "part.parquet") in list_partition_files(table, prefix)["path"].to_pylist()


def test_partitions_that_do_not_exist_have_no_files(table: Path) -> None:
    for prefix in ("region=eu/day=99", "region=xy", "region=xy/day=01", "region=e/", "region=e/day=01"):
        assert list_partition_files(table, prefix).num_rows == 0
        assert list_partition_files(table, prefix, F.eq("day", "01")).num_rows == 0
    for prefix in ("reigon=eu", "day=01", "region=eu/dya=01", "region=eu/day=01/hour=1"):
        with pytest.raises(MissingFile, match=rf"no directory '{prefix}': expected directories of region, day"):
            list_partition_files(table, prefix)
    with pytest.raises(TableNotFound, match="nothing"):
        list_partition_files(table / "nothing", "")
    with pytest.raises(TableNotFound, match="nothing"):
        list_partition_files(table / "nothing", "region=eu")


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_part_of_a_value_lists_the_directories_that_begin_with_it(table: Path, kind: str) -> None:
    root, options = str(table), {}
    if kind == "memory":
        memory = fsspec.filesystem("memory")
        memory.put(str(table), "/begins", recursive=True)
        root, options = "memory://begins", {"filesystem": memory}
    for prefix, wanted, expected in (
        ("region=e", None, ["eu/01", "eu/02"]),
        ("region=eu/day=0", None, ["eu/01", "eu/02"]),
        ("region=eu/day=0", F.eq("day", "02"), ["eu/02"]),
        ("region=e", F.eq("region", "eu") & F.eq("day", "02"), ["eu/02"]),
        ("region=e", F.eq("region", "e"), []),
        ("region=__HIVE", None, ["None/01", "None/02"]),
        ("region=", F.eq("day", "01"), ["None/01", "eu/01", "us/01"]),
    ):
        found = list_partition_files(root, prefix, wanted, storage_options=options)["partition_values"].to_pylist()
        assert ["{region}/{day}".format(**json.loads(each)) for each in found] == expected, prefix


def test_a_whole_directory_is_not_the_beginning_of_others(tmp_path: Path) -> None:
    for day in ("1", "10"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(ROWS, tmp_path / f"day={day}" / "part.parquet")
    assert list_partition_files(tmp_path, "day=1")["partition_values"].to_pylist() == ['{"day": "1"}']
    assert list_partition_files(tmp_path, "day=1", F.eq("day", "10")).num_rows == 0


def test_flat_folders_and_single_files_have_one_directory_without_a_name(table: Path) -> None:
    for path in (table / "region=eu" / "day=01", table / "region=eu" / "day=01" / "part.parquet"):
        info = table_info(path)
        assert (info.partition_columns, info.directories.to_pylist()) == ((), [{"path": ""}])
        assert info.schema == ROWS.schema
        files = list_partition_files(path, "")
        assert files["path"].to_pylist() == [f"{table}/region=eu/day=01/part.parquet"]
        assert files["partition_values"].to_pylist() == ["{}"]
        for wanted in (F.eq("day", "01"), F.is_null("day")):
            with pytest.raises(UnknownColumn, match="Partition columns: none"):
                table_info(path, wanted)


def test_a_table_in_an_fsspec_file_system() -> None:
    memory = fsspec.filesystem("memory")
    buffer = pa.BufferOutputStream()
    pq.write_table(ROWS, buffer)
    memory.pipe("/functions-table/a=1/b=x/part.parquet", buffer.getvalue().to_pybytes())
    for uri in ("memory://functions-table", "/functions-table/"):
        info = table_info(uri, F.eq("a", "1"), storage_options={"filesystem": memory})
        assert info.directories["path"].to_pylist() == ["a=1/b=x"]
        files = list_partition_files(uri, "a=1/b=x", storage_options={"filesystem": memory})
        assert files["path"].to_pylist() == ["/functions-table/a=1/b=x/part.parquet"]
        assert files["size"].to_pylist() == [buffer.getvalue().size]


def test_a_table_without_data_or_with_other_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a=1").mkdir()
    with pytest.raises(TableNotFound, match="no data files"):
        table_info(tmp_path)
    (tmp_path / "a=1" / "notes.txt").write_text("not Parquet, but long enough to be taken for it")
    with pytest.raises(CorruptFile, match=r"notes\.txt"):
        table_info(tmp_path)


def test_a_filter_of_another_type_is_refused(table: Path) -> None:
    with pytest.raises(
        InvalidArgument, match=r"filter must be a PartitionFilter, such as PartitionFilter\.eq\(.*found a str"
    ):
        table_info(table, "region='eu'")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"must be a PartitionFilter, .*found a dict"):
        list_partition_files(table, "region=eu/day=01", {"op": "eq"})  # type: ignore[arg-type]
