"""Every type in every file format, evolved schemas, name mappings, and values that files lack."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.parquet.tuning import PRUNE_PAGES
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.source import LEVELS

FORMATS = ("parquet", "orc", "avro")

UUIDS = [bytes(range(16)), b"\xff" * 16, None]
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "bo": ("boolean", pa.bool_(), [True, False, None]),
    "i": ("int", pa.int32(), [-(2**31), 7, None]),
    "lo": ("long", pa.int64(), [2**62, -1, None]),
    "f": ("float", pa.float32(), [0.5, -0.0, None]),
    "d": ("double", pa.float64(), [1e300, float("inf"), None]),
    "de": ("decimal(20,3)", pa.decimal128(20, 3), [Decimal("-1.234"), Decimal("99999999999999999.999"), None]),
    "da": ("date", pa.date32(), [-1, 20000, None]),
    "ti": ("time", pa.time64("us"), [0, 86_399_999_999, None]),
    "ts": ("timestamp", pa.timestamp("us"), [-1, 1_700_000_000_123_456, None]),
    "tz": ("timestamptz", pa.timestamp("us", "UTC"), [-1, 1_700_000_000_123_456, None]),
    "s": ("string", pa.string(), ["", "日本", None]),
    "b": ("binary", pa.binary(), [b"", b"\xff\x00", None]),
    "fi": ("fixed[3]", pa.binary(3), [b"abc", b"\xff\xff\xff", None]),
    "u": ("uuid", pa.binary(16), UUIDS),
    "ns": ("timestamp_ns", pa.timestamp("ns"), [-1, 1_700_000_000_123_456_789, None]),
    "nz": ("timestamptz_ns", pa.timestamp("ns", "UTC"), [-1, 1_700_000_000_123_456_789, None]),
}


def make_table(names: list[str]) -> tuple[list[dict[str, Any]], pa.Table]:
    fields = [field(number, name, COLUMNS[name][0]) for number, name in enumerate(names, 1)]
    return fields, pa.table({name: pa.array(COLUMNS[name][2], COLUMNS[name][1]) for name in names})


def convert_for_format(ending: str, rows: pa.Table) -> pa.Table:
    """Return rows in types that the file format supports, converted as Iceberg writers do."""
    if ending != "orc":
        return rows
    plain = {pa.time64("us"): pa.int64(), pa.binary(3): pa.binary(), pa.binary(16): pa.binary()}
    return pa.table(
        {
            name: column.cast(plain[column.type]) if column.type in plain else column
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        }
    )


@pytest.mark.parametrize("ending", FORMATS)
def test_every_type_is_read_from_every_format(tmp_path: Path, ending: str) -> None:
    fields, rows = make_table(list(COLUMNS))
    table = IcebergFolder(tmp_path, fields, version=3)
    table.commit(table.data_file(f"a.{ending}", convert_for_format(ending, rows), metrics={}))
    opened = tamis.open(tmp_path)
    assert opened.schema.equals(rows.schema)
    assert opened.scan().to_arrow().equals(rows)
    assert opened.scan(columns=["u", "ti"]).to_arrow().equals(rows.select(["u", "ti"]))
    for where, expected in [
        ("ti > TIME'12:00:00'", 1), ("ns IS NULL", 1), ("s = '日本'", 1), ("de < 0", 1), ("u IS NOT NULL", 2),
        ("fi = X'616263'", 1), ("u = X'000102030405060708090A0B0C0D0E0F'", 1),
        ("ts < TIMESTAMP'1970-01-01 00:00:00'", 1),
    ]:  # fmt: skip
        assert opened.scan(where).to_arrow().num_rows == opened.scan(where).count() == expected, where


@pytest.mark.parametrize("transform", ["void", "bucket[7]", "identity"])
def test_S6_uuids_are_compared_with_strings(tmp_path: Path, transform: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "n", "int"), field(2, "u", "uuid")], specs=[[(2, transform, "p")]])
    values = [bytes(16), bytes(range(16)), b"\xff" * 16]
    files = [
        table.data_file(
            f"{n}.parquet", pa.table({"n": pa.array([n], pa.int32()), "u": pa.array([value], pa.binary(16))})
        )
        for n, value in enumerate(values)
    ]
    table.commit(*files)
    opened = tamis.open(tmp_path)
    texts = [str(uuid.UUID(bytes=value)) for value in values]
    for n, spelled in enumerate(texts):
        assert opened.scan(f"u = '{spelled.upper()}'").to_arrow()["n"].to_pylist() == [n]
    assert opened.scan(f"u IN ('{texts[0]}', '{texts[2]}')").count() == 2
    assert opened.scan(f"u > '{texts[1]}'").to_arrow()["n"].to_pylist() == [2]
    assert opened.scan(f"u <> '{texts[1]}'").count() == 2


def test_S6_uuids_with_their_own_type_in_parquet_are_read_and_pruned(tmp_path: Path) -> None:
    values = [number.to_bytes(16, "big") for number in range(1000)]
    table = IcebergFolder(tmp_path, [field(1, "u", "uuid"), field(2, "n", "int")])
    rows = pa.table({"u": pa.array(values, pa.uuid()), "n": pa.array(range(1000), pa.int32())})
    options = {"row_group_size": 200, "max_rows_per_page": 20, "write_page_index": True}
    table.commit(table.data_file("a.parquet", rows, metrics={}, options=options))
    assert pq.read_schema(tmp_path / "data" / "a.parquet").field("u").type == pa.uuid()
    opened = tamis.open(tmp_path, tuning=PRUNE_PAGES)
    scan = opened.scan(f"u = X'{values[777].hex()}'")
    assert scan.to_arrow().to_pydict() == {"u": [values[777]], "n": [777]}
    assert sum(task.row_count for task in opened.scan(f"u = X'{values[777].hex()}'").plan().tasks) == 20


@pytest.mark.parametrize("ending", FORMATS)
def test_I5_T11_renamed_reordered_promoted_dropped_and_added_columns(tmp_path: Path, ending: str) -> None:
    old = [field(1, "a", "int"), field(2, "b", "float"), field(3, "c", "decimal(9,2)"), field(4, "d", "date"),
           field(5, "gone", "string")]  # fmt: skip
    table = IcebergFolder(tmp_path, old, version=3)
    rows = pa.table(
        {
            "a": pa.array([1, 2], pa.int32()),
            "b": pa.array([0.5, 1.5], pa.float32()),
            "c": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
            "d": pa.array([0, -1], pa.date32()),
            "gone": ["x", "y"],
        }
    )
    table.commit(table.data_file(f"a.{ending}", rows))
    table.evolve(
        [field(4, "a", "timestamp"), field(3, "price", "decimal(18,2)"), field(1, "b", "long"),
         field(2, "c", "double"), field(6, "gone", "string")]
    )  # fmt: skip
    opened = tamis.open(tmp_path)
    expected = pa.table(
        {
            "a": pa.array([0, -86_400_000_000], pa.timestamp("us")),
            "price": pa.array([Decimal("1.25"), None], pa.decimal128(18, 2)),
            "b": pa.array([1, 2], pa.int64()),
            "c": pa.array([0.5, 1.5], pa.float64()),
            "gone": pa.nulls(2, pa.string()),
        }
    )
    assert opened.scan().to_arrow().equals(expected)
    assert opened.scan("a < TIMESTAMP'1970-01-01 00:00:00' AND b = 2 AND c = 1.5").count() == 1
    assert opened.scan("a = DATE'1970-01-01' AND price = 1.25").count() == 1
    assert opened.scan("gone = 'x'").count() == 0
    assert opened.scan("gone IS NULL").count() == 2


def test_I5_columns_that_differ_by_case_alone_are_not_mixed_up(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "A", "long")])
    table.commit(table.data_file("a.parquet", pa.table({"A": pa.array([1, 2], pa.int64())})))
    table.evolve([field(1, "A", "long"), field(2, "a", "long")])
    found = tamis.open(tmp_path).scan().to_arrow()
    assert found.to_pydict() == {"A": [1, 2], "a": [None, None]}


def make_name_mapping(*entries: tuple[int | None, list[str]], **inner: list[Any]) -> str:
    found = []
    for number, names in entries:
        entry: dict[str, Any] = {"names": names}
        if number is not None:
            entry["field-id"] = number
        if names[0] in inner:
            entry["fields"] = inner[names[0]]
        found.append(entry)
    return json.dumps(found)


@pytest.mark.parametrize("ending", FORMATS)
def test_I5_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path, ending: str) -> None:
    struct = {"type": "struct", "fields": [field(4, "x", "long"), field(5, "new", "int") | {"initial-default": 3}]}
    fields = [field(1, "key", "long"), field(2, "value", "string"), field(3, "s", struct), field(6, "later", "int")]
    mapping = make_name_mapping(
        (1, ["id", "number"]), (2, ["value", "v"]), (None, ["key"]), (3, ["st"]),
        st=[{"field-id": 4, "names": ["ex"]}],
    )  # fmt: skip
    table = IcebergFolder(tmp_path, fields, version=3, properties={"schema.name-mapping.default": mapping})
    rows = pa.table(
        {
            "number": pa.array([1, 2, 3], pa.int64()),
            "key": ["not", "the", "key"],
            "st": pa.array([{"ex": 1}, None, {"ex": 3}], pa.struct([("ex", pa.int64())])),
            "v": ["a", "b", "c"],
        }
    )
    file = table.data_file(f"a.{ending}", rows, with_ids=False, metrics={})
    table.commit(file)
    expected = {
        "key": [1, 2, 3], "value": ["a", "b", "c"], "s": [{"x": 1, "new": 3}, None, {"x": 3, "new": 3}],
        "later": [None] * 3,
    }  # fmt: skip
    assert tamis.open(tmp_path).scan().to_arrow().to_pydict() == expected
    assert tamis.open(tmp_path).scan("key >= 2 AND s.x = 3").to_arrow()["value"].to_pylist() == ["c"]


@pytest.mark.parametrize("ending", FORMATS)
def test_I5_files_without_ids_and_without_a_mapping_are_an_error(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "a", "long")])
    rows = pa.table({"a": pa.array([1], pa.int64())})
    table.commit(table.data_file(f"a.{ending}", rows, with_ids=False, metrics={}))
    with pytest.raises(CorruptFile, match="has no field ids"):
        tamis.open(tmp_path).scan().to_arrow()


@pytest.mark.parametrize("levels", [(), LEVELS], ids=str)
@pytest.mark.parametrize("ending", FORMATS)
def test_I5_identity_partition_values_fill_columns_that_files_lack(
    tmp_path: Path, ending: str, levels: tuple[str, ...]
) -> None:
    fields = [field(1, "id", "long"), field(2, "region", "string") | {"initial-default": "default"}]
    table = IcebergFolder(tmp_path, fields, specs=[[(2, "identity", "region")]], version=3)
    ids = pa.table({"id": pa.array([1, 2], pa.int64())})
    without = table.data_file(f"a.{ending}", ids, fields=fields[:1], partition=("eu",))
    null = table.data_file(
        f"n.{ending}", pa.table({"id": pa.array([3], pa.int64())}), fields=fields[:1], partition=(None,)
    )
    # The values in a file take precedence over its partition value.
    other = pa.table({"id": pa.array([4], pa.int64()), "region": ["us"]})
    table.commit(without, null, table.data_file(f"b.{ending}", other, partition=("us",)))
    scan = tamis.open(tmp_path).scan(levels=levels)
    assert sorted(zip(*scan.to_arrow().to_pydict().values(), strict=True)) == [
        (1, "eu"),
        (2, "eu"),
        (3, None),
        (4, "us"),
    ]
    for where, expected in [
        ("region = 'eu'", [1, 2]), ("region IS NULL", [3]), ("region > 'eu'", [4]), ("region <> 'eu'", [4]),
        ("region = 'default'", []), ("region = 'eu' AND id = 2", [2]), ("length(region) = 2", [1, 2, 4]),
    ]:  # fmt: skip
        found = tamis.open(tmp_path).scan(where, levels=levels)
        assert sorted(found.to_arrow()["id"].to_pylist()) == expected, where
        assert tamis.open(tmp_path).scan(where, levels=levels).count() == len(expected), where


@pytest.mark.parametrize("levels", [(), LEVELS], ids=str)
def test_files_of_all_formats_in_one_table(tmp_path: Path, levels: tuple[str, ...]) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "s", "string")])
    for number in range(9):
        rows = pa.table({"id": pa.array([number, 100 + number], pa.int64()), "s": [f"s{number}", None]})
        table.commit(table.data_file(f"{number}.{FORMATS[number % 3]}", rows))
    opened = tamis.open(tmp_path)
    assert sorted(opened.scan(levels=levels).to_arrow()["id"].to_pylist()) == [*range(9), *range(100, 109)]
    assert sorted(opened.scan("id % 3 = 1 AND s IS NOT NULL", levels=levels).to_arrow()["id"].to_pylist()) == [1, 4, 7]
    assert opened.scan("id % 3 = 1 AND s IS NOT NULL", levels=levels).count() == 3
    assert opened.scan(levels=levels).count() == 18
    assert opened.scan(levels=levels, limit=5).to_arrow().num_rows == 5
    assert opened.scan("id = 4", levels=levels).plan().report.to_dict()["levels"]


@pytest.mark.parametrize("ending", ["orc", "avro"])
def test_a_row_count_that_differs_from_the_metadata_is_an_error(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")])
    file = table.data_file(f"a.{ending}", pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    table.commit(file.__class__(**{**{name: getattr(file, name) for name in file.__dataclass_fields__}, "rows": 4}))
    with pytest.raises(CorruptFile, match=r"has 3 rows, but the table metadata says 4"):
        tamis.open(tmp_path).scan().to_arrow()


def test_building_an_index_of_an_iceberg_table_is_unsupported(tmp_path: Path) -> None:
    IcebergFolder(tmp_path, [field(1, "id", "long")])
    with pytest.raises(UnsupportedFeature, match="is an Iceberg table, whose manifests have the statistics"):
        tamis.index.build(tmp_path)
    assert not (tmp_path / "_tamis").exists()


@pytest.mark.parametrize("ending", ["orc", "avro"])
def test_damaged_files_are_errors(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")])
    table.commit(table.data_file(f"a.{ending}", pa.table({"id": pa.array(range(1000), pa.int64())})))
    path = tmp_path / "data" / f"a.{ending}"
    content = path.read_bytes()
    for damaged in (b"\0" * len(content), content[: len(content) // 2] + bytes(len(content) - len(content) // 2)):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile, match=rf"a\.{ending}'"):
            tamis.open(tmp_path).scan().to_arrow()
