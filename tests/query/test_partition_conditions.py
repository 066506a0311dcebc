"""Filters on the texts of partition values in queries: pushed into the scan of their table, or refused with advice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import tamis
from builders.pyiceberg.tables import create_table, make_spec
from tamis.errors import AccessDenied, ExpressionError, InvalidArgument, ParseError, TamisError, UnknownColumn
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.session import Session

MONTHS = ["01", "02", "10", None]
ROWS = pa.table({"month": MONTHS * 3, "id": pa.array(range(12), pa.int64()), "owner": ["ana", "ben"] * 6})

CONDITIONS = {
    "partition_text('month') = '02'": [1, 5, 9],
    "partition_text('MONTH') IN ('01', '10')": [0, 2, 4, 6, 8, 10],
    "partition_text('month') IS NULL": [3, 7, 11],
    "NOT partition_text('month') > '01'": [0, 4, 8],
    "partition_text('month') >= '02' AND id > 5": [6, 9, 10],
    "(partition_text('month') = '01' OR partition_text('month') = '02') AND id < 5": [0, 1, 4],
    "partition_text('month') LIKE '0%' AND partition_text('month') <> '01'": [1, 5, 9],
    "partition_text('month') = '1'": [],
    "partition_text('month') = '02' OR id = 3": [1, 3, 5, 9],
    "sales.id + 1 < 2 OR partition_text('month') IS NULL AND owner = 'ben'": [0, 3, 7, 11],
    "NOT (partition_text('month') = '02' OR id > 3)": [0, 2],
    "(partition_text('month') = '02' OR id = 4) AND (month = '01' OR id > 5)": [4, 9],
}


def write_table(folder: Path, kind: str) -> Path:
    match kind:
        case "delta":
            deltalake.write_deltalake(str(folder), ROWS, partition_by=["month"])
        case "iceberg":
            schema = Schema(
                NestedField(1, "month", StringType(), required=False),
                NestedField(2, "id", LongType(), required=False),
                NestedField(3, "owner", StringType(), required=False),
            )
            create_table(folder, schema, make_spec(schema, ("month", "identity"))).append(ROWS)
        case _:
            pq.write_to_dataset(ROWS, folder, partition_cols=["month"])
    return folder


@pytest.fixture(scope="module", params=["delta", "hive", "iceberg"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp(request.param) / "sales", request.param)


@pytest.fixture
def session(path: Path) -> Session:
    connection = tamis.connect()
    connection.register("sales", tamis.open(path))
    connection.register("names", pa.table({"owner": ["ana"], "name": ["Ana"]}))
    return connection


def read_ids(session: Session, query: str, **options: Any) -> list[int]:
    return sorted(session.sql(query, **options).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("rules", [True, False])
@pytest.mark.parametrize("where", CONDITIONS)
def test_a_query_compares_the_texts_of_partition_values(session: Session, where: str, rules: bool) -> None:
    expected = CONDITIONS[where]
    assert read_ids(session, f"SELECT id FROM sales WHERE {where}", rules=rules) == expected
    assert session.sql(f"SELECT * FROM sales WHERE {where}", rules=rules).count() == len(expected)
    # A window is run as text, above a scan with the same filter.
    numbered = f"SELECT id, row_number() OVER (ORDER BY id) AS n FROM sales WHERE {where}"
    assert read_ids(session, numbered, rules=rules) == expected


def test_files_of_other_partitions_are_not_listed(session: Session) -> None:
    query = session.sql("SELECT id FROM sales AS s WHERE partition_text('month') = '02' AND s.id >= 0")
    assert query.to_arrow()["id"].to_pylist() == [1, 5, 9]
    scans = query.explain().partition("Scans")[2]
    assert "where partition_text('month') = '02'" in scans
    assert find_bytes(scans) < find_bytes(session.explain("SELECT * FROM sales").partition("Scans")[2]) / 3


def find_bytes(text: str) -> int:
    (size,) = re.findall(r"([\d,]+) bytes", text)
    return int(size.replace(",", ""))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM sales JOIN names USING (owner) WHERE partition_text('month') = '01'", [0, 4, 8]),
        ("SELECT id FROM sales LEFT JOIN names USING (owner) WHERE partition_text('month') = '02'", [1, 5, 9]),
        ("SELECT id FROM names RIGHT JOIN sales USING (owner) WHERE partition_text('month') = '02'", [1, 5, 9]),
        ("SELECT id FROM sales LEFT SEMI JOIN names USING (owner) WHERE partition_text('month') <= '02'", [0, 4, 8]),
        (
            "SELECT a.id FROM (SELECT * FROM sales WHERE partition_text('month') = '01') AS a JOIN sales AS b "
            "ON a.id = b.id - 1 WHERE b.month = '02'",
            [0, 4, 8],
        ),
        ("WITH s AS (SELECT * FROM sales WHERE partition_text('month') = '10') SELECT id FROM s", [2, 6, 10]),
        ("SELECT id FROM sales WHERE id IN (SELECT id FROM sales WHERE partition_text('month') = '10')", [2, 6, 10]),
        (
            "SELECT id FROM sales WHERE partition_text('month') = '01' UNION ALL "
            "SELECT id FROM sales WHERE partition_text('month') = '02'",
            [0, 1, 4, 5, 8, 9],
        ),
        ("FROM sales |> WHERE partition_text('month') = '01' |> SELECT id", [0, 4, 8]),
        (
            "SELECT s.id FROM sales s JOIN names n ON s.owner = n.owner "
            "WHERE partition_text('month') = '01' OR s.id = 2",
            [0, 2, 4, 8],
        ),
        (
            "SELECT id FROM sales WHERE partition_text('month') = '02' AND id IN "
            "(SELECT id FROM sales WHERE partition_text('month') <= '02' AND id > 3)",
            [5, 9],
        ),
        (
            "SELECT a.id FROM sales a WHERE partition_text('month') = '02' AND EXISTS "
            "(SELECT 1 FROM sales b WHERE b.id = a.id - 1 AND partition_text('month') = '01' AND b.id > 3)",
            [5, 9],
        ),
        (
            "SELECT a.id FROM sales a JOIN sales b ON a.id = b.id - 1 "
            "WHERE partition_text(a.month) = '01' AND (partition_text(B.Month) = '02' AND b.id > 3 OR b.id = 1)",
            [0, 4, 8],
        ),
        ("SELECT id FROM sales WHERE partition_text(sales.month) = '02'", [1, 5, 9]),
        (
            "SELECT id FROM sales LATERAL VIEW explode(array(1, 2)) v AS x "
            "WHERE (partition_text('month') = '01' OR sales.id = 3) AND id < 5 AND x = 1",
            [0, 3, 4],
        ),
        (
            "SELECT id FROM sales LATERAL VIEW explode(array(1)) v AS x WHERE partition_text('month') = '01' OR id = 3",
            [0, 3, 4, 8],
        ),
        (
            "SELECT id FROM (SELECT * FROM sales WHERE partition_text('month') = '01') TABLESAMPLE (100 PERCENT)",
            [0, 4, 8],
        ),
    ],
)
def test_it_is_a_condition_of_its_own_table(session: Session, query: str, expected: list[int]) -> None:
    assert read_ids(session, query) == expected


def test_parameters_paths_and_registered_scans(session: Session, path: Path) -> None:
    assert read_ids(session, "SELECT id FROM sales WHERE partition_text('month') = :m", args={"m": "10"}) == [2, 6, 10]
    table = tamis.open(path)
    by_path = f"SELECT id FROM {table.format}.`{path}` WHERE partition_text('month') = '10'"
    assert read_ids(session, by_path) == [2, 6, 10]
    session.register("few", table.scan(PartitionFilter.eq("month", "10")))
    assert read_ids(session, "SELECT id FROM few WHERE id > 2") == [6, 10]
    session.register("either", table.scan(PartitionFilter.eq("month", "10") | (tamis.col("id") == 3)))
    assert read_ids(session, "SELECT id FROM either WHERE id > 2") == [3, 6, 10]
    opened = session.open(path).scan((tamis.col("id") > 2) & PartitionFilter.eq("month", "10"))
    assert sorted(opened.to_arrow()["id"].to_pylist()) == [6, 10]


def test_a_parameter_is_a_partition_filter(session: Session) -> None:
    filters = PartitionFilter.eq("month", "02"), PartitionFilter.in_("month", ["01", "10"])
    assert read_ids(session, "SELECT id FROM sales WHERE ?", args=[filters[0]]) == [1, 5, 9]
    assert read_ids(session, "SELECT id FROM sales WHERE id > 3 AND :f", args={"f": filters[1]}) == [4, 6, 8, 10]
    assert read_ids(session, "SELECT id FROM sales WHERE NOT ? OR id = ?", args=[filters[0] | filters[1], 4]) == [
        3, 4, 7, 11,
    ]  # fmt: skip
    everything = filters[0] | filters[1] | PartitionFilter.is_null("month")
    assert (
        len(read_ids(session, "SELECT id FROM sales WHERE ? AND ?", args=[everything, PartitionFilter.and_([])])) == 12
    )
    query = "SELECT sales.id FROM sales JOIN names USING (owner) WHERE ? AND name = 'Ana'"
    assert read_ids(session, query, args=[filters[1]]) == [0, 2, 4, 6, 8, 10]
    twice = "SELECT a.id FROM sales a JOIN sales b ON a.id = b.id WHERE :f"
    with pytest.raises(
        ExpressionError, match=r"\('month'\) IS NOT DISTINCT FROM '02' may be about a or b: name the table, as in"
    ):
        session.sql(twice, args={"f": filters[0]}).to_arrow()
    with pytest.raises(ExpressionError, match="WHERE of the SELECT"):
        session.sql("SELECT :f FROM sales", args={"f": filters[0]}).to_arrow()
    with pytest.raises(InvalidArgument, match=r"register table\.scan"):
        session.sql("SELECT id FROM sales WHERE $f", {"f": filters[0]}, dialect="duckdb").to_arrow()


@pytest.mark.parametrize(
    "wanted",
    [
        PartitionFilter.and_(),
        PartitionFilter.or_(),
        PartitionFilter.neq("month", "02"),
        ~PartitionFilter.gt("MONTH", "01"),
        PartitionFilter.gte("month", "2").with_type("long"),
        PartitionFilter.in_("month", ["01", "9"]) | PartitionFilter.is_null("month"),
        PartitionFilter.is_not_null("month") & ~PartitionFilter.eq("month", "10"),
    ],
)
def test_list_functions_keep_the_files_that_scans_keep(path: Path, wanted: PartitionFilter) -> None:
    table = tamis.open(path)
    match table.format:
        case "delta":
            listed = tamis.delta.list_files(path, wanted)
        case "iceberg":
            listed = tamis.iceberg.list_files(path, wanted)
        case _:
            listed = tamis.hive.list_partition_files(path, "", wanted)
    planned = table.scan(wanted).plan("files").files
    names = [sorted(each.rpartition("/")[2] for each in found["path"].to_pylist()) for found in (listed, planned)]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (PartitionFilter.eq("month", "10"), [2, 6, 10]),
        (PartitionFilter.eq("month", "10") & (tamis.col("id") > 2), [6, 10]),
        ((tamis.col("id") == 3) | PartitionFilter.eq("month", "10"), [2, 3, 6, 10]),
    ],
)
def test_a_policy_takes_a_partition_filter_among_expressions(path: Path, rows: Any, expected: list[int]) -> None:
    policies = {"tables": {"sales": [{"principals": ["*"], "rows": rows}]}}
    connection = tamis.connect(policies=policies).as_principal("ana")
    connection.register("sales", tamis.open(path))
    assert read_ids(connection, "SELECT id FROM sales") == expected
    assert read_ids(connection, "SELECT id FROM sales WHERE id > 3") == [each for each in expected if each > 3]
    assert sorted(connection.open(path).scan(columns=["id"]).to_arrow()["id"].to_pylist()) == expected


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT partition_text('month') FROM sales", ExpressionError, r"character 8\): .* WHERE of the SELECT"),
        ("SELECT id FROM sales GROUP BY id HAVING partition_text('month') = '1'", ExpressionError, "WHERE of the"),
        (
            "SELECT id FROM sales JOIN names USING (owner) WHERE partition_text('month') = '1' OR name = 'Ana'",
            ExpressionError,
            r"combines the texts of partition values with columns of several sources \(at: query, character 53\): "
            r"compare the partition column itself, or write the condition in a subquery",
        ),
        (
            "SELECT a.id FROM sales a JOIN sales b ON a.id = b.id WHERE partition_text('month') = '1'",
            ExpressionError,
            r"may be about a or b .*: name the table, as in partition_text\(a.month\), or write the condition in a sub",
        ),
        (
            "SELECT id FROM names LEFT JOIN sales USING (owner) WHERE partition_text('month') = '1'",
            ExpressionError,
            "sales is sampled, pivoted, renamed or null-extended before partition_text.* write the condition in a subq",
        ),
        (
            "SELECT id FROM sales TABLESAMPLE (100 PERCENT) WHERE partition_text('month') = '1'",
            ExpressionError,
            r"sales is sampled.* write the condition in a subquery, as in FROM \(SELECT \* FROM sales WHERE …\)",
        ),
        (
            "SELECT id FROM sales LATERAL VIEW explode(array(1)) v AS x WHERE partition_text('month') = '1' OR x = 1",
            ExpressionError,
            "combines the texts of partition values with columns of several sources",
        ),
        (
            "SELECT 1 FROM names WHERE EXISTS (SELECT 1 FROM sales WHERE partition_text('month') = '1' OR id = name)",
            ExpressionError,
            "combines the texts of partition values with columns of several sources",
        ),
        (
            "SELECT id FROM sales s WHERE partition_text(t.month) = '1'",
            ExpressionError,
            "no table that partition_text\\(t.mon",
        ),
        (
            "WITH s AS (SELECT * FROM sales) SELECT id FROM s WHERE partition_text('month') = '1'",
            ExpressionError,
            "no table that .* could filter is in this FROM",
        ),
        ("SELECT id FROM sales WHERE partition_text('mnth') = '1'", UnknownColumn, "Did you mean 'month'"),
        ("SELECT name FROM names WHERE partition_text('owner') = '1'", InvalidArgument, "names has no partitions"),
        ("SELECT id FROM sales WHERE partition_text() = '1'", ParseError, "partition_text takes 1 argument"),
        ("SELECT id FROM sales WHERE partition_text(month) = '1'", ExpressionError, "needs the name of a partition"),
    ],
)
def test_what_cannot_be_pushed_says_what_to_do(
    session: Session, query: str, error: type[TamisError], message: str
) -> None:
    with pytest.raises(error, match=message):
        session.sql(query).to_arrow()


# --- Policies ---------------------------------------------------------------------------------------------------------


def open_session(path: Path, **rule: Any) -> Session:
    policies = {"tables": {"sales": [{"principals": ["ana"], **rule}]}}
    connection = tamis.connect(policies=policies)
    connection.register("sales", tamis.open(path))
    return connection.as_principal("ana")


@pytest.mark.parametrize("rule", [{"masks": {"owner": "'x'"}}, {"rows": "id < 5"}])
def test_a_column_beside_a_text_is_not_tested_below_a_policy(path: Path, rule: dict[str, Any]) -> None:
    query = "SELECT id FROM sales WHERE partition_text('month') = '01' OR owner = 'ben'"
    with pytest.raises(InvalidArgument, match=r"sales is under a policy, below which .* cannot be tested"):
        open_session(path, **rule).sql(query).to_arrow()


@pytest.mark.parametrize("rows", ["owner = 'ana'", "partition_text('month') <= '02' AND owner = 'ana'"])
def test_under_a_policy_it_sees_visible_rows_only(path: Path, rows: str) -> None:
    ana = open_session(path, rows=rows, masks={"id": "id"})
    assert read_ids(ana, "SELECT id FROM sales WHERE partition_text('month') = '01'") == [0, 4, 8]
    assert read_ids(ana, "SELECT id FROM sales WHERE partition_text('month') = '02'") == []
    assert read_ids(ana, "SELECT id FROM sales WHERE ?", args=[PartitionFilter.in_("month", ["01"])]) == [0, 4, 8]
    query = ana.sql("SELECT id FROM sales WHERE partition_text('month') = '01'")
    assert "owner" not in query.explain()


def test_under_a_policy_a_masked_column_has_no_texts(path: Path) -> None:
    masked = open_session(path, rows="TRUE", masks={"month": "month"})
    with pytest.raises(UnknownColumn, match="Partition columns: none"):
        masked.sql("SELECT id FROM sales WHERE partition_text('month') = '01'").to_arrow()
    for args in ([PartitionFilter.eq("month", "01")], [PartitionFilter.eq("day", "01")]):
        with pytest.raises(UnknownColumn, match="Partition columns: none"):
            masked.sql("SELECT id FROM sales WHERE ?", args=args).to_arrow()
    with pytest.raises(InvalidArgument, match="without telling what it hides"):
        open_session(path, rows="1 / (id - 5) < 9").sql(
            "SELECT id FROM sales WHERE partition_text('month') = '01'"
        ).to_arrow()


@pytest.mark.parametrize(
    "rows", ["partition_text('month') = '02'", PartitionFilter.eq("month", "02"), PartitionFilter.in_("month", ["02"])]
)
def test_a_policy_may_be_about_partitions(path: Path, rows: Any) -> None:
    ana = open_session(path, rows=rows)
    assert read_ids(ana, "SELECT id FROM sales") == [1, 5, 9]
    assert ana.sql("SELECT id FROM sales").count() == 3
    assert read_ids(ana, "SELECT id FROM sales WHERE id > 3 AND partition_text('month') <= '02'") == [5, 9]
    assert "02" not in ana.explain("SELECT id FROM sales")
    opened = tamis.connect(policies={"tables": {"*": [{"principals": ["ana"], "rows": rows}]}}).as_principal("ana")
    assert sorted(opened.open(path).scan("id > 3").to_arrow()["id"].to_pylist()) == [5, 9]


def test_a_policy_about_unknown_partitions_denies(path: Path) -> None:
    with pytest.raises(AccessDenied, match="not valid for the columns"):
        open_session(path, rows="partition_text('day') = '02'").sql("SELECT id FROM sales").to_arrow()
    with pytest.raises(AccessDenied, match="not valid for the columns"):
        open_session(path, rows="TRUE", masks={"owner": "partition_text('month')"}).sql("SELECT * FROM sales")


def test_rows_in_memory_have_no_partitions_for_a_policy() -> None:
    policies = {"tables": {"sales": [{"principals": ["ana"], "rows": "partition_text('month') = '02'"}]}}
    connection = tamis.connect(policies=policies)
    connection.register("sales", ROWS)
    with pytest.raises(AccessDenied, match="not valid for the columns"):
        connection.as_principal("ana").sql("SELECT id FROM sales").to_arrow()


def test_a_partition_field_tells_its_source_column(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "card", StringType(), required=False)
    )
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "card": ["4711", "0815"]})
    # The field has the name of another column.
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "bank"))
    create_table(tmp_path, schema, spec).append(rows)
    query = "SELECT id FROM sales WHERE partition_text('bank') = '4711'"
    assert read_ids(open_session(tmp_path, rows="id > 0"), query) == [1]
    masked = open_session(tmp_path, rows="id > 0", masks={"card": "'x'"})
    with pytest.raises(UnknownColumn, match="no partition column 'bank'"):
        masked.sql(query).to_arrow()
