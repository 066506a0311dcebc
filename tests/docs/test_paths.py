"""Modules and packages that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tamis"
PAGES = [ROOT / "docs" / name for name in ("glossary.md", "designs.md", "explanation/architecture.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_packages_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+(?:\.py|/))`", page.read_text(encoding="utf-8"))
    assert named
    # Most are parts of the package; tests, benchmarks and examples are named from the root.
    assert [name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()] == []
