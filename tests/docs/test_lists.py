"""Pages that list something list all of it: options, arguments, methods, levels, commands, extras."""

from __future__ import annotations

import inspect
import re
import shlex
import tomllib

import tamis
from builders.pages import DOCS, ROOT, find_pages, read_blocks
from tamis.cli.application import program
from tamis.cli.commands import load_command
from tamis.cli.export import FORMATS_BY_EXTENSION, OUTPUT_FORMATS
from tamis.formats.jobs import SMALL_READ
from tamis.query.connectors.connector import Connector
from tamis.tuning import DEFAULT_TUNING


def read_text(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def list_shell_lines(program_name: str) -> list[list[str]]:
    """Return the words of all lines in ```sh blocks that begin with a program."""
    lines = (line for page in find_pages() for block in read_blocks(page, "sh") for line in block.code.splitlines())
    return [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program_name} ")]


def test_the_command_line_page_has_a_section_and_an_example_for_each_command() -> None:
    text = read_text("cli.md")
    examples = re.findall(r"^\$ tamis (\w+)", text, re.MULTILINE)
    assert set(program.commands) <= set(examples)
    assert set(program.commands) <= set(re.findall(r"^## (\w+)$", text, re.MULTILINE))


def test_the_command_line_page_has_every_option() -> None:
    text = read_text("cli.md")
    options = {name for command in program.commands for option in load_command(command).params for name in option.opts}
    assert {name for name in options if name.startswith("--") and f"`{name}" not in text} == set()


def test_the_command_line_page_has_every_output_format_and_ending() -> None:
    text = read_text("cli.md")
    assert [name for name in (*OUTPUT_FORMATS, *FORMATS_BY_EXTENSION) if f"`{name}`" not in text] == []


def test_the_index_page_has_every_argument_of_a_build() -> None:
    names = set(inspect.signature(tamis.index.build).parameters) - {"uri", "progress", "storage_options"}
    assert {name for name in names if f"`{name}`" not in read_text("statistics-index.md")} == set()


def test_the_connector_page_has_every_method() -> None:
    methods = [name for name in vars(Connector) if not name.startswith("_")]
    assert len(methods) > 10
    page = read_text("connectors.md")
    assert [name for name in methods if f"`{name}(" not in page] == []


def test_the_spark_page_has_the_thresholds_of_planning() -> None:
    page = read_text("spark.md")
    tuning = DEFAULT_TUNING
    parts, size = tuning.spark_planning_min_parts, tuning.spark_planning_min_bytes
    assert f"at least {parts} work units with at least {size // 2**20} MiB together" in page
    assert f"| {tuning.directories_per_call} directories | {SMALL_READ // 2**10} KiB a directory |" in page
    assert f"| {tuning.files_per_slice:,} files | {SMALL_READ // 2**10} KiB a file |" in page


def test_every_public_name_is_in_the_api_reference() -> None:
    pages = (DOCS / "reference" / "api").glob("*.md")
    documented = {name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)}
    named = {f"tamis.{name}" for name in tamis.__all__ if name != "__version__"}
    assert named - documented == set()


def test_make_targets_on_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {words[1] for words in list_shell_lines("make")}
    assert {"demo", "test"} <= used <= targets


def test_extras_on_pages_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "".join(page.read_text(encoding="utf-8") for page in find_pages())
    used = {extra for group in re.findall(r"pip install '\.\[([\w,]+)\]'", text) for extra in group.split(",")}
    assert used
    assert used <= set(project["optional-dependencies"])
