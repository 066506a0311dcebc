"""The current time is the same in the whole query, and a filter that uses it skips data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from builders.parquet.files import count_kept_row_groups, find_rows, write_table
from tamis.expr.nodes import Call, walk
from tamis.expr.normalise import freeze_current_time
from tamis.expr.sql.parse import parse_sql

INSTANT = datetime(2024, 3, 1, 23, 59, 59, 123_456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("x < now()", "x < TIMESTAMP '2024-03-01 23:59:59.123456Z'"),
        ("x < current_timestamp()", "x < TIMESTAMP '2024-03-01 23:59:59.123456Z'"),
        ("x < CURRENT_TIMESTAMP", "x < TIMESTAMP '2024-03-01 23:59:59.123456Z'"),
        ("x < localtimestamp()", "x < TIMESTAMP_NTZ '2024-03-01 23:59:59.123456'"),
        ("x < current_date()", "x < DATE '2024-03-01'"),
        ("x < current_date - 7", "x < DATE '2024-03-01' - 7"),
        ("x < curdate()", "x < DATE '2024-03-01'"),
        ("x < now(1)", "x < now(1)"),
        ("x < rand()", "x < rand()"),
        ("now < 5", "now < 5"),
    ],
)
def test_current_time_functions_become_literals(asked, expected):
    assert freeze_current_time(parse_sql(asked), lambda: INSTANT) == parse_sql(expected)


def test_the_clock_is_read_once_and_only_if_needed():
    instants = iter([INSTANT, INSTANT + timedelta(days=1)])
    found = freeze_current_time(parse_sql("a < now() AND b < now() AND c = current_date()"), lambda: next(instants))
    assert not [node for node in walk(found) if isinstance(node, Call) and not node.args]
    assert next(instants) == INSTANT + timedelta(days=1)
    unchanged = parse_sql("a < 5")
    assert freeze_current_time(unchanged, lambda: next(instants)) is unchanged


@pytest.mark.parametrize("data_type", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ms", "UTC")])
def test_recent_rows_are_found_and_the_others_are_skipped(tmp_path, data_type):
    now = datetime.now(UTC)
    instants = [now - timedelta(days=days) for days in (40, 30, 20, 10, 1, 0)]
    naive = [instant.replace(tzinfo=None) if data_type.tz is None else instant for instant in instants]
    table = write_table(tmp_path, {"ts": pa.array(naive, pa.timestamp("us", data_type.tz)).cast(data_type, safe=False)})
    assert find_rows(table, "ts > now() - INTERVAL 7 DAYS") == [4, 5]
    assert count_kept_row_groups(table, "ts > now() - INTERVAL 7 DAYS") == (1, 3)
    assert find_rows(table, "date(ts) > date_sub(current_date(), 25)") == [2, 3, 4, 5]
    assert count_kept_row_groups(table, "date(ts) > date_sub(current_date(), 25)") == (2, 3)
