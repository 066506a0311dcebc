"""Units of every kind against the oracle: O3 to O6 for files, rows of pages, and metadata by itself."""

from __future__ import annotations

from oracles.formats.delta import DELTA_FILES, DELTALAKE_FILES
from oracles.formats.iceberg import ICEBERG_FILES, PYICEBERG_FILES
from oracles.formats.metadata import METADATA, WIDENED_METADATA
from oracles.formats.pages import PAGE_ROWS
from oracles.frame import Format, check_units, check_weaker_statistics, parametrize_formats

FORMATS = (METADATA, PAGE_ROWS, DELTA_FILES, DELTALAKE_FILES, ICEBERG_FILES, PYICEBERG_FILES)


@parametrize_formats(FORMATS)
def test_O3_O4_O6_units_of_true_rows_are_kept_and_full_matches_have_only_such(format: Format) -> None:
    format.check("O3", check_units)


@parametrize_formats([WIDENED_METADATA, *FORMATS])
def test_O5_less_metadata_never_removes_a_unit(format: Format) -> None:
    format.check("O5", check_weaker_statistics)
