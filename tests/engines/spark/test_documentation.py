"""The code of docs/spark.md about DataFrames runs."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


@pytest.mark.interop
def test_code_about_data_frames_runs(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## DataFrames out of scans\n")[2]
    blocks = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    before = {each.name for each in spark.catalog.listTables()}
    with contextlib.chdir(tmp_path):
        for block in blocks:
            # Spark's processes have their own idea of where they are.
            exec(
                block.replace('"orders"', repr(str(tmp_path / "orders"))).replace("'orders'", f"'{tmp_path}/orders'"),
                namespace,
            )
    assert "region" in capsys.readouterr().out
    assert {each.name for each in spark.catalog.listTables()} == before
