"""Datetime rebase: dates that Spark 2, or a later version in legacy mode, wrote in the Julian calendar."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.tuning import PRUNE_PAGES
from tamis.errors import UnsupportedFeature
from tamis.io.storage import open_storage
from tamis.parquet.footer.datetime_rebase import FIRST_GREGORIAN_DAY, rebase_days
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.reading.row_group_reader import read_row_group

SPARK_2 = {"org.apache.spark.version": "2.4.8"}
LEGACY = {
    "org.apache.spark.version": "4.2.0",
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.legacyINT96": "",
    "org.apache.spark.timeZone": "UTC",
}
DAY = 86_400_000_000

STORED = [
    (datetime.date(1200, 1, 8) - datetime.date(1970, 1, 1)).days,
    FIRST_GREGORIAN_DAY - 1,
    FIRST_GREGORIAN_DAY,
    18262,
    None,
]
NAMED = ["1200-01-01", "1582-10-04", "1582-10-15", "2020-01-01", None]
"""The stored days of the hybrid calendar, and their names."""


def write(path: Path, rows: pa.Table, notes: dict[str, str], *, row_group_size: int = 1000, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, rows.schema, store_schema=False, **options) as writer:
        writer.write_table(rows, row_group_size)
        writer.add_key_value_metadata(notes)
    return path


def make_dates(*, repeated: int = 1) -> pa.Table:
    return pa.table({"d": pa.array(STORED * repeated, pa.date32()), "id": range(len(STORED) * repeated)})


def format_values(found: pa.Table, name: str = "d") -> list[str | None]:
    return found[name].cast(pa.string()).to_pylist()


def test_rebased_days_keep_their_names() -> None:
    julian = {
        (1, 1, 1): -719164,
        (100, 2, 29): -682946,
        (100, 3, 1): -682945,
        (1582, 10, 4): -141428,
        (0, 3, 1): -719470,
    }
    today = [datetime.date(1, 1, 1), datetime.date(100, 3, 1), datetime.date(100, 3, 1), datetime.date(1582, 10, 4)]
    expected = [(day - datetime.date(1970, 1, 1)).days for day in today] + [-719468]
    assert rebase_days(np.array(list(julian.values()), np.int64)).tolist() == expected
    every = rebase_days(np.arange(-800_000, FIRST_GREGORIAN_DAY + 10))
    assert (np.diff(every) >= 0).all()
    assert every[-10:].tolist() == list(range(FIRST_GREGORIAN_DAY, FIRST_GREGORIAN_DAY + 10))


@pytest.mark.parametrize("notes", [SPARK_2, LEGACY], ids=["Spark 2", "legacy mode"])
@pytest.mark.parametrize("pages", [True, False], ids=["with pages", "without"])
def test_T6_rebased_dates_are_those_that_were_written_at_every_level(
    tmp_path: Path, notes: dict[str, str], pages: bool
) -> None:
    rows = make_dates(repeated=40).sort_by([("d", "ascending")])
    options = {
        "row_group_size": 100,
        "write_page_index": pages,
        "max_rows_per_page": 10,
        "bloom_filter_options": {"d": True},
    }
    table = tamis.open(write(tmp_path / "f.parquet", rows, notes, **options), tuning=PRUNE_PAGES)
    assert set(format_values(table.scan().to_arrow())) == set(NAMED)
    for name in NAMED[:-1]:
        assert format_values(table.scan(f"d = DATE'{name}'").to_arrow()) == [name] * 40
        assert table.scan(f"d <= DATE'{name}'").count() == 40 * (NAMED.index(name) + 1)
    assert table.scan("d = DATE'1200-01-08' OR d = DATE'1582-10-14'").count() == 0
    assert table.scan("d IN (DATE'1200-01-01', DATE'2021-01-01')").count() == 40
    assert table.scan("d = DATE'1200-01-01'").plan("row_groups").report.levels[-1].kept == 1
    session = tamis.connect()
    session.register("t", table)
    found = session.sql("SELECT min(d) AS low, max(d) AS high FROM t").to_arrow()
    assert (format_values(found, "low"), format_values(found, "high")) == (["1200-01-01"], ["2020-01-01"])


def test_T6_files_of_later_and_other_writers_are_not_rebased(tmp_path: Path) -> None:
    for notes in ({"org.apache.spark.version": "3.5.1"}, {"writer.model.name": "other"}):
        table = tamis.open(write(tmp_path / "f.parquet", make_dates(), notes))
        assert format_values(table.scan("d < DATE'1300-01-01'").to_arrow()) == ["1200-01-08"]


def test_T6_rebased_dates_inside_structs_and_beside_nulls(tmp_path: Path) -> None:
    inner = pa.array(
        [None if day is None else {"n": 1, "d": day} for day in STORED], pa.struct({"n": pa.int8(), "d": pa.int32()})
    )
    inner = inner.cast(pa.struct({"n": pa.int8(), "d": pa.date32()}))
    table = tamis.open(write(tmp_path / "f.parquet", pa.table({"id": range(5), "s": inner}), SPARK_2))
    found = table.scan().to_arrow()
    assert [None if row is None else str(row["d"]) for row in found["s"].to_pylist()] == NAMED
    assert table.scan("s.d = DATE'1582-10-04'", columns=["id"]).to_arrow()["id"].to_pylist() == [1]
    lists = pa.table({"l": pa.array([[18262], STORED], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))})
    with pytest.raises(UnsupportedFeature, match=r"column 'l' of .*f\.parquet' has dates before 1582-10-15"):
        tamis.open(write(tmp_path / "f.parquet", lists, SPARK_2)).scan().to_arrow()
    new = tamis.open(write(tmp_path / "f.parquet", lists.slice(0, 1), SPARK_2))
    assert new.scan().to_arrow()["l"].to_pylist() == [[datetime.date(2020, 1, 1)]]


@pytest.mark.parametrize("wide", [True, False], ids=["INT96", "64 bits"])
def test_T3_T7_rebased_timestamps_need_the_writers_zone(tmp_path: Path, wide: bool) -> None:
    stored = pa.array([None if day is None else day * DAY + 3_600_000_000 for day in STORED], pa.timestamp("us", "UTC"))
    rows = pa.table({"ts": stored, "id": range(5)})
    path = write(tmp_path / "f.parquet", rows, LEGACY, use_deprecated_int96_timestamps=wide)
    table = tamis.open(path)
    named = [None if day is None else f"{day} 01:00:00" for day in NAMED]
    found = [None if each is None else each[:19] for each in format_values(table.scan().to_arrow(), "ts")]
    assert found == named
    zone = "" if wide else "Z"
    assert table.scan(f"ts = TIMESTAMP'1200-01-01 01:00:00{zone}'").to_arrow()["id"].to_pylist() == [0]
    assert table.scan(f"ts < TIMESTAMP'1582-10-10 00:00:00{zone}'").to_arrow()["id"].to_pylist() == [0, 1]
    # Without a known zone, recent values are read, and older ones are an error.
    unknown = tamis.open(write(tmp_path / "g.parquet", rows, SPARK_2, use_deprecated_int96_timestamps=wide))
    assert unknown.scan(columns=["id"]).to_arrow()["id"].to_pylist() == list(range(5))
    with pytest.raises(UnsupportedFeature, match="no recorded time zone: write the file again") as caught:
        unknown.scan(f"ts = TIMESTAMP'1200-01-01 01:00:00{zone}'").to_arrow()
    assert "\n" not in str(caught.value)
    new = tamis.open(write(tmp_path / "h.parquet", rows.slice(3), SPARK_2, use_deprecated_int96_timestamps=wide))
    assert new.scan(f"ts > TIMESTAMP'2000-01-01 00:00:00{zone}'").count() == 1


def test_T7_timestamps_without_a_zone_are_not_rebased(tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array([STORED[0] * DAY], pa.timestamp("us"))})
    table = tamis.open(write(tmp_path / "f.parquet", rows, LEGACY))
    assert format_values(table.scan("ts = TIMESTAMP_NTZ'1200-01-08 00:00:00'").to_arrow(), "ts") == [
        "1200-01-08 00:00:00.000000"
    ]


def test_T6_files_of_both_calendars_are_one_table_with_and_without_an_index(tmp_path: Path) -> None:
    write(tmp_path / "t" / "old.parquet", make_dates(), SPARK_2)
    write(tmp_path / "t" / "new.parquet", make_dates(), {"org.apache.spark.version": "3.5.1"})
    tamis.index.build(tmp_path / "t", bloom=["d"])
    for index in (None, False):
        table = tamis.open(tmp_path / "t", index=index)
        assert format_values(table.scan("d = DATE'1200-01-01'").to_arrow()) == ["1200-01-01"]
        assert format_values(table.scan("d = DATE'1200-01-08'").to_arrow()) == ["1200-01-08"]
        assert table.scan("d = DATE'1582-10-14'").count() == 1


def test_T6_typed_bounds_of_a_checkpoint_are_those_that_were_written(tmp_path: Path) -> None:
    bounds = pa.struct({"minValues": pa.struct({"d": pa.date32()}), "numRecords": pa.int64()})
    actions = pa.struct(
        {"path": pa.string(), "partitionValues": pa.map_(pa.string(), pa.string()), "stats_parsed": bounds}
    )
    day = datetime.date(1200, 1, 8)
    add = {"path": "f", "partitionValues": [("p", "a")], "stats_parsed": {"minValues": {"d": day}, "numRecords": 1}}
    path = write(tmp_path / "f.parquet", pa.table({"add": pa.array([None, add], actions)}), LEGACY)
    storage, size = open_storage(tmp_path), path.stat().st_size
    footer, _ = load_footer(storage, str(path), size, None)
    (batch,) = read_row_group(storage, str(path), size, footer, 0, [("add",)])
    found = batch.column("add").to_pylist()
    assert found[0] is None
    assert found[1]["stats_parsed"] == {"minValues": {"d": datetime.date(1200, 1, 1)}, "numRecords": 1}
    assert found[1]["partitionValues"] == [("p", "a")]
