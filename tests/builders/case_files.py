"""Case files: readable before/after fixtures that a test can update.

A file starts with free text, and then has one case after the other:

    == The title of a case
    key: a value in one line
    other key:
      a block of indented lines,
        which may have an indentation of its own

A test computes some of the fields from the others. With `TAMIS_UPDATE_CASES=1` in the environment it writes what it
computed into the file instead of comparing; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_TITLE = "== "
_INDENT = "  "

Fields = dict[str, str]


@dataclass(frozen=True)
class Case:
    path: Path
    title: str
    fields: Fields


def read_cases(path: Path) -> tuple[str, list[Case]]:
    """Return the free text before the first case, and the cases."""
    header, *sections = ("\n" + path.read_text(encoding="utf-8")).split(f"\n{_TITLE}")
    cases = []
    for section in sections:
        title, _, body = section.partition("\n")
        cases.append(Case(path, title.strip(), _parse_fields(body, f"{path.name}: {title}")))
    titles = [case.title for case in cases]
    repeated = sorted({title for title in titles if titles.count(title) > 1})
    assert not repeated, f"{path.name}: repeated titles {repeated}"
    return header.strip("\n"), cases


def _parse_fields(body: str, where: str) -> Fields:
    fields: Fields = {}
    block: str | None = None
    for line in body.splitlines():
        if line.startswith(_INDENT) and block is not None:
            fields[block] = f"{fields[block]}\n{line.removeprefix(_INDENT)}".removeprefix("\n")
        elif line.strip():
            key, colon, value = line.partition(":")
            assert colon, f"{where}: expected 'key: value', found {line!r}"
            assert key not in fields, f"{where}: {key!r} twice"
            fields[key] = value.strip()
            block = key if not value.strip() else None
    return fields


def write_cases(path: Path, header: str, cases: Sequence[Case]) -> None:
    sections = [header] if header else []
    for case in cases:
        lines = [f"{_TITLE}{case.title}"]
        for key, value in case.fields.items():
            is_block = "\n" in value or (key in _BLOCKS and value != "unchanged")
            lines += (
                [f"{key}:", *(f"{_INDENT}{line}" for line in value.splitlines())] if is_block else [f"{key}: {value}"]
            )
        sections.append("\n".join(lines))
    path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


_BLOCKS = ("before", "after", "rewrites")
"""Fields that are written as blocks even if they have one line."""


def parametrize_cases(folder: Path, pattern: str = "*.txt") -> pytest.MarkDecorator:
    """Return the mark that runs a test for every case of every file, with the file and the title as its name."""
    cases = [case for path in sorted(folder.glob(pattern)) for case in read_cases(path)[1]]
    assert cases, f"no cases in {folder}"
    return pytest.mark.parametrize("case", cases, ids=[f"{case.path.stem}: {case.title}" for case in cases])


def check_case(case: Case, compute: Callable[[Fields], Fields]) -> None:
    """Compare the fields of a case with the computed ones, or write these into its file."""
    found = compute(case.fields)
    if os.environ.get("TAMIS_UPDATE_CASES"):
        header, cases = read_cases(case.path)
        changed = [Case(each.path, each.title, found) if each.title == case.title else each for each in cases]
        write_cases(case.path, header, changed)
    else:
        assert found == case.fields, f"{case.path.name}: {case.title} (TAMIS_UPDATE_CASES=1 writes what was found)"
