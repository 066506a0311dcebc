"""Count the rows of one scan with every interface that can count: all counts must be equal."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa

import tamis
from tamis.expr.nodes import TRUE
from tamis.expr.sql.printer import to_sql
from tamis.scan.scan import Scan, get_planner
from tamis.table import Table

ONE_IN = 6
"""One in so many scans is counted in SQL too. That takes as long as several scans."""

_scans = count()
_to_arrow = Scan.to_arrow


def check_counts(scan: Scan) -> pa.Table:
    """Return the rows of a scan. Fail if another interface counts more or fewer rows."""
    rows = _to_arrow(scan)
    planner = get_planner(scan)
    what = (planner.predicate.text, sorted(planner.levels), planner.limit)
    assert scan.count() == rows.num_rows, ("count()", what)
    assert sum(batch.num_rows for batch in scan.to_batches()) == rows.num_rows, ("to_batches()", what)
    is_plain = planner.limit is None and not planner.predicate.partition_texts and type(scan) is Scan
    if is_plain and next(_scans) % ONE_IN == 0:
        assert _count_in_sql(scan) == rows.num_rows, ("SELECT count(*)", what)
    return rows


def _count_in_sql(scan: Scan) -> Any:
    predicate = get_planner(scan).predicate.expr
    where = "" if predicate == TRUE else f" WHERE {to_sql(predicate)}"
    session = tamis.connect().register("t", Table(get_planner(scan).source))
    return session.sql(f"SELECT count(*) AS n FROM t{where}").to_arrow()["n"][0].as_py()
