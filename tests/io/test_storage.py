"""Storage: paths, URIs, and storage options in the spellings of other libraries."""

import pickle
from pathlib import Path

import fsspec
import pyarrow.fs as pafs
import pytest

from tamis.errors import InvalidArgument, StorageError, TableNotFound
from tamis.io.listing import list_directory
from tamis.io.storage import open_storage
from tamis.io.storage_options import S3Options


def test_a_path_a_text_and_a_uri_of_one_directory_are_one_location(tmp_path: Path) -> None:
    table = tmp_path / "a b%41#c"
    table.mkdir()
    storages = [open_storage(given) for given in (table, str(table), f"{table}/", table.as_uri())]
    assert {each.root for each in storages} == {str(table)}
    assert all(each.is_local for each in storages)


def test_relative_paths_and_the_home_directory_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somewhere")
    assert open_storage("table").root == str(tmp_path / "table")
    assert open_storage("../table").root == str(tmp_path.parent / "table")
    assert open_storage("~/table").root == "/somewhere/table"


def test_a_link_is_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert open_storage(tmp_path / "link").root == str(tmp_path / "link")


@pytest.mark.parametrize("uri", ["file://host/table", "", "  ", "s3://", "a\0b"])
def test_an_invalid_location_is_refused(uri: str) -> None:
    with pytest.raises(InvalidArgument):
        open_storage(uri)


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"no file system for 'ftp://'.*s3://.*filesystem"):
        open_storage("ftp://host/table")


def test_bytes_are_not_a_location() -> None:
    with pytest.raises(InvalidArgument, match="found a bytes"):
        open_storage(b"table")  # type: ignore[arg-type]


SPELLINGS = {
    "deltalake": {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://localhost:5000",
        "AWS_ALLOW_HTTP": "true",
    },
    "short": {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-west-1",
        "endpoint_url": "http://localhost:5000",
        "allow_http": True,
    },
    "polars": {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_region": "eu-west-1",
        "aws_endpoint_url": "http://localhost:5000",
        "aws_allow_http": "1",
    },
    "pyiceberg": {
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.region": "eu-west-1",
        "s3.endpoint": "http://localhost:5000",
    },
}


@pytest.mark.parametrize("library", SPELLINGS)
def test_the_spellings_of_other_libraries_mean_the_same(library: str) -> None:
    assert S3Options.from_options(SPELLINGS[library]).to_arguments("bucket") == {
        "access_key": "key",
        "secret_key": "secret",
        "session_token": "token",
        "region": "eu-west-1",
        "endpoint_override": "localhost:5000",
        "scheme": "http",
    }


def test_flags_timeouts_and_an_endpoint_without_scheme() -> None:
    options = {
        "AWS_SKIP_SIGNATURE": "True",
        "endpoint": "minio:9000",
        "virtual_hosted_style_request": "yes",
        "timeout": "500ms",
        "s3.connect-timeout": 5,
    }
    assert S3Options.from_options(options).to_arguments("bucket") == {
        "anonymous": True,
        "endpoint_override": "minio:9000",
        "scheme": "https",
        "force_virtual_addressing": True,
        "request_timeout": 0.5,
        "connect_timeout": 5.0,
    }


def test_options_reach_the_s3_file_system() -> None:
    storage = open_storage("s3a://bucket/some table/a%20b/", SPELLINGS["polars"])
    assert isinstance(storage.filesystem, pafs.S3FileSystem)
    assert storage.filesystem.region == "eu-west-1"
    assert (storage.root, storage.uri, storage.is_local) == (
        "bucket/some table/a%20b",
        "s3://bucket/some table/a%20b",
        False,
    )
    assert storage.format_path("bucket/x") == "s3://bucket/x"


def test_credentials_in_a_uri_are_used_and_not_kept_in_its_text() -> None:
    storage = open_storage("s3://key:sec%2Fret@bucket/table", {"region": "eu-west-1"})
    assert storage.uri == "s3://bucket/table"
    assert "ret" not in repr(storage.uri)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match=r"no storage option 'AWS_REGOIN'\. Did you mean 'aws_region'"):
        open_storage("s3://bucket/table", {"AWS_REGOIN": "x"})
    with pytest.raises(InvalidArgument, match="no storage option 'quux'"):
        open_storage("/local", {"quux": "x"})


def test_options_of_writers_are_ignored() -> None:
    assert S3Options.from_options({"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}) == S3Options()


def test_options_that_contradict_each_other_are_refused() -> None:
    assert S3Options.from_options({"region": "a", "AWS_REGION": "a"}).region == "a"
    with pytest.raises(InvalidArgument, match="'region' and 'AWS_REGION' contradict"):
        S3Options.from_options({"region": "a", "AWS_REGION": "b"})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"anon": "perhaps"}, "true or false"), ({"timeout": "soon"}, "give seconds")],
)
def test_an_option_value_that_cannot_be_read_says_what_to_give(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        S3Options.from_options(options)


def test_options_for_a_scheme_that_takes_none_are_not_dropped_silently() -> None:
    with pytest.raises(InvalidArgument, match="filesystem"):
        open_storage("gs://bucket/table", {"region": "x"})


def test_a_key_inside_of_a_uri_is_not_shown() -> None:
    if not hasattr(pafs, "AzureFileSystem"):
        pytest.skip("this build of pyarrow has no Azure support")
    storage = open_storage("abfss://lake:c2VjcmV0@account.dfs.core.windows.net/t/")
    assert storage.uri == "abfss://lake@account.dfs.core.windows.net/t"
    assert "c2VjcmV0" not in repr(storage)
    assert storage.given == ("abfss://lake:c2VjcmV0@account.dfs.core.windows.net/t/", {})


def test_a_pyarrow_file_system_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x")
    tree = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    storage = open_storage("inner", {"filesystem": tree})
    assert storage.is_local
    assert list_directory(storage, storage.root).file_paths.to_pylist() == ["inner/file"]


def test_an_fsspec_file_system_is_used_as_it_is() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/fsspec-table/a=1/part.parquet", b"1234")
    storage = open_storage("memory://fsspec-table", {"filesystem": memory})
    directories = list_directory(storage, storage.root).directory_paths.to_pylist()
    assert [Path(path).name for path in directories] == ["a=1"]
    assert list_directory(storage, directories[0]).file_sizes.to_pylist() == [4]


def test_a_file_system_must_be_valid_and_excludes_other_options() -> None:
    with pytest.raises(InvalidArgument, match="is a str"):
        open_storage("/table", {"filesystem": "local"})
    with pytest.raises(InvalidArgument, match="already configured"):
        open_storage("/table", {"filesystem": pafs.LocalFileSystem(), "region": "x"})


def test_a_missing_table_is_table_not_found_and_names_the_uri(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "nothing")
    with pytest.raises(TableNotFound, match=str(tmp_path / "nothing")):
        list_directory(storage, storage.root)


def test_a_file_system_that_cannot_be_opened_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(uri: str) -> None:
        raise OSError("Unable to load\nlibjvm")

    monkeypatch.setattr("tamis.io.storage.pafs.FileSystem", type("Refusing", (), {"from_uri": staticmethod(refuse)}))
    with pytest.raises(StorageError, match="cannot open 'hdfs://name:8020/table': Unable to load libjvm"):
        open_storage("hdfs://name:8020/table")


def test_a_storage_can_be_pickled_with_new_counters(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    list_directory(storage, storage.root)
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert (storage.counters.listing_calls, copy.counters.listing_calls) == (1, 0)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_of_the_environment_is_used_unless_an_option_names_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://localhost:5000")
    found = S3Options.from_options({"AWS_REGION": "eu-west-1"}).to_arguments("bucket")
    assert (found["endpoint_override"], found["scheme"]) == ("localhost:5000", "http")
    found = S3Options.from_options({"endpoint": "https://other"}).to_arguments("bucket")
    assert (found["endpoint_override"], found["scheme"]) == ("other", "https")


def test_a_local_uri_may_have_one_slash_as_hadoop_writes_it(tmp_path: Path) -> None:
    assert open_storage(f"file:{tmp_path}").root == open_storage(f"file://{tmp_path}").root == str(tmp_path)
