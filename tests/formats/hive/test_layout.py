"""Directories of Hive-style tables: what is listed, what is rejected, what is reported."""

import datetime
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from tamis import types
from tamis.errors import CorruptFile, InvalidArgument, PartitionLayoutError, TableNotFound, UnsupportedFeature
from tamis.formats.detect import is_delta, is_iceberg
from tamis.formats.hive.layout import HiveLayout, LevelCount
from tamis.io.storage import open_storage
from tamis.skipping.predicate import make_partition_text
from tamis.tuning import DEFAULT_TUNING, Tuning

ROWS = pa.table({"id": [1, 2, 3]})


def write(root: Path, *paths: str) -> None:
    """Write small Parquet files at the given paths."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS, root / path)


def discover(root: Path, tuning: Tuning = DEFAULT_TUNING, **partitioning: str) -> HiveLayout:
    return HiveLayout.discover(open_storage(root).with_tuning(tuning), partitioning or None)


def list_values(layout: HiveLayout) -> list[dict[str, object]]:
    return layout.list_directories().values.to_pylist()


def list_files(root: Path) -> pa.Table:
    layout = discover(root)
    return layout.list_files(layout.list_directories())


def make_equality_filter(**wanted: object):  # type: ignore[no-untyped-def]
    """Return a `keep` for `column = value AND …` that ignores columns that are not there yet."""

    def keep(table: pa.Table) -> pa.BooleanArray:
        mask = pa.repeat(True, table.num_rows)
        for column, value in wanted.items():
            if column in table.column_names:
                data = table[column].combine_chunks()
                mask = pc.and_(mask, pc.equal(data, pa.scalar(value, data.type)))
        return mask

    return keep


# --- What is listed ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 regions of 1,000 days, a file in each."""
    root = tmp_path_factory.mktemp("three-thousand")
    first = datetime.date(2024, 1, 1)
    for region in ("ap", "eu", "us"):
        for number in range(1000):
            leaf = root / f"region={region}" / f"day={first + datetime.timedelta(days=number)}"
            leaf.mkdir(parents=True)
            (leaf / "part-0.parquet").write_bytes(b"PAR1")
    return root


def test_only_the_matching_directories_of_3000_are_listed(three_thousand: Path) -> None:
    storage = open_storage(three_thousand)
    layout = HiveLayout.discover(storage, {"region": "string", "day": "date"})
    # One branch is listed, since every type is declared: the root, the first region and its first day.
    assert storage.counters.listing_calls == 3
    directories = layout.list_directories(make_equality_filter(region="eu", day=datetime.date(2024, 3, 3)))
    files = layout.list_files(directories)
    assert files["path"].to_pylist() == [f"{three_thousand}/region=eu/day=2024-03-03/part-0.parquet"]
    # In addition: region=eu and its one day.
    assert storage.counters.listing_calls == 5
    assert directories.levels == (LevelCount("region", 3, 1), LevelCount("day", 1000, 1))
    assert directories.num_directories == 1


def test_inference_lists_no_leaf_but_the_first(three_thousand: Path) -> None:
    storage = open_storage(three_thousand)
    layout = HiveLayout.discover(storage)
    assert storage.counters.listing_calls == 1 + 3 + 1
    assert layout.partition_schema == pa.schema([("region", types.STRING), ("day", types.DATE)])
    layout.list_files(layout.list_directories(make_equality_filter(region="eu", day=datetime.date(2024, 3, 3))))
    assert storage.counters.listing_calls == 6


def test_each_directory_is_listed_once_in_all(three_thousand: Path) -> None:
    storage = open_storage(three_thousand)
    layout = HiveLayout.discover(storage)
    files = layout.list_files(layout.list_directories())
    assert storage.counters.listing_calls == 1 + 3 + 3000
    assert files.num_rows == 3000
    assert layout.list_files(layout.list_directories()).equals(files)
    assert storage.counters.listing_calls == 1 + 3 + 3000
    paths = files["path"].to_pylist()
    assert paths == sorted(paths)


def test_a_wide_level_is_sampled_within_the_bound(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"a={number}" / f"b={number}").mkdir(parents=True)
    write(tmp_path, "a=0/b=0/part.parquet")
    storage = open_storage(tmp_path)
    layout = HiveLayout.discover(storage)
    assert storage.counters.listing_calls <= DEFAULT_TUNING.inference_listings
    assert storage.counters.listing_calls > DEFAULT_TUNING.inference_listings // 2
    assert layout.partition_schema == pa.schema([("a", pa.int32()), ("b", pa.int32())])


def test_the_sample_is_spread_over_the_level(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"a={number:03}" / ("b=x" if number == 199 else "b=1")).mkdir(parents=True)
    write(tmp_path, "a=000/b=1/part.parquet")
    assert discover(tmp_path).partition_schema.field("b").type == types.STRING


def test_H5_the_error_for_an_invalid_value_beyond_the_sample_suggests_a_type(tmp_path: Path) -> None:
    tuning = Tuning(inference_listings=3)
    write(tmp_path, *(f"a={number}/b={'x' if number == 2 else number}/part.parquet" for number in range(9)))
    layout = discover(tmp_path, tuning)
    with pytest.raises(PartitionLayoutError, match=r"'x' of partition column 'b'.*partitioning=\{\"b\": \"string\"\}"):
        raise layout.list_directories().unreadable["b"]
    assert layout.list_directories().values.column_names == ["a"]
    assert discover(tmp_path, tuning, b="string").list_directories().values["b"].to_pylist()[2] == "x"


def test_keep_is_called_once_per_level_with_all_columns_so_far(tmp_path: Path) -> None:
    write(tmp_path, *(f"a={a}/b={b}/c={a}{b}/part.parquet" for a in (1, 2) for b in ("x", "y")))
    seen: list[list[dict[str, object]]] = []

    def keep(table: pa.Table) -> pa.BooleanArray:
        seen.append(table.to_pylist())
        # NULL keeps a directory.
        return pa.array([row["a"] == 2 or None if "b" in row else row["a"] == 2 for row in table.to_pylist()])

    directories = discover(tmp_path).list_directories(keep)
    assert seen == [
        [{"a": 1}, {"a": 2}],
        [{"a": 2, "b": "x"}, {"a": 2, "b": "y"}],
        [{"a": 2, "b": "x", "c": "2x"}, {"a": 2, "b": "y", "c": "2y"}],
    ]
    assert directories.paths.to_pylist() == [f"{tmp_path}/a=2/b={b}/c=2{b}" for b in ("x", "y")]
    assert [(level.total, level.kept) for level in directories.levels] == [(2, 1), (2, 2), (2, 2)]


def test_null_from_keep_keeps_and_a_wrong_length_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a=1/f", "a=2/f", "a=3/f")
    layout = discover(tmp_path)
    assert layout.list_directories(lambda _: pa.array([None, False, True])).raw["a"].to_pylist() == ["1", "3"]
    with pytest.raises(InvalidArgument, match="returned 2 booleans, expected 3"):
        layout.list_directories(lambda _: pa.array([True, True]))


def test_keep_sees_raw_strings_beside_the_values(tmp_path: Path) -> None:
    write(tmp_path, "hour=01/f", "hour=1/f", "hour=02/f")
    text = make_partition_text("hour")

    def keep(values: pa.Table) -> pa.BooleanArray:
        is_one = pc.equal(values["hour"], 1).combine_chunks()
        return pc.and_(is_one, pc.not_equal(values[text.name], "1").combine_chunks())

    directories = discover(tmp_path).list_directories(keep, [text])
    assert directories.values.to_pylist() == [{"hour": 1, text.name: "01"}]
    assert directories.raw.to_pylist() == [{"hour": "01"}]


def test_nothing_kept(tmp_path: Path) -> None:
    write(tmp_path, "a=1/b=1/f")
    layout = discover(tmp_path)
    directories = layout.list_directories(make_equality_filter(a=7))
    assert directories.num_directories == 0
    files = layout.list_files(directories)
    assert (files.num_rows, files.column_names) == (0, ["path", "size", "modified_ns", "constant:a", "constant:b"])
    assert files.schema.field("constant:a").type == pa.int32()


def test_files_carry_path_size_time_and_values_ordered_by_path(tmp_path: Path) -> None:
    write(tmp_path, "a=2/y.parquet", "a=10/x.parquet", "a=2/x.parquet")
    layout = discover(tmp_path)
    files = layout.list_files(layout.list_directories())
    assert files["path"].to_pylist() == [
        f"{tmp_path}/{name}" for name in ("a=10/x.parquet", "a=2/x.parquet", "a=2/y.parquet")
    ]
    assert files["constant:a"].to_pylist() == [10, 2, 2]
    for path, size, time in zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True):
        assert (size, time) == (Path(path).stat().st_size, Path(path).stat().st_mtime_ns)
    assert layout.sample_file is not None
    assert layout.sample_file.path == f"{tmp_path}/a=10/x.parquet"


def test_partition_columns_may_be_called_like_the_columns_of_a_file(tmp_path: Path) -> None:
    write(tmp_path, "path=p/size=7/f")
    layout = discover(tmp_path)
    files = layout.list_files(layout.list_directories())
    assert files.column_names == ["path", "size", "modified_ns", "constant:path", "constant:size"]
    assert [column[0].as_py() for column in files.columns[3:]] == ["p", 7]


# --- Names and values -------------------------------------------------------------------------------------------------


def test_H1_H2_H3_names_are_unescaped_once_split_at_the_first_equals_and_null_is_null(tmp_path: Path) -> None:
    write(tmp_path, "a%20b=x%2541/f", "a b=y=z/f", "a b=__HIVE_DEFAULT_PARTITION__/f", "a b=%C3%A9/f", "a b=100%/f")
    assert {row["a b"] for row in list_values(discover(tmp_path))} == {"x%41", "y=z", None, "é", "100%"}


def test_H4_hour_01_is_the_string_01_and_the_number_1(tmp_path: Path) -> None:
    write(tmp_path, "hour=01/f", "hour=2/f")
    assert list_values(discover(tmp_path)) == [{"hour": 1}, {"hour": 2}]
    assert list_values(discover(tmp_path, hour="string")) == [{"hour": "01"}, {"hour": "2"}]
    assert discover(tmp_path).list_directories().raw.to_pylist() == [{"hour": "01"}, {"hour": "2"}]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1", "2"], pa.int32()),
        (["1", "3000000000"], types.LONG),
        (["1", "1.5"], types.DOUBLE),
        (["2024-03-01", "__HIVE_DEFAULT_PARTITION__"], types.DATE),
        (["2024-03-01 10%3A30%3A00"], types.TIMESTAMP),
        (["1", "a"], types.STRING),
        (["__HIVE_DEFAULT_PARTITION__"], types.STRING),
    ],
)
def test_H5_types_are_inferred_from_all_directories(tmp_path: Path, names: list[str], expected: pa.DataType) -> None:
    write(tmp_path, *(f"c={name}/f" for name in names))
    layout = discover(tmp_path)
    assert layout.partition_schema == pa.schema([("c", expected)])
    assert layout.list_directories().values.schema == layout.partition_schema


def test_H5_a_declared_type_wins_whatever_the_case_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, "day=2024-03-01/Hour=1/f")
    layout = HiveLayout.discover(open_storage(tmp_path), {"DAY": pa.timestamp("ms"), "hour": "bigint"})
    assert layout.partition_schema == pa.schema([("day", pa.timestamp("ms")), ("Hour", types.LONG)])


def test_a_declared_type_of_an_unknown_column_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, "day=1/f")
    with pytest.raises(InvalidArgument, match=r"'dya', which is not a partition column\. Did you mean 'day'\?"):
        discover(tmp_path, dya="int")
    write(tmp_path / "flat", "f")
    with pytest.raises(InvalidArgument, match="has no partition columns"):
        discover(tmp_path / "flat", day="int")


def test_H6_a_column_that_occurs_twice_is_rejected_regardless_of_case(tmp_path: Path) -> None:
    write(tmp_path, "day=1/x=1/Day=2/f")
    with pytest.raises(
        PartitionLayoutError, match=r"twice, as 'day' in '.*/day=1' and as 'Day' in '.*/day=1/x=1/Day=2'"
    ):
        discover(tmp_path)


def test_H6_siblings_whose_column_differs_by_case_are_one_column(tmp_path: Path) -> None:
    write(tmp_path, "Day=1/f", "day=2/f")
    layout = discover(tmp_path)
    assert layout.partition_schema.names == ["Day"]
    assert list_values(layout) == [{"Day": 1}, {"Day": 2}]


def test_H8_column_names_with_dots_are_names(tmp_path: Path) -> None:
    write(tmp_path, "a.b=1/`c`.d=x/f")
    layout = discover(tmp_path)
    assert layout.partition_schema.names == ["a.b", "`c`.d"]
    assert layout.list_files(layout.list_directories())["constant:a.b"].to_pylist() == [1]


# --- H7: hidden, empty, mixed -----------------------------------------------------------------------------------------


def test_H7_hidden_and_empty_files_are_ignored(tmp_path: Path) -> None:
    write(
        tmp_path, "a=1/part.parquet", "a=1/_hidden.parquet", "a=1/.hidden.parquet", "a=1/x.parquet._COPYING_",
        "a=1/_metadata", "a=1/_common_metadata", "a=1/_x=1.parquet", "_temporary/0/part.parquet",
        "a=1/.spark/part.parquet", ".a=9/part.parquet", "_SUCCESS", "a=1/_temporary/part.parquet",
    )  # fmt: skip
    (tmp_path / "a=1" / "empty.parquet").touch()
    (tmp_path / "a_$folder$").touch()
    layout = discover(tmp_path)
    names = [Path(path).name for path in layout.list_files(layout.list_directories())["path"].to_pylist()]
    assert names == ["_x=1.parquet", "part.parquet"]


def test_H7_a_directory_with_an_underscore_and_an_equals_is_a_partition(tmp_path: Path) -> None:
    write(tmp_path, "_a=1/part.parquet")
    assert list_values(discover(tmp_path)) == [{"_a": 1}]


CONFLICTS = {
    "columns differ": (("a=1/f", "b=2/f"), "partition columns differ", "b=2", "a=1"),
    "columns differ below": (("a=1/b=1/f", "a=2/c=1/f"), "partition columns differ", "a=2/c=1", "a=1/b=1"),
    "a file in the root": (("a=1/f", "f"), "data files are beside", "f", "a=1"),
    "a file halfway down": (("a=1/b=1/f", "a=2/f"), "data files are beside", "a=2/f", "a=1/b=1"),
    "a deeper leaf": (("a=1/f", "a=2/b=1/f"), "different depths", "a=2/b=1", "a=2"),
    "a plain directory with data": (("a=1/f", "plain/f"), "is not named column=value", "plain", "a=1"),
    "partitions below a plain directory": (("a=1/plain/b=1/f",), "data files are beside", "a=1/plain", "a=1/plain/b=1"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFLICTS)
def test_H7_layouts_that_spark_rejects_are_errors_that_name_both_paths(tmp_path: Path, case: str) -> None:
    paths, problem, first, second = CONFLICTS[case]
    write(tmp_path, *paths)
    with pytest.raises(PartitionLayoutError) as caught:
        list_files(tmp_path)
    message = str(caught.value)
    assert problem in message
    assert f"'{tmp_path}/{first}'" in message
    assert f"'{tmp_path}/{second}'" in message


def test_H7_an_empty_column_name_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, "=1/f")
    with pytest.raises(PartitionLayoutError, match=f"'{tmp_path}/=1' has no column name before"):
        discover(tmp_path)


def test_H9_an_empty_value_is_the_empty_string_or_null(tmp_path: Path) -> None:
    write(tmp_path, "a=/f", "a=1/f")
    assert list_values(discover(tmp_path)) == [{"a": ""}, {"a": "1"}]
    assert list_values(discover(tmp_path, a="int")) == [{"a": None}, {"a": 1}]
    assert discover(tmp_path, a="date").list_directories().unreadable.keys() == {"a"}


def test_H7_empty_directories_do_not_conflict(tmp_path: Path) -> None:
    write(tmp_path, "a=2/b=1/f")
    for name in ("a=1", "a=3/b=7", "plain"):
        (tmp_path / name).mkdir(parents=True)
    layout = discover(tmp_path)
    assert layout.list_files(layout.list_directories())["constant:b"].to_pylist() == [1]


def test_H7_files_in_plain_directories_below_a_leaf_belong_to_it(tmp_path: Path) -> None:
    write(tmp_path, "a=1/HIVE_UNION_SUBDIR_1/f", "a=1/HIVE_UNION_SUBDIR_2/deep/f", "a=2/f")
    layout = discover(tmp_path)
    files = layout.list_files(layout.list_directories())
    assert list(zip(files["path"].to_pylist(), files["constant:a"].to_pylist(), strict=True)) == [
        (f"{tmp_path}/a=1/HIVE_UNION_SUBDIR_1/f", 1),
        (f"{tmp_path}/a=1/HIVE_UNION_SUBDIR_2/deep/f", 1),
        (f"{tmp_path}/a=2/f", 2),
    ]


def test_many_empty_directories_before_the_first_file_are_skipped(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"a={number:03}" / "b=1").mkdir(parents=True)
    write(tmp_path, "a=149/b=1/f")
    layout = discover(tmp_path)
    assert layout.sample_file is not None
    assert layout.sample_file.path == f"{tmp_path}/a=149/b=1/f"
    assert layout.partition_schema.names == ["a", "b"]


def test_partitions_without_any_file_are_a_layout_without_a_sample(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"a={number}" / "b=x").mkdir(parents=True)
    layout = discover(tmp_path)
    assert layout.sample_file is None
    assert layout.partition_schema.names == ["a", "b"]
    assert layout.list_files(layout.list_directories()).num_rows == 0


@pytest.mark.parametrize("has_file", [True, False])
def test_a_link_to_a_parent_is_an_error_and_does_not_repeat_rows(tmp_path: Path, has_file: bool) -> None:
    (tmp_path / "a=1").mkdir()
    (tmp_path / "a=1" / "again").symlink_to(tmp_path / "a=1")
    if has_file:
        write(tmp_path, "a=1/f")
    with pytest.raises(PartitionLayoutError, match=r"more than 8 levels .*/again/again"):
        list_files(tmp_path)


# --- Flat folders, single files, no files -----------------------------------------------------------------------------


def test_a_flat_folder_is_its_own_files_and_warns_of_directories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "b.parquet", "a.parquet", "old/c.parquet")
    with caplog.at_level(logging.WARNING, logger="tamis"):
        layout = discover(tmp_path)
    files = layout.list_files(layout.list_directories())
    assert [Path(path).name for path in files["path"].to_pylist()] == ["a.parquet", "b.parquet"]
    assert files.column_names == ["path", "size", "modified_ns"]
    assert layout.list_directories().levels == ()
    assert "ignored" in caplog.text
    assert f"{tmp_path}/old" in caplog.text


def test_a_flat_folder_without_directories_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a.parquet", "_temporary/b.parquet")
    with caplog.at_level(logging.WARNING, logger="tamis"):
        discover(tmp_path)
    assert not caplog.records


def test_a_single_file_is_a_table(tmp_path: Path) -> None:
    write(tmp_path, "a=1/only.parquet")
    layout = discover(tmp_path / "a=1" / "only.parquet")
    files = layout.list_files(layout.list_directories())
    assert layout.is_single_file
    assert len(layout.partition_schema) == 0
    assert files["path"].to_pylist() == [f"{tmp_path}/a=1/only.parquet"]
    assert files["size"][0].as_py() == (tmp_path / "a=1" / "only.parquet").stat().st_size


def test_a_partition_directory_opened_alone_is_a_flat_folder(tmp_path: Path) -> None:
    write(tmp_path, "a=1/f")
    layout = discover(tmp_path / "a=1")
    assert len(layout.partition_schema) == 0
    assert not layout.is_single_file


def test_X14_links_out_of_the_table_are_followed_if_allowed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", "part.parquet")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "a=1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsupportedFeature, match=r"table/a=1' leads out of the table's folder.*allow_outside=True"):
        discover(tmp_path / "table")
    layout = HiveLayout.discover(open_storage(tmp_path / "table").with_outside_links(True))
    assert layout.list_files(layout.list_directories())["path"].to_pylist() == [f"{tmp_path}/table/a=1/part.parquet"]


def test_missing_empty_and_hidden_only_directories_are_not_tables(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="nothing at") as caught:
        discover(tmp_path / "nothing")
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    with pytest.raises(TableNotFound, match="no data files in"):
        discover(tmp_path)
    (tmp_path / "_SUCCESS").write_text("x")
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(TableNotFound, match=r"no data files in .*empty files .* are ignored"):
        discover(tmp_path)
    with pytest.raises(TableNotFound, match=r"empty\.parquet' is empty: it has 0 bytes.*write it again"):
        discover(tmp_path / "empty.parquet")
    write(tmp_path, "2024/part.parquet")
    with pytest.raises(TableNotFound, match=r"/2024' is not named column=value"):
        discover(tmp_path)


def test_tables_of_other_formats_are_rejected_by_name(tmp_path: Path) -> None:
    write(tmp_path / "delta", "part.parquet", "a=1/part.parquet")
    (tmp_path / "delta" / "_delta_log").mkdir()
    (tmp_path / "iceberg" / "metadata").mkdir(parents=True)
    (tmp_path / "iceberg" / "metadata" / "v1.metadata.json").write_text("{}")
    write(tmp_path / "hive", "a=1/part.parquet")
    (tmp_path / "hive" / "metadata").mkdir()
    storages = [open_storage(tmp_path / name) for name in ("delta", "iceberg", "hive")]
    assert [is_delta(storage) for storage in storages] == [True, False, False]
    assert [is_iceberg(storage) for storage in storages] == [False, True, False]
    with pytest.raises(UnsupportedFeature, match="is a Delta table"):
        discover(tmp_path / "delta")
    with pytest.raises(UnsupportedFeature, match="is an Iceberg table"):
        discover(tmp_path / "iceberg")
    assert list_values(discover(tmp_path / "hive")) == [{"a": 1}]
    (tmp_path / "lake").mkdir()
    for name, kind in (("delta", "a Delta table"), ("iceberg", "an Iceberg table")):
        (tmp_path / name).rename(tmp_path / "lake" / name)
        with pytest.raises(TableNotFound, match=rf"lake/{name}' is {kind}: open that"):
            discover(tmp_path / "lake")
        (tmp_path / "lake" / name).rename(tmp_path / name)


@pytest.mark.parametrize(("name", "content"), [("readme.txt", "hello " * 9), ("c.csv", "a\n1\n")])
def test_the_error_for_a_non_parquet_file_says_how_to_hide_it(tmp_path: Path, name: str, content: str) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    (tmp_path / name).write_text(content)
    with pytest.raises(CorruptFile) as caught:
        tamis.open(tmp_path).scan().to_arrow()
    assert f"{name}' is not a Parquet file" in str(caught.value)
    assert "hide it with a name that starts with _ or ." in str(caught.value)
    assert "b'" not in str(caught.value)
    (tmp_path / name).rename(tmp_path / f"_{name}")
    assert tamis.open(tmp_path).scan().to_arrow().num_rows == 1
