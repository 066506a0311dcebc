"""Sums and averages of lake tables, computed while rows are read, with Spark's types."""

from __future__ import annotations

import math
import random
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.query import protected, sql_tables
from builders.query.sql_tables import has_same_rows
from tamis.expr.nodes import Column
from tamis.scan.aggregation.aggregate_scan import aggregate
from tamis.scan.aggregation.measures import Measure, PartialResults, can_sum
from tamis.scan.scan import get_planner
from tamis.session import Session
from tamis.tuning import DEFAULT_TUNING, Tuning
from tamis.types import type_name

SUMMED = "summed while reading"
RULE = "push_aggregation_into_scan"
COUNT = 300
SOME = random.Random(7)


def make_numbers(bits: int) -> list[int | None]:
    """Return integers of a bit width, including the extremes, and NULL."""
    most = 2 ** (bits - 1)
    return [None if n % 9 == 0 else (most - 1, -most, SOME.randint(-most, most - 1))[n % 3] for n in range(COUNT)]


def make_decimals(digits: int, scale: int) -> list[Decimal]:
    most = 10**digits - 1
    return [Decimal((most, most, -SOME.randint(0, most))[n % 3]).scaleb(-scale) for n in range(COUNT)]


VALUES: dict[str, pa.Array] = {
    **{f"int{bits}": pa.array(make_numbers(min(bits, 54)), f"int{bits}") for bits in (8, 16, 32, 64)},
    "large": pa.array([2**63 - 1] * COUNT, pa.int64()),
    "decimal4": pa.array(make_decimals(4, 2), pa.decimal128(4, 2)),
    "decimal15": pa.array(make_decimals(15, 2), pa.decimal128(15, 2)),
    "decimal19": pa.array(make_decimals(19, 19), pa.decimal128(19, 19)),
    "float": pa.array([n * 0.25 for n in range(COUNT)], pa.float32()),
    "double": pa.array([None if n % 7 == 0 else n * 1.25 for n in range(COUNT)], pa.float64()),
    "nan": pa.array([math.nan if n == 5 else 1.0 for n in range(COUNT)], pa.float64()),
    "infinite": pa.array([math.inf if n % 100 == 5 else 1.0 for n in range(COUNT)], pa.float64()),
    "opposite": pa.array([(math.inf, -math.inf, 1.0)[n % 3] for n in range(COUNT)], pa.float64()),
    "huge": pa.array([1e308] * COUNT, pa.float64()),
    "missing": pa.array([None] * COUNT, pa.int64()),
    "nested": pa.array([None if n % 5 == 0 else {"x": n} for n in range(COUNT)], pa.struct([("x", pa.int64())])),
}
NATIVE_OR_NOT = pytest.mark.parametrize(
    "tuning", [Tuning(min_native_bytes=0), Tuning(min_native_bytes=2**60)], ids=["native scans", "streams"]
)
NUMBERS = [name for name in VALUES if name != "nested"]
SUMMED_NUMBERS = [name for name in NUMBERS if name != "large"]
"""The columns whose sums have no overflow."""
ROWS = pa.table({"key": pa.array([f"k{n // 100}" for n in range(COUNT)]), **VALUES})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions with a hundred rows each, in row groups of forty."""
    parts = [({"key": f"k{n}"}, ROWS.slice(100 * n, 100).drop_columns(["key"])) for n in range(3)]
    return write_hive_table(tmp_path_factory.mktemp("sums") / "t", parts, row_group_size=40)


@pytest.fixture(scope="module")
def session(path: Path) -> Session:
    return connect(path)


def connect(path: Path, tuning: Tuning = DEFAULT_TUNING) -> Session:
    connection = tamis.connect(tuning=tuning)
    connection.register("t", connection.open(path))
    return connection


@pytest.fixture(scope="module")
def peer(path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(f"CREATE VIEW t AS FROM read_parquet('{path}/*/*.parquet', hive_partitioning = true)")
    return connection


def run_and_explain(session: Session, query: str) -> tuple[pa.Table, str]:
    """Return the rows of a query and its optimized plan."""
    return session.sql(query).to_arrow(), session.explain(query).split("Optimized plan")[1]


def write_sum_for_duckdb(name: str) -> str:
    """Return DuckDB's sum of a column with Spark's type."""
    own = VALUES[name].type
    if pa.types.is_decimal(own):
        return f"CAST(sum({name}) AS DECIMAL({min(38, own.precision + 10)}, {own.scale}))"
    return f"CAST(sum({name}) AS BIGINT)" if pa.types.is_integer(own) else f"sum({name})"


def write_query_for_duckdb(query: str) -> str:
    for name in SUMMED_NUMBERS:
        query = query.replace(f"sum({name})", write_sum_for_duckdb(name))
    return query


def format_rows(table: pa.Table) -> list[str]:
    """Return the rows as sorted texts with exact values."""
    return sorted(map(repr, (tuple(row.values()) for row in table.to_pylist())))


# --- Values -----------------------------------------------------------------------------------------------------------


@NATIVE_OR_NOT
@pytest.mark.parametrize("ending", ["", " WHERE int8 > 0", " WHERE int8 > 200"])
def test_sums_and_averages_of_every_type_equal_the_engines(
    path: Path, peer: duckdb.DuckDBPyConnection, ending: str, tuning: Tuning
) -> None:
    session = connect(path, tuning)
    calls = [f"avg({name}), count({name}), min({name}), max({name})" for name in NUMBERS]
    sums = ", ".join(f"sum({name})" for name in SUMMED_NUMBERS)
    found, plan = run_and_explain(session, f"SELECT count(*), {sums}, {', '.join(calls)} FROM t{ending}")
    # Spark's average of decimals has four more digits after the point than the decimals.
    expected_calls = [
        call.replace(f"avg({name})", f"round(avg({name}), {VALUES[name].type.scale + 4})")
        if pa.types.is_decimal(VALUES[name].type)
        else call
        for name, call in zip(NUMBERS, calls, strict=True)
    ]
    query = f"SELECT count(*), {sums}, {', '.join(expected_calls)} FROM t{ending}"
    expected = peer.sql(write_query_for_duckdb(query)).to_arrow_table()
    assert SUMMED in plan
    assert "Aggregate" not in plan
    assert found.schema.types == expected.schema.types
    assert sql_tables.has_same_rows(found, expected)


@NATIVE_OR_NOT
def test_groups_by_partitions_are_summed_while_reading(
    path: Path, peer: duckdb.DuckDBPyConnection, tuning: Tuning
) -> None:
    session = connect(path, tuning)
    sums = ", ".join(f"sum({name}), count({name})" for name in SUMMED_NUMBERS)
    for query in (
        f"SELECT key, max(int32), {sums} FROM t GROUP BY key",
        f"SELECT {sums}, key FROM t WHERE int64 > 0 GROUP BY key HAVING sum(int32) <> 0 AND key > 'k0'",
        "SELECT key, sum(int64) FROM t WHERE int8 > 200 GROUP BY key",
    ):
        found, plan = run_and_explain(session, query)
        expected = peer.sql(write_query_for_duckdb(query)).to_arrow_table()
        assert SUMMED in plan
        assert "Aggregate" not in plan
        assert found.schema.types == expected.schema.types
        assert format_rows(found) == format_rows(expected), query
    averages = f"SELECT key, {', '.join(f'avg({name})' for name in NUMBERS)} FROM t GROUP BY key"
    found, plan = run_and_explain(session, averages)
    assert SUMMED in plan
    # The engine divides the sums of groups with wider floats.
    assert has_same_rows(found, peer.sql(averages).to_arrow_table())


@pytest.mark.parametrize("expression", ["sum(int32) div 3", "sum(int32) & 255", "sum(int32) / 3", "sum(int64) + 0.5"])
def test_expressions_over_a_sum_have_the_engines_type(session: Session, expression: str) -> None:
    query = f"SELECT {expression} AS x FROM t"
    found, plan = run_and_explain(session, query)
    assert SUMMED in plan
    without = session.sql(query, rules={RULE: False}).to_arrow()
    assert (found.schema, format_rows(found)) == (without.schema, format_rows(without))


@NATIVE_OR_NOT
@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(large) FROM t",
        "SELECT sum(large), avg(large) FROM t",
        "SELECT key, sum(large) FROM t GROUP BY key",
        "SELECT sum(large) FILTER (WHERE int8 IS NOT NULL) FROM t",
        "SELECT sum(large + 0) FROM t",
        "SELECT sum(large) OVER () FROM t",
        "SELECT CAST(sum(large) AS string) FROM t",
        "SELECT key FROM t GROUP BY key HAVING sum(large) > 0",
    ],
)
def test_a_sum_that_is_not_a_bigint_is_an_error(path: Path, tuning: Tuning, query: str) -> None:
    for rules in (True, False):
        with pytest.raises(tamis.TamisError, match="is out of the range of bigint: sum a wider type"):
            connect(path, tuning).sql(query, rules=rules).to_arrow()


def test_an_average_is_none_of_its_sum(session: Session) -> None:
    """The average of bigints does not overflow where their sum does."""
    assert session.sql("SELECT avg(large) AS a FROM t").to_arrow().to_pylist() == [{"a": float(2**63)}]


def test_sums_have_the_types_of_spark(session: Session) -> None:
    """As Spark 4 has them: bigint, double, and decimals with ten more digits."""
    expected = {
        "int8": "bigint", "int16": "bigint", "int32": "bigint", "int64": "bigint", "float": "double",
        "double": "double", "decimal4": "decimal(14,2)", "decimal15": "decimal(25,2)", "decimal19": "decimal(29,19)",
    }  # fmt: skip
    for template in ("sum({})", "sum(DISTINCT {})", "sum({}) FILTER (WHERE int8 > 0)", "coalesce(sum({}), NULL)"):
        query = session.sql(f"SELECT {', '.join(template.format(name) for name in expected)} FROM t")
        found = query.to_arrow()
        assert [type_name(each) for each in found.schema.types] == list(expected.values()), template
        assert found.schema.types == query.schema.types
        assert (
            session.sql(f"SELECT typeof({template.format('int32')}) AS x FROM t").to_arrow()["x"][0].as_py() == "bigint"
        )


def test_fields_of_structs_are_summed(session: Session) -> None:
    found, plan = run_and_explain(session, "SELECT sum(nested.x) AS total, avg(nested.x) AS mean FROM t")
    assert SUMMED in plan
    values = [n for n in range(COUNT) if n % 5]
    assert found.to_pylist() == [{"total": sum(values), "mean": sum(values) / len(values)}]


def test_a_batch_whose_sum_is_too_large_for_64_bits_is_not_wrapped() -> None:
    most = 2**63 - 1
    x, k = Column(("x",), type=pa.int64()), Column(("k",), type=pa.int64())
    batch = pa.record_batch(
        {"x": pa.array([most, most, None, -5], pa.int64()), "k": pa.array([1, 1, 1, 2], pa.int64())}
    )
    for keys in ((), (k,)):
        partials = PartialResults(keys, (Measure("sum", x),))
        merged = partials.merge([partials.from_rows(batch), partials.from_rows(batch)])
        found = sorted(partials.finish(merged)["m0"].to_pylist())
        assert found == ([4 * most - 10] if not keys else [-10, 4 * most])


@pytest.mark.parametrize("digits", [4, 18, 19, 38])
def test_the_smallest_and_largest_decimals_of_a_batch(digits: int) -> None:
    data_type = pa.decimal128(digits, 2)
    x = Column(("x",), type=data_type)
    most = Decimal(10**digits - 1).scaleb(-2, Context(prec=40))
    least = most.copy_negate()
    partials = PartialResults((), (Measure("min", x), Measure("max", x)))
    for values, expected in (
        ([Decimal("0.05"), None, least, most, Decimal("-0.01")], (least, most)),
        ([None, Decimal("-0.02"), Decimal("-0.01")], (Decimal("-0.02"), Decimal("-0.01"))),
        ([None, None], (None, None)),
    ):
        whole = pa.record_batch({"x": pa.array([most, *values, least], data_type)})
        # A batch may be a part of longer arrays.
        found = partials.finish(partials.from_rows(whole.slice(1, len(values)))).to_pylist()
        assert found == [{"m0": expected[0], "m1": expected[1]}]


def test_no_pushed_sum_exceeds_the_precision() -> None:
    for data_type in (pa.decimal128(20, 0), pa.decimal128(38, 18), pa.decimal256(40, 2), pa.uint64(), pa.bool_(),
                      pa.string(), pa.duration("us"), pa.month_day_nano_interval(), pa.float16(), None):  # fmt: skip
        assert not can_sum(data_type), data_type
    for data_type in (pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(19, 19)):
        assert can_sum(data_type)
        own = Measure("sum", Column(("x",), type=data_type)).type
        assert own == (pa.float64() if pa.types.is_floating(data_type) else pa.decimal128(38, getattr(own, "scale", 0)))


# --- Sums that are not pushed down ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(DISTINCT int8) FROM t",
        "SELECT avg(DISTINCT int8), sum(int8) FROM t",
        "SELECT sum(int8) FILTER (WHERE int8 > 3) FROM t",
        "SELECT avg(int8) FILTER (WHERE int8 > 3), count(*) FROM t",
        "SELECT sum(int64 % 5) FROM t",
        "SELECT int8, sum(int16) FROM t GROUP BY int8",
        "SELECT upper(key), sum(int16) FROM t GROUP BY 1",
        "SELECT sum(int8) FROM (SELECT int8 FROM t ORDER BY int16 NULLS LAST, int32, int64 LIMIT 7)",
        "SELECT sum(x), avg(x) FROM (SELECT CAST(decimal15 AS decimal(38, 2)) AS x FROM t)",
    ],
)
def test_unsupported_sums_are_computed_by_the_engine(session: Session, query: str) -> None:
    found, plan = run_and_explain(session, query)
    assert SUMMED not in plan
    assert "Aggregate" in plan
    assert has_same_rows(found, session.sql(query, rules=False).to_arrow())


def test_a_sum_of_decimals_beyond_38_digits_is_an_error(tmp_path: Path) -> None:
    most = Decimal(9 * 10**37)
    pq.write_table(pa.table({"x": pa.array([most, most], pa.decimal128(38, 0))}), tmp_path / "t.parquet")
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path / "t.parquet"))
    with pytest.raises(tamis.TamisError, match=r"^a sum of decimals has more than 38 digits\. Sum doubles, as in "):
        session.sql("SELECT sum(x) FROM t").to_arrow()


# --- What is read -----------------------------------------------------------------------------------------------------


def write_wide_file(folder: Path) -> tamis.Table:
    """Write one file that consists mostly of one large string column."""
    texts = [f"{SOME.getrandbits(400):x}" for _ in range(20_000)]
    pq.write_table(pa.table({"id": pa.array(range(20_000), pa.int32()), "text": texts}), folder / "wide.parquet")
    return tamis.open(folder / "wide.parquet")


def test_only_the_columns_that_are_summed_are_read(tmp_path: Path) -> None:
    table = write_wide_file(tmp_path)
    path = tmp_path / "wide.parquet"
    row_group = pq.read_metadata(path).row_group(0)
    numbers, texts = row_group.column(0), row_group.column(1)
    scan = table.scan()
    assert aggregate(get_planner(scan), [], [Measure("sum", Column(("id",), type=pa.int32()))]).to_pylist() == [
        {"m0": 199_990_000}
    ]
    assert scan.report is not None
    assert scan.report.bytes_read is not None
    # The column, and the bytes that are read with the footer.
    assert numbers.total_compressed_size <= scan.report.bytes_read <= numbers.total_compressed_size + 64 * 1024
    assert scan.report.bytes_read < path.stat().st_size / 4
    with path.open("r+b") as file:
        file.seek(texts.dictionary_page_offset or texts.data_page_offset)
        file.write(bytes(texts.total_compressed_size))
    session = tamis.connect()
    session.register("t", tamis.open(path))
    query = "SELECT sum(id) AS s, avg(id) AS a, count(*) AS n FROM t WHERE id >= 10000"
    assert session.sql(query).to_arrow().to_pylist() == [{"s": 149_995_000, "a": 14999.5, "n": 10_000}]
    with pytest.raises(tamis.TamisError):
        session.sql("SELECT sum(id), min(text) FROM t").to_arrow()


def test_sums_of_partition_columns_need_no_file(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "integer", "d": "decimal(19,2)"}, partition_columns=["day", "d"])
    parts = [
        (pa.table({"id": [1, 2, 3]}), "4", "1.25"),
        (pa.table({"id": [4]}), "-7", None),
        (pa.table({"id": [5, 6]}), None, "2.50"),
    ]
    actions = [data_file(log, f"{n}.parquet", rows, {"day": day, "d": d}) for n, (rows, day, d) in enumerate(parts)]
    log.commit(*actions)
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    found = session.sql(
        "SELECT sum(day) AS a, avg(day) AS b, sum(d) AS c, count(*) AS n, max(id) AS e FROM t"
    ).to_arrow()
    assert found.to_pylist() == [{"a": 5, "b": 1.25, "c": Decimal("8.75"), "n": 6, "e": 6}]
    assert SUMMED not in session.explain("SELECT sum(day) FROM t")
    by_day = session.sql("SELECT day, sum(d) AS c FROM t GROUP BY day").to_arrow().to_pylist()
    assert {row["day"]: row["c"] for row in by_day} == {4: Decimal("3.75"), -7: None, None: Decimal("5.00")}


def test_sums_of_partition_columns_count_the_rows_that_a_filter_leaves(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "integer"}, partition_columns=["day"])
    files = [data_file(log, f"{day}.parquet", pa.table({"id": range(10)}), {"day": str(day)}) for day in (1, 2, 30)]
    log.commit(*files)
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    query = "SELECT sum(day) AS s FROM t WHERE id < 3 OR day = 2"
    assert session.sql(query).to_arrow().to_pylist() == [{"s": 3 + 20 + 90}]
    both = "SELECT min(id) AS m, sum(day) AS s FROM t WHERE id >= 8"
    assert session.sql(both).to_arrow().to_pylist() == [{"m": 8, "s": 66}]


def test_D16_deleted_rows_are_not_summed(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "integer"}, partition_columns=["day"], features=["deletionVectors"])
    log.commit(
        data_file(log, "0.parquet", pa.table({"id": [1, 2, None, 50]}), {"day": "1"}, deleted=[0, 3]),
        data_file(log, "1.parquet", pa.table({"id": [5, 9]}), {"day": "2"}),
        data_file(log, "2.parquet", pa.table({"id": [7]}), {"day": "3"}, deleted=[0]),
    )
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    query = "SELECT sum(id) AS s, avg(id) AS a, count(*) AS n, max(id) AS m, sum(day) AS d FROM t"
    assert session.sql(query).to_arrow().to_pylist() == [{"s": 16, "a": 16 / 3, "n": 4, "m": 9, "d": 6}]
    by_day = session.sql("SELECT day, sum(id) AS s, sum(day) AS d FROM t GROUP BY day").to_arrow().to_pylist()
    assert sorted(map(repr, by_day)) == [
        repr({"day": 1, "s": 2, "d": 2}),
        repr({"day": 2, "s": 14, "d": 4}),
    ]


def test_I5_columns_of_iceberg_are_summed_by_their_ids(tmp_path: Path) -> None:
    folder = IcebergFolder(tmp_path, [field(1, "id", "int"), field(2, "day", "int")], specs=[[(2, "identity", "day")]])
    rows = [pa.table({"id": pa.array([n, n], pa.int32()), "day": pa.array([n % 2] * 2, pa.int32())}) for n in range(6)]
    folder.commit(*(folder.data_file(f"{number}.parquet", part) for number, part in enumerate(rows)))
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    query = "SELECT day, sum(id) AS s, avg(id) AS a FROM t WHERE id > 0 GROUP BY day"
    found, plan = run_and_explain(session, query)
    assert SUMMED in plan
    assert sorted(map(repr, found.to_pylist())) == [
        repr({"day": 0, "s": 12, "a": 3.0}),
        repr({"day": 1, "s": 18, "a": 3.0}),
    ]


def test_a_sum_that_is_used_twice_is_read_once(session: Session, path: Path) -> None:
    counters = session._catalog.connectors["lake"].table(("t",)).source.storage.counters  # type: ignore[attr-defined]
    twice = "WITH x AS (SELECT key, sum(int64) AS n FROM t GROUP BY key) SELECT a.n FROM x a JOIN x b ON a.n = b.n"

    def count_requests(query: str, rules: Any) -> int:
        before = counters.counts().requests
        assert session.sql(query, rules=rules).to_arrow().num_rows == 3
        return int(counters.counts().requests - before)

    assert count_requests(twice, True) <= count_requests(twice, {RULE: False})


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit(data_file(log, "0.parquet", pa.table({"id": [1]})), data_file(log, "1.parquet", pa.table({"id": [2]})))
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(tamis.errors.MissingFile, match=r"1\.parquet"):
        session.sql("SELECT sum(id) FROM t").to_arrow()


# --- Policies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hive", "delta", "iceberg"])
def test_A4_only_visible_rows_and_values_are_summed(tmp_path: Path, kind: str) -> None:
    session = protected.open_session(tmp_path, kind)
    query = "SELECT sum(y) AS y, avg(id) AS id, count(*) AS n FROM orders"
    assert session.as_principal("ana").sql(query).to_arrow().to_pylist() == [{"y": 75, "id": 5.0, "n": 6}]
    masked = "SELECT sum(salary) AS s, avg(salary) AS a, sum(y) AS y FROM orders"
    assert session.as_principal("ana").sql(masked).to_arrow().to_pylist() == [{"s": None, "a": None, "y": 75}]
    assert session.as_principal("mask").sql(masked).to_arrow()["y"].to_pylist() == [-12]
    whole = session.as_principal("admin").sql("SELECT region, sum(y) AS y FROM orders GROUP BY region").to_arrow()
    assert {row["region"]: row["y"] for row in whole.to_pylist()} == {"eu": 75, "us": 66, "apac": 69}


# --- Scans ------------------------------------------------------------------------------------------------------------


def test_sums_are_computed_in_batches_of_filtered_rows(path: Path) -> None:
    scan = tamis.open(path).scan("int32 > 0 AND key <> 'k1'")
    measures = [Measure("sum", Column(("large",), type=pa.int64())), Measure("count")]
    (found,) = aggregate(get_planner(scan), [], measures).to_pylist()
    rows = scan.to_arrow().num_rows
    assert found == {"m0": rows * (2**63 - 1), "m1": rows}
    assert 0 < rows < 200
