"""Tables that Iceberg on Spark wrote: the same rows as it reads, from no more files than Iceberg itself plans."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.iceberg.spark_tables import TABLES

pytestmark = pytest.mark.interop

JARS = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""For the newest Spark that Iceberg has jars for: in Spark 4.2 they do not load."""

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "builders" / "iceberg" / "on_spark.py"

CASES = [(name, where) for name, table in TABLES.items() for where in table.filters]


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Spark wrote, read and planned, all of it in one run of an interpreter with a Spark of its own."""
    python = Path(os.environ.get("TAMIS_ICEBERG_PYTHON") or ROOT / ".venv-iceberg" / "bin" / "python")
    if not python.exists():
        pytest.skip(f"no {python}: `make test-interop` makes an environment with the Spark of Iceberg's jars")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        pytest.skip("there is no Java, and Spark needs 17 or newer: `make java` says how to get it")
    folder = tmp_path_factory.mktemp("iceberg")
    work = {
        "jars": os.environ.get("TAMIS_ICEBERG_JARS") or JARS,
        "warehouse": str(folder / "warehouse"),
        "rows": str(folder / "rows"),
        "tables": {name: {"statements": table.statements, "filters": table.filters} for name, table in TABLES.items()},
    }
    (folder / "work.json").write_text(json.dumps(work))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    command = [str(python), str(PROGRAM), str(folder / "work.json"), str(folder / "answers.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode and "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip(f"{work['jars']} cannot be had: Maven cannot be reached or does not have it")
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((folder / "answers.json").read_text())
    assert isinstance(found, dict)
    return found


def rows_of(table: pa.Table) -> Counter[str]:
    names = sorted(table.column_names)
    return Counter(repr(row) for row in table.select(names).to_pylist())


def read_rows(folder: str) -> Counter[str]:
    """The rows that Spark put into a folder; it left out the file where there were none."""
    return rows_of(pq.read_table(folder))


@pytest.mark.parametrize(("name", "where"), CASES)
def test_same_rows_as_spark(answers: dict[str, Any], name: str, where: str) -> None:
    found = tamis.open(answers[name]["location"]).scan(where)
    expected = read_rows(answers[name]["filters"][where]["rows"])
    assert rows_of(found.to_arrow()) == expected
    assert tamis.open(answers[name]["location"]).scan(where).count() == expected.total()


@pytest.mark.parametrize(
    ("name", "where"), [case for case in CASES if case[1] not in TABLES[case[0]].iceberg_is_bolder]
)
def test_no_more_files_than_iceberg_plans(answers: dict[str, Any], name: str, where: str) -> None:
    plan = tamis.open(answers[name]["location"]).scan(where).plan("files")
    assert plan.num_files <= answers[name]["filters"][where]["files"]


@pytest.mark.parametrize("name", TABLES)
def test_I8_every_snapshot_branch_and_tag_is_that_of_spark(answers: dict[str, Any], name: str) -> None:
    location = answers[name]["location"]
    for snapshot, rows in answers[name]["snapshots"].items():
        assert rows_of(tamis.open(location, snapshot_id=int(snapshot)).scan().to_arrow()) == read_rows(rows), snapshot
    for ref, rows in answers[name]["refs"].items():
        assert rows_of(tamis.open(location, ref=ref).scan().to_arrow()) == read_rows(rows), ref


@pytest.mark.parametrize("name", TABLES)
def test_same_schema_as_spark(answers: dict[str, Any], name: str) -> None:
    given = tamis.open(answers[name]["location"]).schema
    expected = pq.read_table(answers[name]["filters"]["true"]["rows"]).schema
    assert given.names == expected.names
    for own, other in zip(given, expected, strict=True):
        if not pa.types.is_nested(own.type):
            assert own.type == other.type, own


def test_I10_tables_that_were_moved_have_the_same_rows(answers: dict[str, Any], tmp_path: Path) -> None:
    for name in ("by_bucket_and_month_v3", "unpartitioned_v2", "evolved_v2"):
        moved = shutil.copytree(answers[name]["location"], tmp_path / name)
        shutil.move(answers[name]["location"], f"{answers[name]['location']}-away")
        try:
            found = rows_of(tamis.open(moved).scan().to_arrow())
        finally:
            shutil.move(f"{answers[name]['location']}-away", answers[name]["location"])
        assert found == read_rows(answers[name]["filters"]["true"]["rows"]), name
