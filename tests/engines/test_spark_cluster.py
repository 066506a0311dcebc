"""Jobs on a standalone cluster of two workers: executors share nothing with the driver but the files of tables."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.iceberg.deletes import equality_deletes, position_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from test_examples import EXAMPLES, check_pipeline

pytestmark = pytest.mark.interop

DEADLINE = 120
"""Seconds that a worker may take to register."""

QUERIES = [
    "SELECT count(*) AS n, max(id) AS top FROM t WHERE id > 150",
    "SELECT x, count(*) AS n FROM t GROUP BY x ORDER BY x",
    "SELECT id, x FROM t WHERE x = 3 ORDER BY id DESC LIMIT 5",
]

JOB = """
import json, sys
from pyspark.sql import SparkSession
import tamis

spark = SparkSession.builder.getOrCreate()
answers = {}
for path in sys.argv[2:]:
    c = tamis.connect(spark=spark, planning="spark")
    c.register("t", c.open(path))
    scanned = {}
    for reader in ("auto", "arrow"):
        scan = c.open(path).scan("id BETWEEN 40 AND 260", ["id", "x"])
        scanned[reader] = sorted([row.id, row.x] for row in scan.to_spark(spark, reader=reader).collect())
    queries = [[list(row) for row in c.sql(query).collect()] for query in json.loads(sys.argv[1])]
    index = tamis.index.build(path, engine=spark, location=path + "-index").files if "delta" in path else 0
    answers[path] = {"scan": scanned, "queries": queries, "indexed": index}
pids = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("os").getppid()).distinct().count()
print(json.dumps({"answers": answers, "processes": pids}))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tamis[spark]'")
    if shutil.which("java") is None:
        pytest.skip("there is no Java, and Spark needs 17 or newer: `make java` says how to get it")
    home, folder = Path(pyspark.__path__[0]), tmp_path_factory.mktemp("cluster")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    host = ("--host", "127.0.0.1")
    with ExitStack() as started:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *host, *arguments]
            with log.open("w") as text:
                process = subprocess.Popen(command, stdout=text, stderr=text, env=environment)
            started.callback(process.wait, 30)
            started.callback(process.terminate)
            return log

        master = start("master.Master", "--port", str(port), "--webui-port", "0")
        wait_for(master, "Starting Spark master")
        for number in range(2):
            options = ("-c", "1", "-m", "1g", "-d", str(folder / str(number)), "--webui-port", "0", url)
            wait_for(start("worker.Worker", *options), "Successfully registered with master")
        yield url


def wait_for(log: Path, text: str) -> None:
    end = time.monotonic() + DEADLINE
    while text not in log.read_text():
        assert time.monotonic() < end, f"no {text!r} in {DEADLINE} s: {log.read_text()[-2000:]}"
        time.sleep(0.2)


def submit(cluster: str, program: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "pyspark.find_spark_home"]
    home = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run(
        [f"{home}/bin/spark-submit", "--master", cluster, *options, str(program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def make_rows(number: int) -> pa.Table:
    ids = range(number * 100, (number + 1) * 100)
    return pa.table({"id": ids, "x": [each % 7 for each in ids]})


def write_delta(folder: Path) -> None:
    columns = {"id": "long", "x": "long", "p": "string"}
    log = DeltaLog(folder, columns, partition_columns=["p"], features=["deletionVectors"])
    files = [
        data_file(log, f"p={number}/{number}.parquet", make_rows(number), {"p": str(number)}, deleted=deleted)
        for number, deleted in enumerate([(0, 5), (), (50, 99)])
    ]
    log.commit(*files)


def write_iceberg(folder: Path) -> None:
    table = IcebergFolder(folder, [field(1, "id", "long"), field(2, "x", "long")])
    files = [table.data_file(f"{number}.parquet", make_rows(number)) for number in range(3)]
    table.commit(*files)
    table.commit(position_deletes(table, "p.parquet", [(files[0].path, 50), (files[2].path, 7)]))
    table.commit(equality_deletes(table, "e.parquet", pa.table({"id": [160, 201]})))


def test_O8_queries_on_a_cluster_have_the_local_rows(cluster: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("delta", "iceberg")]
    write_delta(tmp_path / "delta")
    write_iceberg(tmp_path / "iceberg")
    program = tmp_path / "job.py"
    program.write_text(JOB)
    found = json.loads(submit(cluster, program, json.dumps(QUERIES), *paths).splitlines()[-1])
    assert found["processes"] == 2
    for path in paths:
        local = tamis.connect()
        local.register("t", local.open(path))
        rows = local.open(path).scan("id BETWEEN 40 AND 260", ["id", "x"]).to_arrow().to_pylist()
        answers = found["answers"][path]
        for reader in ("auto", "arrow"):
            assert answers["scan"][reader] == sorted([row["id"], row["x"]] for row in rows), (path, reader)
        queries = [[list(row.values()) for row in local.sql(query).to_arrow().to_pylist()] for query in QUERIES]
        assert answers["queries"] == queries
    assert found["answers"][paths[0]]["indexed"] == 3


def test_the_pipeline_of_the_examples_runs_on_a_cluster(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    check_pipeline(submit(cluster, EXAMPLES / "spark_pipeline.py", str(folder)), folder)
