"""docs/reference/sql.md shows what queries print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
PARTS = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_examples_print_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert [kind for kind, _ in PARTS].count("text") == 2
    for kind, text in PARTS:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec", dont_inherit=True), names)
        else:
            assert capsys.readouterr().out.rstrip() == text.rstrip()
