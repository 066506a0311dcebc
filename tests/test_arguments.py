"""Arguments of a wrong type: each raises an error of Tamis that names the argument."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from inspect import getattr_static, isfunction, signature
from pathlib import Path
from types import FunctionType
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import InvalidArgument, TypeMismatch, UnknownArgument, UnsupportedFeature


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    partition = tmp_path / "hive" / "z=1"
    partition.mkdir(parents=True)
    pq.write_table(pa.table({"i": [1, 2], "f": [1.0, 2.0]}), partition / "0.parquet")
    shutil.copytree(partition, tmp_path / "other" / "day=2024-01-01")
    return partition.parent


Call = Callable[[Path], Any]

CALLS: dict[str, tuple[Call, str]] = {
    "a Python type of a partition": (
        lambda at: tamis.open(at, partitioning={"z": int}),
        r"partitioning has the type <class 'int'> for 'z': give its name",
    ),
    "a partition by number": (
        lambda at: tamis.open(at, partitioning={5: "int"}),
        r"partitioning has the column 5: a name is a string",
    ),
    "partitioning of table_info": (
        lambda at: tamis.hive.table_info(at, partitioning=5),
        "partitioning must be a mapping of columns to types",
    ),
    "int96 of table_info": (
        lambda at: tamis.hive.table_info(at, int96="utc"),
        "int96 must be 'instant' or 'local', found 'utc'",
    ),
    "a prefix by number": (
        lambda at: tamis.hive.list_partition_files(at, 5),
        "prefix must be partition directories, .*, found an int",
    ),
    "commits that are no list": (
        lambda at: tamis.delta.read_post_checkpoint_changes(at, 5),
        "commits must be a list of paths, .*, found an int",
    ),
    "options of open": (lambda at: tamis.open(at, storage_options=5), "storage_options must be a .*, found an int"),
    "options as a text": (lambda at: tamis.open(at, storage_options="x"), "storage_options must be .*, found a str"),
    "an empty text as options": (lambda at: tamis.open(at, storage_options=""), "storage_options must be a mapping"),
    "an option by number": (
        lambda at: tamis.open(at, storage_options={5: 5}),
        "the name of a storage option must be a string, .*, found an int",
    ),
    "options of connect": (lambda at: tamis.connect(storage_options=5), "storage_options must be a .*, found an int"),
    "an unknown option of connect": (lambda at: tamis.connect(storage_options={"x": 1}), "no storage option 'x'"),
    "merge_schema": (lambda at: tamis.open(at, merge_schema="x"), "merge_schema must be True or False, found 'x'"),
    "allow_outside": (lambda at: tamis.open(at, allow_outside="no"), "allow_outside must be True or False, found 'no'"),
    "relocate": (lambda at: tamis.open(at, relocate=None), "relocate must be True or False, found None"),
    "allow_outside of a catalog": (
        lambda at: tamis.connect().attach("c", catalog={"type": "in-memory"}, allow_outside="no"),
        "allow_outside must be True or False, found 'no'",
    ),
    "columns of a scan": (lambda at: tamis.open(at).scan(columns=5), "columns must be a list of names, found an int"),
    "a mapping of columns": (
        lambda at: tamis.open(at).scan(columns={"i": "j"}),
        "columns must be a list of names, found a dict",
    ),
    "levels of a scan": (lambda at: tamis.open(at).scan(levels=5), "levels must be a list of .*, found an int"),
    "a connection": (lambda at: tamis.open(at).scan().to_duckdb(5), "connection must be one of .*, found an int"),
    "a cast": (lambda at: tamis.col("i").cast(5), "the target of a cast must be the name of a type, .*, found an int"),
    "columns of an index": (lambda at: tamis.index.build(at, columns=5), "columns must be a list .*, found an int"),
    "a column of an index": (
        lambda at: tamis.index.build(at, bloom=[5]),
        "each item of bloom must be the name of a column, found an int",
    ),
    "a share": (
        lambda at: tamis.index.build(at, false_positives="x"),
        "false_positives must be a share between 0 and 1, found a str",
    ),
    "the location of an index": (
        lambda at: tamis.index.build(at, location=5),
        "location must be the path or the URI of a folder .*, found an int",
    ),
    "the location of an index to drop": (
        lambda at: tamis.index.drop(at, location=5),
        "location must be the path or the URI of a folder",
    ),
    "progress": (lambda at: tamis.index.build(at, progress=5), "progress must be a function .*, found an int"),
    "the location of a table": (
        lambda at: tamis.index.drop(5),
        "the location of a table must be a string or a path, found an int",
    ),
    "a location of bytes": (
        lambda at: tamis.delta.snapshot_info(b"x"),
        "the location of a table must be a string or a path, found a bytes",
    ),
    "Python objects": (
        lambda at: tamis.connect().register("x", pandas.DataFrame({"a": [object()]})),
        "Arrow cannot convert a DataFrame: .* column a .*Give the column a single type",
    ),
    "columns of one name": (
        lambda at: tamis.connect().register("x", pandas.DataFrame([[1, 2]], columns=["a", "a"])),
        "Arrow cannot convert a DataFrame: .*'a'",
    ),
    "the policies' path": (lambda at: tamis.connect(policies="a\0b"), "the policies in .* cannot be read"),
    "an unknown rule": (
        lambda at: tamis.connect().sql("SELECT 1", rules={"push_everything": True}),
        "no rule 'push_everything'. Rules: ",
    ),
    "a near rule": (
        lambda at: tamis.connect().sql("SELECT 1", rules={"push_limit_into_scans": True}),
        r"no rule 'push_limit_into_scans'\. Did you mean 'push_limit_into_scan'\? Rules: ",
    ),
    "rules in a list": (
        lambda at: tamis.connect().sql("SELECT 1", rules=["x"]),
        r"rules= must be True, False, or a mapping of rules to True or False, as in \{.*\}, found \['x'\]",
    ),
    "a near format": (
        lambda at: tamis.open(at, format="parqet"),
        r"no table format 'parqet'\. Did you mean 'parquet'\? Formats: delta, ",
    ),
    "a near level": (
        lambda at: tamis.open(at).scan(levels=["page"]),
        r"no level 'page'\. Did you mean 'pages'\? Levels: partitions, ",
    ),
    "a near depth": (
        lambda at: tamis.open(at).scan().plan("page"),
        r"no depth 'page'\. Did you mean 'pages'\? Depths: files, ",
    ),
    "a near partition column": (
        lambda at: tamis.open(at.parent / "other", partitioning={"dya": "date"}),
        r"'dya', which is not a partition column\. Did you mean 'day'\? Partition columns: day",
    ),
    "a rule by text": (
        lambda at: tamis.connect().sql("SELECT 1", rules={"push_limit_into_scan": "no"}),
        "the rule 'push_limit_into_scan' to True or False, found 'no'",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_another_kind_is_named(name: str, folder: Path) -> None:
    call, message = CALLS[name]
    with pytest.raises(InvalidArgument, match=message):
        call(folder)


def test_options_that_may_hold_a_secret_are_not_repeated(folder: Path) -> None:
    with pytest.raises(InvalidArgument) as raised:
        tamis.open(folder, storage_options="AWS_SECRET_ACCESS_KEY=hush")
    assert "hush" not in str(raised.value)


UNKNOWN: dict[str, tuple[Call, str]] = {
    "open": (
        lambda at: tamis.open(at, verison=3),
        r"tamis.open\(\) has no argument 'verison': did you mean version=\?",
    ),
    "open of a session": (
        lambda at: tamis.connect().open(at, storage_option={}),
        r"Session.open\(\) has no argument 'storage_option': did you mean storage_options=\?",
    ),
    "connect": (lambda at: tamis.connect(policy={}), r"tamis.connect\(\) .* did you mean policies=\?"),
    "scan": (lambda at: tamis.open(at).scan(filter="i > 1"), r"Table.scan\(\) .* did you mean where=\?"),
    "at": (lambda at: tamis.open(at).at(branch="main"), r"Table.at\(\) .* did you mean ref=\?"),
    "files": (lambda at: tamis.open(at).files(predicate="i > 1"), r"Table.files\(\) .* did you mean where=\?"),
    "sql": (lambda at: tamis.connect().sql("SELECT 1", params=[1]), r"Session.sql\(\) .* did you mean args=\?"),
    "at of a snapshot": (lambda at: tamis.open(at).at(snapshot_id=1), r"Table.at\(\) .* did you mean version=\?"),
    "head": (lambda at: tamis.open(at).head(n=1), r"Table.head\(\) .* did you mean count=\?"),
    "attach": (lambda at: tamis.connect().attach("c", catalg={}), r"Session.attach\(\) .* did you mean catalog=\?"),
    "plan": (lambda at: tamis.open(at).scan().plan(dept="files"), r"Scan.plan\(\) .* did you mean depth=\?"),
    "select": (
        lambda at: tamis.open(at).scan().select(column="i"),
        r": pass columns by position. Arguments: \*columns",
    ),
    "select of columns": (lambda at: tamis.open(at).scan().select(columns=["i"]), ": pass columns by position."),
    "to_arrow": (
        lambda at: tamis.open(at).scan().to_arrow(limit=1),
        r"Scan.to_arrow\(\) .*: call it without arguments",
    ),
    "explain": (lambda at: tamis.connect().explain("SELECT 1", formt="json"), "did you mean format=?"),
    "index.build": (lambda at: tamis.index.build(at, to="x"), r"tamis.index.build\(\) .* did you mean location=\?"),
    "the start of an argument": (lambda at: tamis.index.build(at, loc="x"), r"\(\) .* 'loc': did you mean location=\?"),
    "index.status": (lambda at: tamis.index.status(at, to="x"), "did you mean location=?"),
    "index.drop": (lambda at: tamis.index.drop(at, on="x"), "Arguments: uri, location, storage_options"),
    "delta.snapshot_info": (lambda at: tamis.delta.snapshot_info(at, versoin=1), "did you mean version=?"),
    "delta.list_files": (lambda at: tamis.delta.list_files(at, where=None), "did you mean filter=?"),
    "delta.read_checkpoint_part": (
        lambda at: tamis.delta.read_checkpoint_part(at, "x", where=None),
        "did you mean filter=?",
    ),
    "delta.read_post_checkpoint_changes": (
        lambda at: tamis.delta.read_post_checkpoint_changes(at, [], filters=None),
        "did you mean filter=?",
    ),
    "iceberg.snapshot_info": (lambda at: tamis.iceberg.snapshot_info(at, snapshot=1), "did you mean snapshot_id=?"),
    "iceberg.list_files": (lambda at: tamis.iceberg.list_files(at, tag="x"), "did you mean ref=?"),
    "iceberg.read_manifest_file": (
        lambda at: tamis.iceberg.read_manifest_file(at, "x", where=None),
        "did you mean filter=?",
    ),
    "hive.table_info": (lambda at: tamis.hive.table_info(at, partition={}), "did you mean partitioning=?"),
    "hive.list_partition_files": (
        lambda at: tamis.hive.list_partition_files(at, "", options={}),
        "did you mean storage_options=?",
    ),
}


MODULES = (
    tamis, tamis.delta, tamis.expressions, tamis.hive, tamis.iceberg, tamis.index, tamis.parquet, tamis.spark,
)  # fmt: skip
FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if isfunction(getattr(module, name))
}
CLASSES = [getattr(tamis, name) for name in tamis.__all__ if isinstance(getattr(tamis, name), type)]
# Nothing calls these with keywords: people subclass connectors, and Tamis makes the errors.
CLASSES = [each for each in CLASSES if each not in (tamis.Connector, tamis.TamisError)]
METHODS = {
    f"{each.__name__}.{name}": getattr(each, name)
    for each in CLASSES
    for name in dir(each)
    if not name.startswith("_") and isinstance(getattr_static(each, name), FunctionType | classmethod | staticmethod)
}
PRUNERS = (tamis.parquet.Pruner, tamis.parquet.PruneRequest, tamis.parquet.PruneOptions)
PUBLIC = FUNCTIONS | {each.__name__: each for each in (*CLASSES, *PRUNERS)} | METHODS


def test_the_public_interface_is_complete() -> None:
    expected = {"tamis.open", "tamis.parquet.inspect", "Tuning", "Table.head", "Session.attach", "Query.to_polars"}
    assert PUBLIC.keys() >= expected


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_callable_names_an_unknown_argument(name: str) -> None:
    # One function is public in three modules.
    shown = "tamis.delta.export_batch" if name.endswith(".export_batch") else name
    with pytest.raises(UnknownArgument) as caught:
        PUBLIC[name](no_such_argument=1)
    assert str(caught.value).startswith(f"{shown}() has no argument 'no_such_argument'")


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_argument_suggests_the_nearest_one(name: str, folder: Path) -> None:
    call, message = UNKNOWN[name]
    with pytest.raises(UnknownArgument, match=message) as caught:
        call(folder)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, tamis.TamisError)


def test_python_itself_names_a_function_as_users_do() -> None:
    with pytest.raises(TypeError, match=r"^tamis\.open\(\) missing 1 required positional argument: 'uri'$"):
        tamis.open()  # type: ignore[call-arg]
    assert tamis.open.__name__ == "open"
    assert pickle.loads(pickle.dumps(tamis.open)) is tamis.open


def test_the_type_of_a_partition_column_is_suggested(folder: Path) -> None:
    with pytest.raises(TypeMismatch, match=r"no type 'strng'\. Did you mean 'string'\? Types: bigint, "):
        tamis.open(folder, partitioning={"z": "strng"})


@pytest.mark.parametrize("name", ["version", "timestamp", "snapshot_id", "ref"])
def test_an_argument_that_a_folder_does_not_have_is_named(name: str, folder: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=f"^{name}= was given, .*: open it without {name}=$"):
        tamis.open(folder, **{name: 1})


def test_functions_keep_their_signatures() -> None:
    first, second, *_ = signature(tamis.delta.list_files).parameters
    assert (first, second) == ("uri", "filter")
    assert list(signature(tamis.Session.open).parameters)[1:] == list(signature(tamis.open).parameters)
    assert list(signature(tamis.Session.explain).parameters)[1:3] == ["query", "args"]
