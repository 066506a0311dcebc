"""docs/explanation/security.md: its policies hide what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import AccessDenied

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "security.md"
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_policies_of_the_page_hide_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(CODE[0], str(PAGE), "exec", dont_inherit=True), names)
    found = names["ana"].sql("SELECT amount, card, salary FROM orders ORDER BY amount").to_arrow()
    assert found.to_pydict() == {
        "amount": [50, 250, 350],
        "card": ["****11-1", "****33-3", "****44-4"],
        "salary": [None] * 3,
    }
    assert names["c"].as_principal("admin").sql("SELECT * FROM orders").to_arrow().num_rows == 4
    with pytest.raises(AccessDenied):
        names["c"].sql("SELECT * FROM orders")
    exec(compile(CODE[1], str(PAGE), "exec", dont_inherit=True), names)
    names["c"].register("orders", names["orders"])
    assert names["c"].as_principal("ana").sql("SELECT count(*) AS n FROM orders").to_arrow().to_pylist() == [{"n": 2}]
