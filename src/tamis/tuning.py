"""The thresholds that decide how tables are planned and read.

Thresholds do not change the rows of a result, except for `inference_listings`. Each one trades requests, bytes,
processor time and memory against each other; the defaults were measured, see docs/explanation/performance.md.
`tamis.open`, `tamis.connect` and `Table.scan` accept a `Tuning`. A table's storage carries it to all code that reads
the table, in executors too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from tamis.errors import InvalidArgument, make_argument_error, suggest_method_arguments

KIB = 1024
MIB = 1024 * 1024


@suggest_method_arguments("Tuning")
@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Thresholds of planning and reading. They do not change results, except for `inference_listings`.

    >>> Tuning(min_bytes_to_prune_pages=0).min_bytes_to_prune_pages
    0
    """

    # --- Planning of files ---

    files_per_slice: int = 1024
    """The number of files whose row groups and pages are planned together, by one call of an engine."""

    min_files_per_round: int = 16
    max_files_per_round: int = 1024
    """The number of files of a top-n or an aggregate that are planned together: few at first, because their rows may
    show that the other files do not matter."""

    inference_listings: int = 64
    """The approximate number of directories that are listed to find the partition columns of a Hive-style table. A
    level with more directories is sampled evenly. This is the one threshold that may change a result: the type of a
    partition column that is not declared with `partitioning=` is inferred from the listed directories."""

    max_footers_for_limit: int = 256
    """The number of footers of a Hive-style table that are read to list fewer directories for a limit."""

    directories_per_call: int = 256
    """The number of directories that one call of an engine lists."""

    max_files_while_reading: int = 64 * 1024
    """The number of files of a Delta log that are pruned together while the log is read: their statistics are in
    memory as JSON."""

    max_cached_files_together: int = 1024 * 1024
    """The number of files of a Delta log that are pruned together if their statistics are cached."""

    min_share_to_decode_all: float = 0.25
    """If a plan needs at least this share of a batch of files in a Delta log, the statistics of the whole batch are
    decoded."""

    max_statistics_bytes: int = 1024 * MIB
    """The bytes of JSON statistics of a Delta log that are decoded together."""

    max_log_bytes_together: int = 8 * MIB
    """The bytes of small commits of a Delta log that are read together."""

    max_action_bytes_together: int = 32 * MIB
    """The bytes of actions of a Delta log that are decoded together, so that not all are in memory twice."""

    max_commits_since_checkpoint: int = 1000
    """`refresh()` of a Delta table reads only new commits. If more commits than this follow the checkpoint that it
    began with, and there is a newer checkpoint, it starts again from that."""

    max_cached_log_bytes: int = 512 * MIB
    """The bytes of decoded Delta logs that a process caches, of all tables together."""

    max_paths_checked_singly: int = 1000
    """Up to this many paths are checked one by one for symbolic links out of a local table, in about two milliseconds;
    for more, their folders are listed."""

    spark_planning_min_bytes: int = 32 * MIB
    """From this many bytes of metadata on, `planning="auto"` plans in executors. A checkpoint of 27 MiB, with 800,000
    files, took one process two seconds of one processor; a Spark job with new workers takes about as long to start."""

    spark_planning_min_parts: int = 4
    """From this many parts of metadata on, `planning="auto"` plans in executors: a single part is read by one executor,
    which gains nothing."""

    # --- Reading of Parquet files ---

    max_whole_file_bytes: int = 32 * KIB
    """A file of up to this size is read completely together with its footer."""

    min_bytes_to_prune_pages: int = 256 * KIB
    """A row group with fewer needed bytes is read whole: reading its page index would cost as much."""

    min_dictionary_saving: float = 4
    """A dictionary is read to prune a row group if that could save at least this many times its own size."""

    max_share_by_pages: float = 0.5
    """If a larger share of a row group is selected, all pages are read: one pass is faster than many small reads."""

    max_selectivity_to_filter_first: float = 0.02
    """If a larger share of rows matches the filter, its columns and all others are read together: most pages hold a
    matching row."""

    min_bytes_for_second_read: int = 2 * MIB
    min_local_bytes_for_second_read: int = 64 * KIB
    """The bytes of other columns that are worth a second round of requests, from remote and local storage. A remote
    request waits about 30 ms, in which a connection moves about as much; a local one costs as much as decoding
    64 KiB."""

    max_batch_rows: int = 128 * KIB
    """The maximum number of rows in a batch."""

    max_batch_bytes: int = 16 * MIB
    """The approximate maximum size of a batch in bytes, which limits batches of wide rows."""

    max_avro_bytes_together: int = 64 * MIB
    """The bytes of an Avro data file that are decoded together."""

    # --- SQL ---

    min_native_bytes: int = 16 * MIB
    """The minimum size of a native scan in bytes: it takes some ten milliseconds to open its files."""

    min_native_share: float = 0.3
    """A native scan reads a table if pruning leaves at least this share of the bytes: pruning pages would cost more
    than it saves."""

    max_native_files: int = 512
    """The maximum number of files of a native scan, since the footer of each one is read."""

    max_native_partitions: int = 64
    """The maximum number of partitions of a native scan, since each one is a `read_parquet` call of its own."""

    max_materialised_rows: int = 500_000
    max_materialised_bytes: int = 2 * MIB
    """Scans of at most this many rows, and native scans of at most this many bytes, are materialised first if the query
    joins several tables: DuckDB orders joins better by the statistics of its own tables than by those of Parquet
    files."""

    max_build_rows: int = 500_000
    max_build_bytes: int = 64 * MIB
    """A join side with more rows, or more bytes of files if its rows are unknown, is not read to build a dynamic
    filter."""

    min_join_size_ratio: float = 4
    """A dynamic filter prunes a side of a join only if that side is more than this many times as large as the other.
    Below this ratio, reading all of it is as fast."""

    max_listed_keys: int = 1000
    """Up to this many join keys become an IN list. More become ranges: comparing each key with the bounds of row
    groups costs too much."""

    max_tested_keys: int = 100
    """Rows are tested with IN lists of up to this many join keys. More keys only prune, and feed a Bloom join
    filter."""

    max_key_ranges: int = 16
    """The maximum number of ranges of a dynamic filter. Building each takes about 2 ms, before anything is pruned."""

    min_bytes_to_check_clustering: int = 8 * MIB
    """Tables with fewer bytes are read faster than checked for the columns that they are clustered by."""

    max_sorted_run_bytes: int = 32 * MIB
    """A scan returns its rows in order if the files whose bounds overlap have at most this many bytes together: they
    are sorted in memory. Otherwise the engine sorts, which may spill."""

    # --- Reading on Spark ---

    spark_max_footers: int = 256
    """The footers of up to this many files are read in advance, to estimate how much a filter leaves."""

    spark_page_min_bytes: int = 16 * MIB
    spark_page_max_share: float = 1 / 32
    """If a filter leaves row groups of at least this many bytes, and pages with at most this share of them, Arrow tasks
    read these pages, and the columns of the filter first. A native scan would read more of each row group."""

    spark_few_files: int = 32
    spark_small_file_bytes: int = MIB
    """If there are more files and they are smaller on average, Arrow tasks read them. For more than 32 files, Spark
    starts one listing task per file before it reads, about 10 ms each. Otherwise a native scan is three to seven times
    as fast as Arrow tasks: 400 files of 500 kB took 1.3 s, against 5.3 s."""

    spark_small_local_file_bytes: int = 64 * KIB
    """The same for local files, which are listed without tasks: 1,000 files of 41 kB took a native scan 3.8 s, Arrow
    tasks 2.8 s."""

    spark_max_local_footers: int = 4096
    """The footers of up to this many files are read in this process, to check whether a native scan supports them; if
    there are more files, executors read the footers."""

    spark_max_planned_files: int = 50_000
    """If a filter leaves more files, executors plan their row groups and pages in the tasks that read them. This
    process would hold about 11 KB for each file, and Spark's own reader more."""

    spark_max_listed_files: int = 500_000
    """If the metadata of a table has more files, executors list them too, and this process only counts those that a
    filter leaves. It would hold about 300 bytes for each of these."""

    spark_max_deletion_bytes: int = 64 * MIB
    """Native scans leave out deleted rows by a broadcast of their positions, of at most this size: about half a
    kilobyte for each 4,096 rows with a deleted one. With more of them, Arrow tasks read the files with deleted rows."""

    # --- Building of statistics indexes ---

    max_files_per_index_item: int = 1000
    """The maximum number of files that one work item of an index build collects."""

    max_files_per_index_part: int = 50_000
    max_bytes_per_index_part: int = 128 * MIB
    """The maximum number of files and bytes of a part of an index."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or (each.type == "int" and not isinstance(value, int)):
                raise make_argument_error(each.name, "a whole number" if each.type == "int" else "a number", value)
            least = 1 if each.name in _STEPS else 0
            if each.type == "int" and value < least:
                raise InvalidArgument(f"{each.name} must be at least {least}, found {value}")

    def to_json(self) -> dict[str, Any]:
        """Return the thresholds that differ from the defaults."""
        return {name: value for name, value in asdict(self).items() if value != getattr(DEFAULT_TUNING, name)}


_STEPS = frozenset((
    "files_per_slice", "min_files_per_round", "max_files_per_round", "directories_per_call", "max_batch_rows",
    "max_key_ranges", "max_files_per_index_item", "max_files_per_index_part", "max_bytes_per_index_part",
    "max_action_bytes_together",
))  # fmt: skip
"""Thresholds by which code advances or divides, so that they cannot be 0."""

DEFAULT_TUNING = Tuning()


def check_tuning(tuning: object) -> Tuning:
    """Return the tuning, that of the defaults for None; any other value is an error."""
    if tuning is None:
        return DEFAULT_TUNING
    if not isinstance(tuning, Tuning):
        raise make_argument_error("tuning", "a tamis.Tuning", tuning)
    return tuning
