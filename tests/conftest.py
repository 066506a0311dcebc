"""Sessions and paths only: what a test is about stands in the test or in `builders`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_LONGEST = ("spark", "oracles", "cli", "pushdown", "scan", "parquet")
"""Folders of tests that take long."""

settings.register_profile(
    "default", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile(
    "long",
    max_examples=int(os.environ.get("TAMIS_HYPOTHESIS_EXAMPLES", "5000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("TAMIS_HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """Tables that others wrote: the folder named by TAMIS_GOLDEN, or shared/golden beside the project."""
    folder = Path(os.environ.get("TAMIS_GOLDEN") or Path(__file__).parents[2] / "shared" / "golden")
    if not folder.is_dir():
        pytest.skip(f"no golden tables at {folder}: set TAMIS_GOLDEN to their folder")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long first, so that no process has it left when the other is done."""
    items.sort(key=lambda item: _LONGEST.index(folder) if (folder := item.path.parent.name) in _LONGEST else 99)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """With `--dist loadgroup` files go to processes as a whole, and all those on Spark to one of them: starting and
    warming a second JVM takes longer than they do, and each file makes its tables once."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/engines/spark/") else nodeid.split("::", 1)[0]

    return ByFile(config, log)
