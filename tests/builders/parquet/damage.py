"""Damage to Parquet files, region by region, and its allowed effects.

A damaged file may always raise an error of Tamis. Otherwise each region has its own promise:

| region         | allowed effect of damage there                                                            |
|----------------|-------------------------------------------------------------------------------------------|
| `bodies`       | nothing, where pages have checksums; else as for headers                                  |
| `offset_index` | nothing: rows and bytes are counted                                                       |
| `headers`      | other values in as many rows, as no checksum covers the encoding that a header names      |
| `column_index` | a filter may drop or keep wrong rows, since bounds may be wrong; all rows without a filter |
| `bloom`        | rows left out by a filter; all rows without one                                           |
| `footer`       | other names, types and bounds, with as many rows as are counted                           |
| `anywhere`     | as for the footer                                                                         |

As a program it tries many files in one process with limited memory, so that a crash is visible.
"""

from __future__ import annotations

import collections
import io
import random
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import arro3.io
import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from builders.answers.same_rows import has_same_rows
from builders.parquet.page_files import OpenedFile, damage_bytes, get_footer, replace_footer
from builders.parquet.tuning import BY_PAGES
from tamis.errors import TamisError
from tamis.expr.sql.parse import parse_sql
from tamis.parquet import Pruner
from tamis.parquet.footer.footer import FOOTERS
from tamis.parquet.indexes.page_units import PAGE_INDEXES
from tamis.parquet.reading.decode import decode_page_header

MORE_MEMORY = 1024 * 1024 * 1024
"""The bytes of address space that a process may add to what it starts with."""

MORE_RESIDENT = 192 * 1024
"""The kilobytes of resident memory that it may add."""

_FILTERS = (
    "n = 17",
    "n BETWEEN 8 AND 21 AND word <> 'w3'",
    "word IN ('w1', 'absent') OR n > 35",
    "half IS NULL",
    "NOT (half < 2.5)",
    "pair.x >= 30 AND word LIKE 'w%'",
    "key = 100",
)
FILTERS = {text: parse_sql(text) for text in _FILTERS}

REGIONS = ("bodies", "offset_index", "headers", "column_index", "bloom", "footer", "anywhere")


def make_rows() -> pa.Table:
    numbers = range(40)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "word": pa.array([None if n % 9 == 0 else f"w{n % 4}" for n in numbers]),
            "half": pa.array([None if 8 <= n < 14 else n / 2 for n in numbers], pa.float64()),
            "key": pa.array([n * n % 101 for n in numbers], pa.int64()),
            "pair": pa.array([None if n % 7 == 0 else {"x": n, "y": "é" * (n % 3)} for n in numbers]),
            "list": pa.array([None if n % 6 == 0 else [n] * (n % 3) for n in numbers], pa.list_(pa.int16())),
        }
    )


WRITTEN = {
    "first version": {"max_rows_per_page": 5, "compression": "snappy", "data_page_version": "1.0"},
    "second version": {"max_rows_per_page": 4, "compression": "none", "data_page_version": "2.0"},
    "uneven": {"data_page_size": 24, "write_batch_size": 2, "compression": "zstd", "use_dictionary": False},
    "without an index": {"data_page_size": 24, "write_batch_size": 2, "write_page_index": False},
}
WITHOUT_CHECKSUMS = "by arro3"
FILES = (*WRITTEN, WITHOUT_CHECKSUMS)


def write_file(name: str) -> bytes:
    if name == WITHOUT_CHECKSUMS:
        sink = io.BytesIO()
        arro3.io.write_parquet(
            make_rows(), sink, max_row_group_size=20, data_page_row_count_limit=3, write_batch_size=2,
            bloom_filter_enabled=True, bloom_filter_ndv=20, compression="snappy",
        )  # fmt: skip
        return sink.getvalue()
    options = {
        "row_group_size": 20,
        "write_page_index": True,
        "write_page_checksum": True,
        "bloom_filter_options": {"key": {"ndv": 20, "fpp": 0.01}, "word": {"ndv": 4, "fpp": 0.01}},
        "use_dictionary": ["word", "pair.y", "list.list.element"],
    }
    out = pa.BufferOutputStream()
    pq.write_table(make_rows(), out, **options | WRITTEN[name])
    return out.getvalue().to_pybytes()


@dataclass(frozen=True)
class Target:
    """A file, its regions, and its rows."""

    content: bytes
    has_checksums: bool = True

    @cached_property
    def expected(self) -> dict[str | None, pa.Table]:
        table = pq.ParquetFile(pa.BufferReader(self.content)).read()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "f.parquet"
            path.write_bytes(self.content)
            opened = tamis.open(path, tuning=BY_PAGES)
            found = {where: opened.scan(given, levels=()).to_arrow() for where, given in FILTERS.items()}
        return {None: table, **found}

    @cached_property
    def pruners(self) -> dict[str | None, Pruner]:
        schema = self.expected[None].schema
        return {where: Pruner(schema, given, tuning=BY_PAGES) for where, given in ((None, None), *FILTERS.items())}

    @cached_property
    def regions(self) -> dict[str, list[int]]:
        """The byte offsets of each region."""
        found: dict[str, list[int]] = {region: [] for region in REGIONS}
        for layout in OpenedFile(self.content).layouts.values():
            for region in ("offset_index", "column_index"):
                start, length = getattr(layout, region) or (0, 0)
                found[region] += range(start, start + length)
            if layout.bloom_filter is not None:
                start, known = layout.bloom_filter
                found["bloom"] += range(start, start + (known or 64))
            position, length = layout.byte_range
            end = position + length
            while position < end:
                header = decode_page_header(self.content, "f", position)
                found["headers"] += range(position, position + header.length)
                found["bodies"] += range(position + header.length, position + header.page_length)
                position += header.page_length
        length = len(get_footer(self.content))
        found["footer"] += range(len(self.content) - 8 - length, len(self.content))
        return {region: sorted(set(offsets)) for region, offsets in found.items()}

    def damage(self, chance: random.Random) -> tuple[str, bytes]:
        region = chance.choice([each for each in REGIONS if self.regions[each] or each == "anywhere"])
        seed = chance.randrange(2**32)
        if region == "footer" and chance.random() < 0.4:
            return region, replace_footer(self.content, next(damage_bytes(get_footer(self.content), 1, seed)))
        if region == "anywhere":
            return region, next(damage_bytes(self.content, 1, seed))
        changed = bytearray(self.content)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.choice(self.regions[region])
            changed[at] = chance.choice((changed[at] ^ 1 << chance.randrange(8), chance.randrange(256)))
        return region, bytes(changed)


def check(target: Target, region: str, path: Path, where: str | None) -> str | None:
    """Return what is wrong with a scan of a damaged file or with its pruning, or None."""
    if region == "bodies" and not target.has_checksums:
        region = "headers"
    all_rows = target.expected[None]
    expected = target.expected[where]
    given = None if where is None else FILTERS[where]
    pruned = target.pruners[where].prune(path)
    table = tamis.open(path, tuning=BY_PAGES)
    found = table.scan(given).to_arrow()
    _validate(found)
    if region in ("bodies", "offset_index"):
        if not has_same_rows(found, expected):
            return "other rows"
        if pruned.row_selection.row_count < expected.num_rows:
            return "rows were pruned"
    elif where is None and region in ("column_index", "bloom"):
        if not has_same_rows(found, all_rows):
            return "other rows without a filter"
    elif region in ("column_index", "bloom"):
        known = {str(row) for row in (all_rows if region == "column_index" else expected).to_pylist()}
        if not known.issuperset(map(str, found.to_pylist())):
            return "rows that the file does not have"
    elif region == "headers" and where is None:
        if found.num_rows != all_rows.num_rows:
            return "another number of rows"
    elif table.scan(given).count() != found.num_rows:
        return "a count that is not that of the rows"
    return None


def _validate(found: pa.Table) -> None:
    """Check that all values are in memory that belongs to the table."""
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        # Without a checksum a text may be read as any bytes.
        if "Invalid UTF8" not in str(error):
            raise


def run_attempts(name: str, times: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield for each damaged file its region and the outcome: `read`, `refused`, or what is wrong."""
    target = Target(write_file(name), name != WITHOUT_CHECKSUMS)
    chance = random.Random(seed)
    assert target.expected
    with tempfile.TemporaryDirectory() as folder:
        for number in range(times):
            region, content = target.damage(chance)
            where = chance.choice((None, *FILTERS))
            path = Path(folder) / f"{number}.parquet"
            path.write_bytes(content)
            try:
                outcome = check(target, region, path, where)
            except TamisError:
                yield region, "refused"
            else:
                yield region, "read" if outcome is None else f"{outcome}: {name}, seed {seed}, number {number}, {where}"
            path.unlink()
            FOOTERS.clear()
            PAGE_INDEXES.clear()


def main(name: str, times: int, seed: int) -> int:
    for _ in run_attempts(name, 20, seed=0):
        pass
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MORE_MEMORY, size + MORE_MEMORY))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = collections.Counter(run_attempts(name, times, seed))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    wrong = [(region, outcome) for region, outcome in found if outcome not in ("read", "refused")]
    print(wrong or dict(found), f"{grown} kB more")
    return 1 if wrong or grown > MORE_RESIDENT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
