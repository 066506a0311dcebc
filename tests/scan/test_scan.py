"""Scans of Hive-style tables: plans, rows, counts, reports."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.hive.tables import write_hive_table
from tamis import PartitionFilter, col
from tamis.errors import (
    CorruptFile,
    EvaluationError,
    InvalidArgument,
    MissingDependency,
    MissingFile,
    PlanBudgetExceeded,
    TypeMismatch,
    UnknownColumn,
)
from tamis.parquet.footer.footer import FOOTERS
from tamis.scan.scan import get_planner

ROWS_PER_FILE = 100
ROWS_PER_GROUP = 20


def make_part(region: str, day: int) -> pa.Table:
    """Return a hundred rows of one day of one region; ids ascend over days."""
    first = day * ROWS_PER_FILE
    ids = list(range(first, first + ROWS_PER_FILE))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array([None if i % 10 == 0 else i / 2 for i in ids], pa.float64()),
            "name": pa.array([f"{region}-{i:05d}" for i in ids]),
            "address": pa.array([{"city": f"c{i % 3}", "zip": {"code": i, "extra": "x"}} for i in ids]),
            "tags": pa.array([[str(i), "t"] for i in ids]),
            "ts": pa.array([i * 3_600_000_000 for i in ids], pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = [
        ({"region": region, "day": f"2024-01-{day + 1:02d}"}, make_part(region, day))
        for region in ("eu", "us", "ap")
        for day in range(4)
    ]
    return write_hive_table(tmp_path_factory.mktemp("tables") / "orders", parts, row_group_size=ROWS_PER_GROUP)


@pytest.fixture
def table(root: Path) -> tamis.Table:
    table = tamis.open(root)
    # Footers are cached, so that a test counts only the bytes of its columns.
    table.scan().plan()
    return table


# --- Tables ---------------------------------------------------------------------------------------------------------


def test_a_table_describes_itself(table: tamis.Table) -> None:
    assert (table.format, table.name, table.version) == ("hive", "orders", None)
    assert table.partition_columns == ("region", "day")
    assert table.schema.names == ["id", "amount", "name", "address", "tags", "ts", "region", "day"]
    assert table.schema.field("day").type == pa.date32()
    files = table.files()
    assert files.num_rows == 12
    assert files.column_names == ["path", "size", "num_records", "modified", "region", "day"]
    assert all(Path(path).is_file() for path in files["path"].to_pylist())


def test_a_single_file_and_a_flat_folder_are_tables(root: Path, tmp_path: Path) -> None:
    rows = make_part("eu", 0)
    pq.write_table(rows, tmp_path / "one.parquet")
    single = tamis.open(tmp_path / "one.parquet")
    assert single.format == "parquet"
    assert single.scan().to_arrow().equals(rows)
    flat = tamis.open(tmp_path)
    assert flat.format == "hive"
    assert flat.scan("id < 5").count() == 5


def test_versions_of_a_hive_table_are_an_error_that_says_so(root: Path) -> None:
    with pytest.raises(tamis.TamisError, match="version= was given, which a table of plain Parquet files"):
        tamis.open(root, version=3)
    with pytest.raises(InvalidArgument, match=r"no table format 'csv'\. Formats: "):
        tamis.open(root, format="csv")


# --- Plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_prunes_partitions_then_row_groups(table: tamis.Table) -> None:
    plan = table.scan("region = 'eu' AND id BETWEEN 130 AND 150").plan()
    assert plan.num_files == 1
    assert [task.row_group for task in plan.tasks] == [1, 2]
    levels = {level["level"]: level for level in plan.report.to_dict()["levels"]}
    assert list(levels) == ["partitions", "files", "row_groups"]
    assert (levels["partitions"]["total"], levels["partitions"]["kept"]) == (6, 4)
    assert (levels["files"]["total"], levels["files"]["kept"]) == (4, 4)
    assert (levels["row_groups"]["total"], levels["row_groups"]["kept"]) == (20, 2)
    assert 0 < levels["row_groups"]["bytes_kept"] < levels["row_groups"]["bytes_total"]
    assert plan.files["rows_to_read"].to_pylist() == [40]
    assert plan.files["num_records"].to_pylist() == [100]


def test_a_plan_of_files_opens_no_footer(table: tamis.Table) -> None:
    FOOTERS.clear()
    scan = table.scan("region = 'eu' AND id = 130")
    plan = scan.plan(depth="files")
    assert plan.num_files == 4
    assert plan.tasks == []
    assert get_planner(scan).storage.counters.requests == 0
    with pytest.raises(InvalidArgument, match=r"no depth 'rows'\. Depths: files, row_groups, pages"):
        scan.plan(depth="rows")


def test_only_matching_directories_are_listed(tmp_path: Path) -> None:
    """3,000 partitions, one wanted: planning lists the root, one region and one day."""
    first = datetime.date(2024, 1, 1)
    for region in ("eu", "us", "ap"):
        for day in range(1000):
            folder = tmp_path / f"region={region}" / f"day={first + datetime.timedelta(days=day)}"
            folder.mkdir(parents=True)
    pq.write_table(make_part("eu", 0), tmp_path / "region=ap" / "day=2024-01-01" / "a.parquet")
    pq.write_table(make_part("eu", 0), tmp_path / "region=eu" / "day=2024-03-03" / "a.parquet")
    table = tamis.open(tmp_path, partitioning={"region": "string", "day": "date"})
    counters = table._source.storage.counters
    before = counters.listing_calls
    plan = table.scan("region = 'eu' AND day = '2024-03-03'").plan(depth="files")
    assert plan.num_files == 1
    # The root was listed to open the table; a directory is listed once.
    assert counters.listing_calls - before == 2


def test_pruning_by_a_function_that_keeps_no_order_of_a_partition_column(table: tamis.Table) -> None:
    plan = table.scan("day(day) = 2 AND upper(region) = 'US'").plan(depth="files")
    assert plan.num_files == 1


def test_partitions_and_statistics_prune_together_under_or(table: tamis.Table) -> None:
    plan = table.scan("region = 'eu' AND day = '2024-01-01' OR id > 390").plan()
    assert plan.num_files == 4  # the whole file of one partition, and the last row group of the last day of each region
    assert sum(task.row_count for task in plan.tasks) == ROWS_PER_FILE + 3 * ROWS_PER_GROUP


def test_budgets_fail_as_assertions(table: tamis.Table) -> None:
    plan = table.scan("region = 'eu'").plan()
    assert plan.assert_max_files(4).assert_max_bytes(10**9) is plan
    with pytest.raises(PlanBudgetExceeded, match="the plan has 4 files, expected at most 3"):
        plan.assert_max_files(3)
    with pytest.raises(AssertionError, match="bytes, expected at most 10"):
        plan.assert_max_bytes(10)


# --- Rows -----------------------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_files(table: tamis.Table) -> None:
    rows = table.scan("id < 250", columns=["id", "region"]).to_arrow()
    assert rows["region"].to_pylist() == ["ap"] * 250 + ["eu"] * 250 + ["us"] * 250
    assert rows["id"].to_pylist() == list(range(250)) * 3


def test_projection_keeps_the_order_asked_for_and_narrows_structs(table: tamis.Table) -> None:
    rows = table.scan("id = 7", columns=["day", "ADDRESS.Zip.code", "address.city", "id"]).to_arrow()
    assert rows.schema == pa.schema(
        [
            ("day", pa.date32()),
            ("address", pa.struct([("city", pa.string()), ("zip", pa.struct([("code", pa.int64())]))])),
            ("id", pa.int64()),
        ]
    )
    assert rows.slice(0, 1).to_pylist() == [
        {"day": datetime.date(2024, 1, 1), "address": {"city": "c1", "zip": {"code": 7}}, "id": 7}
    ]


def test_columns_that_are_not_projected_are_not_read(table: tamis.Table) -> None:
    narrow, wide = table.scan("id = 7", columns=["region"]), table.scan("id = 7")
    assert narrow.to_arrow().num_rows == wide.to_arrow().num_rows == 3
    assert narrow.report is not None
    assert wide.report is not None
    assert 0 < narrow.report.bytes_read < wide.report.bytes_read / 2


def test_a_limit_stops_early(table: tamis.Table) -> None:
    scan = table.scan(columns=["id"], limit=30)
    assert scan.to_arrow()["id"].to_pylist() == list(range(30))
    # The first of the twelve files has enough rows.
    assert scan.report.level("row_groups").total == 5
    assert scan.report.bytes_read < table.scan(columns=["id"]).plan().bytes / 2
    assert table.scan(limit=0).to_arrow().num_rows == 0
    assert table.scan("id < 3", limit=100).count() == 9
    assert table.scan(limit=7).count() == 7


def test_a_small_limit_opens_few_footers(tmp_path: Path) -> None:
    for index in range(200):
        pq.write_table(make_part("eu", index % 4), tmp_path / f"{index:03d}.parquet")
    scan = tamis.open(tmp_path).scan(limit=5)
    assert scan.to_arrow().num_rows == 5
    assert scan.report.level("row_groups").total <= 16


def test_count_reads_no_column_of_fully_matched_row_groups(table: tamis.Table) -> None:
    whole = table.scan("id < 40 AND region <> 'us'")
    assert whole.count() == 80
    assert (whole.report.bytes_read, whole.report.requests) == (0, 0)
    partly = table.scan("id < 45 AND region <> 'us'")
    assert partly.count() == 90
    assert 0 < partly.report.bytes_read < partly.plan().bytes


def test_a_scan_is_an_arrow_stream(table: tamis.Table) -> None:
    scan = table.scan("region = 'us' AND id < 10", columns=["id", "name"])
    assert pa.table(scan).num_rows == 10
    assert polars.DataFrame(scan).shape == (10, 2)
    assert scan.to_polars()["id"].to_list() == list(range(10))
    assert scan.to_pandas()["id"].tolist() == list(range(10))
    with duckdb.connect() as connection:
        relation = scan.to_duckdb(connection)
        assert relation.aggregate("sum(id)").fetchall() == [(45,)]
        assert len(relation.fetchall()) == 10


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_not_installed_is_named(
    library: str, table: tamis.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    scan = table.scan("id < 10", columns=["id"])
    with pytest.raises(MissingDependency, match=rf"to_{library}\(\) needs {library}: pip install 'tamis\[{library}\]'"):
        getattr(scan, f"to_{library}")()


def test_functions_that_only_the_embedded_engine_knows(table: tamis.Table) -> None:
    scan = table.scan("levenshtein(name, 'eu-00007') = 0 AND id % 7 = 0 AND region = 'eu'")
    assert scan.to_arrow()["id"].to_pylist() == [7]
    reasons = [each["unused_because"] for each in scan.report.to_dict()["levels"][-2]["by_predicate"]]
    assert "unknown function: levenshtein" in reasons
    with pytest.raises(EvaluationError, match=r"no function no_such_thing .* \(at: where, character 1\)"):
        table.scan("no_such_thing(name)").to_arrow()


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (None, 1200),
        ("amount IS NULL", 120),
        (col("id") < 10, 30),
        ([col("id") < 10, "region = 'eu'"], 10),
        (PartitionFilter.eq("region", "eu"), 400),
        (PartitionFilter.in_("day", "2024-01-01", "2024-01-02") & ~PartitionFilter.eq("region", "eu"), 400),
        (pa.compute.field("id") < 10, 30),
        ("address.zip.code = 5", 3),
        ("`address`.`city` = 'c1' AND id < 6", 6),
        ("ts < '1970-01-02'", 72),
        ("date(ts) = '1970-01-02' AND region = 'eu'", 24),
        ("date_trunc('day', ts) = TIMESTAMP '1970-01-01 00:00:00'", 72),
        ("day = '2024-01-02 12:00:00'", 0),
        ("day < '2024-01-02 12:00:00'", 600),
        ("region = 'EU'", 0),
        ("FALSE", 0),
        ("NULL", 0),
        ("id > 5 AND id < 3", 0),
        ("NOT (id > 5 AND id < 3)", 1200),
    ],
)
def test_filters_of_every_kind(table: tamis.Table, where: object, count: int) -> None:
    assert table.scan(where).count() == count
    assert table.scan(where).to_arrow().num_rows == count


# --- Errors ---------------------------------------------------------------------------------------------------------


def test_errors_name_the_cause_and_the_remedy(table: tamis.Table) -> None:
    with pytest.raises(UnknownColumn, match=r"no column 'ammount' in orders \(at: where, character 10\).*'amount'"):
        table.scan("TRUE AND ammount = 3")
    with pytest.raises(UnknownColumn, match=r"no column 'nmae' in orders\. Did you mean 'name'\?"):
        table.scan(columns=["nmae"])
    with pytest.raises(UnknownColumn, match=r"no field 'code' in column 'address\.city' of orders.*not a struct"):
        table.scan("address.city.code = 1")
    with pytest.raises(TypeMismatch, match="'soon' is not a valid timestamp"):
        table.scan("ts > 'soon'")
    with pytest.raises(TypeMismatch, match="is a bigint, not a predicate"):
        table.scan("id + 1")
    with pytest.raises(InvalidArgument, match="columns must be a list of names"):
        table.scan(columns="id")
    with pytest.raises(InvalidArgument, match="'id' is listed twice"):
        table.scan(columns=["id", "ID"])
    with pytest.raises(InvalidArgument, match="limit must be a number of rows"):
        table.scan(limit=-1)
    with pytest.raises(InvalidArgument, match="no level 'pges'"):
        table.scan(levels=["pges"])


def test_E2_a_file_that_vanished_after_planning_is_named(tmp_path: Path) -> None:
    for index in range(2):
        pq.write_table(make_part("eu", index), tmp_path / f"{index}.parquet")
    scan = tamis.open(tmp_path).scan("id >= 0", columns=["name"])
    scan.plan()
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(MissingFile, match=r"1\.parquet' is gone"):
        scan.to_arrow()


def test_a_column_of_another_type_in_one_file_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": pa.array(["x"])}), tmp_path / "1.parquet")
    with pytest.raises(
        CorruptFile, match=r"column 'a' of '.*1\.parquet' is a string, which is incompatible with the table's type int"
    ):
        tamis.open(tmp_path).scan().to_arrow()


def test_T11_files_with_narrower_types_missing_and_differently_spelled_columns(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("d", pa.date32())])
    pq.write_table(
        pa.table({"a": [10], "b": [1.5], "d": pa.array([3], pa.date32())}, schema=schema), tmp_path / "0.parquet"
    )
    pq.write_table(
        pa.table({"A": pa.array([5, 6], pa.int32()), "B": pa.array([2.5, 3.5], pa.float32())}), tmp_path / "1.parquet"
    )
    table = tamis.open(tmp_path)
    assert table.scan().to_arrow().schema == schema
    assert table.scan("a < 6").to_arrow().to_pylist() == [{"a": 5, "b": 2.5, "d": None}]
    assert table.scan("b > 3 AND d IS NULL").count() == 1
    assert table.scan("d IS NOT NULL").plan().num_files == 1


# --- Reports --------------------------------------------------------------------------------------------------------


def list_reasons(report: tamis.Report, level: str) -> dict[str, tuple[int, str | None]]:
    found = report.level(level)
    assert found is not None
    return {each.predicate: (each.skipped, each.unused_because) for each in found.by_predicate}


def test_a_report_says_what_each_conjunct_did_at_each_level(table: tamis.Table) -> None:
    where = "region = 'eu' AND id < 150 AND upper(name) = 'X' AND name LIKE '%7' AND amount < 3000 AND tags IS NOT NULL"
    report = table.scan(where).plan().report
    assert list_reasons(table.scan("amount > 300").plan().report, "row_groups") == {
        "amount > 300": (0, "NaN count is unknown, and NaN is larger than every number")
    }
    assert list_reasons(report, "partitions")["region = 'eu'"] == (2, None)
    assert list_reasons(report, "partitions")["id < 150"] == (0, "not a partition column")
    groups = list_reasons(report, "row_groups")
    assert groups["region = 'eu'"] == (0, "fully matched by the file")
    assert groups["id < 150"][0] == 12
    assert groups["upper(name) = 'X'"] == (0, "function on column: upper(name)")
    assert groups["name LIKE '%7'"] == (0, "pattern starts with a wildcard")
    assert groups["amount < 3000"] == (0, "overlaps")
    assert groups["tags IS NOT NULL"] == (0, "no statistics")


def test_a_report_is_plain_json(table: tamis.Table) -> None:
    scan = table.scan("id < 10")
    planned = scan.plan().report.to_dict()
    assert planned["bytes_read"] is None
    assert planned["requests"] is None
    scan.to_arrow()
    report = json.loads(json.dumps(scan.plan().report.to_dict()))
    assert report["bytes_read"] > 0
    assert report["requests"] > 0
    assert report["levels"][-1] == {
        "level": "rows",
        "total": 60,
        "kept": 30,
        "bytes_total": None,
        "bytes_kept": None,
        "rows_total": None,
        "rows_kept": None,
        "by_predicate": [{"predicate": "residual filter", "skipped": 30, "unused_because": None}],
        "note": None,
    }


def test_switched_off_levels_say_so(table: tamis.Table) -> None:
    scan = table.scan("region = 'eu' AND id < 10", levels=[])
    assert scan.to_arrow().num_rows == 10
    assert scan.report.level("partitions").note == "switched off"
    assert scan.report.level("row_groups").kept == 60


def test_explain_is_aligned_text(table: tamis.Table) -> None:
    lines = table.scan("region = 'eu' AND id < 10").explain().splitlines()
    assert lines[0] == "orders (hive) where region = 'eu' AND id < 10"
    widths = {len(line) for line in lines[2:6]}
    assert len(widths) == 1
    assert table.scan().explain().startswith("orders (hive), all rows")


def test_X10_html_escapes_what_comes_from_the_data(tmp_path: Path) -> None:
    pq.write_table(pa.table({"<b>": ["<script>"]}), tmp_path / "a.parquet")
    html = tamis.open(tmp_path).scan("`<b>` = '<script>'")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_dictionary_columns_are_filtered_and_pruned_by_their_values(tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array(["a", "b", "c", "d"]).dictionary_encode(), "n": [1, 2, 3, 4]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=2)
    table = tamis.open(tmp_path)
    assert table.schema.field("k").type == rows.schema.field("k").type
    scan = table.scan("k > 'b'")
    assert len(scan.plan().tasks) == 1
    assert scan.to_arrow()["n"].to_pylist() == [3, 4]
    assert table.scan("k IN ('a', 'd') AND n > 1").to_arrow().to_pylist() == [{"k": "d", "n": 4}]


def test_a_struct_is_not_null_if_a_file_lacks_the_requested_field(tmp_path: Path) -> None:
    pq.write_table(pa.table({"s": [{"a": 1, "b": 2}]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"s": [{"a": 9}, None]}), tmp_path / "b.parquet")
    table = tamis.open(tmp_path)
    assert table.scan(columns=["s.b"]).to_arrow().to_pylist() == [{"s": {"b": 2}}, {"s": {"b": None}}, {"s": None}]
    for levels in ([], ["row_groups"]):
        assert table.scan("s.a = 9", columns=["s.b"], levels=levels).to_arrow().to_pylist() == [{"s": {"b": None}}]


def test_H6_a_file_that_spells_a_column_twice_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"foo": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table([[1], [2]], names=["FOO", "Foo"]), tmp_path / "b.parquet")
    with pytest.raises(CorruptFile, match="'FOO', 'Foo' where the table has 'foo'"):
        tamis.open(tmp_path).scan("foo IS NULL").to_arrow()
    pq.write_table(pa.table([[1], [2]], names=["x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(tamis.TamisError, match="several columns named 'x'"):
        tamis.open(tmp_path)


def test_F7_a_cast_that_fails_on_NaN_is_not_fully_matched(tmp_path: Path) -> None:
    pq.write_table(pa.table({"f": [1.0, float("nan")]}), tmp_path / "a.parquet")
    with pytest.raises(EvaluationError, match="cannot evaluate"):
        tamis.open(tmp_path).scan("CAST(f AS int) >= 0").count()


def test_D24_a_partition_filter_on_a_table_without_partitions_is_an_error(tmp_path: Path) -> None:
    pq.write_table(make_part("eu", 0), tmp_path / "a.parquet")
    table = tamis.open(tmp_path)
    assert table.scan(PartitionFilter.or_()).count() == 0
    assert table.scan(PartitionFilter.and_()).count() == ROWS_PER_FILE
    for where in (PartitionFilter.eq("id", "5"), PartitionFilter.neq("id", "5"), PartitionFilter.in_("id", [])):
        with pytest.raises(UnknownColumn, match=r"no partition column 'id' .*\. Partition columns: none\.$"):
            table.scan(where).count()


def test_partitions_that_a_partition_filter_skips_are_reported(table: tamis.Table) -> None:
    where = PartitionFilter.eq("region", "eu")
    assert list_reasons(table.scan(where).plan(depth="files").report, "partitions") == {
        'partition filter {"op":"eq","column":"region","value":"eu"}': (2, None)
    }
