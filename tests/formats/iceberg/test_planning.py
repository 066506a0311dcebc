"""Scan planning over manifests: what each level skips, under which spec, its metrics, and in which process."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from datetime import date, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.iceberg.avro_files import write_avro
from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.edits import edit_manifest_list
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis.engines.jobs import LocalEngine
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.files.avro import open_avro
from tamis.formats.iceberg.metadata.open_metadata import open_location
from tamis.formats.iceberg.planning.manifest_files import MAX_FILES_PER_GROUP, Manifest, group_manifests
from tamis.formats.iceberg.table import IcebergTable
from tamis.formats.jobs import SPARK, Planning
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.scan.scan import get_planner
from tamis.skipping.metrics import LevelReport

FIELDS = [field(1, "id", "long"), field(2, "x", "int"), field(3, "s", "string"), field(4, "f", "double")]
OUR_LEVELS = ("partitions", "manifests", "files")


def make_rows(*ids: int, x: int | None = 0, s: str | None = "a", f: float | None = 1.0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([x] * len(ids), pa.int32()),
            "s": pa.array([s] * len(ids), pa.string()),
            "f": pa.array([f] * len(ids), pa.float64()),
        }
    )


def write_table_by(
    tmp_path: Path, spec: list[tuple[int, str, str]], values: list[dict[str, Any]], **options: Any
) -> IcebergFolder:
    """Write one file, and one manifest, for each value of the columns."""
    table = IcebergFolder(tmp_path, FIELDS, specs=[spec], **options)
    for number, value in enumerate(values):
        table.commit(table.data_file(f"{number}.parquet", make_rows(number, **value)))
    return table


def plan_files(folder: Path, where: str | None, levels: tuple[str, ...] = LEVELS) -> set[str]:
    plan = tamis.open(folder).scan(where, levels=levels).plan("files")
    return {Path(path).stem for path in plan.files["path"].to_pylist()}


def report_level(folder: Path, where: str, name: str, levels: tuple[str, ...] = LEVELS) -> LevelReport:
    found = tamis.open(folder).scan(where, levels=levels).plan("files").report.level(name)
    assert found is not None
    return found


# --- Levels -----------------------------------------------------------------------------------------------------------


def test_O1_every_subset_of_levels_gives_the_same_rows(tmp_path: Path) -> None:
    write_table_by(
        tmp_path, [(2, "bucket[3]", "xb"), (3, "truncate[2]", "st")], [{"x": n, "s": f"ab{n}"} for n in range(6)]
    )
    opened = tamis.open(tmp_path)
    for where in ("x = 3", "x IN (1, 2) OR s = 'ab4'", "s LIKE 'ab%' AND NOT x = 5", "id > 3 AND s LIKE 'abc%'"):
        expected = sorted(opened.scan(where, levels=()).to_arrow()["id"].to_pylist())
        for size in range(len(OUR_LEVELS) + 1):
            for levels in combinations(OUR_LEVELS, size):
                scan = opened.scan(where, levels=levels)
                assert sorted(scan.to_arrow()["id"].to_pylist()) == expected, (where, levels)
                assert opened.scan(where, levels=levels).count() == len(expected)


def test_a_level_that_is_switched_off_prunes_nothing(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": n} for n in range(4)])
    assert plan_files(tmp_path, "x = 2") == {"2"}
    assert plan_files(tmp_path, "x = 2", ("partitions",)) == {"2"}
    assert plan_files(tmp_path, "x = 2", ("manifests",)) == {"2"}
    assert plan_files(tmp_path, "x = 2", ("files",)) == {"2"}
    assert plan_files(tmp_path, "x = 2", ()) == {"0", "1", "2", "3"}
    for name in OUR_LEVELS:
        off = report_level(tmp_path, "x = 2", name, ())
        assert (off.note, off.total, off.kept, off.by_predicate) == ("switched off", 4, 4, ())


def test_the_metrics_of_manifests_and_of_their_files(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, specs=[[(2, "identity", "x")]])
    for number in range(3):
        files = [table.data_file(f"{number}-{n}.parquet", make_rows(10 * number + n, x=number)) for n in range(4)]
        table.commit(*files)
    sizes = [each.listed["manifest_length"] for each in table.snapshots[-1].manifests]
    manifests = report_level(tmp_path, "x = 1 AND id = 12", "manifests")
    assert (manifests.total, manifests.kept) == (3, 1)
    assert manifests.bytes_total == sum(sizes)
    assert manifests.bytes_kept in sizes
    assert [(each.predicate, each.skipped, each.unused_because) for each in manifests.by_predicate] == [
        ("x = 1", 2, None),
        ("id = 12", 0, "not a partition column"),
    ]
    partitions = report_level(tmp_path, "x = 1 AND id = 12", "partitions")
    assert (partitions.total, partitions.kept) == (12, 4)
    assert [each.skipped for each in partitions.by_predicate] == [8, 0]
    files = report_level(tmp_path, "x = 1 AND id = 12", "files")
    assert (files.total, files.kept, files.rows_kept) == (4, 1, 1)
    assert [each.skipped for each in files.by_predicate] == [0, 3]


def test_manifests_without_live_files_are_not_read(tmp_path: Path) -> None:
    table = write_table_by(tmp_path, [], [{"x": 1}, {"x": 2}])
    table.commit(removed=[table.path_of("0.parquet")], operation="delete")
    emptied = next(
        each
        for each in table.snapshots[-1].manifests
        if not each.listed["added_files_count"] + each.listed["existing_files_count"]
    )
    Path(emptied.listed["manifest_path"]).unlink()
    assert plan_files(tmp_path, None) == {"1"}


def test_files_fully_matched_by_partition_values_are_counted_without_reading(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": n} for n in range(3)])
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    assert tamis.open(tmp_path).scan("x >= 1").count() == 2
    assert tamis.open(tmp_path).scan().count() == 3


def test_a_limit_selects_files_with_enough_rows(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": 0}, {"x": 1}, {"x": 1}])
    assert tamis.open(tmp_path).scan("x = 1", limit=1).plan("files").num_files == 1
    assert tamis.open(tmp_path).scan("x = 1 AND id = 2", limit=1).plan("files").num_files == 1
    assert tamis.open(tmp_path).scan(limit=2).plan("files").num_files == 2


# --- Specs ------------------------------------------------------------------------------------------------------------


def test_I1_each_manifest_is_pruned_under_its_own_spec(tmp_path: Path) -> None:
    specs = [[(2, "identity", "x")], [(2, "void", "x"), (2, "bucket[4]", "xb")], [(3, "truncate[1]", "s1")]]
    table = IcebergFolder(tmp_path, FIELDS, specs=specs)
    for number in range(4):
        for spec in range(3):
            table.commit(
                table.data_file(
                    f"{spec}-{number}.parquet", make_rows(number, x=number, s=f"{number}s"), spec=spec, metrics={}
                )
            )
    assert plan_files(tmp_path, "x = 2") >= {"0-2", "1-2", "2-0", "2-1", "2-2", "2-3"}
    assert not plan_files(tmp_path, "x = 2") & {"0-0", "0-1", "0-3"}
    assert len({each for each in plan_files(tmp_path, "x = 2") if each.startswith("1-")}) < 4
    assert plan_files(tmp_path, "s = '3s'") == {f"{spec}-{n}" for spec in (0, 1) for n in range(4)} | {"2-3"}
    assert sorted(tamis.open(tmp_path).scan("x = 2").to_arrow()["id"].to_pylist()) == [2, 2, 2]


def test_I2_an_unknown_transform_keeps_every_file(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "bucket[4]", "xb")], [{"x": n} for n in range(4)])
    for path in (tmp_path / "metadata").glob("*.json"):
        path.write_text(path.read_text().replace("bucket[4]", "shuffle[4]"))
    assert plan_files(tmp_path, "x = 2", ("partitions", "manifests")) == {"0", "1", "2", "3"}


def test_I4_a_list_of_two_hundred_values_still_prunes(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": n * 1000} for n in range(6)])
    items = ", ".join(str(n) for n in range(1, 400) if n % 7)
    assert plan_files(tmp_path, f"x IN ({items}, 3000)", ("partitions",)) == {"3"}
    assert plan_files(tmp_path, f"x IN ({items}, 3000)", ("manifests",)) == {"3"}
    assert plan_files(tmp_path, f"x IN ({items}, 3000)", ("files",)) == {"3"}


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("s LIKE 'ab%'", {"0", "1"}),
        ("s NOT LIKE 'ab%'", {"2", "3"}),
        ("NOT startswith(s, 'a')", {"3"}),
        ("s LIKE 'abc%'", {"0", "1"}),
        ("s NOT LIKE 'abc%'", {"0", "1", "2", "3"}),
        ("s IS NULL", {"4"}),
        ("NOT (s LIKE 'ab%' OR s LIKE 'ba%')", {"2"}),
        ("s <=> NULL", {"4"}),
    ],
)
def test_I11_prefixes_of_truncated_strings(tmp_path: Path, where: str, kept: set[str]) -> None:
    values = [{"s": text} for text in ("abc", "ab", "a", "bad", None)]
    write_table_by(tmp_path, [(3, "truncate[2]", "s2")], values)
    assert plan_files(tmp_path, where, ("partitions",)) == kept
    assert plan_files(tmp_path, where, ("manifests",)) == kept
    expected = tamis.open(tmp_path).scan(where, levels=()).to_arrow()["id"].to_pylist()
    assert sorted(tamis.open(tmp_path).scan(where).to_arrow()["id"].to_pylist()) == sorted(expected)


def test_I11_a_truncated_prefix_is_fully_matched(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(3, "truncate[2]", "s2")], [{"s": "abc"}, {"s": "abd"}, {"s": "b"}])
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    assert tamis.open(tmp_path).scan("s LIKE 'ab%'", levels=("partitions",)).count() == 2


def test_bounds_of_struct_fields_and_promoted_columns(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "st", [field(3, "k", "int")])])
    for number in range(3):
        data = pa.table({"id": [number], "st": pa.array([{"k": number}], pa.struct([("k", pa.int32())]))})
        table.commit(table.data_file(f"{number}.parquet", data))
    table.evolve([field(1, "id", "long"), field(2, "st", [field(3, "k", "long")])])
    assert plan_files(tmp_path, "st.k >= 2", ("files",)) == {"2"}


def test_F2_nan_bounds_are_ignored(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    nan = bytes(np.array([np.nan], "<f8").tobytes())
    one = bytes(np.array([1.0], "<f8").tobytes())
    metrics = {"lower_bounds": {4: one}, "upper_bounds": {4: nan}}
    table.commit(table.data_file("0.parquet", make_rows(0, f=7.0), metrics=metrics))
    table.commit(
        table.data_file("1.parquet", make_rows(1, f=1.0), metrics={"lower_bounds": {4: one}, "upper_bounds": {4: one}})
    )
    assert plan_files(tmp_path, "f = 7") == {"0"}
    # NaN is larger than every number, and the NaN count is unknown.
    assert plan_files(tmp_path, "f > 7") == {"0", "1"}


def test_T10_inverted_bounds_are_ignored(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    metrics = {"lower_bounds": {2: b"\x09\0\0\0"}, "upper_bounds": {2: b"\x01\0\0\0"}}
    table.commit(table.data_file("0.parquet", make_rows(0, x=5), metrics=metrics))
    assert plan_files(tmp_path, "x = 5") == plan_files(tmp_path, "x = 50") == {"0"}


def test_I12_partition_tuples_that_differ_from_the_spec_are_an_error(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": 1}])
    for path in (tmp_path / "metadata").glob("*.json"):
        text = path.read_text()
        more = ', {"source-id": 3, "field-id": 1001, "name": "s", "transform": "identity"}]'
        path.write_text(text.replace('"transform": "identity"}]', '"transform": "identity"}' + more))
    for levels in (LEVELS, ("partitions",)):
        with pytest.raises(CorruptFile, match=r"partition tuples with the fields \[1000\].*has \[1000, 1001\]"):
            plan_files(tmp_path, "x = 1", levels)


def test_I13_summaries_with_another_number_of_fields_prune_no_manifest(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": 1}, {"x": 2}])
    path = max((tmp_path / "metadata").glob("v*.metadata.json"), key=lambda each: int(each.name[1:].split(".")[0]))
    edit_manifest_list(path, lambda row: row | {"partitions": row["partitions"] * 2})
    for where, rows in (("x = 1", 1), ("x = 2", 1), ("x = 3", 0)):
        assert tamis.open(tmp_path).scan(where).to_arrow().num_rows == rows


def test_partition_fields_without_ids_are_matched_by_name(tmp_path: Path) -> None:
    table = write_table_by(
        tmp_path, [(2, "identity", "x"), (3, "identity", "s")], [{"x": 1, "s": "a"}, {"x": 2, "s": "b"}]
    )
    for each in table.snapshots[-1].manifests:
        path = Path(each.listed["manifest_path"])
        file = open_avro(path.read_bytes(), str(path))
        schema = json.loads(file.metadata["avro.schema"])
        tuples = next(own for own in schema["fields"][-1]["type"]["fields"] if own["name"] == "partition")
        for own in tuples["type"]["fields"]:
            del own["field-id"]
        metadata = {name: value.decode() for name, value in file.metadata.items() if not name.startswith("avro.")}
        # The manifest list records the size of the manifest, so the size must not change.
        size = path.stat().st_size
        write_avro(path, schema, list(fastavro.reader(io.BytesIO(path.read_bytes()))), metadata, codec="null")
        assert path.stat().st_size != size
    for path in (tmp_path / "metadata").glob("snap-*.avro"):
        _correct_sizes(path)
    assert plan_files(tmp_path, "x = 2 AND s = 'b'", ("partitions",)) == {"1"}


def _correct_sizes(path: Path) -> None:
    """Correct the lengths of manifests in a manifest list."""
    file = open_avro(path.read_bytes(), str(path))
    rows = list(fastavro.reader(io.BytesIO(path.read_bytes())))
    for row in rows:
        row["manifest_length"] = Path(row["manifest_path"]).stat().st_size
    write_avro(path, json.loads(file.metadata["avro.schema"]), rows, {})


def test_a_manifest_of_an_unknown_spec(tmp_path: Path) -> None:
    write_table_by(tmp_path, [(2, "identity", "x")], [{"x": 1}])
    for path in (tmp_path / "metadata").glob("*.json"):
        path.write_text(
            path.read_text()
            .replace('"spec-id": 0', '"spec-id": 7')
            .replace('"default-spec-id": 0', '"default-spec-id": 7')
        )
    with pytest.raises(CorruptFile, match="partition spec 0, which the table metadata lacks"):
        plan_files(tmp_path, "x = 1")


# --- Deletes ----------------------------------------------------------------------------------------------------------


def list_files(folder: Path, where: str | None = None) -> list[tuple[str, list[tuple[str, int]] | None, int | None]]:
    source = tamis.open(folder)._source
    scan = tamis.open(folder).scan(where)
    listing = source.list_files(get_planner(scan).predicate, LEVELS)
    assert listing.rows is not None
    found = zip(
        listing.files["path"].to_pylist(), listing.files["deletes"].to_pylist(), listing.rows.to_pylist(), strict=True
    )
    return [
        (Path(path).stem, None if own is None else [(Path(each["path"]).name, each["content"]) for each in own], count)
        for path, own, count in found
    ]


def test_I6_deletes_are_listed_with_the_kept_files(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, specs=[[(2, "identity", "x")]], version=3)
    files = {
        number: table.data_file(f"{number}.parquet", make_rows(number, number + 10, x=number)) for number in range(3)
    }
    table.commit(*files.values())
    table.commit(position_deletes(table, "p.parquet", [(files[0].path, 0)], spec=0, partition=(0,)))
    table.commit(equality_deletes(table, "e.parquet", make_rows(1).select(["id"]), spec=0, partition=(1,)))
    table.commit(*deletion_vectors(table, "v.puffin", {files[2].path: [1]}, {files[2].path: files[2]}))
    found = {name: (deletes, count) for name, deletes, count in list_files(tmp_path)}
    assert found == {
        "0": ([("p.parquet", 1)], None),
        "1": ([("e.parquet", 2)], None),
        "2": ([("v.puffin", 1)], 1),
    }
    assert [name for name, _, _ in list_files(tmp_path, "x = 2")] == ["2"]
    # The delete applies even though the filter is about other rows.
    assert list_files(tmp_path, "x = 1 AND id = 11") == [("1", [("e.parquet", 2)], None)]


# --- Parts and engines ------------------------------------------------------------------------------------------------


def test_small_manifests_of_one_spec_are_read_together() -> None:
    small = [Manifest(f"m{n}", 10, n % 2, 0, None, 5) for n in range(6)]
    large = Manifest("l", 10, 0, 0, None, MAX_FILES_PER_GROUP)
    uncounted = Manifest("u", 10, 0, 0, None, None)
    found = group_manifests([*small, large, uncounted])
    assert [[each.path for each in part] for part in found] == [["m0", "m2", "m4"], ["l"], ["u"], ["m1", "m3", "m5"]]
    assert group_manifests([]) == []


@pytest.mark.parametrize("where", [None, "x = 2", "x > 1 AND s LIKE 'a%'", "id = 3 OR f > 100"])
def test_O8_an_engine_plans_the_same_files(tmp_path: Path, where: str | None) -> None:
    table = IcebergFolder(
        tmp_path, FIELDS, specs=[[(2, "identity", "x"), (3, "truncate[1]", "s1")], [(4, "void", "f")]]
    )
    files = [table.data_file(f"{n}.parquet", make_rows(n, n + 5, x=n, s="ab"), spec=0) for n in range(4)]
    table.commit(*files)
    table.commit(*(table.data_file(f"o{n}.parquet", make_rows(n, x=n), spec=1) for n in range(3)))
    table.commit(equality_deletes(table, "e.parquet", make_rows(7).select(["id"]), spec=1, partition=(None,)))
    opened = open_location(open_storage(tmp_path))
    here = IcebergTable.open(opened)
    there = IcebergTable.open(opened, planning=Planning(LocalEngine(), SPARK))
    predicate = get_planner(tamis.open(tmp_path).scan(where)).predicate
    one, other = here.list_files(predicate, LEVELS), there.list_files(predicate, LEVELS)
    assert one.files.equals(other.files)
    assert one.rows is not None
    assert one.rows.equals(other.rows)
    assert one.fully_matched is not None
    assert other.fully_matched is not None
    assert one.fully_matched.tolist() == other.fully_matched.tolist()
    assert [each.to_dict() for each in one.levels] == [each.to_dict() for each in other.levels]


def test_a_partition_filter_compares_partition_values_as_text(tmp_path: Path) -> None:
    write_table_by(
        tmp_path, [(2, "identity", "x"), (3, "truncate[1]", "s1")], [{"x": n, "s": f"{n}s"} for n in range(4)]
    )
    scan = tamis.open(tmp_path).scan(tamis.PartitionFilter.eq("s1", "2"))
    assert scan.to_arrow()["id"].to_pylist() == [2]
    assert scan.plan("files").num_files == 1


def test_the_files_of_a_table_have_their_partition_values(tmp_path: Path) -> None:
    write_table_by(
        tmp_path, [(2, "bucket[4]", "xb"), (3, "identity", "s")], [{"x": 1, "s": "é"}, {"x": None, "s": None}]
    )
    found = tamis.open(tmp_path).files().sort_by("path")
    assert tamis.open(tmp_path).partition_columns == ("xb", "s")
    assert found.column_names == ["path", "size", "num_records", "modified", "xb", "s"]
    assert (found["xb"].to_pylist(), found["s"].to_pylist()) == ([0, None], ["é", None])
    assert (found.schema.field("xb").type, found.schema.field("s").type) == (pa.int32(), pa.string())


def test_partition_values_of_files_have_the_types_of_their_transforms(tmp_path: Path) -> None:
    specs = [[(1, "day", "at_day"), (1, "month", "at_month"), (1, "year", "at_year"), (2, "identity", "own")]]
    table = IcebergFolder(tmp_path, [field(1, "at", "timestamp"), field(2, "n", "int")], specs=specs)
    rows = pa.table({"at": pa.array([datetime(2024, 3, 1, 5)], pa.timestamp("us")), "n": pa.array([7], pa.int32())})
    table.commit(table.data_file("0.parquet", rows))
    opened = tamis.open(tmp_path)
    assert opened.partition_columns == ("at_day", "at_month", "at_year", "n")
    values = {"at_day": date(2024, 3, 1), "at_month": "2024-03", "at_year": 2024, "n": 7}
    for files in (opened.files(), opened.scan("n = 7").plan("files").files, opened.scan("n = 7").plan().files):
        assert files.select(list(values)).to_pylist() == [values]


def test_other_formats_reject_iceberg_options(tmp_path: Path) -> None:
    write_table_by(tmp_path, [], [{"x": 1}])
    with pytest.raises(UnsupportedFeature, match="partitioning= was given, which an Iceberg table does not have"):
        tamis.open(tmp_path, partitioning={"x": "int"})


# --- Damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    table = write_table_by(folder, [(2, "identity", "x"), (3, "truncate[1]", "s1")], [{"x": 1}, {"x": 2}], codec="null")
    table.commit(equality_deletes(table, "e.parquet", make_rows(0).select(["id"]), partition=(1, "a")))
    return folder


@given(st.data())
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_X6_damaged_manifests_give_a_plan_or_a_tamis_error(whole_table: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted((whole_table / "metadata").glob("*.avro"))))
    content = path.read_bytes()
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    try:
        for plan in (
            lambda: plan_files(whole_table, "id = 1 AND x = 1 AND s LIKE 'a%'"),
            lambda: tamis.open(whole_table).files(),
            lambda: tamis.iceberg.list_files(whole_table),
        ):
            with suppress(tamis.TamisError):
                plan()
    finally:
        path.write_bytes(content)
    assert plan_files(whole_table, "x = 1") == {"0"}
