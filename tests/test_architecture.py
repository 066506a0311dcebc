"""The layers of the package: nothing imports upwards, no module grows beyond what one reads at a sitting."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tamis

SOURCE = Path(tamis.__file__).parent

# What each layer may import, besides itself. The order is the one of docs/architecture.md.
MAY_IMPORT = {
    "errors": set(),
    "types": {"errors"},
    "expr": {"errors", "types"},
    "skipping": {"errors", "types", "expr"},
    "io": {"errors"},
    "parquet": {"errors", "types", "expr", "skipping", "io"},
    "tables": {"errors", "types", "expr", "skipping", "io", "parquet"},
    "scan": {"errors", "types", "expr", "skipping", "io", "parquet", "tables"},
    "engines": {"errors", "types", "expr", "skipping", "io", "parquet", "tables", "scan"},
    "indexing": {"errors", "types", "expr", "skipping", "io", "parquet", "tables", "scan"},
    "pushdown": {"errors", "types", "expr", "skipping", "io", "parquet", "tables", "scan"},
    "report": {"errors", "types", "expr", "skipping", "io", "parquet", "tables", "scan"},
}

MODULES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "tamis":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("tamis.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_imports_upwards(path: Path) -> None:
    layer = layer_of(path)
    if layer in MAY_IMPORT:
        assert imported_layers(path) <= MAY_IMPORT[layer] | {layer}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450


def test_public_names() -> None:
    assert tamis.__all__ == [
        "open",
        "connect",
        "Session",
        "Table",
        "Scan",
        "ScanPlan",
        "Report",
        "col",
        "lit",
        "Expression",
        "PartitionFilter",
        "TamisError",
        "delta",
        "errors",
        "hive",
        "iceberg",
        "index",
        "spark",
        "__version__",
    ]
    assert all(hasattr(tamis, name) for name in tamis.__all__)


def test_every_error_is_a_tamis_error() -> None:
    found = [each for each in vars(tamis.errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(found) > 10
    assert all(issubclass(each, tamis.TamisError) for each in found)


def test_an_import_loads_no_package_that_few_need() -> None:
    script = "import sys, tamis; print(*{'duckdb', 'pandas', 'polars', 'pyiceberg', 'pyspark'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
