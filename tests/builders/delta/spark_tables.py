"""Tables that Delta on Spark writes for the interop tests, and the filters that run on them.

`{t}` in a statement is the table. A filter means the same in Spark's SQL, in a session of UTC, and here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SparkTable:
    statements: tuple[str, ...]
    filters: tuple[str, ...]
    delta_is_bolder: tuple[str, ...] = ()
    """The filters for which Delta on Spark skips more files, because it assumes what the log does not state: that all
    sessions had the same time zone, and that every writer of float statistics counted NaN as the largest value."""


def _create(columns: str, rest: str = "", **properties: str) -> str:
    listed = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    return f"CREATE TABLE {{t}} ({columns}) USING delta {rest}" + (f" TBLPROPERTIES ({listed})" if listed else "")


def _insert(select: str, start: int, end: int, files: int = 1) -> str:
    return f"INSERT INTO {{t}} SELECT {select} FROM range({start}, {end}, 1, {files})"


_NUMBERED = "id, concat('s', id) AS s"
_HOURLY = "TIMESTAMP '2024-01-30 00:00:00' + make_interval(0, 0, 0, 0, cast(id AS int)) AS ts"
_HOURLY_NTZ = "TIMESTAMP_NTZ '2024-01-30 00:00:00' + make_interval(0, 0, 0, 0, cast(id AS int)) AS n"

_IN_TWO_ZONES = (
    "ts = TIMESTAMP '2024-01-30 20:00:00'",
    "ts >= TIMESTAMP '2024-01-31 00:00:00' AND ts < TIMESTAMP '2024-01-31 03:00:00'",
    "ts < TIMESTAMP '2024-01-30 02:00:00'",
)

TABLES: dict[str, SparkTable] = {
    "deletion_vectors": SparkTable(
        (
            _create("id bigint, s string", enableDeletionVectors="true"),
            _insert(_NUMBERED, 0, 400, files=4),
            "DELETE FROM {t} WHERE id % 7 = 0",
            "UPDATE {t} SET s = 'updated' WHERE id % 50 = 3",
            "MERGE INTO {t} a USING (SELECT id FROM range(390, 410)) b ON a.id = b.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, s) VALUES (b.id, 'merged')",
        ),
        ("id < 30", "id BETWEEN 95 AND 105", "s = 'updated'", "s = 's77'", "id >= 385", "id = 14", "id IS NULL",
         "true"),
    ),
    "mapped_by_name": SparkTable(
        (
            _create("id bigint, s string, st struct<a: int, b: string>", **{"columnMapping.mode": "name"}),
            _insert("id, concat('s', id) AS s, named_struct('a', cast(id AS int), 'b', 'old') AS st", 0, 100, files=2),
            "ALTER TABLE {t} DROP COLUMN s",
            "ALTER TABLE {t} ADD COLUMN s int",
            "ALTER TABLE {t} RENAME COLUMN st.a TO renamed",
            _insert("id, named_struct('renamed', cast(id AS int), 'b', 'new') AS st, cast(id AS int) AS s", 100, 120),
        ),
        ("s = 105", "s IS NULL AND id > 97", "st.renamed < 3", "st.renamed = 110 OR id = 50", "st.b = 'new'", "true"),
    ),
    "mapped_by_id": SparkTable(
        (
            _create("id bigint, `a b` string, p int", "PARTITIONED BY (p)", **{"columnMapping.mode": "id"}),
            _insert("id, concat('s', id) AS `a b`, cast(id % 3 AS int) AS p", 0, 60),
            "ALTER TABLE {t} RENAME COLUMN `a b` TO c",
            "ALTER TABLE {t} RENAME COLUMN p TO `part of`",
        ),
        ("c = 's7'", "`part of` = 2", "`part of` = 1 AND id < 10", "c LIKE 's1%' AND `part of` <> 0", "true"),
    ),
    "v2_checkpoint": SparkTable(
        (
            _create("id bigint, p int", "PARTITIONED BY (p)", checkpointPolicy="v2", checkpointInterval="2"),
            *(_insert("id, cast(id % 4 AS int) AS p", 100 * step, 100 * step + 100) for step in range(5)),
            "DELETE FROM {t} WHERE p = 3 AND id < 200",
        ),
        ("p = 2", "p = 2 AND id > 450", "p IN (0, 3) AND id BETWEEN 150 AND 250", "id = 99999", "p IS NULL", "true"),
    ),
    "classic_checkpoint": SparkTable(
        (
            _create("id bigint, x double, p string", "PARTITIONED BY (p)", checkpointInterval="2",
                    **{"checkpoint.writeStatsAsStruct": "true", "checkpoint.writeStatsAsJson": "false"}),
            *(_insert("id, id / 8 AS x, nullif(concat('p ', id % 3), 'p 2') AS p", 100 * step, 100 * step + 100)
              for step in range(4)),
        ),
        ("p = 'p 1'", "p IS NULL AND x < 5", "x >= 40", "p = 'p 0' AND id = 3", "p <> 'p 0' AND x > 48", "id > 350",
         "true"),
        delta_is_bolder=("x >= 40", "p <> 'p 0' AND x > 48"),
    ),
    "generated_columns": SparkTable(
        (
            _create(
                "id bigint, ts timestamp, n timestamp_ntz, s string, "
                "day date GENERATED ALWAYS AS (CAST(n AS DATE)), "
                "month string GENERATED ALWAYS AS (DATE_FORMAT(ts, 'yyyy-MM')), "
                "prefix string GENERATED ALWAYS AS (SUBSTRING(s, 1, 2))",
                "PARTITIONED BY (day, month, prefix)",
            ),
            _insert(f"id, {_HOURLY}, {_HOURLY_NTZ}, concat('s', id % 3, '-', id) AS s", 0, 96).replace(
                "{t}", "{t} (id, ts, n, s)"
            ),
            "INSERT INTO {t} (id, ts, n, s) VALUES (1000, NULL, NULL, NULL), (1001, NULL, NULL, '')",
        ),
        (
            "n >= TIMESTAMP_NTZ '2024-02-01 05:00:00'",
            "n < TIMESTAMP_NTZ '2024-01-30 12:00:00'",
            "ts = TIMESTAMP '2024-01-31 23:00:00'",
            "ts >= TIMESTAMP '2024-01-31 20:00:00' AND ts < TIMESTAMP '2024-02-01 03:00:00'",
            "s = 's1-13'", "s < 's1'", "s LIKE 's2%'", "n IS NULL", "s IS NOT NULL AND n IS NULL", "true",
        ),
    ),
    "written_in_two_zones": SparkTable(
        (
            _create(
                "id bigint, ts timestamp, day date GENERATED ALWAYS AS (CAST(ts AS DATE)), "
                "hour int GENERATED ALWAYS AS (HOUR(ts))",
                "PARTITIONED BY (day)",
            ),
            "SET spark.sql.session.timeZone = America/Los_Angeles",
            "INSERT INTO {t} (id, ts) SELECT id, timestamp_seconds(1706572800 + id * 3600) FROM range(0, 48)",
            "SET spark.sql.session.timeZone = Asia/Tokyo",
            "INSERT INTO {t} (id, ts) SELECT id + 100, timestamp_seconds(1706572800 + id * 3600) FROM range(0, 48)",
            "SET spark.sql.session.timeZone = UTC",
        ),
        _IN_TWO_ZONES,
        delta_is_bolder=_IN_TWO_ZONES,
    ),
    "liquid_clustering": SparkTable(
        (
            _create("id bigint, x int, s string", "CLUSTER BY (x, s)"),
            _insert("id, cast(id % 50 AS int) AS x, concat('s', id % 13) AS s", 0, 500, files=3),
            "OPTIMIZE {t}",
            _insert("id, cast(id % 50 AS int) AS x, concat('s', id % 13) AS s", 500, 550),
        ),
        ("x = 3", "x > 48 AND s = 's3'", "id >= 545", "s IN ('s1', 's12') AND x < 2", "true"),
    ),
    "type_widening": SparkTable(
        (
            _create("id int, k smallint, f float, d decimal(6, 2)", enableTypeWidening="true"),
            _insert("cast(id AS int) AS id, cast(id AS smallint), cast(id / 3 AS float), cast(id / 4 AS decimal(6, 2))",
                    0, 50, files=2),
            "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
            "ALTER TABLE {t} ALTER COLUMN k TYPE int",
            "ALTER TABLE {t} ALTER COLUMN f TYPE double",
            "ALTER TABLE {t} ALTER COLUMN d TYPE decimal(12, 2)",
            _insert("id + 5000000000 AS id, cast(id + 100000 AS int), id / 3, cast(id * 1000 AS decimal(12, 2))",
                    0, 20),
        ),
        ("id > 4000000000", "id = 7", "k >= 100010", "f < 1", "d = 3.25", "d > 10000",
         "k = 5 OR id = 5000000001", "true"),
    ),
    "history": SparkTable(
        (
            _create("id bigint, x int"),
            _insert("id, cast(id % 20 AS int) AS x", 0, 100, files=2),
            _insert("id, cast(id % 20 AS int) AS x", 100, 200),
            "DELETE FROM {t} WHERE id < 20",
            "UPDATE {t} SET x = 99 WHERE id = 150",
            "MERGE INTO {t} a USING (SELECT id FROM range(195, 205)) b ON a.id = b.id "
            "WHEN MATCHED THEN UPDATE SET x = -1 WHEN NOT MATCHED THEN INSERT (id, x) VALUES (b.id, 0)",
            "OPTIMIZE {t} ZORDER BY (x)",
            "ALTER TABLE {t} ADD COLUMN note string",
            "INSERT INTO {t} VALUES (1000, 5, 'last')",
        ),
        ("x = 99", "x < 0", "id BETWEEN 15 AND 25", "note = 'last'", "note IS NULL AND x = 5", "true"),
    ),
}  # fmt: skip
