"""Datetime rebase: dates and timestamps before 1582, for which the log and the files use different calendars."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog, add
from tamis.parquet.footer.datetime_rebase import FIRST_GREGORIAN_DAY, rebase_days, widen_legacy_bounds

DAY = 86_400_000_000


def check(table: tamis.Table, name: str, wheres: list[str]) -> None:
    """Check that every filter finds the rows of the unpruned scan, by every API."""
    session = tamis.connect().register("t", table)
    for number, where in enumerate(wheres):
        unpruned = table.scan(where, levels=()).to_arrow()
        scan = table.scan(where)
        found = scan.to_arrow()
        assert sorted(found[name].to_pylist()) == sorted(unpruned[name].to_pylist()), where
        assert scan.count() == unpruned.num_rows, where
        if number % 4:
            continue
        query = f"SELECT count(*) n, min({name}) low, max({name}) high FROM t WHERE {where}"
        (row,) = session.sql(query).to_arrow().to_pylist()
        low, high = pc.min_max(unpruned[name]).values()
        assert tuple(row.values()) == (unpruned.num_rows, low.as_py(), high.as_py()), where
        top = session.sql(f"SELECT {name} FROM t WHERE {where} ORDER BY {name} LIMIT 1").to_arrow()[name].to_pylist()
        assert top == ([low.as_py()] if unpruned.num_rows else []), where


def make_wheres(values: pa.ChunkedArray, name: str, kind: str) -> list[str]:
    """Return comparisons with each value, and with days near it."""
    days = values.cast(pa.date32()).cast(pa.int32()).to_pylist()
    around = {day + step for day in days for step in (-10, -1, 0, 2)}
    named = pa.array(sorted(around), pa.int32()).cast(pa.date32()).cast(pa.string()).to_pylist()
    literals = [f"{kind} '{each}{'' if kind == 'DATE' else ' 01:02:03Z'}'" for each in named]
    found = [f"{name} {sign} {each}" for each in literals for sign in ("=", "<", ">")]
    return [*found, f"NOT ({name} <> {literals[1]})", f"{name} IN ({', '.join(literals)})"]


@pytest.mark.parametrize(
    ("folder", "name", "kind"), [("trino-old_dates", "d", "DATE"), ("trino-old_timestamps", "ts", "TIMESTAMP")]
)
@pytest.mark.one_in(2)
def test_D21_filters_on_old_dates_find_what_an_unpruned_scan_finds(
    golden: Path, folder: str, name: str, kind: str
) -> None:
    table = tamis.open(golden / "delta-unlabelled" / folder)
    check(table, name, make_wheres(table.scan().to_arrow()[name], name, kind))


def test_D21_a_day_in_the_other_calendar_is_found(golden: Path) -> None:
    table = tamis.open(golden / "delta-unlabelled" / "trino-old_dates")
    assert table.scan("d = DATE '0099-12-30'").to_arrow()["d"].to_pylist() == [datetime.date(99, 12, 30)]
    assert table.scan("d > DATE '0099-12-31'").count() == table.scan("d > DATE '0099-12-31'").to_arrow().num_rows == 3
    # Days that exist in both calendars still prune files, old files included.
    (files,) = (each for each in table.scan("d >= DATE '1960-01-01'").plan().report.levels if each.level == "files")
    assert (files.total, files.kept) == (4, 2)


def test_D21_old_days_differ_by_less_than_bounds_are_widened() -> None:
    # This checks the derivation of `detect_legacy_calendar` for every stored day from year 1 on, in both calendars.
    stored = np.arange(-719_162, FIRST_GREGORIAN_DAY + 5)
    named = rebase_days(stored)
    for given, meant in ((stored, named), (named, stored)):
        days = pa.array(given, pa.int32()).cast(pa.date32())
        low, high = (widen_legacy_bounds(days, up=up)[0].cast(pa.int32()) for up in (False, True))
        inside = np.asarray(pc.fill_null(low, -(2**31))) <= meant
        inside &= meant <= np.asarray(pc.fill_null(high, 2**31 - 1))
        assert inside.all()
    assert widen_legacy_bounds(pa.array([FIRST_GREGORIAN_DAY], pa.int32()).cast(pa.date32()), up=True)[
        1
    ].to_pylist() == [False]


def write_rebased_log(folder: Path, *, is_recorded: bool) -> tamis.Table:
    """Return a table whose log has Julian dates, and whose files have the same days without a datetime rebase."""
    log = DeltaLog(folder, {"d": "date", "ts": "timestamp", "n": "long"})
    stored = [-682_941, -354_285, FIRST_GREGORIAN_DAY - 1, FIRST_GREGORIAN_DAY, 18_262]
    for number, day in enumerate(stored):
        rows = pa.table(
            {
                "d": pa.array([day], pa.int32()).cast(pa.date32()),
                "ts": pa.array([day * DAY], pa.timestamp("us", "UTC")),
                "n": [number],
            }
        )
        path = folder / f"{number}.parquet"
        with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
            writer.write_table(rows)
            if is_recorded:
                writer.add_key_value_metadata({"org.apache.spark.version": "2.4.8", "org.apache.spark.timeZone": "UTC"})
        name = pa.array(rebase_days(np.array([day])), pa.int32()).cast(pa.date32()).cast(pa.string())[0].as_py()
        values = {"d": name, "ts": f"{name}T00:00:00.000Z", "n": number}
        stats = {"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": dict.fromkeys(values, 0)}
        log.commit(add(path.name, size=path.stat().st_size, stats=json.dumps(stats)))
    return tamis.open(folder)


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded in the footer", "not recorded"])
@pytest.mark.one_in(2)
def test_D21_whether_or_not_the_footer_names_the_writer(tmp_path: Path, is_recorded: bool) -> None:
    table = write_rebased_log(tmp_path, is_recorded=is_recorded)
    rows = table.scan(levels=()).to_arrow()
    check(table, "d", make_wheres(rows["d"], "d", "DATE"))
    check(table, "ts", [each.replace("01:02:03Z", "00:00:00Z") for each in make_wheres(rows["ts"], "ts", "TIMESTAMP")])


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded in the footer", "not recorded"])
def test_D21_with_an_index_and_after_a_checkpoint(tmp_path: Path, is_recorded: bool) -> None:
    write_rebased_log(tmp_path, is_recorded=is_recorded)
    tamis.index.build(tmp_path, bloom=["d"])
    table = tamis.open(tmp_path)
    check(table, "d", make_wheres(table.scan(levels=()).to_arrow()["d"], "d", "DATE")[::3])


def test_D21_D18_partitions_derived_from_old_dates_are_kept(tmp_path: Path) -> None:
    # For the writer the day was 1 January 100, so its year is 100. A reader finds 30 December 99.
    field = {
        "name": "y",
        "type": "integer",
        "nullable": True,
        "metadata": {"delta.generationExpression": "year(d)"},
    }
    log = DeltaLog(
        tmp_path, [{"name": "d", "type": "date", "nullable": True, "metadata": {}}, field], partition_columns=["y"]
    )
    day = (datetime.date(99, 12, 30) - datetime.date(1970, 1, 1)).days
    (tmp_path / "y=100").mkdir()
    path = tmp_path / "y=100" / "0.parquet"
    pq.write_table(pa.table({"d": pa.array([day], pa.int32()).cast(pa.date32())}), path)
    log.commit(add("y=100/0.parquet", {"y": "100"}, size=path.stat().st_size))
    table = tamis.open(tmp_path)
    for where in ("d = DATE '0099-12-30'", "d <= DATE '0099-12-31'", "d IN (DATE '0099-12-30', DATE '2000-01-01')"):
        assert table.scan(where).to_arrow()["d"].to_pylist() == [datetime.date(99, 12, 30)], where
        assert table.scan(where).count() == 1
