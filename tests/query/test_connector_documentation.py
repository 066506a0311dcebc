"""docs/connectors.md shows a connector in full, and what it prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page defines, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    defined: dict[str, Any] = {"__name__": "daily_files"}
    monkeypatch.setitem(__import__("sys").modules, "daily_files", __import__("types").ModuleType("daily_files"))
    exec(compile(CODE[0], str(PAGE), "exec", dont_inherit=True), defined)
    return defined


def test_the_connector_prints_what_the_page_says(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(CODE[1], str(PAGE), "exec", dont_inherit=True), names)
    (expected,) = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out == expected


def test_its_rows_are_the_same_without_rules(names: dict[str, Any]) -> None:
    exec(compile(CODE[1], str(PAGE), "exec", dont_inherit=True), names)
    for query in (
        "SELECT * FROM files.log WHERE day = DATE '2024-04-05' OR day IS NULL",
        "SELECT day FROM files.log WHERE day IN (DATE '2024-04-05', DATE '1999-01-01') AND level = 'info'",
        "SELECT level, count(*), min(day) FROM files.log WHERE NOT day < DATE '2024-04-10' GROUP BY level",
        "SELECT count(*) FROM (SELECT message FROM files.log WHERE day > DATE '2024-04-20' LIMIT 7)",
        "SELECT a.day FROM files.log a JOIN files.log b ON a.day = b.day WHERE a.day > DATE '2024-04-28'",
    ):
        found = [names["c"].sql(query, rules=rules).to_arrow().to_pylist() for rules in (True, False)]
        assert sorted(map(repr, found[0])) == sorted(map(repr, found[1])), query


def test_every_call_of_the_protocol_is_on_the_page() -> None:
    from tamis.query.connectors.connector import Connector

    calls = [name for name in vars(Connector) if not name.startswith("_")]
    assert len(calls) > 10
    assert [name for name in calls if f"`{name}(" not in TEXT] == []


def test_the_databases_of_the_page_can_be_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")
    import tamis

    monkeypatch.chdir(tmp_path)
    exec(compile(CODE[2], str(PAGE), "exec", dont_inherit=True), {"tamis": tamis})
