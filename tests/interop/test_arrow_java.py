"""Columns that Tamis writes to addresses of Arrow Java, in a JVM inside of this process, and Java reads as vectors."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog, add
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis import PartitionFilter

pytestmark = pytest.mark.interop

POM = Path(__file__).parent / "java" / "pom.xml"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

Export = Callable[[list[int], list[int]], int]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The JVM in this process, with Arrow's jars."""
    jpype = pytest.importorskip("jpype", reason="jpype1 is not installed: `make test-interop` installs it")
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("there is no Maven or no Java, and Arrow's jars come from Maven: install both")
    jars = tmp_path_factory.mktemp("jars")
    command = ["mvn", "-q", "-B", "-f", str(POM), COPY, f"-DoutputDirectory={jars}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Maven cannot get the jars of {POM.name}: {(done.stdout + done.stderr).strip()[-300:]}")
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    jpype.startJVM(opened, classpath=[str(jar) for jar in sorted(jars.glob("*.jar"))], convertStrings=True)
    yield jpype
    jpype.shutdownJVM()


def read_in_java(java: Any, export: Export, columns: int) -> dict[str, list[str | None]]:
    """Return what Java sees: structs that Java allocates, filled by Tamis, and imported as one vector each."""
    c_data = java.JPackage("org.apache.arrow.c")
    write = java.JClass("java.lang.String").valueOf
    # Closing it fails if a buffer was not released.
    with java.JClass("org.apache.arrow.memory.RootAllocator")() as allocator:
        arrays = [c_data.ArrowArray.allocateNew(allocator) for _ in range(columns)]
        schemas = [c_data.ArrowSchema.allocateNew(allocator) for _ in range(columns)]
        addresses = [[int(each.memoryAddress()) for each in structs] for structs in (arrays, schemas)]
        rows = export(addresses[0], addresses[1])
        found: dict[str, list[str | None]] = {}
        with c_data.CDataDictionaryProvider() as dictionaries:
            for array, schema in zip(arrays, schemas, strict=True):
                with c_data.Data.importVector(allocator, array, schema, dictionaries) as vector:
                    assert int(vector.getValueCount()) == rows
                    values = [vector.getObject(row) for row in range(rows)]
                    found[str(vector.getField().getName())] = [None if each is None else write(each) for each in values]
                array.close()
                schema.close()
    return found


def to_java_texts(batch: pa.RecordBatch) -> dict[str, list[str | None]]:
    return {name: batch[name].cast(pa.string()).to_pylist() for name in batch.schema.names}


@pytest.mark.parametrize("wanted", [None, PartitionFilter.eq("day", "b"), PartitionFilter.eq("day", "z")])
def test_java_imports_the_columns_of_a_checkpoint_part(
    java: Any, tmp_path: Path, wanted: PartitionFilter | None
) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "string"}, partition_columns=["day"])
    log.commit(
        add("day=a/1.parquet", {"day": "a"}), add("day=b/é.parquet", {"day": "b"}), add("3.parquet", {"day": None})
    )
    log.checkpoint(0)
    (part,) = tamis.delta.snapshot_info(tmp_path).checkpoint_parts

    def export(arrays: list[int], schemas: list[int]) -> int:
        return tamis.delta.read_checkpoint_part_arrow_ffi(tmp_path, part, wanted, arrays, schemas)

    assert read_in_java(java, export, 6) == to_java_texts(tamis.delta.read_checkpoint_part(tmp_path, part, wanted))


def test_java_imports_the_columns_of_a_manifest(java: Any, tmp_path: Path) -> None:
    table = IcebergFolder(
        tmp_path, [field(1, "id", "long"), field(2, "day", "string")], specs=[[(2, "identity", "day")]]
    )
    table.commit(*(table.data_file(f"{day}.parquet", pa.table({"id": [1], "day": [day]})) for day in ("a", "b")))
    (manifest,) = tamis.iceberg.snapshot_info(tmp_path).manifests

    def export(arrays: list[int], schemas: list[int]) -> int:
        return tamis.iceberg.read_manifest_file_arrow_ffi(tmp_path, manifest, None, arrays, schemas)

    assert read_in_java(java, export, 7) == to_java_texts(tamis.iceberg.read_manifest_file(tmp_path, manifest))
