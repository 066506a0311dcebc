"""docs/reference/configuration.md lists every option of the public functions, and every spelling of storage options."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

import tamis
from tamis.formats.source import LEVELS
from tamis.io import storage_options

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")


def read_section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("function", "title"),
    [
        (tamis.open, "What does `tamis.open` accept?"),
        (tamis.Table.scan, "What does `scan` accept?"),
        (tamis.connect, "What does `tamis.connect` accept?"),
    ],
)
def test_every_option_has_a_line(function: object, title: str) -> None:
    options = [name for name in signature(function).parameters if name != "self"]
    assert re.findall(r"^\| `(\w+)` \|", read_section(title), re.MULTILINE) == options


def test_every_level_is_listed_in_order() -> None:
    assert ", ".join(f"`{level}`" for level in LEVELS) in read_section("What does `scan` accept?")


def test_every_spelling_of_a_storage_option_is_listed() -> None:
    listed = read_section("How do I give credentials?")
    spellings = [each for known in storage_options._SPELLINGS.values() for each in known]
    assert [each for each in spellings if f"`{each}`" not in listed] == []


def test_every_threshold_is_listed_with_its_default() -> None:
    listed = dict(
        re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", read_section("Which thresholds can I change?"), re.MULTILINE)
    )
    assert list(listed) == [each.name for each in fields(tamis.Tuning)]
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for name, text in listed.items():
        number, _, unit = text.replace(",", "").partition(" ")
        top, _, bottom = number.partition("/")
        value = float(top) / float(bottom or 1) * units.get(unit, 1)
        assert value == getattr(tamis.Tuning(), name), name
