"""docs/traps.md and the names of tests agree: ids of tests are on the page, and every line has a test."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "traps.md"

WITHOUT_TEST = {
    "E9": "pyarrow's S3 file system hides a short answer; test_E3_a_short_read_is_tried_again_… has one that is shown",
    "E10": "the storage does not compare ETags yet; test_E2_a_file_that_was_replaced_… has sizes and times",
    "E13": "there are no deadlines and memory limits yet",
}
"""The lines of the page that no test names, each with the reason. Remove an entry when its test is written."""


@cache
def find_ids_in_test_names() -> dict[str, str]:
    """Return the ids in test names and in titles of case files, each with one name or title."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for name in re.findall(r"^\s*def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            prefix = re.match(r"test((?:_[A-Z]\d{1,2}(?=_|$))+)", name)
            for trap in prefix[1].split("_")[1:] if prefix else ():
                found.setdefault(trap, f"{path.relative_to(TESTS)}::{name}")
    for path in sorted(TESTS.rglob("cases/*.txt")):
        for trap in re.findall(r"^== ([A-Z]\d{1,2}) ", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(trap, str(path.relative_to(TESTS)))
    return found


def find_ids_on_the_page() -> list[str]:
    return re.findall(r"^\| ([A-Z]\d{1,2}) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_id_of_a_test_is_on_the_page() -> None:
    missing = {trap: name for trap, name in find_ids_in_test_names().items() if trap not in find_ids_on_the_page()}
    assert missing == {}, "add these lines to docs/traps.md"


def test_every_line_of_the_page_has_a_test() -> None:
    without = [trap for trap in find_ids_on_the_page() if trap not in find_ids_in_test_names()]
    print(f"{len(find_ids_on_the_page())} traps, without a test: {', '.join(without) or 'none'}")
    assert sorted(without) == sorted(WITHOUT_TEST)


def test_ids_are_unique_and_without_gaps() -> None:
    listed = find_ids_on_the_page()
    groups = dict.fromkeys(trap[0] for trap in listed)
    assert listed == [f"{group}{number}" for group in groups for number in range(1, _count(listed, group) + 1)]


def test_every_line_has_four_cells() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-Z]\d", line)]
    assert [line for line in lines if line.count(" | ") != 3 or not line.endswith(" |")] == []


def test_every_bug_number_has_an_address() -> None:
    text, _, addresses = PAGE.read_text(encoding="utf-8").partition("## What do the bug numbers point to?")
    projects = set(re.findall(r"([\w-]+)#\d+", text))
    assert {project for project in projects if f"`{project}#n`" not in addresses} == set()


def _count(listed: list[str], group: str) -> int:
    return sum(trap[0] == group for trap in listed)
