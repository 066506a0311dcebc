"""Paths of a log: decoded once, relative or absolute, and outside the table only if that is allowed."""

from __future__ import annotations

import pytest

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.delta.paths import join_below_root, resolve_path
from tamis.io.storage import Storage, open_storage

LOCAL = open_storage("/data/table")
S3 = open_storage("s3://bucket/some/table", {"AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true"})


@pytest.mark.parametrize(
    ("storage", "path", "expected"),
    [
        (LOCAL, "a.parquet", "/data/table/a.parquet"),
        (LOCAL, "p=1/a%20b.parquet", "/data/table/p=1/a b.parquet"),
        (LOCAL, "a%2525b.parquet", "/data/table/a%25b.parquet"),
        (LOCAL, "a+b%2B.parquet", "/data/table/a+b+.parquet"),
        (LOCAL, "a%3Ab/c%C3%A9.parquet", "/data/table/a:b/cé.parquet"),
        (LOCAL, "a..b/..c/d..", "/data/table/a..b/..c/d.."),
        (LOCAL, "/data/table/x.parquet", "/data/table/x.parquet"),
        (LOCAL, "file:/data/table/x%20y", "/data/table/x y"),
        (LOCAL, "FILE:///data/table/x", "/data/table/x"),
        (S3, "a//b", "bucket/some/table/a//b"),
        (S3, "s3://bucket/some/table/a%20b", "bucket/some/table/a b"),
        (S3, "s3a://bucket/some/table/a", "bucket/some/table/a"),
        (S3, "/some/table/a", "bucket/some/table/a"),
    ],
)
def test_D2_paths_are_decoded_once(storage: Storage, path: str, expected: str) -> None:
    assert resolve_path(storage, path) == expected


@pytest.mark.parametrize(
    ("storage", "path", "expected"),
    [
        (LOCAL, "file:///data/table-sibling/a", "/data/table-sibling/a"),
        (LOCAL, "/data/table", "/data/table"),
        (LOCAL, "/etc/passwd", "/etc/passwd"),
        (LOCAL, "%2Fetc/passwd", "/etc/passwd"),
        (S3, "s3://other/some/table/a", "other/some/table/a"),
        (S3, "s3n://bucket/some/tables/a", "bucket/some/tables/a"),
    ],
)
def test_X7_absolute_paths_outside_the_table_need_permission(storage: Storage, path: str, expected: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"outside of the table's directory: .*allow_outside=True"):
        resolve_path(storage, path)
    assert resolve_path(storage, path, allow_outside=True) == expected


@pytest.mark.parametrize("path", ["..", "../a", "a/../../b", "%2e%2e/a", "a/%2E./b", "/data/table/../x", "a/.."])
@pytest.mark.parametrize("allow_outside", [False, True])
def test_X7_no_path_contains_parent_directories(path: str, allow_outside: bool) -> None:
    with pytest.raises(CorruptFile, match="must not contain"):
        resolve_path(LOCAL, path, allow_outside=allow_outside)


def test_X7_an_allowed_outside_path_must_not_contain_parent_directories() -> None:
    with pytest.raises(UnsupportedFeature, match=r"a path with '\.\.' is never read"):
        resolve_path(LOCAL, "file:///data/x/../y", allow_outside=True)


@pytest.mark.parametrize("path", ["", "a%00b", "a%ff"])
def test_invalid_paths(path: str) -> None:
    with pytest.raises(CorruptFile, match=r"has the invalid path|not percent-encoded UTF-8"):
        resolve_path(LOCAL, path)


@pytest.mark.parametrize(("storage", "path"), [(LOCAL, "s3://bucket/a"), (S3, "file:///a"), (S3, "gs://bucket/a")])
def test_another_file_system_is_named(storage: Storage, path: str) -> None:
    with pytest.raises(UnsupportedFeature, match="in another file system"):
        resolve_path(storage, path, allow_outside=True)


def test_a_decoded_path_is_not_decoded_again() -> None:
    assert join_below_root(LOCAL, "a%20b/c") == "/data/table/a%20b/c"
