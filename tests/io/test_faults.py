"""E3: a store that fails temporarily or permanently, and one that returns too few bytes."""

import dataclasses
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from tamis.errors import MissingFile, StorageError
from tamis.io.listing import find_file, list_directories, list_directory
from tamis.io.ranges import RangedFile, read_ranges
from tamis.io.retries import RetryPolicy, is_transient, run_with_retries
from tamis.io.storage import Storage, open_storage


class FlakyHandler(pafs.FSSpecHandler):
    """A local file system whose next calls fail with the given errors, or whose next reads are cut short."""

    def __init__(self) -> None:
        super().__init__(fsspec.filesystem("file"))
        self.errors: list[Exception] = []
        self.short_reads = 0

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop()

    def get_file_info_selector(self, selector: pafs.FileSelector) -> Any:
        self._fail()
        return super().get_file_info_selector(selector)

    def get_file_info(self, paths: list[str]) -> Any:
        self._fail()
        return super().get_file_info(paths)

    def open_input_file(self, path: str) -> Any:
        self._fail()
        return pa.PythonFile(ShortReadingFile(open(path, "rb"), self), mode="r")  # noqa: PTH123


class ShortReadingFile:
    def __init__(self, file: Any, handler: FlakyHandler) -> None:
        self._file = file
        self._handler = handler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, length: int = -1) -> bytes:
        if self._handler.short_reads:
            self._handler.short_reads -= 1
            return bytes(self._file.read(length // 2))
        self._handler._fail()
        return bytes(self._file.read(length))


@pytest.fixture
def handler() -> FlakyHandler:
    return FlakyHandler()


@pytest.fixture
def storage(tmp_path: Path, handler: FlakyHandler) -> Storage:
    (tmp_path / "a=1").mkdir()
    (tmp_path / "file").write_bytes(bytes(range(100)))
    opened = open_storage(str(tmp_path), {"filesystem": pafs.PyFileSystem(handler)})
    return dataclasses.replace(opened, retries=RetryPolicy(first_pause=0))


BUSY = OSError("AWS Error SLOW_DOWN during ListObjectsV2 operation: (HTTP status 503)")


def test_E3_a_listing_that_fails_twice_succeeds_at_the_third_try(storage: Storage, handler: FlakyHandler) -> None:
    handler.errors = [BUSY, TimeoutError("timed out")]
    listing = list_directory(storage, storage.root)
    assert listing.directory_paths.to_pylist() == [f"{storage.root}/a=1"]
    assert storage.counters.listing_calls == 3


def test_E3_a_listing_that_keeps_failing_is_a_storage_error(storage: Storage, handler: FlakyHandler) -> None:
    handler.errors = [BUSY] * 10
    with pytest.raises(StorageError, match=rf"cannot list '{storage.root}' after 3 tries: AWS Error SLOW_DOWN"):
        list_directory(storage, storage.root)
    assert len(handler.errors) == 7


def test_E3_one_failing_directory_of_many_is_an_error(storage: Storage, handler: FlakyHandler) -> None:
    handler.errors = [BUSY] * 100
    with pytest.raises(StorageError, match="after 3 tries"):
        list_directories(storage, [storage.root, f"{storage.root}/a=1"])


@pytest.mark.parametrize(
    "error", [PermissionError(13, "denied"), OSError("AWS Error ACCESS_DENIED during HeadObject operation")]
)
def test_permanent_errors_are_not_retried(storage: Storage, handler: FlakyHandler, error: OSError) -> None:
    handler.errors = [error, error]
    with pytest.raises(StorageError, match="list"):
        list_directory(storage, storage.root)
    assert len(handler.errors) == 1


def test_a_missing_directory_below_the_root_is_a_missing_file(storage: Storage) -> None:
    with pytest.raises(MissingFile, match="a=2"):
        list_directory(storage, f"{storage.root}/a=2")


def test_E3_a_look_up_is_tried_again(storage: Storage, handler: FlakyHandler) -> None:
    handler.errors = [BUSY]
    found = find_file(storage, f"{storage.root}/file")
    assert found is not None
    assert found.size == 100
    assert find_file(storage, storage.root) is None


def test_E3_opening_and_reading_are_tried_again(storage: Storage, handler: FlakyHandler) -> None:
    handler.errors = [BUSY]
    with RangedFile(storage, f"{storage.root}/file") as file:
        handler.errors = [BUSY]
        assert file.read([(10, 5)])[0].to_pybytes() == bytes(range(10, 15))


def test_E3_a_short_read_is_tried_again_and_never_returned(storage: Storage, handler: FlakyHandler) -> None:
    handler.short_reads = 2
    assert read_ranges(storage, f"{storage.root}/file", [(0, 50)])[0].to_pybytes() == bytes(range(50))
    handler.short_reads = 10
    with pytest.raises(StorageError, match="expected 50 bytes at offset 0, found 25"):
        read_ranges(storage, f"{storage.root}/file", [(0, 50)])


def test_E2_a_file_that_is_gone_is_a_missing_file_that_names_it(storage: Storage) -> None:
    with pytest.raises(MissingFile, match=r"gone\.parquet"):
        read_ranges(storage, f"{storage.root}/gone.parquet", [(0, 1)])


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory"),
        OSError("AWS Error NO_SUCH_KEY during GetObject operation: The specified key does not exist."),
    ],
)
def test_E11_a_file_that_vanishes_while_it_is_open_is_reported_at_once(
    storage: Storage, handler: FlakyHandler, error: OSError
) -> None:
    with RangedFile(storage, f"{storage.root}/file") as file:
        assert file.read([(0, 2)])[0].to_pybytes() == bytes([0, 1])
        handler.errors = [error] * 3
        with pytest.raises(MissingFile, match=r"file' is gone"):
            file.read([(0, 2)])
    assert len(handler.errors) == 2


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=rf"cannot open '{tmp_path}': .* is a directory"):
        read_ranges(open_storage(tmp_path), str(tmp_path), [(0, 1)])


def test_pauses_grow_and_vary() -> None:
    policy = RetryPolicy(first_pause=0.1, growth=4)
    assert all(0.05 <= policy.compute_pause(1) <= 0.1 and 0.2 <= policy.compute_pause(2) <= 0.4 for _ in range(100))
    assert len({policy.compute_pause(1) for _ in range(10)}) > 1


def test_connections_and_busy_stores_are_transient_and_missing_things_are_not() -> None:
    assert is_transient(ConnectionResetError("reset"))
    assert is_transient(OSError("curlCode: 28, Timeout was reached"))
    assert not is_transient(FileNotFoundError("no"))
    assert not is_transient(OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation"))


def test_a_permission_error_names_the_path_once() -> None:
    def refuse() -> None:
        raise PermissionError(
            13, "Failed to open local file '/data/t'. Detail: [errno 13] Permission denied", "/data/t"
        )

    with pytest.raises(
        StorageError, match=r"^no permission to read '/data/t'\. Ask its owner for the right to read it$"
    ):
        run_with_retries(refuse, RetryPolicy(), "read", "/data/t")
    with pytest.raises(StorageError, match=r"^no permission to remove '/data/t'\. Ask .* the right to remove it$"):
        run_with_retries(refuse, RetryPolicy(), "remove", "/data/t")

    def fail() -> None:
        raise OSError(5, "Cannot read '/data/t'. Detail: [errno 5] Input/output error")

    with pytest.raises(StorageError, match=r"^cannot read '/data/t' after 1 try: Input/output error$"):
        run_with_retries(fail, RetryPolicy(tries=1), "read", "/data/t")
