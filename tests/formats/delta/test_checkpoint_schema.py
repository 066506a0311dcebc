"""Checkpoints with an invalid schema: skipped, or an error that names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from tamis import PartitionFilter
from tamis.errors import CorruptFile
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE

ODD = {
    "int": (pa.int32(), 7),
    "text": (pa.string(), "x"),
    "list": (pa.list_(pa.int64()), [1]),
    "bytes": (pa.binary(), b"\xff\xfe"),
    "map": (pa.map_(pa.string(), pa.int32()), [("day", 1)]),
    "struct": (pa.struct([("q", pa.int32())]), {"q": 1}),
}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    FILE_BATCH_CACHE.clear()
    log = DeltaLog(tmp_path, {"id": "long", "day": "string"}, partition_columns=["day"])
    log.commit(data_file(log, "1.parquet", pa.table({"id": pa.array([1, 2, 3], pa.int64())}), {"day": "a"}))
    return log


def replace_column(checkpoint: Path, path: tuple[str, ...], kind: str) -> None:
    """Rewrite a checkpoint with one of its columns, or a new one, of another type."""
    data_type, value = ODD[kind]
    given = pq.read_table(checkpoint)
    action, *inner = path
    rows: list[Any] = given[action].to_pylist()
    if not inner:
        column = pa.array([None if row is None else value for row in rows], data_type)
    else:
        (name,) = inner
        fields = [each for each in given.schema.field(action).type if each.name != name]
        others = [None if row is None else {**row, name: value} for row in rows]
        column = pa.array(others, pa.struct([*fields, pa.field(name, data_type)]))
    pq.write_table(given.set_column(given.schema.get_field_index(action), action, column), checkpoint)


READERS: dict[str, Callable[[Path, Path], object]] = {
    "rows": lambda table, _: tamis.open(table).scan().to_arrow(),
    "rows of a filter": lambda table, _: tamis.open(table).scan("id > 1 AND day = 'a'").to_arrow(),
    "files": lambda table, _: tamis.delta.list_files(table, filter=PartitionFilter.eq("day", "a")),
    "part": lambda table, part: tamis.delta.read_checkpoint_part(table, f"_delta_log/{part.name}"),
}

ACTIONS = [("add",), ("metaData",), ("protocol",)]
PARTS = [("add", name) for name in ("deletionVector", "partitionValues", "partitionValues_parsed", "stats_parsed")]


@pytest.mark.parametrize("kind", ["int", "text", "list", "map"])
@pytest.mark.parametrize("path", [*ACTIONS, *PARTS], ids=".".join)
def test_D12_a_checkpoint_with_an_invalid_schema_is_skipped(log: DeltaLog, path: tuple[str, ...], kind: str) -> None:
    (checkpoint,) = log.checkpoint(0)
    if path == ("add", "partitionValues") and kind == "map":
        kind = "struct"
    replace_column(checkpoint, path, kind)
    assert tamis.open(log.table).scan("id > 1").count() == 2
    log.path(0).unlink()
    for read in READERS.values():
        with pytest.raises(CorruptFile, match=rf"{checkpoint.name}' has the column {'.'.join(path)} of type"):
            read(log.table, checkpoint)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("path", "list"), ("path", "bytes"), ("size", "text"), ("size", "list"), ("partitionValues", "map")],
)
def test_X3_checkpoint_values_that_do_not_convert_are_an_error(log: DeltaLog, name: str, kind: str) -> None:
    (checkpoint,) = log.checkpoint(0)
    log.path(0).unlink()
    replace_column(checkpoint, ("add", name), kind)
    if (name, kind) == ("partitionValues", "map"):
        # Numbers convert to strings.
        assert tamis.open(log.table).scan().to_arrow()["day"].to_pylist() == ["1", "1", "1"]
        return
    with pytest.raises(
        CorruptFile, match=rf"{checkpoint.name}' has values that do not convert to the type of an action"
    ):
        tamis.open(log.table).scan().to_arrow()


@pytest.mark.parametrize(("name", "kind"), [("format", "int"), ("format", "text"), ("partitionColumns", "int")])
def test_X8_metadata_of_a_checkpoint_of_another_type_is_an_error(log: DeltaLog, name: str, kind: str) -> None:
    (checkpoint,) = log.checkpoint(0)
    log.path(0).unlink()
    replace_column(checkpoint, ("metaData", name), kind)
    with pytest.raises(CorruptFile, match=f"the {name} of the Delta table"):
        tamis.open(log.table)


def test_a_sidecar_with_an_invalid_schema_is_an_error(log: DeltaLog) -> None:
    top, sidecar = log.checkpoint(0, sidecars=1, top="json")
    log.path(0).unlink()
    size = sidecar.stat().st_size
    replace_column(sidecar, ("add", "deletionVector"), "text")
    top.write_text(top.read_text().replace(f'"sizeInBytes":{size}', f'"sizeInBytes":{sidecar.stat().st_size}'))
    with pytest.raises(CorruptFile, match=rf"{sidecar.name}' has the column add\.deletionVector of type string"):
        tamis.open(log.table).scan().to_arrow()
