"""Sessions and paths only: what a test is about stands in the test or in `builders`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_ON_SPARK = Path(__file__).parent / "spark"

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Spark first and in one process: starting and warming a second JVM takes longer than they do."""
    on_spark = [item for item in items if item.path.parent == _ON_SPARK]
    for item in on_spark:
        item.add_marker(pytest.mark.xdist_group("spark"))
    items[:] = on_spark + [item for item in items if item.path.parent != _ON_SPARK]
