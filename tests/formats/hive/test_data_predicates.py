"""Predicates on data columns of partitioned folders: they never prune a partition, whatever types their constants have.

The types of data columns are unknown while partitions are pruned, because a file may store a wider type than the table.
So constants of another type than the column are not in the column's type yet.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from tamis.errors import TamisError

DAY = datetime.date(2024, 1, 1)
LARGE = 2**53 + 1


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tamis.Table:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "x": pa.array([9, 10, 11], pa.int64()),
            "u": pa.array([LARGE, 1, LARGE], pa.uint64()),
            "d": pa.array([DAY, DAY, None], pa.date32()),
            "region": ["eu", "us", "eu"],
        }
    )
    folder = tmp_path_factory.mktemp("hive")
    pyarrow.dataset.write_dataset(rows, folder, format="parquet", partitioning=["region"], partitioning_flavor="hive")
    return tamis.open(folder)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x BETWEEN '9' AND '10'", [1, 2]),
        ("x > '8' AND x < '10'", [1]),
        ("x = '9' AND x = '09'", [1]),
        ("x IN ('9', '11') AND x IN ('09', '010')", [1]),
        ("x <> '9' AND x = '10'", [2]),
        ("x = '9' AND x = 9", [1]),
        ("d = '2024-01-01' AND d = DATE '2024-01-01'", [1, 2]),
        ("d >= '2024-1-1' AND d <= '2024-01-01'", [1, 2]),
        (f"u = {LARGE} AND u = {LARGE - 1}D", [1, 3]),
        (f"u > {LARGE - 1} AND u IN (3, {LARGE - 1}, 1.5D)", [1, 3]),
        ("region = 'eu' AND x BETWEEN '9' AND '10'", [1]),
        ("region = 'us' AND (x BETWEEN '9' AND '10' OR d IS NULL)", [2]),
    ],
)
def test_constants_of_other_types_lose_no_row(table: tamis.Table, where: str, expected: list[int]) -> None:
    assert sorted(table.scan(where).to_arrow()["id"].to_pylist()) == expected
    assert table.scan(where).count() == len(expected)


def test_a_contradiction_of_partition_values_still_prunes_all(table: tamis.Table) -> None:
    scan = table.scan("region = 'eu' AND region = 'us'")
    assert scan.plan("files").report.levels[0].kept == 0
    assert scan.count() == 0


NUMBERS = st.sampled_from([9, 10, 11, LARGE, LARGE - 1])
CONSTANTS = st.builds(
    lambda number, form: form.format(number),
    NUMBERS,
    st.sampled_from(["{}", "'{}'", "'0{}'", "{}D", "{}.0", "CAST({} AS DECIMAL(20, 0))"]),
)
COMPARISONS = st.builds(
    lambda column, operator, constant: f"{column} {operator} {constant}",
    st.sampled_from(["x", "u"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]),
    CONSTANTS,
) | st.builds(
    lambda column, items: f"{column} IN ({', '.join(items)})",
    st.sampled_from(["x", "u"]),
    st.lists(CONSTANTS, min_size=1, max_size=3),
)
PREDICATES = st.recursive(
    COMPARISONS | st.just("region = 'eu'"),
    lambda inner: st.builds(lambda parts, word: f"({word.join(parts)})", st.lists(inner, min_size=2, max_size=3),
                            st.sampled_from([" AND ", " AND ", " OR "])),
    max_leaves=6,
)  # fmt: skip


@given(PREDICATES)
def test_O1_partitions_of_matching_rows_are_kept(table: tamis.Table, where: str) -> None:
    try:
        expected = sorted(table.scan(where, levels=[]).to_arrow()["id"].to_pylist())
    except TamisError:
        # Constants of types without a common type.
        return
    assert sorted(table.scan(where).to_arrow()["id"].to_pylist()) == expected
