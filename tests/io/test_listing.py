"""Listings: one directory, one call, ordered by name."""

import os
from pathlib import Path

import pytest

from tamis.errors import StorageError, TableNotFound
from tamis.io.listing import _is_same_time, find_file, list_directories, list_directory
from tamis.io.storage import open_storage


def test_a_listing_has_files_and_directories_by_name_and_nothing_below(tmp_path: Path) -> None:
    for name in ("b", "a", "é", "Z"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    (tmp_path / "dir" / "below").mkdir(parents=True)
    os.utime(tmp_path / "a", ns=(0, 1_700_000_000_123_456_789))
    storage = open_storage(tmp_path)
    listing = list_directory(storage, storage.root)
    assert listing.file_paths.to_pylist() == [f"{tmp_path}/{name}" for name in ("Z", "a", "b", "é")]
    assert listing.file_sizes.to_pylist() == [3, 3, 3, 6]
    assert listing.file_modified_ns.to_pylist()[1] == 1_700_000_000_123_456_789
    assert listing.directory_paths.to_pylist() == [f"{tmp_path}/dir"]
    assert (storage.counters.listing_calls, storage.counters.requests, storage.counters.bytes_read) == (1, 1, 0)


def test_an_empty_directory(tmp_path: Path) -> None:
    listing = list_directory(open_storage(tmp_path), str(tmp_path))
    assert len(listing.file_paths) == len(listing.directory_paths) == 0


def test_many_directories_keep_their_order_and_are_counted(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / f"f{number}").touch()
    storage = open_storage(tmp_path)
    before = storage.counters.counts()
    listings = list_directories(storage, [f"{tmp_path}/d{number}" for number in range(50)], threads=4)
    assert [listing.file_paths[0].as_py() for listing in listings] == [f"{tmp_path}/d{n}/f{n}" for n in range(50)]
    assert (storage.counters.counts() - before).listing_calls == 50


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"12345")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "linked-directory").symlink_to(tmp_path / "real")
    (tmp_path / "table" / "linked-file").symlink_to(tmp_path / "real" / "file")
    listing = list_directory(open_storage(tmp_path), f"{tmp_path}/table")
    assert listing.directory_paths.to_pylist() == [f"{tmp_path}/table/linked-directory"]
    assert listing.file_sizes.to_pylist() == [5]


def test_a_file_as_the_root_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123")
    storage = open_storage(tmp_path / "file")
    with pytest.raises(TableNotFound, match="no directory"):
        list_directory(storage, storage.root)
    found = find_file(storage, storage.root)
    assert found is not None
    assert (found.path, found.size) == (storage.root, 3)


def test_a_name_that_is_not_utf8_is_an_error_that_names_the_directory(tmp_path: Path) -> None:
    try:
        os.close(os.open(bytes(tmp_path) + b"/bad\xff", os.O_CREAT))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with pytest.raises(StorageError, match=str(tmp_path)):
        list_directory(open_storage(tmp_path), str(tmp_path))


@pytest.mark.parametrize(
    ("listed", "now", "is_exact", "expected"),
    [
        (5_000_000_000, 5_000_000_000, True, True),
        (5_000_000_000, 5_000_000_001, True, False),
        (None, 5_000_000_000, True, True),
        (5_000_000_000, None, True, True),
        (5_123_000_000, 5_000_000_000, False, True),
        (5_123_000_000, 5_124_000_000, False, False),
        (5_123_000_000, 6_000_000_000, False, False),
    ],
)
def test_H12_a_look_up_with_seconds_agrees_with_a_listing_with_finer_units(
    listed: int | None, now: int | None, is_exact: bool, expected: bool
) -> None:
    assert _is_same_time(listed, now, is_exact=is_exact) is expected
