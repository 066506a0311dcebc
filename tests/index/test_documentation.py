"""docs/index.md says what is so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import tamis

PAGE = Path(__file__).parents[2] / "docs" / "index.md"
TEXT = PAGE.read_text(encoding="utf-8")

_SIZE = re.compile(r" *\d+(\.\d+)? (B|KiB|MiB)")


def test_the_code_of_the_page_runs_and_its_report_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), namespace)
    report = str(namespace["sales"].scan("customer = 'c-7919'").plan("files"))
    _, shown = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert _SIZE.sub(" SIZE", report.strip()) == _SIZE.sub(" SIZE", shown.strip())


def test_every_argument_of_a_build_is_on_the_page() -> None:
    names = set(inspect.signature(tamis.index.build).parameters) - {"uri", "progress", "storage_options"}
    assert {name for name in names if f"`{name}`" not in TEXT} == set()
