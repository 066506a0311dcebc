"""Symbolic links in Delta and Iceberg tables on a local disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import tamis
from builders.pyiceberg.tables import create_table
from tamis.errors import UnsupportedFeature
from tamis.io.storage import open_storage
from tamis.parquet.footer.footer import FOOTERS
from tamis.tuning import Tuning

ROWS = pa.table({"id": [1, 2], "p": ["a", "b"]})


def write_delta(root: Path) -> None:
    write_deltalake(root, ROWS, partition_by=["p"])


def write_iceberg(root: Path) -> None:
    table = create_table(root, ROWS.schema)
    with table.update_spec() as spec:
        spec.add_identity("p")
    table.append(ROWS)


def find_data_file(root: Path) -> Path:
    return next(root.rglob("p=a/*.parquet"))


def move_file(root: Path, target: Path) -> None:
    file = find_data_file(root)
    file.rename(target / file.name)
    file.symlink_to(target / file.name)


def move_folder(root: Path, target: Path) -> None:
    folder = find_data_file(root).parent
    folder.rename(target / "data")
    folder.symlink_to(target / "data", target_is_directory=True)


def move_log(root: Path, target: Path) -> None:
    folder = next(each for each in (root / "_delta_log", root / "metadata") if each.exists())
    folder.rename(target / "log")
    folder.symlink_to(target / "log", target_is_directory=True)


@pytest.mark.parametrize("write", [write_delta, write_iceberg])
@pytest.mark.parametrize("move", [move_file, move_folder, move_log])
def test_X14_links_out_of_a_table_are_refused_unless_allowed(
    tmp_path: Path, write: Callable[[Path], None], move: Callable[[Path, Path], None]
) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    write(root)
    assert tamis.open(root).scan().count() == 2
    move(root, outside)
    for ask in (
        lambda: tamis.open(root).scan().to_arrow(),
        lambda: tamis.open(root).scan().count(),
        lambda: tamis.open(root).scan("p = 'a'").plan("files"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"leads out of the table's folder.*allow_outside=True"):
            ask()
    assert tamis.open(root, allow_outside=True).scan().to_arrow().num_rows == 2
    # A table opened without permission must not use the cache of a table opened with it.
    with pytest.raises(UnsupportedFeature, match="leads out of the table's folder"):
        tamis.open(root).scan().to_arrow()


@pytest.mark.parametrize("write", [write_delta, write_iceberg])
@pytest.mark.parametrize("move", [move_file, move_folder, move_log])
def test_X14_links_inside_of_a_table_and_a_root_that_is_a_link_are_followed(
    tmp_path: Path, write: Callable[[Path], None], move: Callable[[Path, Path], None]
) -> None:
    root, inside = tmp_path / "t", tmp_path / "t" / "elsewhere"
    write(root)
    inside.mkdir()
    move(root, inside)
    link = tmp_path / "link"
    link.symlink_to(root, target_is_directory=True)
    for location in (root, link):
        FOOTERS.clear()
        assert tamis.open(location).scan().to_arrow().sort_by("id") == tamis.open(root).scan().to_arrow().sort_by("id")
        assert tamis.open(location).scan().count() == 2


@pytest.mark.parametrize("few", [0, 1000])
def test_X14_many_paths_are_checked_as_each_alone(tmp_path: Path, few: int) -> None:
    root = tmp_path / "t"
    (root / "a").mkdir(parents=True)
    for name in ("a/1", "a/2", "3"):
        (root / name).write_text("")
    (tmp_path / "secret").write_text("")
    (root / "a" / "in").symlink_to(root / "3")
    (root / "a" / "out").symlink_to(tmp_path / "secret")
    storage = open_storage(root).with_tuning(Tuning(max_paths_checked_singly=few))
    fine = pa.array([f"{root}/{name}" for name in ("a/1", "a/in", "3", "gone", "nowhere/x")])
    storage.check_all_links(fine)
    # A path that is not below the root was allowed when it was resolved.
    storage.check_all_links(pa.array([f"{tmp_path}/secret", f"{root}/a/1"]))
    with pytest.raises(UnsupportedFeature, match="a/out' leads out"):
        storage.check_all_links(pa.concat_arrays([fine, pa.array([f"{root}/a/out"])]))
    storage.with_outside_links(True).check_all_links(pa.array([f"{root}/a/out"]))
