"""Table columns may have the names of metadata columns: the two are never confused."""

from __future__ import annotations

import pytest

from builders.skipping.units import ALL_NULL, BIG, DOUBLE, FULLY_MATCHED, KEPT, SKIPPED, Unit, find_outcomes

NO_ROWS = Unit(None, None, 0, None, 0)
UNITS = [
    Unit(1, 9),
    Unit(21, 30),
    Unit(10, 10),
    Unit(15, 25),
    ALL_NULL,
    Unit(None, None, None),
    Unit(21, 30, 3),
    NO_ROWS,
]


@pytest.mark.parametrize("name", ["row_count", "lower:x", "null_count:row_count", "true:0", "lower.x", "`row_count`"])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("{0} > 20", [SKIPPED, FULLY_MATCHED, SKIPPED, KEPT, SKIPPED, KEPT, KEPT, SKIPPED]),
        # As many as there are rows.
        ("{0} = 10", [SKIPPED, SKIPPED, FULLY_MATCHED, SKIPPED, SKIPPED, KEPT, SKIPPED, SKIPPED]),
        ("{0} IS NULL", [SKIPPED, SKIPPED, SKIPPED, SKIPPED, FULLY_MATCHED, KEPT, KEPT, SKIPPED]),
        # Decided where there is one value only.
        ("{0} * {0} = 100", [KEPT, KEPT, FULLY_MATCHED, KEPT, SKIPPED, KEPT, KEPT, SKIPPED]),
    ],
)
def test_a_column_called_like_metadata_is_pruned_by_its_own_statistics(name, where, expected):
    quoted = "`" + name.replace("`", "``") + "`"
    assert find_outcomes(where.format(quoted), {name: (BIG, UNITS)}) == expected


def test_F3_a_float_called_row_count():
    units = [Unit(1.0, 9.0, 0, 0), Unit(1.0, 9.0, 0, None), Unit(21.0, 30.0, 0, 0)]
    assert find_outcomes("row_count > 20", {"row_count": (DOUBLE, units)}) == [SKIPPED, KEPT, FULLY_MATCHED]


def test_a_column_called_like_metadata_beside_another_column():
    columns = {"x": (BIG, [Unit(1, 2), Unit(1, 2)]), "row_count": (BIG, [Unit(1, 2), Unit(3, 4)])}
    assert find_outcomes("x < row_count", columns) == [KEPT, FULLY_MATCHED]
    assert find_outcomes("row_count > 2 AND x < 3", columns) == [SKIPPED, FULLY_MATCHED]
