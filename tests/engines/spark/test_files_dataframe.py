"""Files as a DataFrame: Spark finds the files of a local plan, reports the same sizes, and frees its memory."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.cases import draw_delta_case
from builders.delta.log import DeltaLog, remove
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.values.choices import SeededChoices
from tamis import PartitionFilter
from tamis.engines.spark import files_dataframe
from tamis.errors import CorruptFile, EvaluationError, InvalidArgument, UnknownArgument, UnknownColumn
from tamis.formats.file_funnel import SKIPPING_NOTES, Sizes
from tamis.skipping.metrics import LevelReport


def format_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def list_leftovers(spark: Any) -> list[str]:
    return [each.name for each in spark.catalog.listTables() if "table state with stats" in each.name.lower()]


def find_levels(table: tamis.Table, where: object) -> dict[str, LevelReport]:
    return {level.level: level for level in table.scan(where).plan("files").report.levels}


def check_delta(files: Any, table: tamis.Table, where: object, *context: object) -> Any:
    """Return the plan of Spark, after checking that it equals the local plan."""
    found = files.files_for_scan(where)
    local = table.scan(where).plan("files")
    names = ["path", "size", *table.partition_columns]
    if found.unused:
        # Spark has no equivalent of some conjunct, so that it keeps more files.
        assert set(local.files["path"].to_pylist()) <= set(found.files["path"].to_pylist()), context
        return found
    assert format_rows(found.files.select(names)) == format_rows(local.files.select(names)), context
    levels = find_levels(table, where)
    assert (found.after_partitions.files, found.after_partitions.bytes) == (
        levels["files"].total,
        levels["files"].bytes_total,
    ), context
    assert (found.after_statistics.files, found.after_statistics.bytes) == (
        levels["files"].kept,
        levels["files"].bytes_kept,
    ), context
    if levels["files"].rows_kept is not None:
        assert found.after_statistics.rows == levels["files"].rows_kept, context
    return found


def check_scan(found: tamis.Scan, expected: tamis.Scan, *context: object) -> None:
    """Check that a scan of a plan has the rows of a scan of the table, and counts them."""
    try:
        rows = format_rows(expected.to_arrow())
    except EvaluationError:
        with pytest.raises(EvaluationError):
            found.to_arrow()
        return
    assert format_rows(found.to_arrow()) == rows, context
    assert found.count() == len(rows), context


def check_limited(found: Any, table: tamis.Table, where: object, limit: int, *context: object) -> None:
    """Check that a plan with a limit has enough files, and its scan as many of the rows as the table has."""
    try:
        rows = Counter(format_rows(table.scan(where).to_arrow()))
    except EvaluationError:
        return
    some = Counter(format_rows(found.scan().to_arrow()))
    assert some <= rows, context
    assert some.total() == min(limit, rows.total()), context
    assert found.files.num_rows == found.after_statistics.files, context


def compare_delta_files(spark: Any, seed: int, predicates: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(SeededChoices(seed), Path(folder), predicates)
        table = tamis.open(folder)
        with table.files_dataframe(spark) as files:
            assert format_rows(files.files_for_scan().files) == format_rows(table.files()), seed
            for number, said in enumerate(case.predicates):
                found = check_delta(files, table, said.expr, seed, said.sql)
                check_scan(found.scan(), table.scan(said.expr), seed, said.sql)
                limited = files.files_for_scan(said.expr, limit=number * 3)
                check_limited(limited, table, said.expr, number * 3, seed, said.sql)


@pytest.mark.parametrize("seed", [3, pytest.param(8, marks=pytest.mark.interop)])
def test_O8_random_delta_tables_have_the_files_of_a_local_plan(connect_spark: Any, seed: int) -> None:
    compare_delta_files(connect_spark, seed, predicates=3)


def write_delta_table(folder: Path) -> Path:
    """Write forty files in a checkpoint of two parts; newer commits remove some and add others."""
    columns = {"id": "long", "x": "double", "p": "string"}
    log = DeltaLog(folder, columns, partition_columns=["p"], features=["deletionVectors"])

    def add(number: int, **options: Any) -> Any:
        part = "ab"[number % 2]
        values = pa.array(range(10 * number, 10 * number + 10), pa.int64())
        rows = pa.table({"id": values, "x": values.cast(pa.float64())})
        return data_file(log, f"p={part}/{number}.parquet", rows, {"p": part}, **options)

    log.commit(*(add(number) for number in range(40)))
    log.checkpoint(parts=2)
    log.commit(remove("p=a/0.parquet"), remove("p=b/1.parquet"), add(40), add(41, deleted=[0, 1]))
    return folder


@pytest.mark.interop
def test_checkpoint_parts_and_commits_are_one_table(any_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    before = list_leftovers(any_spark)
    with table.files_dataframe(any_spark) as files:
        assert files.name == f"Delta Table State with Stats #1 - {table.uri}"
        assert files.name.lower() in list_leftovers(any_spark)
        assert any_spark.catalog.isCached(f"`{files.name}`")
        frame = files.dataframe
        assert frame.count() == 40
        assert frame.where("lower.id >= 395 AND partition.p = 'b'").select("path", "logical_rows").collect() == [
            ("p=b/41.parquet", 8)
        ]
        found = check_delta(files, table, "p = 'a' AND id BETWEEN 105 AND 221 AND x < 1000")
        assert found.total == Sizes(40, found.total.bytes, 398)
        assert (found.after_partitions.files, found.after_partitions.rows) == (20, 200)
        assert (found.after_statistics.files, found.after_statistics.rows) == (7, 70)
        for where in (
            "id = 7",
            "id >= 405",
            "p IS NULL",
            "id IN (11, 33, 399) OR p = 'b' AND id > 380",
            "NOT (id < 400)",
        ):
            check_delta(files, table, where, where)
        unused = files.files_for_scan("p = 'a' AND upper(p) = 'A' AND id = 25")
        assert unused.after_statistics.files == 1
    assert list_leftovers(any_spark) == before
    files.unpersist()


def test_a_view_name_that_another_thread_uses_is_not_replaced(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaLog(tmp_path, {"id": "long", "x": "long"}).commit()
    table = tamis.open(tmp_path)
    free_name = files_dataframe._find_free_name
    with table.files_dataframe(spark) as first:
        seen = [first.name]
        monkeypatch.setattr(
            files_dataframe, "_find_free_name", lambda *given: seen.pop() if seen else free_name(*given)
        )
        with table.files_dataframe(spark, columns=["x"]) as second:
            assert second.name == f"{first.name} (2)"
        assert "id" in first.dataframe.select("lower.*").columns


def test_statistics_of_some_columns_only(connect_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    with table.files_dataframe(connect_spark, columns=["ID"]) as files:
        assert [field.name for field in files.dataframe.schema["lower"].dataType] == ["id"]
        assert files.files_for_scan("x > 1000").after_statistics.files == 40
        assert files.files_for_scan("id = 25").after_statistics.files == 1
        with pytest.raises(UnknownColumn, match="no column 'y'"):
            files.files_for_scan("y = 1")
    with pytest.raises(UnknownColumn, match="no column 'y'"):
        table.files_dataframe(connect_spark, columns=["y"])


def test_footers_of_a_folder_are_read_by_executors(connect_spark: Any, tmp_path: Path) -> None:
    parts = []
    for number in range(6):
        values = range(100 * number, 100 * number + 100)
        rows = pa.table({"id": pa.array(values, pa.int64()), "Id2": [f"t{value:04d}" for value in values]})
        parts.append(({"day": ["2024-03-01", "2024-03-02", None][number % 3]}, rows))
    table = tamis.open(write_hive_table(tmp_path / "folder", parts, row_group_size=30))
    with table.files_dataframe(connect_spark) as files:
        found = files.files_for_scan("day = DATE '2024-03-01' AND id >= 250")
        assert found.total == Sizes(6, sum(table.files()["size"].to_pylist()), 600)
        assert found.after_partitions.files == 2
        assert found.after_statistics.files == 1
        assert found.files["num_records"].to_pylist() == [100]
        assert (
            found.files["day"].to_pylist()
            == table.scan("day = DATE '2024-03-01'").plan("files").files["day"].to_pylist()[:1]
        )
        assert files.files_for_scan("id2 = 't0333' OR id = 5").after_statistics.files == 2
        assert files.files_for_scan("day IS NULL").after_statistics.files == 2
    assert list_leftovers(connect_spark) == []


def test_a_damaged_file_is_an_error_of_ours_and_leaves_nothing(connect_spark: Any, tmp_path: Path) -> None:
    folder = write_hive_table(tmp_path / "folder", [({}, pa.table({"id": [1]})), ({}, pa.table({"id": [2]}))])
    table = tamis.open(folder)
    damaged = sorted(folder.glob("*.parquet"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"ABCD")
    with pytest.raises(CorruptFile, match=damaged.name):
        tamis.open(folder).files_dataframe(connect_spark)
    assert list_leftovers(connect_spark) == []
    assert table.format == "hive"


# --- The files as a plan ----------------------------------------------------------------------------------------------


def test_each_of_the_four_ways_has_a_name(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    with table.files_dataframe(spark) as files:
        plans = {
            "none": files.files_for_scan(),
            "partition": files.files_for_scan("p = 'a'"),
            "data": files.files_for_scan("p = 'a' AND id > 300", limit=1),
            "limit": files.files_for_scan("p = 'a'", limit=25),
        }
        assert {name: plan.skipping for name, plan in plans.items()} == {name: name for name in plans}
        sizes = {
            name: (plan.total.files, plan.after_partitions.files, plan.after_statistics.files)
            for name, plan in plans.items()
        }
        assert sizes == {"none": (40, 40, 40), "partition": (40, 20, 20), "data": (40, 20, 6), "limit": (40, 20, 3)}
        assert plans["limit"].after_statistics.rows == 30
        for name, plan in plans.items():
            note = plan.scan().plan("files").report.level("files").note
            assert note == f"{SKIPPING_NOTES[name]}; files cached in Spark"
        off = files.files_for_scan("p = 'a' AND id > 300", levels=["files"])
        assert (off.after_partitions.files, off.after_statistics.files) == (40, 6)
        without = files.files_for_scan("p = 'a' AND id > 300", levels=["partitions"])
        assert (without.skipping, without.after_statistics.files) == ("partition", 20)
        assert without.scan().count() == 59
        assert files.files_for_scan("id = 25", keep_num_records=False).files["num_records"].to_pylist() == [None]
        with pytest.raises(InvalidArgument, match="no level 'rows'"):
            files.files_for_scan(levels=["rows"])
        with pytest.raises(InvalidArgument, match="limit must be a number of rows"):
            files.files_for_scan(limit=-1)
        with pytest.raises(UnknownArgument, match="has no argument 'where'"):
            files.files_for_scan(where="id = 1")


def test_a_limit_takes_files_without_statistics_only_if_the_others_fall_short(spark: Any, tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    actions = [data_file(log, f"{name}.parquet", rows, deleted=deleted) for name, deleted in (
        ("a", []), ("b", [0, 1, 2, 3, 4, 5]), ("c", []), ("d", []))]  # fmt: skip
    for action in (actions[0], actions[2]):
        del action["add"]["stats"]
    log.commit(*actions)
    table = tamis.open(tmp_path)
    with table.files_dataframe(spark) as files:
        found = {limit: files.files_for_scan(limit=limit) for limit in (0, 4, 5, 14, 15)}
        names = {limit: [Path(path).stem for path in plan.files["path"].to_pylist()] for limit, plan in found.items()}
        assert names == {0: [], 4: ["b"], 5: ["b", "d"], 14: ["b", "d"], 15: ["a", "b", "c", "d"]}
        assert [found[limit].after_statistics.rows for limit in (4, 14, 15)] == [4, 14, None]
        assert {limit: plan.scan().count() for limit, plan in found.items()} == {limit: limit for limit in found}


def test_a_plan_is_read_by_tamis_and_by_spark(any_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    where = "p = 'b' AND id >= 405"
    expected = format_rows(table.scan(where).to_arrow())
    with table.files_dataframe(any_spark) as files:
        plan = files.files_for_scan(where)
        assert format_rows(plan.to_spark().toArrow()) == expected
    # The plan needs the DataFrame no longer.
    scan = plan.scan()
    assert format_rows(scan.to_arrow()) == expected
    assert scan.plan("files").files.num_rows == plan.files.num_rows == 1
    assert plan.scan(["x"]).schema.names == plan.to_spark(["x"]).columns == ["x"]
    # Further scans are of the same files.
    first = files_of_first_day(table, any_spark)
    for further in (first.filter("id >= 0"), first.select("id"), first.limit(1000)):
        assert further.plan("files").num_files == 1
        assert further.count() == 10


def files_of_first_day(table: tamis.Table, spark: Any) -> tamis.Scan:
    with table.files_dataframe(spark) as files:
        return files.files_for_scan("id BETWEEN 20 AND 29").scan()


def test_a_partition_filter_is_one_of_the_filters(any_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    wanted = PartitionFilter.eq("p", "b")
    with table.files_dataframe(any_spark) as files:
        alone = files.files_for_scan(wanted)
        assert (alone.skipping, alone.total.files, alone.after_partitions, alone.scan().count()) == (
            "partition", 40, alone.after_statistics, 198,
        )  # fmt: skip
        both = files.files_for_scan([wanted, "id >= 380", PartitionFilter.is_not_null("p")])
        assert (both.after_partitions.files, both.after_statistics.files) == (20, 2)
        assert sorted(both.scan().to_arrow()["id"].to_pylist()) == [*range(390, 400), *range(412, 420)]
        report = both.scan().plan("files").report
        assert sum(each.skipped for each in report.level("partitions").by_predicate) == 20
        limited = files.files_for_scan([wanted], limit=15)
        assert (limited.skipping, limited.files.num_rows, limited.scan().count()) == ("limit", 2, 15)
        with pytest.raises(UnknownColumn, match="'q'"):
            files.files_for_scan(PartitionFilter.eq("q", "b"))


TEXTS = ["01", "1", "10", "9", None, "02", "1", "10"]
"""The partition values of eight files. For Iceberg, whose values are typed, their texts are those of the numbers."""


def write_texts(folder: Path, format: str) -> tamis.Table:
    """Write eight files of two rows, with numbers as partition values."""
    schema = {"id": pa.int64(), "n": pa.int32(), "p": pa.string()}
    files = [pa.table({"id": pa.array([2 * number, 2 * number + 1], pa.int64())}) for number in range(len(TEXTS))]
    if format == "hive":
        parts = [({"n": text, "p": "ab"[number % 2]}, files[number]) for number, text in enumerate(TEXTS)]
        return tamis.open(write_hive_table(folder, parts), partitioning={"n": "int", "p": "string"})
    if format == "delta":
        log = DeltaLog(folder, {"id": "long", "n": "integer", "p": "string"}, partition_columns=["n", "p"])
        for number, text in enumerate(TEXTS):
            log.commit(data_file(log, f"{number}.parquet", files[number], {"n": text, "p": "ab"[number % 2]}))
        log.checkpoint(5)
        return tamis.open(folder)
    fields = [field(1, "id", "long"), field(2, "n", "int"), field(3, "p", "string")]
    specs = [[(2, "identity", "n"), (3, "identity", "p")], [(3, "identity", "p")], [(2, "bucket[4]", "n_bucket")]]
    table = IcebergFolder(folder, fields, specs=specs)
    for number, text in enumerate(TEXTS):
        values = {"n": [None if text is None else int(text)] * 2, "p": ["ab"[number % 2]] * 2}
        more = {name: pa.array(each, schema[name]) for name, each in values.items()}
        rows = pa.table({"id": files[number]["id"], **more})
        # Files of the other specs have no partition value of n.
        table.commit(table.data_file(f"{number}.parquet", rows, spec=number - 5 if number > 5 else 0))
    return tamis.open(folder)


N_IS_1 = PartitionFilter.eq("n", "1")
PARTITION_FILTERS = [
    N_IS_1,
    PartitionFilter.neq("N", "01"),
    PartitionFilter.in_("n", "01", "10", "x"),
    PartitionFilter.in_("n"),
    PartitionFilter.gt("n", "1"),
    PartitionFilter.gt("n", 1).with_type("long"),
    ~PartitionFilter.lte("n", "9.5").with_type("double"),
    PartitionFilter.is_null("n"),
    ~N_IS_1 & PartitionFilter.is_not_null("n"),
    PartitionFilter.or_(N_IS_1, PartitionFilter.eq("p", "b")),
    [N_IS_1, "id < 5", "p = 'b'"],
    N_IS_1 & (tamis.col("id") > 5),
    (tamis.col("id") < 3) | PartitionFilter.eq("n", "9"),
    "partition_text('n') LIKE '%0' AND id >= 4",
    "length(partition_text('n')) = 2",
]


@pytest.mark.parametrize("format", ["delta", "hive", "iceberg"])
def test_O8_spark_tests_partition_filters_and_the_driver_lists_no_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    table = write_texts(tmp_path / "table", format)
    listed = []
    source = type(table._source)
    list_files = source.list_files

    def count_listings(self: Any, *given: Any, **options: Any) -> Any:
        listed.append(given)
        return list_files(self, *given, **options)

    with table.files_dataframe(spark) as files:
        for where in PARTITION_FILTERS:
            local = table.scan(where)
            paths = set(local.plan("files").files["path"].to_pylist())
            with monkeypatch.context() as patch:
                patch.setattr(source, "list_files", count_listings)
                found = files.files_for_scan(where)
            assert not listed, where
            assert not found.unused, where
            # The footers have statistics, which a listing of a folder has not.
            assert set(found.files["path"].to_pylist()) <= paths, where
            if format != "hive" or not any(name in str(where) for name in ("id <", "id >")):
                assert set(found.files["path"].to_pylist()) == paths, where
            check_scan(found.scan(), local, where)
            report = found.scan().plan("files").report
            for level in report.levels:
                assert sum(each.skipped for each in level.by_predicate) == level.total - level.kept, where
        for where in (N_IS_1, PARTITION_FILTERS[-1]):
            check_limited(files.files_for_scan(where, limit=3), table, where, 3, where)
        with pytest.raises(UnknownColumn, match="'id'"):
            files.files_for_scan(PartitionFilter.eq("id", "1"))
        texts = {row[0] for row in files.dataframe.select("partition_text.n").collect()}
        assert texts == ({"1", "10", "9", "2", None} if format == "iceberg" else set(TEXTS))


def test_scans_planned_on_spark_test_partition_filters_on_the_cached_rows(spark: Any, tmp_path: Path) -> None:
    local = write_texts(tmp_path / "table", "delta")
    table = tamis.connect(spark=spark, planning="spark").open(tmp_path / "table")
    with table.files_dataframe(spark):
        for where in (N_IS_1, N_IS_1 | (tamis.col("id") < 3)):
            scan = table.scan(where)
            assert "files cached in Spark" in str(scan.plan("files").report.level("files").note)
            check_scan(scan, local.scan(where), where)


def test_a_partition_filter_needs_the_texts_of_values(spark: Any, tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "p": "integer"}, partition_columns=["p"])
    added = data_file(log, "1.parquet", pa.table({"id": pa.array([1], pa.int64())}), {"p": "1"})
    log.commit(added)
    actions = [*log.reconcile(0, 0)]
    for action in actions:
        if "add" in action:
            action["add"]["partitionValues_parsed"] = {"p": 1}
    log.checkpoint(
        0,
        actions=actions,
        add_fields=[("partitionValues_parsed", pa.struct([("p", pa.int32())]))],
        omit=["partitionValues"],
    )
    table = tamis.open(tmp_path)
    with table.files_dataframe(spark) as files:
        assert files.files_for_scan("p = 1").files.num_rows == 1
        assert files.dataframe.where("partition_text IS NULL").count() == 1
        for scan in (table.scan, files.files_for_scan):
            with pytest.raises(CorruptFile, match="typed partition values only"):
                scan(PartitionFilter.eq("p", "1")).plan("files")


def test_I1_a_partition_value_of_iceberg_that_is_invalid_for_its_type_is_an_error(spark: Any, tmp_path: Path) -> None:
    table = IcebergFolder(
        tmp_path, [field(1, "id", "long"), field(2, "p", "date")], specs=[[(2, "identity", "p")]], version=3
    )
    rows = pa.table({"id": pa.array([1]), "p": pa.array([2**31 - 1], pa.int32()).view(pa.date32())})
    table.commit(table.data_file("1.parquet", rows, partition=(2**31 - 1,), metrics={}))
    table.evolve([field(1, "id", "long"), field(2, "p", "timestamp")])
    before = list_leftovers(spark)
    # As NULL, it would skip files whose rows have other values.
    with pytest.raises(CorruptFile, match="a partition value of column 'p' that is not a valid"):
        tamis.open(tmp_path).files_dataframe(spark)
    assert list_leftovers(spark) == before


def test_reports_of_a_plan_add_up(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    with table.files_dataframe(spark) as files:
        report = files.files_for_scan("p = 'a' AND id > 300 AND x < 350").scan().plan("files").report
    assert [(each.level, each.total, each.kept) for each in report.levels] == [("partitions", 40, 20), ("files", 20, 3)]
    for each in report.levels:
        assert sum(outcome.skipped for outcome in each.by_predicate) == each.total - each.kept
    local = table.scan("p = 'a' AND id > 300 AND x < 350").plan("files").report
    skipped = [[outcome.skipped for outcome in each.by_predicate] for each in (*report.levels, *local.levels)]
    assert skipped[:2] == skipped[2:]


def test_users_of_a_version_share_its_rows(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path / "a.b"))
    before = list_leftovers(spark)
    first = table.files_dataframe(spark)
    second = tamis.open(tmp_path / "a.b").files_dataframe(spark)
    other = table.files_dataframe(spark, columns=["id"])
    older = table.at(version=0).files_dataframe(spark)
    assert first.name == second.name
    assert other.name == f"{first.name} (2)"
    assert older.name == first.name.replace("#1", "#0")
    cached = {each.name() for each in spark.sparkContext._jsc.getPersistentRDDs().values()}
    # The storage page of Spark's UI shows the name as it is.
    assert first.name == f"Delta Table State with Stats #1 - {table.uri}"
    assert first.name in cached
    first.unpersist()
    first.unpersist()
    with pytest.raises(InvalidArgument, match="released by unpersist"):
        first.files_for_scan("id = 1")
    assert second.files_for_scan("id = 25").files.num_rows == 1
    for each in (second, other, older):
        each.unpersist()
    assert list_leftovers(spark) == before


def test_rows_that_were_dropped_by_others_are_read_again(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    with table.files_dataframe(spark) as first:
        spark.catalog.dropTempView(first.name)
        with pytest.raises(InvalidArgument, match="released by unpersist"):
            first.files_for_scan()
        with table.files_dataframe(spark) as second:
            assert second.files_for_scan("id = 25").files.num_rows == 1


def test_scans_that_are_planned_on_spark_use_the_cached_rows(spark: Any, tmp_path: Path) -> None:
    session = tamis.connect(spark=spark, planning="spark")
    table = session.open(write_delta_table(tmp_path))
    session.register("t", table)
    where = "p = 'a' AND id > 300"

    def get_note(**options: Any) -> str:
        return str(table.scan(where, **options).plan("files").report.level("files").note)

    expected = format_rows(table.scan(where).to_arrow())
    assert "cached in Spark" not in get_note()
    with tamis.open(tmp_path).files_dataframe(spark, columns=["id"]):
        assert "files cached in Spark" in get_note()
        assert format_rows(table.scan(where).to_arrow()) == expected
        assert (table.scan(where).count(), table.count(), table.scan("p = 'a'").count()) == (59, 398, 200)
        assert table.scan("p = 'a'", limit=3).plan("files").num_files == 1
        assert session.sql("SELECT count(*) AS n FROM t WHERE p = 'a' AND id > 300").toArrow()["n"].to_pylist() == [59]
        # Its statistics do not have this column, and a local plan has no use for Spark.
        for other, filters in ((table, "x > 300"), (tamis.open(tmp_path), where)):
            assert "cached in Spark" not in str(other.scan(filters).plan("files").report.level("files").note)
    assert "cached in Spark" not in get_note()


def test_scans_of_folders_that_are_planned_on_spark_use_the_cached_rows(spark: Any, tmp_path: Path) -> None:
    parts = [({"day": f"2024-03-0{1 + n % 2}"}, pa.table({"id": range(10 * n, 10 * n + 10)})) for n in range(6)]
    write_hive_table(tmp_path / "folder", parts)
    table, local = (
        tamis.connect(spark=spark, planning="spark").open(tmp_path / "folder"),
        tamis.open(tmp_path / "folder"),
    )
    with table.files_dataframe(spark):
        for where in ("id >= 35", "day = DATE '2024-03-01' AND id < 25", "id % 7 = 3", None, "id < 0"):
            scan = table.scan(where)
            assert "files cached in Spark" in str(scan.plan("files").report.level("files").note), where
            check_scan(scan, local.scan(where), where)
        # The footers have the statistics of files, which a listing has not.
        assert table.scan("id >= 35").plan("files").num_files == 3
        assert local.scan("id >= 35").plan("files").num_files == 6
        # A file that was replaced since it was listed is noticed.
        first = Path(table.files()["path"][0].as_py())
        first.write_bytes(first.read_bytes() + b" ")
        with pytest.raises(CorruptFile, match="was replaced"):
            table.scan("id < 10").to_arrow()


def test_a_scan_of_footers_reads_the_files_of_the_plan(spark: Any, tmp_path: Path) -> None:
    parts = [({"day": f"2024-03-0{1 + n % 2}"}, pa.table({"id": range(10 * n, 10 * n + 10)})) for n in range(6)]
    table = tamis.open(write_hive_table(tmp_path / "folder", parts))
    with table.files_dataframe(spark) as files, table.files_dataframe(spark) as same:
        assert files.name == same.name == f"Hive Table State with Stats - {table.uri}"
        plan = files.files_for_scan("day = DATE '2024-03-01' AND id >= 35")
        assert (plan.skipping, plan.files.num_rows) == ("data", 1)
        assert sorted(plan.scan().to_arrow()["id"].to_pylist()) == list(range(40, 50))
        filtered = files.files_for_scan([PartitionFilter.eq("day", "2024-03-02"), "id < 20"])
        assert sorted(filtered.to_spark().toArrow()["id"].to_pylist()) == list(range(10, 20))
        assert files.files_for_scan(limit=15).scan().count() == 15


def test_the_modification_time_of_delta_files_is_that_of_the_log(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    with table.files_dataframe(spark, columns=[]) as files:
        times = {row[0] for row in files.dataframe.selectExpr("unix_micros(modified)").collect()}
        assert files.dataframe.schema["modified"].dataType.typeName() == "timestamp"
        assert "modified_ns" not in files.dataframe.columns
        planned = files.files_for_scan().files
    assert times == {1_700_000_000_000_000}
    assert planned["modified"].cast(pa.int64()).unique().to_pylist() == [1_700_000_000_000_000]
    assert planned.schema == table.files().schema


def test_a_partition_value_of_another_type_is_an_error(spark: Any, tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "p": "integer"}, partition_columns=["p"])
    rows = pa.table({"id": pa.array([1], pa.int64())})
    log.commit(*(data_file(log, f"{value}.parquet", rows, {"p": value}) for value in ("1", "abc")))
    before = list_leftovers(spark)
    with pytest.raises(CorruptFile, match="'abc'"):
        tamis.open(tmp_path).files_dataframe(spark)
    assert list_leftovers(spark) == before
    log.commit(remove("abc.parquet"))
    with tamis.open(tmp_path).files_dataframe(spark) as files:
        assert files.files_for_scan("p = 1").files.num_rows == 1
