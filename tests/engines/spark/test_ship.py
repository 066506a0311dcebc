"""The package that is shipped to workers; `test_engine` tests that it arrives."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tamis.engines.spark.data_source import write_package
from tamis.engines.spark.worker import make_worker_function


def test_the_shipped_package_is_complete_and_reproducible(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    path, again = write_package(tmp_path / "one"), write_package(tmp_path / "other")
    assert path.name == again.name
    assert path.read_bytes() == again.read_bytes()
    assert write_package(tmp_path / "one") == path
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    assert {"tamis/__init__.py", "tamis/engines/spark/worker.py", "tamis/py.typed"} <= names
    assert not any("__pycache__" in name for name in names)


def test_the_shipped_package_can_be_imported(tmp_path: Path) -> None:
    path = write_package(tmp_path)
    script = f"import sys; sys.path.insert(0, {str(path)!r}); import tamis; print(tamis.__file__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert path.name in done.stdout


def test_a_frame_reports_that_tamis_is_not_on_the_workers(tmp_path: Path) -> None:
    """The function that PySpark sends is unpickled and called where tamis cannot be imported."""
    from pyspark import cloudpickle

    function = make_worker_function("tamis.engines.spark.worker", "read_batches", "{}", "tamis_read_orders")
    sent = tmp_path / "function"
    sent.write_bytes(cloudpickle.dumps(function))
    script = (
        "import sys; sys.modules['tamis'] = None\n"
        "from pyspark import cloudpickle\n"
        f"cloudpickle.loads(open({str(sent)!r}, 'rb').read())(iter(()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "tamis is not installed on Spark's workers, which need it to read the table" in done.stderr
    assert "tamis.spark.ship(spark)" in done.stderr
