"""docs/reference/expressions.md agrees with the code: its SQL parses, and it lists every function as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from tamis.expr.bind import bind
from tamis.expr.functions.table import FUNCTIONS, Nulls
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "expressions.md"
TEXT = PAGE.read_text(encoding="utf-8")
(SQL,) = re.findall(r"^```sql\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "amount": pa.float64(),
        "region": pa.string(),
        "note": pa.string(),
        "flag": pa.bool_(),
        "ts": pa.timestamp("us", tz="UTC"),
        "clock": pa.time32("s"),
        "place": pa.struct({"city": pa.string()}),
        "a name with spaces": pa.int64(),
        "dotted.name": pa.int64(),
    }
)


@pytest.mark.parametrize("text", SQL.splitlines())
def test_documented_sql_parses_binds_and_prints_back(text: str) -> None:
    parsed = parse_sql(text)
    assert parse_sql(to_sql(parsed)) == parsed
    bind(parsed, SCHEMA)


def read_documented_functions() -> dict[str, tuple[str, str]]:
    """Return the entries of the page for each function: its NULL behaviour, and whether it skips."""
    section = TEXT.partition("\n## Functions\n")[2]
    rows = re.findall(r"^\| (`.+?) \| .+ \| .+ \| (.+) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    return {name: (nulls, skips) for names, nulls, skips in rows for name in re.findall(r"`([^`]+)`", names)}


def test_every_function_is_documented() -> None:
    assert sorted(read_documented_functions()) == sorted(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_documented_function_is_what_the_table_says(name: str) -> None:
    nulls, skips = read_documented_functions()[name]
    assert nulls.startswith("propagates") == (FUNCTIONS[name].nulls is Nulls.PROPAGATES)
    assert skips.startswith("monotone") == (FUNCTIONS[name].monotone is not None)
