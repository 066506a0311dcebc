"""E5 to E7: damaged indexes, killed builds, full disks, two builds at a time. Rows are the same in every case."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tamis
from builders.effort import IS_THOROUGH
from builders.hive.indexed import get_index_folder, list_data_files, write_files
from tamis.errors import CorruptFile, MissingFile, StorageError, UnsupportedFeature
from tamis.index import store
from tamis.index.entries import COLUMN_CACHE
from tamis.index.store import Current, Part
from tamis.parquet.footer.footer import FOOTERS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = write_files(tmp_path / "t", range(6))
    tamis.index.build(found, bloom=["name"])
    return found


def check_rows(root: Path) -> None:
    """Check the results of queries with an index in any state."""
    FOOTERS.clear()
    COLUMN_CACHE.clear()
    table = tamis.open(root)
    assert table.scan("id >= 0").count() == len(list_data_files(root)) * 10
    assert table.scan("id = 25").to_arrow()["id"].to_pylist() == [25]
    assert table.scan("name = 'n7919'").to_arrow()["id"].to_pylist() == [1]
    assert table.scan("name = 'nobody'").plan("files").report.level("files") is not None


def find_part(root: Path) -> Path:
    return next(get_index_folder(root).glob("part-*.tamis"))


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "last byte": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "other": lambda content: content.replace(b'"size": ', b'"size": 1'),
    "text": lambda content: b"{}",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_E5_a_damaged_list_of_parts_is_ignored_and_reported(
    root: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    current = get_index_folder(root) / "current.json"
    current.write_bytes(DAMAGES[damage](current.read_bytes()))
    with caplog.at_level(logging.WARNING, "tamis"):
        check_rows(root)
    assert "the index is ignored" in caplog.text
    assert "build it again" in caplog.text
    with pytest.raises(CorruptFile, match="is damaged"):
        tamis.open(root, index=get_index_folder(root))
    with pytest.raises(CorruptFile, match="is damaged"):
        tamis.index.status(root)
    assert tamis.index.build(root).files == 6
    assert tamis.open(root).scan("id = 25").plan("files").num_files == 1


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "other"])
def test_E5_a_damaged_part_is_ignored_reported_and_repaired(
    root: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    part = find_part(root)
    part.write_bytes(DAMAGES[damage](part.read_bytes()))
    with caplog.at_level(logging.WARNING, "tamis"):
        check_rows(root)
    assert "a part of the index" in caplog.text
    FOOTERS.clear()
    result = tamis.index.build(root)
    assert (result.files, result.collected) == (6, 6)
    assert tamis.open(root).scan("id = 25").plan("files").num_files == 1


def test_E5_every_flipped_byte_of_a_part_leaves_the_rows_as_they_are(root: Path) -> None:
    part = find_part(root)
    content = part.read_bytes()
    for offset in range(4, len(content), max(1, len(content) // 25)):
        damaged = bytearray(content)
        damaged[offset] ^= 0x41
        part.write_bytes(bytes(damaged))
        check_rows(root)


def test_E5_a_part_that_is_gone_leaves_its_files_to_their_footers(root: Path) -> None:
    find_part(root).unlink()
    check_rows(root)
    assert tamis.open(root).scan("id = 25").plan("files").num_files == 6
    assert tamis.index.build(root).collected == 6


def test_a_reader_that_loses_its_parts_meanwhile_returns_all_rows(root: Path) -> None:
    table = tamis.open(root)
    assert table.scan("id = 25").plan("files").num_files == 1
    tamis.index.drop(root)
    FOOTERS.clear()
    COLUMN_CACHE.clear()
    assert table.scan("name = 'n7919' AND x >= 0").to_arrow()["id"].to_pylist() == [1]


def test_an_index_of_a_later_version_is_not_read(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    current = get_index_folder(root) / "current.json"
    content = json.loads(current.read_text())
    current.write_text(json.dumps(content | {"format": 99}))
    check_rows(root)
    assert "has format 99" in caplog.text
    with pytest.raises(UnsupportedFeature, match="has format 99"):
        tamis.open(root, index=get_index_folder(root))


def test_X7_a_part_is_nowhere_but_in_the_folder_of_the_index(root: Path) -> None:
    current = get_index_folder(root) / "current.json"
    for name in ("../part.tamis", "/etc/passwd", "part-0.tamis"):
        text = (
            Current.from_bytes(current.read_bytes(), "")
            .to_bytes()
            .replace(find_part(root).name.encode(), name.encode())
        )
        with pytest.raises(CorruptFile, match="is damaged"):
            Current.from_bytes(text, "there")


def test_E6_a_full_disk_is_an_error_that_leaves_the_current_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (get_index_folder(root) / "current.json").read_bytes()
    write_files(root, [6])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "_write_local_file", full)
    with pytest.raises(StorageError, match=r"cannot write .*: No space left on device"):
        tamis.index.build(root)
    assert (get_index_folder(root) / "current.json").read_bytes() == before
    check_rows(root)


def test_E6_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(2))
    (tmp_path / "_tamis").write_text("a file instead of a folder")
    with pytest.raises(StorageError, match="cannot write"):
        tamis.index.build(root)
    assert tamis.open(root).scan("id = 5").count() == 1


def test_E6_a_folder_that_may_not_be_written_is_an_error_with_advice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    before = (get_index_folder(root) / "current.json").read_bytes()
    write_files(root, [6])
    monkeypatch.setattr(store, "_write_local_file", refuse)
    with pytest.raises(
        StorageError, match=r"^no permission to write '.*'\. Ask its owner, or put .* elsewhere with location="
    ):
        tamis.index.build(root)
    assert (get_index_folder(root) / "current.json").read_bytes() == before
    check_rows(root)


def test_E5_a_part_without_read_permission_is_ignored_and_reported(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(storage: Any, path: str, *_: Any) -> None:
        raise StorageError(f"no permission to open '{path}'")

    monkeypatch.setattr(store, "load_footer", refuse)
    with caplog.at_level(logging.WARNING, "tamis"):
        check_rows(root)
    assert "a part of the index" in caplog.text
    assert "no permission to open" in caplog.text


def test_E7_concurrent_builds_end_with_a_complete_index(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(40))
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: tamis.index.build(root), range(6)))
    assert {result.files for result in results} == {40}
    status = tamis.index.status(root)
    assert (status.fresh_files, status.is_complete) == (40, True)
    assert tamis.open(root).scan("id = 25").plan("files").num_files == 1


@pytest.mark.parametrize("missed", [0, 1, 2])
def test_E7_a_build_whose_parts_another_one_removed_begins_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch, missed: int
) -> None:
    """Parts vanish before the build makes them current, after that, and after it removed some itself."""
    write_files(root, [6])
    looks = count()
    monkeypatch.setattr(store.IndexStore, "has_parts", lambda self, parts: next(looks) != missed)
    assert tamis.index.build(root).files == 7
    assert tamis.index.status(root).fresh_files == 7


def test_E7_a_part_that_is_removed_while_it_is_merged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(root, [6])
    tries = count()
    read_part = store.IndexStore.read_part

    def read(self: store.IndexStore, part: Part, names: Collection[str], groups: Any = None) -> Any:
        if "modified_ns" in names and "schema" in names and next(tries) == 0:
            raise MissingFile(f"the file '{part.name}' is gone")
        return read_part(self, part, names, groups)

    monkeypatch.setattr(store.IndexStore, "read_part", read)
    assert tamis.index.build(root).files == 7
    assert next(tries) > 1
    assert tamis.index.status(root).fresh_files == 7


_KILLED_BUILD = """
import os, pathlib, signal, sys
import tamis
from tamis.index import store

steps = 0

def counted(function):
    def call(*arguments, **options):
        global steps
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

# Before and after a file is made, filled, given its name, and removed.
for name in ("open", "replace", "unlink", "mkdir"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
store._write_local_file = counted(store._write_local_file)
store.IndexStore.remove = counted(store.IndexStore.remove)
store.IndexStore.publish = counted(store.IndexStore.publish)
for given in sys.argv[1:]:
    number, root = given.split(":")
    process = os.fork()
    if process == 0:
        steps = int(number)
        tamis.index.build(root, tuning=tamis.Tuning(max_files_per_index_item=1))
        os._exit(0)
    _, how = os.waitpid(process, 0)
    print("killed" if os.WIFSIGNALED(how) else "done", flush=True)
"""


def test_E5_a_build_killed_at_any_step_leaves_a_complete_index(tmp_path: Path) -> None:
    """Each copy of a table is indexed by a process that kills itself some steps later than the one before."""
    original = write_files(tmp_path / "original", range(6))
    tamis.index.build(original)
    copies = []
    steps = [*range(1, 40, 4 if IS_THOROUGH else 12), 1000]
    for number in steps:
        copy = tmp_path / f"copy{number}"
        shutil.copytree(original, copy, copy_function=shutil.copy2)
        shutil.copytree(get_index_folder(original), get_index_folder(copy), copy_function=shutil.copy2)
        copies.append(copy)
        write_files(copy, [1, *range(6, 12)])
        (copy / "0002.parquet").unlink()
    given = [f"{number}:{copy}" for number, copy in zip(steps, copies, strict=True)]
    done = subprocess.run([sys.executable, "-c", _KILLED_BUILD, *given], capture_output=True, text=True, check=True)
    outcomes = done.stdout.split()
    assert outcomes.count("killed") >= len(steps) // 2
    assert outcomes[-1] == "done"
    for copy, outcome in zip(copies, outcomes, strict=True):
        FOOTERS.clear()
        assert tamis.open(copy).scan("id IN (15, 115)").to_arrow()["id"].to_pylist() == [15, 115]
        status = tamis.index.status(copy)
        # Either the old index, with four unchanged files, or the new one.
        assert status.exists
        assert status.fresh_files == 11 if outcome == "done" else status.fresh_files in (4, 11)
        assert tamis.index.build(copy).files == 11
        assert tamis.open(copy).scan("id IN (15, 25, 115)").plan("files").num_files == 2


@pytest.mark.parametrize("more", [(), (6,)])
def test_E5_a_part_with_one_damaged_column_is_repaired(root: Path, more: tuple[int, ...]) -> None:
    (part,) = get_index_folder(root).glob("part-*")
    group = pq.ParquetFile(part).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    end = columns["lower:id"].data_page_offset + columns["lower:id"].total_compressed_size
    data = bytearray(part.read_bytes())
    data[end - 3] ^= 0xFF
    part.write_bytes(data)
    FOOTERS.clear()
    write_files(root, more)
    assert tamis.index.build(root).files == 6 + len(more)
    assert tamis.index.status(root).is_complete
    assert tamis.open(root).scan("id = 25").plan("files").num_files == 1
    check_rows(root)
