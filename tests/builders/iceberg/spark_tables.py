"""Tables that Iceberg on Spark writes for the interop tests, and the filters that run on them.

`{t}` in a statement is the table. A filter means the same in Spark's SQL, in a session of UTC, and here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IcebergSparkTable:
    statements: tuple[str, ...]
    filters: tuple[str, ...]
    iceberg_is_bolder: tuple[str, ...] = ()
    """The filters for which Iceberg skips files with NaN, which Spark and Tamis sort above all numbers."""


_MERGE_ON_READ = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}


def _create(columns: str, rest: str = "", version: int = 2, **properties: str) -> str:
    settings = {
        "format-version": str(version),
        **_MERGE_ON_READ,
        **{key.replace("__", "."): value for key, value in properties.items()},
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in settings.items())
    return f"CREATE TABLE {{t}} ({columns}) USING iceberg {rest} TBLPROPERTIES ({listed})"


def _insert(select: str, start: int, end: int, files: int = 1) -> str:
    return f"INSERT INTO {{t}} SELECT {select} FROM range({start}, {end}, 1, {files})"


_ROWS = "id, concat('s', lpad(id, 4, '0')) AS s, timestamp_seconds(id * 7200 - 864000) AS ts, id / 8 AS x"
_COLUMNS = "id bigint, s string, ts timestamp, x double"
_CHANGES = (
    "DELETE FROM {t} WHERE id % 7 = 0",
    "UPDATE {t} SET s = 'updated' WHERE id % 50 = 3",
    "MERGE INTO {t} a USING (SELECT id FROM range(190, 210)) b ON a.id = b.id WHEN MATCHED THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT (id, s, ts, x) VALUES (b.id, 'merged', NULL, double('NaN'))",
)
_FILTERS = (
    "id < 30", "id BETWEEN 95 AND 105", "s = 'updated'", "s LIKE 's007%'", "s NOT LIKE 's0%'",
    "id IN (14, 15, 199, 205)", "ts >= TIMESTAMP '1970-01-05 00:00:00' AND ts < TIMESTAMP '1970-01-06 00:00:00'",
    "ts < TIMESTAMP '1970-01-01 00:00:00'",
    "ts IS NULL", "x > 24", "x <= 0.5 OR id = 100", "NOT (x < 20)", "true",
)  # fmt: skip


def _make_changed_table(partitioning: str, version: int, **properties: str) -> IcebergSparkTable:
    return IcebergSparkTable(
        (
            _create(_COLUMNS, partitioning, version, **properties),
            _insert(_ROWS, 0, 100, files=2),
            _insert(_ROWS, 100, 200, files=2),
            *_CHANGES,
        ),
        _FILTERS,
        iceberg_is_bolder=("x > 24", "NOT (x < 20)"),
    )


TABLES: dict[str, IcebergSparkTable] = {
    "unpartitioned_v2": _make_changed_table("", 2),
    "unpartitioned_v3": _make_changed_table("", 3),
    "by_day_v2": _make_changed_table("PARTITIONED BY (days(ts))", 2),
    "by_bucket_and_month_v3": _make_changed_table("PARTITIONED BY (bucket(4, id), months(ts))", 3),
    "by_text_v3": _make_changed_table("PARTITIONED BY (truncate(3, s))", 3),
    "by_hour_of_few_v2": IcebergSparkTable(
        (
            _create(_COLUMNS, "PARTITIONED BY (hours(ts))"),
            _insert(_ROWS, 100, 130),
            "DELETE FROM {t} WHERE id IN (101, 120)",
        ),
        ("ts = TIMESTAMP '1969-12-31 08:00:00'", "ts > TIMESTAMP '1970-01-01 00:00:00'", "id > 125", "true"),
    ),
    "copy_on_write_v1": IcebergSparkTable(
        (
            _create(_COLUMNS, "PARTITIONED BY (years(ts))", 1, write__delete__mode="copy-on-write"),
            _insert(_ROWS, 0, 300, files=3),
            "DELETE FROM {t} WHERE id % 11 = 0",
        ),
        ("id = 22", "id BETWEEN 20 AND 25", "year(ts) = 1969", "x > 30", "true"),
    ),
    "orc_v2": _make_changed_table("PARTITIONED BY (bucket(2, id))", 2, write__format__default="orc"),
    "avro_v2": _make_changed_table("", 2, write__format__default="avro"),
    "evolved_v2": IcebergSparkTable(
        (
            _create("id int, k string, f float, d decimal(6, 2), st struct<a: int, b: string>", "PARTITIONED BY (k)"),
            _insert("cast(id AS int), concat('k', id % 3), cast(id / 4 AS float), cast(id / 4 AS decimal(6, 2)), "
                    "named_struct('a', cast(id AS int), 'b', 'old')", 0, 60),
            "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
            "ALTER TABLE {t} ALTER COLUMN f TYPE double",
            "ALTER TABLE {t} ALTER COLUMN d TYPE decimal(12, 2)",
            "ALTER TABLE {t} RENAME COLUMN st.a TO renamed",
            "ALTER TABLE {t} ADD COLUMN st.c string",
            "ALTER TABLE {t} DROP COLUMN st.b",
            "ALTER TABLE {t} ADD COLUMN st.b int",
            "ALTER TABLE {t} ADD COLUMN late string FIRST",
            "ALTER TABLE {t} DROP PARTITION FIELD k",
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(3, id)",
            _insert("'now', id + 5000000000, concat('k', id % 3), id / 4, cast(id * 1000 AS decimal(12, 2)), "
                    "named_struct('renamed', cast(id AS int), 'c', 'new', 'b', 7)", 0, 30),
            "DELETE FROM {t} WHERE id % 10 = 4",
            "ALTER TABLE {t} DROP PARTITION FIELD bucket(3, id)",
            _insert("NULL, id + 100, 'k9', -1.5, cast(1.25 AS decimal(12, 2)), NULL", 0, 5),
            "UPDATE {t} SET late = 'set' WHERE k = 'k9' AND id < 102",
        ),
        ("id > 4000000000", "id = 7", "k = 'k1'", "k = 'k9' OR id < 3", "f < 1", "d = 3.25", "d > 10000",
         "st.renamed < 3", "st.b = 7 AND id < 5000000010", "st.b IS NULL", "late IS NULL AND k = 'k2'", "late = 'set'",
         "true"),
    ),
    "branches_v2": IcebergSparkTable(
        (
            _create("id bigint, s string"),
            "INSERT INTO {t} SELECT id, 'first' FROM range(0, 10)",
            "ALTER TABLE {t} CREATE TAG `the first`",
            "ALTER TABLE {t} CREATE BRANCH side",
            "INSERT INTO {t}.branch_side SELECT id, 'side' FROM range(10, 20)",
            "DELETE FROM {t} WHERE id = 3",
            "DELETE FROM {t}.branch_side WHERE id IN (4, 14)",
            "INSERT INTO {t} SELECT id, 'main' FROM range(20, 25)",
        ),
        ("id < 5", "s = 'main'", "true"),
    ),
    "types_v3": IcebergSparkTable(
        (
            _create("id bigint, b boolean, i int, f float, bin binary, day date, n timestamp_ntz, d decimal(38, 10), "
                    "l array<struct<x: int>>, m map<string, array<int>>", version=3),
            "INSERT INTO {t} SELECT id, id % 2 = 0, cast(id AS int), cast('NaN' AS float), "
            "encode(concat('b', id), 'utf-8'), date_add(DATE '1970-01-01', cast(id - 5 AS int)), "
            "TIMESTAMP_NTZ '2024-03-01 00:00:00', "
            "cast(id AS decimal(38, 10)) - 5, array(named_struct('x', cast(id AS int)), NULL), "
            "map('k', array(cast(id AS int))) FROM range(0, 10, 1, 2)",
            "INSERT INTO {t} VALUES (100, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
            "DELETE FROM {t} WHERE id = 4",
        ),
        ("b", "NOT b", "i > 6", "f > 3", "bin = X'6233'", "day < DATE '1970-01-01'", "d BETWEEN -1 AND 1",
         "n = TIMESTAMP_NTZ '2024-03-01 00:00:00' AND i < 2", "d IS NULL", "true"),
        iceberg_is_bolder=("f > 3",),
    ),
}  # fmt: skip
