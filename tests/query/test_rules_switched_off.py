"""With any rules switched off, the others terminate, and the rows are the same."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.query.rules import ALL

ROWS = pa.table(
    {
        "id": [1, 40, 50, 60],
        "p": [1, 2, 3, 4],
        "s": [{"a": 1, "b": 2}, {"a": 3, "b": 1}, {"a": 5, "b": 5}, None],
    }
)
QUERIES = (
    "SELECT p FROM t WHERE id > 30",
    "SELECT s.b FROM t WHERE s.a + id > 5 AND length(CAST(p AS STRING)) = 1",
    "SELECT s.a, max(s.b) FROM t WHERE s.a > id - 100 GROUP BY s.a",
    "SELECT x.p FROM t x JOIN t y ON x.s.a = y.s.b WHERE x.id >= y.s.a",
    "SELECT s.b, count(*) FROM (SELECT s, id FROM t UNION ALL SELECT s, id FROM t) WHERE s.a > 1 GROUP BY s.b",
)
NAMES = [rule.name for rule in ALL]


def list_subsets() -> list[list[str]]:
    chance = random.Random(7)
    return [*([name] for name in NAMES), *([name for name in NAMES if chance.random() < 0.4] for _ in range(12))]


@pytest.mark.parametrize("masks", [None, {}, {"s": "NULL"}], ids=["no policy", "row filter", "mask"])
@pytest.mark.parametrize("kind", ["memory", "lake"])
@pytest.mark.one_in(3)
def test_the_other_rules_terminate_and_return_the_same_rows(
    tmp_path: Path, kind: str, masks: dict[str, str] | None
) -> None:
    pq.write_table(ROWS, tmp_path / "t.parquet", row_group_size=1)
    policy = {"tables": {"t": [{"principals": ["ana"], "rows": "s.a > 2", "masks": masks}]}}
    session = tamis.connect(policies=None if masks is None else policy).as_principal("ana")
    session.register("t", ROWS if kind == "memory" else tmp_path / "t.parquet")
    for query in QUERIES:
        expected = sorted(map(repr, session.sql(query, rules=False).to_arrow().to_pylist()))
        for off in list_subsets():
            found = session.sql(query, rules=dict.fromkeys(off, False)).to_arrow().to_pylist()
            assert sorted(map(repr, found)) == expected, (query, off)
