"""The newest action about a file holds: keys, deletion vectors, encoded paths, random logs against a plain replay."""

import random
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.delta.log import DeltaLog, add, commit_info, deletion_vector, get_file_key, remove
from tamis.formats.delta.log.replay import make_action_keys, percent_decode
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.storage import open_storage


def list_live_files(folder: Path, version: int | None = None) -> list[tuple[Any, ...]]:
    """Return the key and size of each live file."""
    snapshot = Snapshot.load(open_storage(folder), version)
    return sorted(map(repr, (make_key(row) for row in read_rows(snapshot))))


def read_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [row for part in snapshot.list_parts() for batch in part.read() for row in batch.to_pylist()]


def make_key(row: dict[str, Any]) -> tuple[Any, ...]:
    vector = row["deletion_vector"]
    known = vector and {
        "storageType": vector["storage_type"],
        "pathOrInlineDv": vector["path_or_inline"],
        "offset": vector["offset"],
    }
    return (*get_file_key({"path": row["path"], "deletionVector": known}), row["size"])


def compute_expected(log: DeltaLog, version: int | None = None) -> list[str]:
    return sorted(repr((*get_file_key(fields), fields["size"])) for fields in log.list_live_files(version))


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog(tmp_path)


def test_a_file_that_is_added_again_has_the_newest_entry(log: DeltaLog) -> None:
    log.commit(add("a", size=1), add("b", size=1))
    log.commit(remove("a"))
    log.commit(add("a", size=2))
    log.commit(add("b", size=3))
    assert list_live_files(log.table) == compute_expected(log)
    assert sorted(row["size"] for row in read_rows(Snapshot.load(open_storage(log.table)))) == [2, 3]


def test_removing_an_unknown_file_does_nothing(log: DeltaLog) -> None:
    log.commit(remove("x"), add("a"))
    log.checkpoint()
    log.commit(remove("y"))
    assert list_live_files(log.table) == compute_expected(log)


def test_in_one_commit_the_later_line_holds(log: DeltaLog) -> None:
    log.commit(add("a"), remove("a"), remove("b"), add("b"))
    assert [row["path"] for row in read_rows(Snapshot.load(open_storage(log.table)))] == ["b"]


@pytest.mark.parametrize("is_in_checkpoint", [True, False])
def test_D1_a_file_with_a_new_deletion_vector_is_another_file(log: DeltaLog, is_in_checkpoint: bool) -> None:
    first, second = deletion_vector(offset=1), deletion_vector(offset=2)
    log.commit(add("a", size=1), add("b", deletionVector=first, size=1))
    if is_in_checkpoint:
        log.checkpoint()
    log.commit(remove("a"), add("a", deletionVector=first, size=2))
    log.commit(remove("b", deletionVector=first), add("b", deletionVector=second, size=2))
    assert list_live_files(log.table) == compute_expected(log)
    found = {row["path"]: row["deletion_vector"]["offset"] for row in read_rows(Snapshot.load(open_storage(log.table)))}
    assert found == {"a": 1, "b": 2}


@pytest.mark.parametrize("is_in_checkpoint", [True, False])
def test_D1_the_offset_distinguishes_vectors_of_one_file(log: DeltaLog, is_in_checkpoint: bool) -> None:
    vectors = [deletion_vector("x" * 20, offset) for offset in (None, 0, 1, 11)]
    log.commit(*(add("a", deletionVector=vector, size=number) for number, vector in enumerate(vectors)), add("a"))
    if is_in_checkpoint:
        log.checkpoint()
    for number, vector in enumerate(vectors):
        log.commit(remove("a", deletionVector=vector))
        assert list_live_files(log.table) == compute_expected(log)
        assert len(list_live_files(log.table)) == 4 - number
    log.commit(remove("a"))
    assert list_live_files(log.table) == []


def test_D1_storage_type_and_path_are_distinguished(log: DeltaLog) -> None:
    inline = {"storageType": "i", "pathOrInlineDv": "x" * 20, "sizeInBytes": 36, "cardinality": 2}
    log.commit(
        add("a", deletionVector=deletion_vector("x" * 20, None)),
        add("a", deletionVector=inline),
        add("a", deletionVector=deletion_vector("y" * 20, None)),
    )
    log.commit(remove("a", deletionVector=inline))
    assert len(list_live_files(log.table)) == 2
    assert list_live_files(log.table) == compute_expected(log)


@pytest.mark.parametrize("is_in_checkpoint", [True, False])
@pytest.mark.parametrize(
    ("added", "removed", "is_same"),
    [
        ("a%20b", "a b", True),
        ("a%2525b", "a%25b", False),
        ("a%2525b", "a%2525b", True),
        ("a%25b", "a%b", True),
        ("%C3%A9", "é", True),
        ("%c3%a9", "%C3%A9", True),
        ("a%2Fb", "a/b", True),
        ("a%zz", "a%zz", True),
        ("a+b", "a b", False),
        ("A", "a", False),
        ("file:/x/a", "/x/a", True),
        ("file:///x/a", "/x/a", True),
        ("file:///x/a%20b", "file:/x/a b", True),
        ("s3://bucket/a", "s3://bucket/a", True),
        ("s3://bucket/a", "/a", False),
    ],
)
def test_D2_decoded_paths_are_compared(
    log: DeltaLog, added: str, removed: str, is_same: bool, is_in_checkpoint: bool
) -> None:
    log.commit(add(added), add("other"))
    if is_in_checkpoint:
        log.checkpoint()
    log.commit(remove(removed))
    paths = [row["path"] for row in read_rows(Snapshot.load(open_storage(log.table)))]
    assert sorted(paths) == sorted(["other"] if is_same else ["other", added])


def test_D2_paths_are_returned_encoded_as_in_the_log(log: DeltaLog) -> None:
    log.commit(add("a%2525b/c%20d"))
    assert [row["path"] for row in read_rows(Snapshot.load(open_storage(log.table)))] == ["a%2525b/c%20d"]


def test_more_keys_are_touched_than_a_row_group_has_files(log: DeltaLog) -> None:
    log.commit(*(add(f"{number}") for number in range(60)))
    log.checkpoint(row_group_size=7)
    log.commit(*(remove(f"{number}") for number in range(0, 60, 2)), *(add(f"new {number}") for number in range(200)))
    assert list_live_files(log.table) == compute_expected(log)
    _, checkpoint = Snapshot.load(open_storage(log.table)).list_parts()
    found = [row["path"] for batch in checkpoint.read(["path"]) for row in batch.to_pylist()]
    assert found == [str(number) for number in range(1, 60, 2)]


texts = st.lists(
    st.one_of(st.none(), st.lists(st.sampled_from(["%", "2", "5", "a", "F", "é", "%41", "z", "%e9"])).map("".join))
)


@given(texts, st.integers(0, 3))
def test_decoding_equals_that_of_single_texts(values: list[str | None], start: int) -> None:
    array = pa.array(values, pa.string()).slice(start)
    wanted = [None if value is None else unquote_to_bytes(value) for value in values[start:]]
    assert percent_decode(array).to_pylist() == wanted


def test_keys_of_a_path_and_of_a_vector_cannot_be_confused() -> None:
    vectors = pa.array(
        [None, {"storage_type": "u", "path_or_inline": "x", "offset": 1}],
        pa.struct([("storage_type", pa.string()), ("path_or_inline", pa.string()), ("offset", pa.int32())]),
    )
    first, second = make_action_keys(pa.array(["a", "a"]), vectors).to_pylist()
    assert first == b"a"
    assert second.startswith(b"a\0")
    assert make_action_keys(pa.array(["a", "a"]), None).to_pylist() == [b"a", b"a"]


def write_random_log(folder: Path, seed: int) -> DeltaLog:
    """Write random commits, compactions and checkpoints of every form."""
    chance = random.Random(seed)
    log = DeltaLog(folder)
    names = ["a", "b", "c d", "é", "100%", "d/e"]

    def make_action() -> dict[str, Any]:
        name = chance.choice(names)
        path = quote(name) if chance.random() < 0.5 else name.replace("%", "%25")
        offset = chance.choice([None, 1, 2])
        fields = {} if chance.random() < 0.5 else {"deletionVector": deletion_vector("x" * 20, offset)}
        if chance.random() < 0.6:
            return add(path, size=chance.randrange(1000), **fields)
        return remove(path, **fields)

    for _ in range(chance.randrange(1, 12)):
        actions: dict[Any, dict[str, Any]] = {}
        for _ in range(chance.randrange(6)):
            action = make_action()
            actions[get_file_key(next(iter(action.values())))] = action
        version = log.commit(commit_info(), *actions.values())
        form = chance.randrange(8)
        options: dict[str, Any] = {"row_group_size": chance.choice([None, 1, 3])}
        if form == 0:
            log.checkpoint(**options)
        elif form == 1:
            log.checkpoint(parts=chance.randrange(1, 4), **options)
        elif form == 2:
            log.checkpoint(sidecars=chance.randrange(3), top=chance.choice(["json", "parquet"]), **options)
        elif form == 3:
            log.checkpoint(sidecars=chance.randrange(3), uuid_named=False, **options)
        elif form == 4 and version:
            log.compact(chance.randrange(version), version)
    return log


@given(st.integers(0, 10**6))
def test_random_logs_replay_as_plain_python_does(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = write_random_log(Path(folder), seed)
        for version in {0, seed % len(log.commits), log.version}:
            assert list_live_files(Path(folder), version) == compute_expected(log, version)


@given(st.integers(0, 10**6))
def test_refreshed_random_logs_equal_loaded_ones(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = write_random_log(Path(folder) / "whole", seed)
        log = DeltaLog(Path(folder) / "grown")
        log.commit(*whole.commits[0][2:])
        log.checkpoint()
        snapshot = Snapshot.load(open_storage(log.table))
        for version, actions in list(whole.commits.items())[1:]:
            log.commit(*actions)
            if version % 3 == seed % 3:
                snapshot = snapshot.refresh()
        snapshot = snapshot.refresh()
        assert snapshot.version == log.version
        assert sorted(map(repr, (make_key(row) for row in read_rows(snapshot)))) == compute_expected(log)
