"""Scans of every format against the oracle: O1, O2, O9 and O10 over random tables, data, layouts and predicates."""

from __future__ import annotations

from dataclasses import replace

from oracles.formats.delta import DELTA, DELTA_VERSIONS, DELTALAKE
from oracles.formats.evolved import EVOLVED
from oracles.formats.hive import HIVE
from oracles.formats.iceberg import ICEBERG, ICEBERG_SNAPSHOTS, PYICEBERG
from oracles.formats.indexed import INDEXED_DELTA_VERSIONS, INDEXED_HIVE
from oracles.formats.pages import PAGES, PAGES_OF_TABLES
from oracles.frame import (
    Format,
    check_all_subsets,
    check_file_batches,
    check_levels,
    check_limit,
    check_proofs,
    check_three_parts,
    check_versions,
    parametrize_formats,
)

FORMATS = (HIVE, DELTA, DELTALAKE, ICEBERG, PYICEBERG, PAGES, PAGES_OF_TABLES, EVOLVED)


@parametrize_formats([*FORMATS, INDEXED_HIVE])
def test_O1_every_subset_of_levels_returns_the_rows_of_a_full_scan(format: Format) -> None:
    format.check("O1", check_levels)


@parametrize_formats([replace(each, predicates={"O1": 1}) for each in FORMATS])
def test_O1_no_subset_of_levels_is_an_exception(format: Format) -> None:
    format.check("O1", check_all_subsets, one_in=10)


@parametrize_formats(FORMATS)
def test_O2_rows_of_p_and_not_p_and_p_is_null_are_all_rows(format: Format) -> None:
    format.check("O2", check_three_parts)


@parametrize_formats([*FORMATS, INDEXED_HIVE])
def test_O9_what_files_prove_is_not_proven_again_and_changes_nothing(format: Format) -> None:
    format.check("O9", check_proofs)


@parametrize_formats([HIVE, DELTA, DELTALAKE, ICEBERG, PYICEBERG, INDEXED_HIVE])
def test_O10_file_batches_have_all_files_and_select_those_of_the_plan(format: Format) -> None:
    format.check("O10", check_file_batches)


@parametrize_formats([DELTA_VERSIONS, ICEBERG_SNAPSHOTS, INDEXED_DELTA_VERSIONS])
def test_O1_every_version_has_its_rows_however_it_is_reached(format: Format) -> None:
    format.check("versions", check_versions)


@parametrize_formats([replace(HIVE, one_in=4), DELTA, ICEBERG])
def test_a_limit_returns_so_many_of_the_rows(format: Format) -> None:
    format.check("limit", check_limit)
