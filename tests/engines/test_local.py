"""Jobs in threads of this process, and the rules for jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tamis.engines.jobs import LocalEngine
from tamis.errors import InvalidArgument, MissingFile
from tamis.formats.hive.tree import FUNCTION, list_directories_in
from tamis.formats.jobs import Arguments, Item, Job, can_serialise, find_function, read_table, storage_to_arguments
from tamis.io.counters import IoCounters
from tamis.io.storage import open_storage


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for number in range(600):
        (tmp_path / f"{number:03}").mkdir()
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / "001" / name).write_bytes(b"123")
    (tmp_path / "599" / "below").mkdir()
    return tmp_path


def test_batches_are_in_the_order_of_the_items_and_reads_are_counted(folders: Path) -> None:
    storage = open_storage(folders)
    paths = [f"{folders}/{number:03}" for number in range(600)]
    listings = list_directories_in(LocalEngine(), storage, paths)
    assert len(listings) == 600
    assert [number for number, each in enumerate(listings) if len(each.file_paths) or len(each.directory_paths)] == [
        1,
        599,
    ]
    assert listings[1].file_paths.to_pylist() == [f"{folders}/001/a.parquet", f"{folders}/001/b.parquet"]
    assert listings[1].file_sizes.to_pylist() == [3, 3]
    assert listings[599].directory_paths.to_pylist() == [f"{folders}/599/below"]
    assert storage.counters.listing_calls == 600


def test_an_error_is_raised_unchanged(folders: Path) -> None:
    with pytest.raises(MissingFile, match=r"no directory '.*nowhere'"):
        list_directories_in(LocalEngine(), open_storage(folders), [f"{folders}/nowhere"])


def test_shared_state_is_prepared_once() -> None:
    made = []

    def prepare(arguments: Arguments) -> int:
        made.append(1)
        return int(arguments["number"])

    arguments = Arguments(json.dumps({"number": 3}))
    assert [arguments.memoise(prepare), arguments.memoise(prepare)] == [3, 3]
    assert made == [1]
    assert dict(arguments) == {"number": 3}


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "tamis:open",
        "tamis.formats.jobs",
        "tamis.formats.jobs:",
        "tamis.formats.jobs:Job.arguments_text",
        "tamis.formats.hive.tree:list_directories",
        "tamis.formats.hive.tree:nothing",
        "tamis_of_others.module:function",
    ],
)
def test_X9_only_module_level_functions_of_tamis_run_in_a_job(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"a job must be a function of this package|there is no function"):
        find_function(name)
    assert find_function(FUNCTION).__name__ == "list_call"


def test_job_arguments_must_be_json_values() -> None:
    with pytest.raises(TypeError):
        Job(FUNCTION, {"storage": object()}, pa.schema([]), "nothing").arguments_text
    with pytest.raises(ValueError, match=r"NaN|not JSON compliant"):
        Job(FUNCTION, {"number": float("nan")}, pa.schema([]), "nothing").arguments_text


def test_a_storage_is_sent_by_uri_and_options_but_not_a_file_system_object(tmp_path: Path) -> None:
    given = {"AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true"}
    storage = open_storage("s3://bucket/table/", given)
    elsewhere = Arguments(json.dumps(storage_to_arguments(storage))).storage
    assert (elsewhere.root, elsewhere.uri) == (storage.root, storage.uri)
    assert elsewhere.filesystem.equals(storage.filesystem)
    opened = open_storage(tmp_path, {"filesystem": pa.fs.LocalFileSystem()})
    assert can_serialise(storage)
    assert not can_serialise(opened)
    with pytest.raises(InvalidArgument, match=r"opened with a file system object.*planning='local'"):
        storage_to_arguments(opened)


def test_credentials_in_a_uri_are_sent_but_not_shown() -> None:
    storage = open_storage("s3://key:secret@bucket/table", {"AWS_REGION": "eu-west-1"})
    assert storage_to_arguments(storage)["storage"]["uri"] == "s3://key:secret@bucket/table"
    assert "secret" not in repr(storage)


def test_items_hold_tables() -> None:
    table = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    assert read_table(Item.from_table(table, 5).value).equals(table)
    assert Item.from_json({"a": [1]}).value == b'{"a": [1]}'


def test_a_job_without_a_storage_has_no_counts() -> None:
    assert Arguments("{}").counts() == IoCounters().counts()
