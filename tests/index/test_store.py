"""The folder of an index on file systems that are not local, and files during a write."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
import xxhash

import tamis
from builders.hive.indexed import get_index_folder, list_data_files, write_files
from tamis.errors import CorruptFile, InvalidArgument
from tamis.index import operations
from tamis.index.spec import IndexedColumn, IndexSpec
from tamis.index.store import Current, IndexStore
from tamis.io.storage import open_storage

SPEC = IndexSpec((IndexedColumn(("id",), ("id",), pa.int64()),))


@pytest.fixture
def remote(tmp_path: Path) -> IndexStore:
    """A store in a file system that appears neither local nor as an object store."""
    filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))
    return IndexStore(open_storage(str(tmp_path / "remote"), {"filesystem": filesystem}))


def test_parts_are_written_made_current_replaced_and_dropped_anywhere(remote: IndexStore, tmp_path: Path) -> None:
    assert not remote.storage.is_local
    assert remote.read_current() is None
    assert remote.find_unreferenced_parts([]) == []
    write_files(tmp_path / "t", range(2))
    tamis.index.build(tmp_path / "t")
    current = Current.from_bytes((get_index_folder(tmp_path / "t") / "current.json").read_bytes(), "")
    for number in range(2):
        part = remote.write_part(pa.table({"path": [f"{number}"], "id": [number]}), [b"schema"], SPEC)
        remote.publish(replace(current, parts=(part,), files=number))
        found = remote.read_current()
        assert found is not None
        assert (found.files, found.parts) == (number, (part,))
        assert remote.has_parts(found.parts)
        (batch,) = remote.read_part(part, ["path", "nothing"])
        assert batch.to_pydict() == {"path": [f"{number}"]}
        assert remote.read_schemas(part) == [b"schema"]
        assert remote.read_fingerprint(part) == SPEC.fingerprint
    assert len(remote.find_unreferenced_parts([part.name])) == 1
    assert remote.drop()
    assert list((tmp_path / "remote").iterdir()) == []
    assert not remote.drop()


def test_a_table_behind_a_file_system_object_is_read_but_not_indexed(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3))
    tamis.index.build(root)
    given = {"filesystem": pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))}
    assert tamis.open(str(root), storage_options=given).scan("id = 25").count() == 1
    with pytest.raises(InvalidArgument, match="is built in other processes"):
        tamis.index.build(str(root), storage_options=given)


def test_files_that_are_just_being_written_are_left_for_the_next_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_files(tmp_path / "t", range(3))
    now = time.time_ns()
    for path in list_data_files(root):
        os.utime(path, ns=(now, now))
    with monkeypatch.context() as patch:
        waited: list[float] = []
        # The clock of this module alone: threads of other tests sleep too.
        clock = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic, time_ns=lambda: now)
        patch.setattr(operations, "time", clock)
        result = tamis.index.build(root)
        assert waited == [operations.SETTLED_SECONDS[True]]
    assert (result.files, result.left_out) == (0, 3)
    assert "written just now" in (result.left_out_because or "")
    assert tamis.open(root).scan("id = 25").plan("files").num_files == 3
    assert tamis.index.build(root).files == 3


def test_old_leftovers_of_others_go_and_young_ones_stay(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(2))
    tamis.index.build(root)
    store = IndexStore(open_storage(get_index_folder(root)))
    young, old = (store.write_part(pa.table({"path": ["x"]}), [], SPEC) for _ in range(2))
    aside = get_index_folder(root) / "aside-0"
    aside.write_bytes(b"half of something")
    long_ago = time.time() - 3 * 24 * 3600
    for name in (old.name, aside.name):
        os.utime(get_index_folder(root) / name, (long_ago, long_ago))
    write_files(root, [2])
    tamis.index.build(root)
    left = {path.name for path in get_index_folder(root).iterdir()}
    assert young.name in left
    assert not {old.name, aside.name} & left


@pytest.mark.parametrize("sample", ["{}", "[]", "0", "false", '""'])
def test_X8_an_index_with_an_invalid_sample_is_damaged(tmp_path: Path, sample: str) -> None:
    write_files(tmp_path / "t", range(2))
    tamis.index.build(tmp_path / "t")
    path = get_index_folder(tmp_path / "t") / "current.json"
    content = json.loads(path.read_bytes()) | {"sample": json.loads(sample)}
    del content["checksum"]
    checksum = xxhash.xxh64_hexdigest(json.dumps(content, sort_keys=True).encode())
    with pytest.raises(CorruptFile, match="is damaged"):
        Current.from_bytes(json.dumps(content | {"checksum": checksum}).encode(), "")
