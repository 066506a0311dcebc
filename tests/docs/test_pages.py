"""The code on every page runs, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.pages import find_pages, is_runnable, matches_output, name_page, read_blocks, run_page, uses_spark

PAGES = [page for page in find_pages() if is_runnable(page)]


@pytest.mark.parametrize("page", [page for page in PAGES if not uses_spark(page)], ids=name_page)
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) == []


def test_all_code_is_run() -> None:
    skipped = [
        f"{name_page(page)}:{block.line}"
        for page in find_pages()
        for block in read_blocks(page)
        if block.language in ("py", "python3", "pycon") or not block.is_run
    ]
    assert skipped == []


@pytest.mark.parametrize(
    ("shown", "printed", "matches"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("files   12.0 KiB\n", "files      1.1 MiB\n", True),
        ("files   12\n", "files   13\n", False),
    ],
)
def test_outputs_are_compared_apart_from_sizes_and_omitted_lines(shown: str, printed: str, matches: bool) -> None:
    assert matches_output(shown, printed) is matches
