"""Filters on a column, and the predicates that they imply on partition columns generated from it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.delta.generated_columns import (
    GENERATED,
    PARTITIONS,
    SCHEMA,
    SOURCES,
    VALUES,
    ZONES,
    Generated,
    predicates,
)
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.normalise import normalise
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql
from tamis.formats.delta.generated_columns import derive_partition_predicates


def derive_predicates(where: str, generated: Mapping[str, str], **options: object) -> list[str]:
    predicate = normalise(bind(parse_sql(where), SCHEMA))
    found = derive_partition_predicates(predicate, generated, SCHEMA, list(generated), **options)  # type: ignore[arg-type]
    return [to_sql(each) for each in found]


def normalise_all(*texts: str) -> list[str]:
    return [to_sql(normalise(bind(parse_sql(text), SCHEMA))) for text in texts]


# --- One column -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", ["CAST(ntz AS DATE)", "date(ntz)", "TO_DATE(ntz)", "CAST(`NTZ` AS DATE)"])
def test_D18_a_range_of_times_gives_a_range_of_days(sql: str) -> None:
    where = "ntz >= TIMESTAMP_NTZ '2024-03-05 10:00:00' AND ntz < TIMESTAMP_NTZ '2024-03-08 00:00:00'"
    expected = normalise_all("p_date >= DATE '2024-03-05'", "p_date <= DATE '2024-03-07'")
    assert derive_predicates(where, {"p_date": sql}) == expected


def test_D18_a_timestamp_with_zone_may_have_been_written_in_any_zone() -> None:
    where = "ts >= TIMESTAMP '2024-03-05 10:00:00Z' AND ts < TIMESTAMP '2024-03-08 00:00:00Z'"
    assert derive_predicates(where, {"p_date": "date(ts)"}) == normalise_all(
        "p_date >= DATE '2024-03-04'", "p_date <= DATE '2024-03-08'"
    )
    # 18 hours before and after ten o'clock are in the neighbouring days.
    where = "ts = TIMESTAMP '2024-03-05 10:00:00Z'"
    assert derive_predicates(where, {"p_date": "date(ts)"}) == normalise_all(
        "p_date >= DATE '2024-03-04'", "p_date <= DATE '2024-03-06'"
    )


@pytest.mark.parametrize(
    ("where", "generated", "expected"),
    [
        ("d = DATE '2024-03-05'", {"y": "YEAR(d)"}, ["y = 2024"]),
        ("d < DATE '2024-01-01'", {"y": "YEAR(d)"}, ["y <= 2023"]),
        ("d > DATE '2023-12-31'", {"y": "YEAR(d)"}, ["y >= 2024"]),
        ("d IN (DATE '2024-03-05', DATE '2020-01-01', DATE '2020-02-01')", {"y": "YEAR(d)"}, ["y IN (2020, 2024)"]),
        ("d IS NULL", {"y": "YEAR(d)"}, ["y IS NULL"]),
        ("d <=> NULL", {"y": "YEAR(d)"}, ["y IS NULL"]),
        (
            "year(d) IN (2023, 2025)",
            {"t": "date_format(d, 'yyyy')"},
            ["t >= '2023' AND t <= '2024' OR t >= '2025' AND t <= '2026'"],
        ),
        ("d IS NULL AND year(d) = 2024", {"t": "date_format(d, 'yyyy')"}, ["FALSE"]),
        ("d IS NOT NULL", {"y": "YEAR(d)"}, ["y IS NOT NULL"]),
        ("d <=> DATE '2024-03-05'", {"y": "YEAR(d)"}, ["y = 2024"]),
        ("d = DATE '2024-03-05' OR d = DATE '2020-03-05'", {"y": "YEAR(d)"}, ["y IN (2020, 2024)"]),
        ("d = DATE '2024-03-05' OR d IS NULL", {"y": "YEAR(d)"}, ["y = 2024 OR y IS NULL"]),
        ("i = 5", {"long": "CAST(i AS BIGINT)"}, ["long = 5"]),
        ("i > 5 AND i < 9", {"long": "CAST(i AS BIGINT)"}, ["long >= 6", "long <= 8"]),
        ("i IN (1, 2, 300)", {"long": "i"}, ["long IN (1, 2, 300)"]),
        ("d >= DATE '2024-03-05'", {"p_date": "trunc(d, 'MM')"}, ["p_date >= DATE '2024-03-01'"]),
        ("d = DATE '2024-03-05'", {"t": "CAST(d AS STRING)"}, ["t = '2024-03-05'"]),
        ("ntz = TIMESTAMP_NTZ '2024-03-05 10:00:00'", {"m": "month(ntz)"}, ["m = 3"]),
    ],
)
def test_implied_predicates(where: str, generated: dict[str, str], expected: list[str]) -> None:
    assert derive_predicates(where, generated) == normalise_all(*expected)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s = 'abcdef'", ["t = 'abc'"]),
        ("s IN ('abcdef', 'abcxyz', 'x')", ["t IN ('abc', 'x')"]),
        ("s > 'abcdef'", ["t >= 'abc'"]),
        ("s < 'abcdef'", ["t <= 'abc' OR t IS NULL"]),
        ("s = ''", ["t = '' OR t IS NULL"]),
        ("s >= ''", ["t >= '' OR t IS NULL"]),
        ("s LIKE 'abcd%'", ["t = 'abc'"]),
        ("startswith(s, 'ab')", ["startswith(t, 'ab')"]),
        ("s LIKE 'ab%x'", ["startswith(t, 'ab')"]),
        ("s = 'äöüß'", ["t = 'äöü'"]),
        ("s IS NULL", ["t IS NULL"]),
    ],
)
@pytest.mark.parametrize("sql", ["SUBSTRING(s, 1, 3)", "substr(s, 1, 3)", "left(s, 3)", "substring(s, 0, 3)"])
def test_prefixes_of_strings(where: str, expected: list[str], sql: str) -> None:
    assert derive_predicates(where, {"t": sql}) == normalise_all(*expected)


def test_D3_an_empty_string_may_be_a_null_partition() -> None:
    assert derive_predicates("s IS NOT NULL", {"t": "substring(s, 1, 3)"}) == []


@pytest.mark.parametrize(
    ("pattern", "low", "high"),
    [
        ("yyyy-MM", "2024-03", "2024-04"),
        ("yyyy-MM-dd", "2024-03-05", "2024-04-08"),
        ("yyyy-MM-dd-HH", "2024-03-05-10", "2024-04-08-00"),
        ("yyyy", "2024", "2024"),
    ],
)
def test_formatted_times(pattern: str, low: str, high: str) -> None:
    # `date_format` converts through a local clock. A local time that a zone skips moves forward by at most a day.
    where = "ntz >= TIMESTAMP_NTZ '2024-03-05 10:00:00' AND ntz <= TIMESTAMP_NTZ '2024-04-07 00:00:00'"
    found = derive_predicates(where, {"t": f"DATE_FORMAT(ntz, '{pattern}')"})
    assert found == normalise_all(*([f"t = '{low}'"] if low == high else [f"t >= '{low}'", f"t <= '{high}'"]))


def test_a_day_skipped_by_a_time_zone_is_formatted_as_the_next_one() -> None:
    # Samoa went from the 29th to the 31st: a session of that zone writes '2011-12-31' for the 30th.
    found = derive_predicates("d = DATE '2011-12-30'", {"t": "date_format(d, 'yyyy-MM-dd')"})
    assert found == normalise_all("t >= '2011-12-30'", "t <= '2011-12-31'")


def test_years_of_five_digits_sort_before_all_others_as_strings() -> None:
    generated = {"t": "date_format(d, 'yyyy-MM')"}
    assert derive_predicates("d >= DATE '2024-03-05'", generated) == normalise_all("t >= '2024-03' OR t < '0'")
    assert derive_predicates("d <= DATE '2024-03-05'", generated) == normalise_all("t <= '2024-03'")
    assert derive_predicates("d >= DATE '2024-03-05' AND d < DATE '+12000-01-01'", generated) == normalise_all(
        "t >= '2024-03' OR t < '0'"
    )


def test_truncated_timestamps_are_instants_of_an_unknown_zone() -> None:
    where = "ts >= TIMESTAMP '2024-03-05 10:00:00Z' AND ts < TIMESTAMP '2024-03-08 00:00:00Z'"
    assert derive_predicates(where, {"instant": "DATE_TRUNC('MONTH', ts)"}) == normalise_all(
        "instant >= TIMESTAMP '2024-02-29 06:00:00Z'", "instant <= TIMESTAMP '2024-03-02 18:00:00Z'"
    )


def test_a_filter_on_the_expression_itself_is_one_on_the_column() -> None:
    generated = {"p_date": "CAST(ntz AS DATE)"}
    assert derive_predicates("date(ntz) <> DATE '2024-01-01'", generated) == normalise_all(
        "p_date <> DATE '2024-01-01'"
    )
    assert derive_predicates("month(date(ntz)) = 3", generated) == normalise_all("month(p_date) = 3")
    assert derive_predicates("x NOT IN (1, 2)", {"x2": "x"}) == normalise_all("x2 NOT IN (1, 2)")
    assert derive_predicates("left(s, 3) <> 'abc'", {"t": "substring(s, 1, 3)"}) == normalise_all(
        "t <> 'abc' OR t IS NULL"
    )
    assert derive_predicates("left(s, 3) = 'abc'", {"t": "substring(s, 1, 3)"}) == normalise_all("t = 'abc'")


def test_an_unsupported_function_does_not_prune_partitions() -> None:
    assert derive_predicates("some_function(date(ntz)) = 3", {"p_date": "CAST(ntz AS DATE)"}) == []
    assert derive_predicates("date(ntz) = rand()", {"p_date": "CAST(ntz AS DATE)"}) == []


def test_another_monotone_function_prunes_through_its_range() -> None:
    generated = {"p_date": "CAST(ntz AS DATE)"}
    expected = normalise_all("p_date >= DATE '2024-01-01'", "p_date <= DATE '2024-12-31'")
    assert derive_predicates("year(ntz) = 2024", generated) == expected
    assert derive_predicates("date_trunc('year', ntz) = TIMESTAMP_NTZ '2024-01-01 00:00:00'", generated) == expected
    assert derive_predicates("year(ntz) > 2023 AND year(ntz) < 2025", generated) == expected
    assert derive_predicates("year(ntz) <= 0", generated) == normalise_all("p_date <= DATE '0001-01-01'")
    assert derive_predicates("year(ntz) > 20000", generated) == normalise_all("p_date >= DATE '9999-12-31'")
    assert derive_predicates("i + 1 > 5", {"long": "i"}) == normalise_all("long + 1 > 5", "long >= 5")


# --- Year, month, day, hour -------------------------------------------------------------------------------------------

FIELDS = {"y": "YEAR(ntz)", "m": "MONTH(ntz)", "dd": "DAY(ntz)", "h": "HOUR(ntz)"}


def test_fields_side_by_side_have_the_order_of_their_tuple() -> None:
    assert derive_predicates("ntz > TIMESTAMP_NTZ '2023-11-05 10:00:00'", FIELDS) == normalise_all(
        "y > 2023 OR (y = 2023 AND (m > 11 OR (m = 11 AND (dd > 5 OR (dd = 5 AND h >= 10)))))"
    )
    assert derive_predicates("ntz = TIMESTAMP_NTZ '2023-11-05 10:00:00'", FIELDS) == normalise_all(
        "y = 2023", "m = 11", "dd = 5", "h = 10"
    )
    where = "ntz >= TIMESTAMP_NTZ '2023-11-05 10:00:00' AND ntz <= TIMESTAMP_NTZ '2023-11-07 10:00:00'"
    year_and_month = {name: FIELDS[name] for name in ("m", "y")}
    assert derive_predicates(where, year_and_month) == normalise_all("y = 2023", "m = 11")


def test_minutes_are_parts_of_hours() -> None:
    where = "ntz >= TIMESTAMP_NTZ '2023-11-05 10:05:00' AND ntz <= TIMESTAMP_NTZ '2023-11-05 10:09:59'"
    assert derive_predicates(where, {"m": "minute(ntz)"}) == normalise_all("m >= 5", "m <= 9")
    assert derive_predicates(where, {"h": "hour(ntz)", "m": "minute(ntz)"}) == normalise_all(
        "h = 10", "m >= 5", "m <= 9"
    )
    assert derive_predicates(where.replace("10:09", "11:09"), {"m": "minute(ntz)"}) == []


def test_a_field_alone_has_an_order_within_one_period() -> None:
    within = "ntz >= TIMESTAMP_NTZ '2023-11-05 10:00:00' AND ntz <= TIMESTAMP_NTZ '2023-11-07 10:00:00'"
    beyond = "ntz >= TIMESTAMP_NTZ '2023-11-05 10:00:00' AND ntz <= TIMESTAMP_NTZ '2023-12-07 10:00:00'"
    assert derive_predicates(within, {"dd": "day(ntz)"}) == normalise_all("dd >= 5", "dd <= 7")
    assert derive_predicates(beyond, {"dd": "day(ntz)"}) == []
    assert derive_predicates("ntz >= TIMESTAMP_NTZ '2023-11-05 10:00:00'", {"dd": "day(ntz)"}) == []
    near_the_edge = "ts >= TIMESTAMP '2023-11-02 10:00:00Z' AND ts <= TIMESTAMP '2023-11-30 10:00:00Z'"
    assert derive_predicates(near_the_edge, {"dd": "day(ts)"}) == []
    assert derive_predicates(near_the_edge, {"m": "month(ts)"}) == normalise_all("m >= 11", "m <= 12")


# --- No predicate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "generated"),
    [
        ("s >= '2024-01-01'", {"p_date": "trunc(s, 'MM')"}),
        ("s >= '2024-01-01'", {"p_date": "CAST(s AS DATE)"}),
        ("s = '2024-01-01'", {"y": "year(s)"}),
        ("s = 'a'", {"t": "upper(s)"}),
        ("s = 'a'", {"t": "substring(s, 2, 3)"}),
        ("s = 'a'", {"t": "substring(s, 1, 0)"}),
        ("i = 5", {"t": "CAST(i AS STRING)"}),
        ("other = 5", {"y": "CAST(other AS INT)"}),
        ("i = 5", {"long": "i + 1"}),
        ("i = 5", {"long": "i % 10"}),
        ("i = 5", {"long": "some_function(i)"}),
        ("i = 5", {"long": "this is not SQL ("}),
        ("i = 5", {"long": "no_such_column"}),
        ("d <> DATE '2024-01-01'", {"y": "year(d)"}),
        ("d NOT IN (DATE '2024-01-01', DATE '2024-01-02')", {"y": "year(d)"}),
        ("d = DATE '2024-01-01' OR other = 3", {"y": "year(d)"}),
        ("d > DATE '2024-01-01' AND d < DATE '2024-01-02'", {"y": "year(d)"}),
        ("other = 3", {"y": "year(d)"}),
        ("x >= 0.0", {"y": "CAST(x AS INT)"}),
        ("i > 2147483647", {"long": "CAST(i AS BIGINT)"}),
        ("d > DATE '+5881580-07-11'", {"y": "year(d)"}),
        ("ts = TIMESTAMP '2024-03-05 10:00:00Z'", {"t": "CAST(ts AS STRING)"}),
        ("d = DATE '2024-03-05'", {"t": "date_format(d, 'dd-MM-yyyy')"}),
        ("d = DATE '2024-03-05'", {"t": "date_format(d, 'EEE')"}),
    ],
)
def test_D18_predicates_that_imply_nothing(where: str, generated: dict[str, str]) -> None:
    assert derive_predicates(where, generated) == []


def test_only_partition_columns_are_in_implied_predicates() -> None:
    predicate = normalise(bind(parse_sql("d = DATE '2024-03-05'"), SCHEMA))
    assert derive_partition_predicates(predicate, {"y": "year(d)", "m": "month(d)"}, SCHEMA, ["m"]) != []
    assert derive_partition_predicates(predicate, {"y": "year(d)"}, SCHEMA, ["m"]) == []
    assert derive_partition_predicates(predicate, {}, SCHEMA, ["y"]) == []


def test_S9_collated_strings_imply_nothing() -> None:
    assert derive_predicates("s = 'abcdef'", {"t": "left(s, 3)"}, collated=[("s",)]) == []
    assert derive_predicates("s = 'abcdef'", {"t": "left(s, 3)"}, collated=[("t",)]) == []


def test_an_and_keeps_what_one_side_implies() -> None:
    assert derive_predicates("other = 3 AND (d = DATE '2024-01-01' AND x > 2)", {"y": "year(d)"}) == normalise_all(
        "y = 2024"
    )


def test_X11_an_expression_of_any_length_costs_nothing() -> None:
    texts = {length: "year(ts)" + " " * (length - len("year(ts)")) for length in (8, 2_000, 2_001, 1_000_000)}
    found = {
        length: derive_predicates("ts >= TIMESTAMP_NTZ '2024-06-01 00:00:00'", {"y": text})
        for length, text in texts.items()
    }
    assert found[8] == found[2_000] != []
    assert found[2_001] == found[1_000_000] == []


def test_X11_deep_and_long_predicates() -> None:
    deep = " OR ".join(f"(d = DATE '2024-01-01' AND other = {number})" for number in range(500))
    assert derive_predicates(deep, {"y": "year(d)"}) == normalise_all("y = 2024")
    hours = [f"2024-01-{day:02} {hour:02}:00:00" for day in range(1, 29) for hour in range(24)]
    items = ", ".join(f"TIMESTAMP_NTZ '{hour}'" for hour in hours)
    days = ", ".join(f"DATE '2024-01-{day:02}'" for day in range(1, 29))
    assert derive_predicates(f"ntz IN ({items})", {"p_date": "date(ntz)"}) == normalise_all(f"p_date IN ({days})")
    assert derive_predicates(f"ntz IN ({items})", {name: FIELDS[name] for name in "ym"}) == normalise_all(
        "y = 2024", "m = 1"
    )
    assert "h" in derive_predicates(f"ntz IN ({items})", FIELDS)[0]


# --- Properties: rows, their partition values by plain Python, and the predicates over both ---------------------------


@given(data=st.data(), source=st.sampled_from(list(VALUES)))
def test_D18_no_row_is_lost(data: st.DataObject, source: str) -> None:
    chosen: dict[str, Generated] = {}
    for each in data.draw(
        st.lists(st.sampled_from([g for g in GENERATED if g.source == source]), min_size=1, max_size=4)
    ):
        chosen[each.column] = each
    where = data.draw(predicates(source))
    zones = [data.draw(st.sampled_from(list(ZONES.values()))) for _ in range(3)]
    rows = [(value, zone, other) for value in [*VALUES[source], None] for zone in zones for other in (1, None)]
    columns = {
        source: pa.array([value for value, _, _ in rows], SOURCES[source]),
        "other": pa.array([other for _, _, other in rows], pa.int64()),
    }
    for name, each in chosen.items():
        made = [None if value is None else each.make(value, zone) for value, zone, _ in rows]
        # An empty string is NULL as a partition value.
        columns[name] = pa.array([None if value == "" else value for value in made], PARTITIONS[name])
    batch = pa.record_batch(columns)
    predicate = normalise(bind(parse_sql(where), SCHEMA))
    matching = batch.filter(Evaluator(predicate)(batch))
    for each in derive_partition_predicates(predicate, {n: g.sql for n, g in chosen.items()}, SCHEMA, list(chosen)):
        kept = Evaluator(each)(matching)
        assert kept.true_count == len(matching), (where, to_sql(each), matching.filter(kept.is_null()).to_pylist()[:2])
