"""docs/cli.md shows what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tamis.cli.application import program
from tamis.cli.commands import load_command
from tamis.cli.export import FORMATS_BY_EXTENSION, OUTPUT_FORMATS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
TEXT = PAGE.read_text(encoding="utf-8")

EXAMPLES = re.findall(r"^```console\n\$ tamis (.+)\n((?:.*\n)*?)```$", TEXT, re.MULTILINE)

# How many bytes a file has depends on the version of its writer, and so does how wide a column of sizes is.
_SIZE = re.compile(r" *\d+(\.\d+)? (B|KiB|MiB)")
_WRITER = re.compile(r"(?<= version )[\d.]+|\d+\.\d×")
_SPACES = re.compile(r" {3,}")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table that the page writes."""
    folder = tmp_path_factory.mktemp("data")
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(code, str(PAGE), "exec"), {})
    return folder


@pytest.mark.parametrize(("arguments", "expected"), EXAMPLES, ids=[arguments for arguments, _ in EXAMPLES])
def test_example_prints_what_the_page_says(
    arguments: str, expected: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    result = CliRunner().invoke(program, shlex.split(arguments), prog_name="tamis")
    printed = result.output.replace(str(data), "/data")
    if arguments.startswith("inspect"):
        printed, expected = (_SPACES.sub("   ", _WRITER.sub("…", text)) for text in (printed, expected))
    assert _SIZE.sub(" SIZE", printed) == _SIZE.sub(" SIZE", expected)


def test_every_command_has_an_example_and_a_section() -> None:
    assert {arguments.split()[0] for arguments, _ in EXAMPLES} == set(program.commands)
    assert set(re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)) == set(program.commands)


def test_every_option_is_on_the_page() -> None:
    options = {name for command in program.commands for option in load_command(command).params for name in option.opts}
    missing = {name for name in options if name.startswith("--") and f"`{name}" not in TEXT}
    assert missing == set()


def test_every_output_format_and_ending_is_on_the_page() -> None:
    assert all(f"`{name}`" in TEXT for name in (*OUTPUT_FORMATS, *FORMATS_BY_EXTENSION))
