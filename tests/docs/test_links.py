"""Links between pages lead somewhere, and every page is in the navigation of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders.pages import DOCS, ROOT, find_pages, name_page

PAGES = [*find_pages(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]

_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]+)\)")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def read_prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def find_anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", read_prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in find_anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in _LINK.findall(read_prose(page)) if not leads_somewhere(page, link)] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_pages_load_nothing_from_the_network() -> None:
    loaded = [
        (name_page(page), source)
        for page in find_pages()
        for source in re.findall(r"!\[[^\]]*\]\((https?://[^)]+)\)|<(?:img|script)[^>]*https?://", page.read_text())
    ]
    assert loaded == []
