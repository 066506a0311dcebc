"""The pages of the documentation, and their code blocks, run as a reader would paste them.

A page is Markdown. All its blocks run in order, in one folder and one namespace:

- ```python runs; what it prints is kept for the output that follows.
- ```sh runs its lines that begin with `tamis`; other lines (`make`, `pip`, `git`) are not run.
- ```console runs each line after `$ ` and compares the lines below it.
- ```text is compared with what the block before it printed, if `<!-- exact -->` stands above it.
- A block below `<!-- not run: reason -->` is not run, but must be valid Python.
- The bucket `s3://lake` is the folder of the page. A REST catalog at `CATALOG_URI` has the tables of its `warehouse`.

An output may leave out lines with `…` on a line of its own. Sizes, versions of writers and the width of columns are not
compared, because they depend on the versions of other libraries. The folder of the page is `/data` in an output.

After a change of reports or messages, `TAMIS_UPDATE_PAGES=1 pytest tests/docs` writes the new outputs into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from builders.servers.iceberg_rest import RestServer
from builders.values.functions import restore_functions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>exact|not run: .+?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n`]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_PROGRAM = re.compile(r"^tamis ", re.MULTILINE)
_SHELL = {"|", ">", "&&"}
"""Words of a command that need a shell."""

_UNSTABLE = (
    (re.compile(r" *\d+(\.\d+)? (B|KiB|MiB)\b"), " SIZE"),
    (re.compile(r"(?<= version )[\d.]+|\d+\.\d×"), "…"),
    (re.compile(r" {2,}"), "  "),
    (re.compile(r" +$", re.MULTILINE), ""),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text without indentation, and the line of the page on which it starts."""

    language: str
    code: str
    line: int
    mark: str | None = None

    @property
    def is_exact(self) -> bool:
        return self.mark == "exact"

    @property
    def is_run(self) -> bool:
        return self.mark is None or self.is_exact


def find_pages() -> list[Path]:
    """Return the README and every page below docs/."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_page(page: Path) -> str:
    """Return the path of a page below the root of the project, for the names of tests."""
    return page.relative_to(ROOT).as_posix()


def read_blocks(page: Path, *languages: str) -> list[Block]:
    """Return the fenced blocks of a page, of some languages or of all."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"],
            textwrap.dedent(found["code"]),
            text.count("\n", 0, found.start("code")),
            found["mark"],
        )
        for found in _FENCE.finditer(text)
        if not languages or found["language"] in languages
    ]


def uses_spark(page: Path) -> bool:
    """Return whether the page starts a Spark session."""
    return any("pyspark" in block.code for block in read_blocks(page, "python") if block.is_run)


def is_runnable(page: Path) -> bool:
    """Return whether the page has a block that can be run, or be checked."""
    return bool(read_blocks(page, "python", "sh", "console"))


# --- Running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An output on a page that is not what its code prints."""

    line: int
    expected: str
    printed: str


def run_page(page: Path, folder: Path) -> list[Mismatch]:
    """Run the blocks of a page in a folder; return the outputs that are not what the page says."""
    found: list[Mismatch] = []
    module = ModuleType("page")
    sys.modules["page"] = module  # dataclasses look for the module of their class
    printed = ""
    with contextlib.chdir(folder), restore_functions(), _serve(folder):
        for block in read_blocks(page):
            if block.language == "python" and not block.is_run:
                _compile(block, page)
            elif not block.is_run:
                continue
            elif block.language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(_compile(block, page), vars(module))
                printed = output.getvalue()
            elif block.language == "sh":
                next_text = _find_next_text(page, block)
                printed = "".join(_run_command(line, next_text) for line in _list_commands(block))
            elif block.language == "console":
                for line, command, expected in _list_examples(block):
                    found += _compare(line, expected, _run_command(command, expected), folder)
            elif block.language == "text" and block.is_exact:
                found += _compare(block.line, block.code, printed, folder)
    del sys.modules["page"]
    if os.environ.get("TAMIS_UPDATE_PAGES"):
        _update(page, [each for each in found if "…\n" not in each.expected])
    return found


@contextlib.contextmanager
def _serve(folder: Path) -> Iterator[None]:
    """Serve the folder of a page as a bucket, and its warehouse as a REST catalog."""
    with RestServer("token", buckets={"lake": folder}, warehouse=folder / "warehouse") as server:
        settings = {
            "AWS_ENDPOINT_URL": server.uri,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "CATALOG_URI": server.uri,
            "CATALOG_TOKEN": "token",
            "NO_PROXY": "127.0.0.1",
        }
        with mock.patch.dict(os.environ, settings):
            yield


def _update(page: Path, mismatches: list[Mismatch]) -> None:
    """Write what was printed into the page, from its end so that lines keep their numbers."""
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    for each in reversed(mismatches):
        old = each.expected.count("\n")
        indent = re.match(" *", lines[each.line])[0] if old else ""
        lines[each.line : each.line + old] = textwrap.indent(each.printed.rstrip() + "\n", indent).splitlines(True)
    page.write_text("".join(lines), encoding="utf-8")


def _compile(block: Block, page: Path) -> object:
    # The empty lines make a traceback name the line of the page.
    return compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True)


def _find_next_text(page: Path, block: Block) -> str:
    """Return the exact output that follows a block, or nothing."""
    after = [each for each in read_blocks(page) if each.line > block.line]
    return after[0].code if after and after[0].language == "text" and after[0].is_exact else ""


def _list_commands(block: Block) -> Iterator[str]:
    for line in block.code.replace("\\\n", " ").splitlines():
        if _PROGRAM.match(line):
            yield line


def _list_examples(block: Block) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the command and the output of each `$ command` in a console block."""
    lines = block.code.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield block.line + start + 1, lines[start][2:].rstrip("\n"), "".join(lines[start + 1 : end])


def _run_command(command: str, expected: str) -> str:
    """Return what a command prints. It must succeed, unless the page shows its error."""
    words = shlex.split(command, comments=True)
    if _SHELL.intersection(words):
        program = str(Path(sys.executable).parent)
        environment = {**os.environ, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], env=environment, capture_output=True, text=True, check=False
        )
        code, output = done.returncode, done.stdout + done.stderr
    else:
        from click.testing import CliRunner

        from tamis.cli.application import program as tamis

        result = CliRunner().invoke(tamis, words[1:], prog_name="tamis")
        code, output = result.exit_code, result.output
    fails = "tamis: " in expected
    assert (code != 0) == fails, f"{command}\nended with exit code {code}:\n{output}"
    return output


# --- Comparing --------------------------------------------------------------------------------------------------------


def _compare(line: int, expected: str, printed: str, folder: Path) -> list[Mismatch]:
    printed = printed.replace(str(folder), "/data")
    return [] if matches_output(expected, printed) else [Mismatch(line, expected, printed)]


def matches_output(expected: str, printed: str) -> bool:
    """Return whether a page shows what was printed, apart from what depends on other libraries."""
    parts = re.split(r"^…\n?", _normalise(expected), flags=re.MULTILINE)
    pattern = r"(?:.*\n)*?".join(map(re.escape, parts))
    return re.fullmatch(pattern, _normalise(printed)) is not None


def _normalise(text: str) -> str:
    for unstable, stable in _UNSTABLE:
        text = unstable.sub(stable, text)
    return text.strip("\n") + "\n"
