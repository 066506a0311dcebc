"""The code on the pages about Spark runs as it stands. It shares the JVM of the other tests on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.pages import find_pages, name_page, run_page, uses_spark


@pytest.mark.parametrize("page", [page for page in find_pages() if uses_spark(page)], ids=name_page)
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path, spark: Any) -> None:
    """`getOrCreate` on a page finds the session of the tests, so a page must leave nothing behind in it."""
    before = {each.name for each in spark.catalog.listTables()}
    assert run_page(page, tmp_path) == []
    assert {each.name for each in spark.catalog.listTables()} == before
