"""Directories that other tools write, change and link: which files are read, and which queries fail."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tamis
from builders.engines.worker_engine import InProcessEngine
from tamis.errors import CorruptFile, MissingFile, PartitionLayoutError, TableNotFound, UnsupportedFeature
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.formats.jobs import Planning
from tamis.formats.open_source import open_source
from tamis.hive import list_partition_files, table_info
from tamis.parquet.footer.footer import FOOTERS
from tamis.scan.scan import get_planner


def write(path: Path, rows: pa.Table | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}) if rows is None else rows, path)
    return path


def read_rows(table: tamis.Table, where: object = None, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return sorted(table.scan(where, columns).to_arrow().to_pylist(), key=lambda row: str(row))


# --- Names of directories ---------------------------------------------------------------------------------------------


def test_H1_both_spellings_of_a_value_are_pruned_and_read_as_one(tmp_path: Path) -> None:
    for number, name in enumerate(["country=%C3%B1", "country=ñ", "country=%F1", "country=n", "country=Ã±"]):
        write(tmp_path / name / "a.parquet", pa.table({"id": [number]}))
    table = tamis.open(tmp_path)
    plan = table.scan("country = 'ñ'").plan("files")
    assert plan.num_files == 3
    assert [row["id"] for row in read_rows(table, "country = 'ñ'", ["id"])] == [0, 1, 2]
    assert [row["id"] for row in read_rows(table, PartitionFilter.eq("country", "ñ"), ["id"])] == [0, 1, 2]
    assert [row["id"] for row in read_rows(table, "country = 'Ã±'", ["id"])] == [4]
    session = tamis.connect()
    session.register("t", table)
    assert session.sql("SELECT sum(id) s FROM t WHERE country = 'ñ'").to_arrow().to_pylist() == [{"s": 3}]


def test_H1_functions_for_executors_parse_values_the_same(tmp_path: Path) -> None:
    write(tmp_path / "country=%C3%B1" / "a.parquet")
    write(tmp_path / "country=" / "a.parquet")
    info = table_info(tmp_path, PartitionFilter.eq("country", "ñ"))
    assert info.directories.to_pylist() == [{"path": "country=%C3%B1", "country": "ñ"}]
    (path,) = info.directories["path"].to_pylist()
    files = list_partition_files(tmp_path, path, PartitionFilter.eq("country", "ñ"))
    assert files["partition_values"].to_pylist() == ['{"country": "ñ"}']
    assert list_partition_files(tmp_path, "country=")["partition_values"].to_pylist() == ['{"country": ""}']


def test_H1_a_backslash_in_a_name_is_a_plain_character(tmp_path: Path) -> None:
    write(tmp_path / "p=\\" / "a.parquet")
    (path,) = table_info(tmp_path).directories["path"].to_pylist()
    assert list_partition_files(tmp_path, path)["partition_values"].to_pylist() == ['{"p": "\\\\"}']


def test_H1_H6_a_column_that_files_store_too_has_its_value_and_its_type(tmp_path: Path) -> None:
    rows = {"country": "ñ", "zip": "01234", "n": 7}
    leaf = tmp_path / "country=%C3%B1" / "zip=01234" / "n=7"
    write(leaf / "a.parquet", pa.table({"id": [1], **{name: [value] for name, value in rows.items()}}))
    table = tamis.open(tmp_path)
    assert read_rows(table) == [{"id": 1, **rows}]
    assert table.schema.field("n").type == pa.int64()
    assert table.scan("zip = '01234' AND country = 'ñ' AND n = 7").count() == 1
    assert table_info(tmp_path).schema == table.schema


def test_H1_H9_X14_plans_in_executors_parse_values_and_reject_links_the_same(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for number, name in enumerate(["%C3%B1", "", "__HIVE_DEFAULT_PARTITION__", "%2F"]):
        write(root / f"country={name}" / f"day={'never' if number else '2024-03-01'}" / "a.parquet")
    write(tmp_path / "secret.parquet")
    (root / "country=%2F" / "day=never" / "b.parquet").symlink_to(tmp_path / "secret.parquet")

    def open_table(allow_outside: bool) -> tamis.Table:
        planning = Planning(InProcessEngine(), "spark")
        given = {"partitioning": {"day": "date"}, "allow_outside": allow_outside}
        return tamis.Table(open_source(root, planning=planning, **given))  # type: ignore[arg-type]

    table = open_table(allow_outside=True)
    plan = table.scan("country <= 'ñ'", ["id", "country"]).plan()
    assert sorted(plan.files["country"].to_pylist()) == ["", "/", "/", "ñ"]
    assert table.scan(None, ["country"]).to_arrow().num_rows == 5
    with pytest.raises(UnsupportedFeature, match="leads out"):
        open_table(allow_outside=False).scan(None, ["id"]).plan()


def test_H6_a_stored_type_that_a_directory_name_does_not_match_is_not_used(tmp_path: Path) -> None:
    write(tmp_path / "n=1" / "a.parquet", pa.table({"id": [1], "n": [1]}))
    write(tmp_path / "n=x" / "a.parquet", pa.table({"id": [2], "n": ["x"]}))
    assert read_rows(tamis.open(tmp_path)) == [{"id": 1, "n": "1"}, {"id": 2, "n": "x"}]


def test_H9_an_empty_string_is_read_and_found(tmp_path: Path) -> None:
    write(tmp_path / "city=" / "a.parquet", pa.table({"id": [1]}))
    write(tmp_path / "city=Rome" / "a.parquet", pa.table({"id": [2]}))
    write(tmp_path / "city=__HIVE_DEFAULT_PARTITION__" / "a.parquet", pa.table({"id": [3]}))
    table = tamis.open(tmp_path)
    assert [row["city"] for row in table.scan().to_arrow().sort_by("id").to_pylist()] == ["", "Rome", None]
    assert read_rows(table, "city = ''", ["id"]) == [{"id": 1}]
    assert read_rows(table, "city IS NULL", ["id"]) == [{"id": 3}]
    assert read_rows(table, PartitionFilter.eq("city", ""), ["id"]) == [{"id": 1}]


def test_H9_an_empty_string_is_null_in_a_column_of_another_type(tmp_path: Path) -> None:
    write(tmp_path / "n=" / "a.parquet", pa.table({"id": [1]}))
    write(tmp_path / "n=2" / "a.parquet", pa.table({"id": [2]}))
    table = tamis.open(tmp_path, partitioning={"n": "int"})
    assert [row["n"] for row in table.scan().to_arrow().sort_by("id").to_pylist()] == [None, 2]
    assert (
        read_rows(table, "n IS NULL", ["id"]) == read_rows(table, PartitionFilter.is_null("n"), ["id"]) == [{"id": 1}]
    )
    only = tmp_path / "only"
    write(only / "n=" / "a.parquet")
    assert read_rows(tamis.open(only)) == [{"id": 1, "n": ""}]


def test_H10_zeros_are_lost_as_in_spark_both_spellings_find_the_row_and_a_note_says_so(tmp_path: Path) -> None:
    write(tmp_path / "zip=01234" / "month=07" / "a.parquet")
    table = tamis.open(tmp_path)
    assert table.schema.field("zip").type == table.schema.field("month").type == pa.int32()
    for where in ("zip = '01234'", "zip = 1234", "month = 7", "month = '07'", "zip IN ('01234')"):
        assert table.scan(where).count() == table.scan(where).to_arrow().num_rows == 1, where
    report = table.scan().plan("files").report
    level = report.level("partitions")
    assert level is not None
    assert "'zip' and 'month' have leading zeros" in (level.note or "")
    assert 'partitioning={"zip": "string", "month": "string"}' in str(report)
    kept = tamis.open(tmp_path, partitioning={"zip": "string", "month": "string"})
    assert read_rows(kept) == [{"id": 1, "zip": "01234", "month": "07"}]
    assert kept.scan("zip = '01234' AND month = 7").count() == 1
    level = kept.scan().plan("files").report.level("partitions")
    assert level is not None
    assert level.note is None


def test_H10_there_is_no_note_where_no_zero_is_lost(tmp_path: Path) -> None:
    for name in ("n=0", "n=10", "n=-5"):
        write(tmp_path / name / "d=2024-03-01" / "x=0.5" / "a.parquet")
    level = tamis.open(tmp_path).scan().plan("files").report.level("partitions")
    assert level is not None
    assert level.note is None


def test_ignored_subdirectories_are_in_the_report(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "old" / "b.parquet")
    table = tamis.open(tmp_path)
    assert table.scan().count() == 1
    level = table.scan().plan("files").report.level("files")
    assert level is not None
    assert level.note == f"not read: 1 of its subdirectories, such as '{tmp_path}/old'; open it as a table of its own"


# --- Values that a type cannot represent ------------------------------------------------------------------------------


def test_an_invalid_value_fails_only_queries_that_need_its_column(tmp_path: Path) -> None:
    for number, name in enumerate(["2024-03-01", "someday"]):
        write(tmp_path / f"day={name}" / f"n={number}" / "a.parquet", pa.table({"id": [number]}))
    table = tamis.open(tmp_path, partitioning={"day": "date"})
    assert read_rows(table, None, ["id", "n"]) == [{"id": 0, "n": 0}, {"id": 1, "n": 1}]
    assert table.scan("n = 1").count() == table.scan("id >= 1").count() == 1
    assert table.scan().count() == 2
    assert table.files()["n"].to_pylist() == [0, 1]
    session = tamis.connect()
    session.register("t", table)
    for query in ("SELECT count(*) c FROM t", "SELECT max(id) + 1 c FROM t", "SELECT max(n) + 1 c FROM t"):
        assert session.sql(query).to_arrow().to_pylist() == [{"c": 2}], query
    for ask in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan(None, ["day"]).to_arrow(),
        lambda: table.scan("day = DATE '2024-03-01'").count(),
        lambda: session.sql("SELECT max(day) FROM t").to_arrow(),
        lambda: session.sql("SELECT day, count(*) FROM t GROUP BY day").to_arrow(),
        lambda: session.sql("SELECT id FROM t ORDER BY day LIMIT 1").to_arrow(),
    ):
        with pytest.raises(PartitionLayoutError, match="'someday' of partition column 'day'"):
            ask()


@pytest.mark.parametrize(
    ("data_type", "text", "where"),
    [
        ("date", "10000-01-01", "day > DATE '9999-12-31'"),
        ("timestamp", "10000-01-01 00%3A00%3A00", "day > TIMESTAMP '9999-12-31 00:00:00'"),
        ("timestamp_ntz", "+10000-01-01 00%3A00%3A00", "day > TIMESTAMP_NTZ '9999-12-31 00:00:00'"),
    ],
)
def test_years_beyond_9999_are_values_like_any_other(tmp_path: Path, data_type: str, text: str, where: str) -> None:
    write(tmp_path / f"day={text}" / "a.parquet", pa.table({"id": [1]}))
    write(tmp_path / "day=2024-03-01" / "a.parquet", pa.table({"id": [2]}))
    table = tamis.open(tmp_path, partitioning={"day": data_type})
    assert read_rows(table, where, ["id"]) == [{"id": 1}]
    assert table.scan(where).plan("files").num_files == 1
    assert table.scan().to_arrow().num_rows == 2


# --- Files that change while a table is open --------------------------------------------------------------------------


def lay_out_flat(root: Path) -> tuple[Path, Path, Path]:
    return root, root / "a.parquet", root / "b.parquet"


def lay_out_partitioned(root: Path) -> tuple[Path, Path, Path]:
    return root, root / "p=1" / "a.parquet", root / "p=2" / "b.parquet"


def lay_out_alone(root: Path) -> tuple[Path, Path, Path]:
    return root / "b.parquet", root / "b.parquet", root / "b.parquet"


LAYOUTS = [lay_out_flat, lay_out_partitioned, lay_out_alone]


def make_numbers(count: int, first: int = 0) -> pa.Table:
    return pa.table({"x": range(first, first + count)})


def count_through_every_api(table: tamis.Table) -> set[object]:
    """Count a table through every API: each result is a number, or the class of the error."""
    session = tamis.connect()
    session.register("t", table)
    found: set[object] = set()
    for ask in (
        lambda: table.scan().count(),
        lambda: table.scan().to_arrow().num_rows,
        lambda: sum(batch.num_rows for batch in table.scan().to_batches()),
        lambda: table.scan("x >= 0").count(),
        lambda: session.sql("SELECT count(*) c FROM t").to_arrow()["c"][0].as_py(),
        lambda: session.sql("SELECT count(x) c, min(x), max(x) FROM t").to_arrow()["c"][0].as_py(),
        lambda: session.sql("SELECT x FROM t").to_arrow().num_rows,
    ):
        try:
            found.add(ask())
        except (CorruptFile, MissingFile) as error:
            found.add(type(error))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_cached", [True, False], ids=["footers in memory", "no footer in memory"])
def test_H12_a_replaced_or_removed_file_is_an_error_in_every_api_until_a_refresh(
    tmp_path: Path, layout: Callable[[Path], tuple[Path, Path, Path]], is_cached: bool
) -> None:
    root, first, second = layout(tmp_path / "t")
    write(first, make_numbers(10))
    write(second, make_numbers(20))
    rest = 0 if first == second else 10
    table = tamis.open(root)
    assert count_through_every_api(table) == {20 + rest}
    for rows in (make_numbers(7), make_numbers(20, first=100)):
        write(second, rows)
        os.utime(second, ns=(1, len(rows)))
        if not is_cached:
            FOOTERS.clear()
        assert count_through_every_api(table) == {CorruptFile}
        table = table.refresh()
        assert count_through_every_api(table) == {len(rows) + rest}
    second.unlink()
    if not is_cached:
        FOOTERS.clear()
    assert count_through_every_api(table) == {MissingFile}
    if rest:
        assert count_through_every_api(table.refresh()) == {rest}
    else:
        with pytest.raises(TableNotFound):
            table.refresh()


@pytest.mark.parametrize("layout", [lay_out_flat, lay_out_partitioned])
def test_H12_an_added_file_is_seen_after_a_refresh_in_every_api(
    tmp_path: Path, layout: Callable[[Path], tuple[Path, Path, Path]]
) -> None:
    root, first, second = layout(tmp_path / "t")
    write(first, make_numbers(10))
    table = tamis.open(root)
    assert count_through_every_api(table) == {10}
    write(second, make_numbers(20))
    write(second.with_name("c.parquet"), make_numbers(5))
    assert count_through_every_api(table) == {10}
    assert count_through_every_api(table.refresh()) == {35}
    assert count_through_every_api(table) == {10}


def test_H12_a_refresh_keeps_the_options_of_the_table_and_looks_for_its_index(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "n=01" / "a.parquet", make_numbers(10))
    table = tamis.open(root, partitioning={"n": "string"}, merge_schema=True)
    write(root / "n=02" / "a.parquet", pa.table({"x": [1], "y": [2]}))
    tamis.index.build(root)
    now = table.refresh()
    assert now.schema.names == ["x", "y", "n"]
    assert now.scan("n = '02'", ["x", "n"]).to_arrow().to_pylist() == [{"x": 1, "n": "02"}]
    assert now.scan("x > 5").plan("files").num_files == 1


def test_H12_an_index_does_not_count_files_that_were_replaced(tmp_path: Path) -> None:
    root, first, second = lay_out_flat(tmp_path / "t")
    write(first, make_numbers(10))
    write(second, make_numbers(20))
    tamis.index.build(root)
    table = tamis.open(root)
    assert count_through_every_api(table) == {30}
    write(second, make_numbers(7))
    FOOTERS.clear()
    assert count_through_every_api(table) == {CorruptFile}
    assert count_through_every_api(table.refresh()) == {17}


# --- Symbolic links ---------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A table, and a secret file outside it."""
    write(tmp_path / "secret" / "s.parquet", pa.table({"id": [666]}))
    write(tmp_path / "t" / "p=1" / "a.parquet", pa.table({"id": [1]}))
    return tmp_path / "t"


def link_file(root: Path) -> None:
    (root / "p=1" / "b.parquet").symlink_to(root.parent / "secret" / "s.parquet")


def link_file_by_a_relative_path(root: Path) -> None:
    (root / "p=1" / "b.parquet").symlink_to("../../secret/s.parquet")


def link_partition(root: Path) -> None:
    (root / "p=2").symlink_to(root.parent / "secret", target_is_directory=True)


def link_by_a_link(root: Path) -> None:
    (root / "_hop").symlink_to(root.parent / "secret", target_is_directory=True)
    (root / "p=2").symlink_to(root / "_hop", target_is_directory=True)


def link_plain_directory(root: Path) -> None:
    (root / "p=1" / "more").symlink_to(root.parent / "secret", target_is_directory=True)


def link_sibling_with_the_same_prefix(root: Path) -> None:
    write(root.parent / "t2" / "s.parquet")
    (root / "p=2").symlink_to(root.parent / "t2", target_is_directory=True)


@pytest.mark.parametrize(
    "link",
    [
        link_file,
        link_file_by_a_relative_path,
        link_partition,
        link_by_a_link,
        link_plain_directory,
        link_sibling_with_the_same_prefix,
    ],
)
def test_X14_a_link_out_of_the_table_is_rejected_unless_allowed(linked: Path, link: Callable[[Path], None]) -> None:
    link(linked)
    for ask in (
        lambda: tamis.open(linked).scan().to_arrow(),
        lambda: tamis.open(linked).scan().count(),
        lambda: tamis.open(linked).files(),
        lambda: tamis.index.build(linked),
    ):
        with pytest.raises(UnsupportedFeature, match=r"leads out of the table's folder.*allow_outside=True"):
            ask()
    assert tamis.open(linked, allow_outside=True).scan().count() == 2
    FOOTERS.clear()
    with pytest.raises(UnsupportedFeature, match="leads out of the table's folder"):
        tamis.open(linked).scan().to_arrow()


def test_X14_a_link_below_a_pruned_partition_is_harmless(linked: Path) -> None:
    write(linked / "p=2" / "a.parquet")
    (linked / "p=2" / "b.parquet").symlink_to(linked.parent / "secret" / "s.parquet")
    assert read_rows(tamis.open(linked), "p = 1") == [{"id": 1, "p": 1}]


def test_X14_hidden_links_and_links_inside_of_the_table_are_fine(linked: Path) -> None:
    (linked / "_elsewhere").symlink_to(linked.parent / "secret", target_is_directory=True)
    (linked / "p=1" / ".s.parquet").symlink_to(linked.parent / "secret" / "s.parquet")
    (linked / "p=2").symlink_to(linked / "p=1", target_is_directory=True)
    (linked / "p=1" / "again.parquet").symlink_to(linked / "p=1" / "a.parquet")
    assert read_rows(tamis.open(linked)) == [{"id": 1, "p": 1}] * 2 + [{"id": 1, "p": 2}] * 2


def test_X14_a_root_that_is_a_link_is_its_target(linked: Path) -> None:
    link = linked.parent / "link"
    link.symlink_to(linked, target_is_directory=True)
    (linked / "p=2").symlink_to(link / "p=1", target_is_directory=True)
    assert read_rows(tamis.open(link)) == [{"id": 1, "p": 1}, {"id": 1, "p": 2}]
    file = linked.parent / "link.parquet"
    file.symlink_to(linked / "p=1" / "a.parquet")
    assert tamis.open(file).scan().count() == 1
    (linked / "p=1" / "b.parquet").symlink_to(linked.parent / "secret" / "s.parquet")
    with pytest.raises(UnsupportedFeature, match="leads out"):
        tamis.open(link).scan().count()


# --- An index beside the table ----------------------------------------------------------------------------------------


def test_H11_an_index_writes_nothing_into_the_directory_of_its_table(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "p=1" / "a.parquet", make_numbers(10))
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    tamis.index.build(root, bloom=["x"])
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert not [path for path in tmp_path.rglob("*.parquet") if root not in path.parents]
    assert tamis.index.status(root).is_complete
    # A table that contains this one, such as a warehouse, ignores the index too.
    assert ds.dataset(tmp_path, partitioning=None).count_rows() == 10
    assert tamis.index.drop(root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]


def test_H11_an_index_is_copied_with_the_parent_folder(tmp_path: Path) -> None:
    write(tmp_path / "lake" / "t" / "a.parquet", make_numbers(10))
    write(tmp_path / "lake" / "t" / "b.parquet", make_numbers(10, first=100))
    tamis.index.build(tmp_path / "lake" / "t")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy", copy_function=shutil.copy2)
    FOOTERS.clear()
    assert tamis.open(tmp_path / "copy" / "t").scan("x = 105").plan("files").num_files == 1


def test_a_date_is_a_date(tmp_path: Path) -> None:
    write(tmp_path / "d=2024-03-01" / "a.parquet")
    assert read_rows(tamis.open(tmp_path)) == [{"id": 1, "d": datetime.date(2024, 3, 1)}]


def test_H12_files_of_a_remote_directory_are_checked_again_with_one_listing() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    root = "/lake/changing"
    options = {"filesystem": memory}

    def put_file(name: str, count: int) -> None:
        memory.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        with memory.open(f"{root}/{name}", "wb") as target:
            pq.write_table(make_numbers(count), target)

    try:
        for name in ("p=1/a.parquet", "p=1/b.parquet", "p=2/c.parquet"):
            put_file(name, 10)
        table = tamis.open(root, storage_options=options)
        assert count_through_every_api(table) == {30}
        scan = table.scan()
        assert scan.count() == 30
        assert get_planner(scan).storage.counters.listing_calls == 1
        put_file("p=1/d.parquet", 5)
        assert count_through_every_api(table) == {30}
        put_file("p=2/c.parquet", 1000)
        assert count_through_every_api(table) == {CorruptFile}
        assert count_through_every_api(table.refresh()) == {1025}
        memory.rm(f"{root}/p=1", recursive=True)
        memory.rm(f"{root}/p=2/c.parquet")
        assert count_through_every_api(table) == {MissingFile}
    finally:
        memory.rm("/lake", recursive=True)
