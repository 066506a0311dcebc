"""The README and the pages under docs/ say what is so: code runs, links lead somewhere, tables agree with the code."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a page with the number of the line on which each starts."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)), block[1]) for block in found]


def run_python_blocks(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for lines_before, code in code_blocks(page, "python"):
            # The empty lines make a traceback name the line of the page.
            exec(compile("\n" * lines_before + code, str(page), "exec"), namespace)


@pytest.fixture(scope="module")
def readme_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the README's Python code has run."""
    folder = tmp_path_factory.mktemp("readme")
    run_python_blocks(README, folder)
    return folder


def commands(program: str) -> list[str]:
    lines = (line for _, block in code_blocks(README, "sh") for line in block.splitlines())
    return [line for line in lines if line.startswith(program + " ")]


def test_python_code_of_the_readme_runs(readme_folder: Path) -> None:
    assert len(code_blocks(README, "python")) >= 3
    assert len(list((readme_folder / "orders").glob("region=*/day=*/*.parquet"))) == 15


def test_python_code_about_parquet_runs(tmp_path: Path) -> None:
    run_python_blocks(ROOT / "docs" / "parquet.md", tmp_path)


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_report_on_the_page_is_what_its_code_prints(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / f"{name}.md"
    run_python_blocks(page, tmp_path)
    ((_, report),) = code_blocks(page, "text")
    # How many bytes a file has depends on the version of its writer.
    size = re.compile(r" *\d+(\.\d+)? (B|KiB)")
    assert size.sub(" SIZE", capsys.readouterr().out) == size.sub(" SIZE", report)


@pytest.mark.parametrize("command", commands("tamis"), ids=lambda command: command.split()[1])
def test_tamis_command_of_the_readme_runs(command: str, readme_folder: Path) -> None:
    program = shutil.which("tamis", path=str(Path(sys.executable).parent))
    assert program is not None, "the command line is not installed beside this Python: run make test"
    done = subprocess.run(
        [program, *shlex.split(command)[1:]], cwd=readme_folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_readme_has_no_placeholders() -> None:
    assert "TODO" not in README.read_text(encoding="utf-8")


def test_make_commands_of_the_readme_are_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {shlex.split(command, comments=True)[1] for command in commands("make")}
    assert {"demo", "test"} <= used <= targets


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_python_code_of_the_documentation_runs(page: Path, tmp_path: Path) -> None:
    run_python_blocks(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
