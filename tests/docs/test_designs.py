"""docs/designs.md and the tests agree: every statement has a test that exists, or says what differs."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import pytest

from builders.pages import DOCS, ROOT

PAGE = (DOCS / "designs.md").read_text(encoding="utf-8")
HEADER = "| the design says | in Tamis | test | what differs, and why |"


class Statement(NamedTuple):
    """A line of a table: its cells."""

    text: str
    name: str
    tests: str
    difference: str


def split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def read_statements() -> dict[str, list[Statement]]:
    """Return the statements of each design, by the title of its section."""
    found = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        _, _, below = text.partition(f"{HEADER}\n|---|---|---|---|\n")
        lines, _, _ = below.partition("\n\n")
        found[title] = [Statement(*split_cells(line)) for line in lines.splitlines()]
    return found


STATEMENTS = read_statements()


@cache
def read_names(path: str) -> frozenset[str]:
    """Return the names of the tests in a module, or the titles in a file of cases."""
    pattern = r"^== (.+)$" if path.endswith(".txt") else r"^def (test_\w+)\("
    return frozenset(re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


def test_there_are_five_designs_with_a_table_each() -> None:
    assert len(STATEMENTS) == PAGE.count(HEADER) == 5
    assert all(len(statements) >= 20 for statements in STATEMENTS.values())


@pytest.mark.parametrize("design", STATEMENTS)
def test_every_test_exists(design: str) -> None:
    named = [name for each in STATEMENTS[design] for name in each.tests.split("<br>") if name]
    assert [name for name in named if not re.fullmatch(r"`tests/[\w/]+\.(py|txt)::[^`]+`", name)] == []
    places = [name.strip("`").split("::", 1) for name in named]
    assert [(path, test) for path, test in places if test not in read_names(path)] == []


@pytest.mark.parametrize("design", STATEMENTS)
def test_every_statement_has_a_test_or_a_difference(design: str) -> None:
    assert [each.text for each in STATEMENTS[design] if not (each.text and each.name)] == []
    assert [each.text for each in STATEMENTS[design] if not (each.tests or each.difference)] == []
    assert [each.text for each in STATEMENTS[design] if (each.name == "not there") and not each.difference] == []


@pytest.mark.parametrize("design", STATEMENTS)
def test_no_statement_is_made_twice(design: str) -> None:
    texts = [each.text for each in STATEMENTS[design]]
    assert len(set(texts)) == len(texts)


def test_the_page_counts_its_statements() -> None:
    counts = {title: len(statements) for title, statements in STATEMENTS.items()}
    assert {title: int(count) for title, count in re.findall(r"^\| \[(.+?)\].*\| (\d+) \|$", PAGE, re.M)} == counts
    assert f"All {sum(counts.values())} statements below" in PAGE
