r"""Types of partition columns: declared by the user, or inferred from the values as in Spark.

Each value has the first type of this list that it parses as, and then all types of a column are merged into one:

| type        | a value such as                                                                        |
|-------------|----------------------------------------------------------------------------------------|
| `int`       | `7`, `-7`, `+7`, `007`                                                                  |
| `bigint`    | an integer beyond 32 bits                                                               |
| `decimal`   | an integer beyond 64 bits, up to 38 digits; also `1e5`                                  |
| `double`    | `1.5`, `NaN`, `-Infinity`, and, as in Java, `1d` and `1f`                               |
| `timestamp` | `2024-03-01 10:30:00`, `2024-03-01 10:30:00.5`                                          |
| `date`      | `2024-03-01`                                                                            |
| `string`    | everything else                                                                         |

    int    < bigint < decimal       integers become the widest
    int    + double    = double     every int is a double
    bigint + double    = string     (also decimal + double) a double would lose digits
    date   + timestamp = timestamp
    any other two      = string
    NULL   + anything  = the other; only NULLs = string
    an empty string    = string: writers write one for strings only

A column keeps its strings beside its values, so that `hour=01` is '01' where a string is needed. If files store the
column too, it has the type of the files, provided that all strings are valid for that type: the file's type is more
precise than one inferred from directory names. The empty string is '' for a string column, and NULL for any other.
Spark also parses digits of other scripts and hexadecimal floats as numbers; here they are strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, PartitionLayoutError, suggest_name
from tamis.expr.datetime_text import parse_dates, parse_timestamps
from tamis.formats.hive.tree import DEEPEST_PLAIN, FILES_BESIDE_PARTITIONS, DirectoryTree
from tamis.io.listing import FileEntry
from tamis.types import replace_view_types, type_from_name

INT = pa.int32()

_WHOLE = r"^[+-]?\d+$"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = rf"^[+-]?{_DIGITS}$"
_NUMBER_PARTS = r"^[+-]?(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d{1,4}))?$"
# Java's parseDouble ignores control characters and blanks around the number.
_BLANKS = r"[\x00-\x20]*"
_DOUBLE = rf"^{_BLANKS}[+-]?(?:NaN|Infinity|{_DIGITS}[fFdD]?){_BLANKS}$"
# pyarrow and DuckDB write nan and inf; Spark's cast accepts them, its inference does not.
_DECLARED_DOUBLE = rf"^{_BLANKS}[+-]?(?:(?i:nan|inf|infinity)|{_DIGITS}[fFdD]?){_BLANKS}$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?$"
_ZONE = r":\d{2}(?:\.\d+)? ?(?:Z|[+-]\d{2}(?::?\d{2})?)$"

_ZEROS_LOST = r"^[+-]?0\d+$"

_UTC = frozenset({"UTC", "Z", "+00:00", "Etc/UTC"})

_WIDEST_DECIMAL = pa.decimal128(38, 0)
_DIGITS_BESIDE_DECIMAL = {INT: 10, types.LONG: 20}


def infer_type(raw: pa.StringArray) -> pa.DataType:
    """Return the common type of all values of a column, by the table above.

    >>> infer_type(pa.array(["01", "2"])), infer_type(pa.array(["1", "2024-03-01"]))
    (DataType(int32), DataType(string))
    """
    texts = pc.drop_null(pc.unique(raw))
    if len(texts) == 0:
        return types.STRING
    is_number = pc.match_substring_regex(texts, _NUMBER)
    others = texts.filter(pc.invert(is_number))
    numbers = _infer_number_types(texts.filter(is_number))
    if len(others) == 0:
        return _merge_number_types(numbers)
    if _are_all(pc.match_substring_regex(others, _DOUBLE)):
        return _merge_number_types(numbers | {types.DOUBLE})
    return types.STRING if numbers else _infer_time_type(others)


def _infer_number_types(texts: pa.StringArray) -> set[pa.DataType]:
    """Return the distinct types of strings that are numbers."""
    if len(texts) == 0:
        return set()
    found: set[pa.DataType] = set()
    precision = _count_integer_digits(texts)
    fits_decimal = pc.fill_null(pc.less_equal(precision, 38), False)
    if not _are_all(fits_decimal):
        found.add(types.DOUBLE)
    texts, precision = texts.filter(fits_decimal), precision.filter(fits_decimal)
    values = pc.cast(_strip_plus(texts), _WIDEST_DECIMAL)
    is_whole = pc.match_substring_regex(texts, _WHOLE)
    is_int, is_long = (pc.and_(is_whole, _is_within(values, data_type)) for data_type in (INT, types.LONG))
    if _is_any(is_int):
        found.add(INT)
    if _is_any(pc.and_not(is_long, is_int)):
        found.add(types.LONG)
    beyond = precision.filter(pc.invert(is_long))
    if len(beyond):
        found.add(pa.decimal128(pc.max(beyond).as_py(), 0))
    return found


def _count_integer_digits(texts: pa.StringArray) -> pa.Int64Array:
    """Return the number of digits of each integer, at least 1; null where the number has a fraction.

    Java's BigDecimal is `digits * 10^-scale`, whole where the scale is not above 0: `1.5e1` is 15, and `5.` is 5.
    """
    parts = pc.extract_regex(texts, _NUMBER_PARTS)
    whole, fraction, exponent = (pc.struct_field(parts, name) for name in ("whole", "fraction", "exponent"))
    power = pc.cast(pc.if_else(pc.equal(exponent, ""), "0", _strip_plus(exponent)), pa.int64())
    scale = pc.subtract(pc.cast(pc.utf8_length(fraction), pa.int64()), power)
    digits = pc.utf8_length(pc.utf8_ltrim(pc.binary_join_element_wise(whole, fraction, ""), characters="0"))
    precision = pc.subtract(pc.max_element_wise(pc.cast(digits, pa.int64()), 1), scale)
    return pc.if_else(pc.less_equal(scale, 0), precision, pa.scalar(None, pa.int64()))


def _is_within(values: pa.Array, data_type: pa.DataType) -> pa.BooleanArray:
    smallest, largest = (pa.scalar(limit).cast(_WIDEST_DECIMAL) for limit in types.get_integer_range(data_type))
    return pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))


def _merge_number_types(found: set[pa.DataType]) -> pa.DataType:
    wider = found - {INT}
    if types.DOUBLE in found:
        return types.DOUBLE if wider == {types.DOUBLE} else types.STRING
    decimals = wider - {types.LONG}
    if not decimals:
        return types.LONG if wider else INT
    digits = {data_type.precision for data_type in decimals}
    digits |= {_DIGITS_BESIDE_DECIMAL[data_type] for data_type in found - decimals}
    return pa.decimal128(max(digits), 0)


def _infer_time_type(texts: pa.StringArray) -> pa.DataType:
    is_date = pc.match_substring_regex(texts, _DATE)
    if not _are_all(pc.or_(is_date, pc.match_substring_regex(texts, _TIMESTAMP))):
        return types.STRING
    data_type = types.DATE if _are_all(is_date) else types.TIMESTAMP
    try:
        _parse(texts, data_type)
    except pa.ArrowInvalid:  # the 30th of February
        return types.STRING
    return data_type


def add_partition_columns(data: pa.Schema, partitions: pa.Schema) -> pa.Schema:
    """Return the columns of a table: those of its files, then the partition columns.

    If files also store a partition column (in any case), the value of the directory wins, and the column keeps its
    position in the files. The directory is what the table was partitioned by; a file may hold anything under that name.
    """
    remaining = {field.name.lower(): field for field in partitions}
    plain = (field.with_type(replace_view_types(field.type)) for field in data.remove_metadata())
    fields = [remaining.pop(field.name.lower(), field) for field in plain]
    return pa.schema([*fields, *remaining.values()])


def to_partition_type(found: pa.DataType) -> pa.DataType | None:
    """Return the type of a partition column that files store as `found`; None if the directory names decide.

    The result is never binary or time of day, because their strings differ between writers.
    """
    plain = replace_view_types(found.value_type if pa.types.is_dictionary(found) else found)
    if types.is_text(plain):
        return types.STRING
    is_timestamp = pa.types.is_timestamp(plain) and (plain.tz is None or plain.tz in _UTC)
    is_plain = pa.types.is_integer(plain) or pa.types.is_floating(plain) or pa.types.is_decimal(plain)
    return plain if is_plain or is_timestamp or pa.types.is_boolean(plain) or pa.types.is_date32(plain) else None


def can_parse(raw: pa.StringArray, data_type: pa.DataType) -> bool:
    """Return whether all strings are valid for a type."""
    try:
        _parse(raw, data_type)
    except pa.ArrowInvalid:
        return False
    return True


def has_leading_zeros(raw: pa.StringArray, data_type: pa.DataType) -> bool:
    """Return whether some string has leading zeros that its value loses.

    >>> has_leading_zeros(pa.array(["01234"]), pa.int32()), has_leading_zeros(pa.array(["0", "0.5"]), pa.float64())
    (True, False)
    """
    if types.is_text(data_type) or not len(raw):
        return False
    is_number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)
    return is_number and _is_any(pc.match_substring_regex(raw, _ZEROS_LOST))


def check_declared(column: str, data_type: pa.DataType) -> None:
    """Raise InvalidArgument for a type that cannot be parsed from a string."""
    if _find_parser(data_type) is None:
        raise InvalidArgument(
            f"partition column {column!r} cannot be {types.type_name(data_type)}: declare a number, a string, "
            "binary, boolean, date or timestamp"
        )


def parse_values(raw: pa.StringArray, data_type: pa.DataType, column: str) -> pa.Array:
    """Parse the strings of a partition column to values of its type; null stays null.

    Times without a zone are UTC. Dates may also have the short forms of Spark's cast: `2024-3-1`, `2024-03`, `2024`.

    >>> parse_values(pa.array(["01", None]), pa.int32(), "hour").to_pylist()
    [1, None]
    """
    check_declared(column, data_type)
    try:
        return _parse(raw, data_type)
    except pa.ArrowInvalid as error:
        wrong = _find_first_invalid(raw, data_type)
        raise PartitionLayoutError(
            f"the value {wrong!r} of partition column {column!r} is not a valid {types.type_name(data_type)}. "
            f'Declare another type: partitioning={{"{column}": "string"}}, on the command line '
            f"--partitioning {column}=string"
        ) from error


def _find_first_invalid(raw: pa.StringArray, data_type: pa.DataType) -> str:
    """Find the first string that does not parse, by bisection: all before `low` parse, and one before `high` does
    not."""
    low, high = 0, len(raw)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _parse(raw.slice(low, middle - low), data_type)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return str(raw[low].as_py())


def _parse(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    parser = _find_parser(data_type)
    assert parser is not None, data_type
    if parser is not _parse_text:
        # pyarrow, Polars and DuckDB write the empty string unchanged; no other type has one.
        raw = pc.if_else(pc.equal(raw, ""), pa.scalar(None, raw.type), raw)
    return parser(raw, data_type)


Parser = Callable[[pa.StringArray, pa.DataType], pa.Array]


def _find_parser(data_type: pa.DataType) -> Parser | None:
    if types.is_text(data_type) or types.is_bytes(data_type):
        return _parse_text
    if pa.types.is_integer(data_type) or pa.types.is_decimal(data_type):
        return _parse_exact_number
    if pa.types.is_floating(data_type):
        return _parse_floating
    if pa.types.is_boolean(data_type):
        return pc.cast  # type: ignore[no-any-return]
    if pa.types.is_date(data_type):
        return _parse_date
    if pa.types.is_timestamp(data_type):
        return _parse_timestamp
    return None


def _parse_text(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(raw, pa.binary()), data_type) if types.is_bytes(data_type) else pc.cast(raw, data_type)


def _parse_exact_number(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    # Arrow's cast also accepts hexadecimal numbers.
    _check_pattern(raw, _WHOLE if pa.types.is_integer(data_type) else _NUMBER)
    return pc.cast(_strip_plus(raw), data_type)


def _parse_floating(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    _check_pattern(raw, _DECLARED_DOUBLE)
    bare = pc.replace_substring_regex(raw, rf"^{_BLANKS}|{_BLANKS}$", "")
    bare = pc.replace_substring_regex(bare, r"([\d.])[fFdD]$", r"\1")
    return pc.cast(pc.cast(_strip_plus(bare), types.DOUBLE), data_type, safe=False)


def _parse_date(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    padded = pc.replace_substring_regex(raw, r"^(\d{4})-(\d)(-|$)", r"\1-0\2\3")
    padded = pc.replace_substring_regex(padded, r"^(\d{4}-\d{2})-(\d)$", r"\1-0\2")
    padded = pc.replace_substring_regex(padded, r"^(\d{4})$", r"\1-01")
    padded = pc.replace_substring_regex(padded, r"^(\d{4}-\d{2})$", r"\1-01")
    return pc.cast(_check_all_read(padded, parse_dates(padded)), data_type)


def _parse_timestamp(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    if data_type.unit == "us":
        # Any year in the type's range; digits beyond the microsecond are truncated, as in Spark.
        target = types.TIMESTAMP if data_type.tz is not None else types.TIMESTAMP_NTZ
        return pc.cast(_check_all_read(raw, parse_timestamps(raw, target)), data_type)
    naive_type = pa.timestamp(data_type.unit)
    if data_type.tz is None:
        return pc.cast(raw, naive_type)
    nothing = pa.scalar(None, raw.type)
    has_zone = pc.match_substring_regex(raw, _ZONE)
    zoned = pc.cast(pc.if_else(has_zone, raw, nothing), data_type)
    naive = pc.cast(pc.if_else(has_zone, nothing, raw), naive_type)
    return pc.coalesce(zoned, pc.cast(pc.assume_timezone(naive, "UTC"), data_type))


def _check_all_read(texts: pa.StringArray, values: pa.Array) -> pa.Array:
    if values.null_count != texts.null_count:
        raise pa.ArrowInvalid(f"a string is not a valid {values.type}")
    return values


def _check_pattern(raw: pa.StringArray, pattern: str) -> None:
    if not _are_all(pc.match_substring_regex(raw, pattern)):
        raise pa.ArrowInvalid(f"a string does not match {pattern}")


def _strip_plus(texts: pa.StringArray) -> pa.StringArray:
    # Arrow's cast rejects a leading plus.
    return pc.utf8_ltrim(texts, characters="+")


def _are_all(booleans: pa.BooleanArray) -> bool:
    """Return whether no value is false."""
    return bool(pc.all(booleans, min_count=0).as_py())


def _is_any(booleans: pa.BooleanArray) -> bool:
    return bool(pc.any(booleans, min_count=0).as_py())


# --- Discovery of a table's partition columns and their types, with as few listings as possible -----------------------


@dataclass(frozen=True, slots=True)
class Branch:
    """The path from the root to the first leaf: its directories, starting with the root, and one column fewer.

    `sample` is the first data file of the leaf; None if the table has no files.
    """

    columns: tuple[str, ...]
    directories: tuple[str, ...]
    sample: FileEntry | None = None

    def step(self, column: str, path: str) -> Branch:
        """Return the branch one directory further down. Column names must differ by more than case."""
        for known, directory in zip(self.columns, self.directories[1:], strict=True):
            if known.lower() == column.lower():
                raise PartitionLayoutError(
                    f"a partition column occurs twice, as {known!r} in '{directory}' and as {column!r} in '{path}': "
                    "rename one of the directories"
                )
        return Branch((*self.columns, column), (*self.directories, path))


def find_branch(tree: DirectoryTree, directory: str | None = None) -> Branch:
    """Return the first branch, by name, that ends in a data file; from the table's root, or from another directory.

    Empty directories are skipped, one by one at first; if that takes many listings, whole levels are listed together. A
    table without files has the columns of its deepest branch.
    """
    root = Branch((), (tree.storage.root if directory is None else directory,))
    waiting = [(root, root.directories[0])]
    deepest = root
    while waiting and tree.num_listed < tree.storage.tuning.inference_listings:
        branch, path = waiting.pop()
        found, below = _search_directories(tree, [(branch, path)])
        if found is not None:
            return found
        deepest = max(deepest, branch, key=lambda candidate: len(candidate.columns))
        waiting.extend(reversed(below))
    while waiting:
        found, below = _search_directories(tree, waiting)
        if found is not None:
            return found
        deepest = max(deepest, *(branch for branch, _ in waiting), key=lambda candidate: len(candidate.columns))
        waiting = below
    return deepest


def _search_directories(
    tree: DirectoryTree, positions: list[tuple[Branch, str]]
) -> tuple[Branch | None, list[tuple[Branch, str]]]:
    """Return the branch of the first data file in the given directories, else the directories below them.

    A position is a branch and the directory of the search: the end of the branch, or a plain directory below it.
    """
    children = tree.list_children([path for _, path in positions])
    files, partitions = children.files, children.partitions
    if files.num_rows:
        branch, path = positions[files["parent"][0].as_py()]
        beside = partitions.filter(pc.equal(partitions["parent"], files["parent"][0]))
        if beside.num_rows:
            raise tree.make_conflict_error(FILES_BESIDE_PARTITIONS, files["path"][0].as_py(), beside["path"][0].as_py())
        sample = FileEntry(*(files[name][0].as_py() for name in ("path", "size", "modified_ns")))
        return Branch(branch.columns, branch.directories, sample), []
    below: list[tuple[Branch, str]] = []
    for column, path, parent in zip(
        *(partitions[name].to_pylist() for name in ("column", "path", "parent")), strict=True
    ):
        branch, above = positions[parent]
        if above != branch.directories[-1]:
            raise tree.make_conflict_error(FILES_BESIDE_PARTITIONS, above, path)
        below.append((branch.step(column, path), path))
    for path, parent in zip(*(children.plain[name].to_pylist() for name in ("path", "parent")), strict=True):
        branch, _ = positions[parent]
        # The root of a partitioned table has no plain directories with data; plain directories of a leaf belong to it.
        if branch.columns:
            if path.count("/") - branch.directories[-1].count("/") > DEEPEST_PLAIN:
                raise tree.make_depth_error(path)
            below.append((branch, path))
    return None, below


def check_partitioning(partitioning: object) -> Mapping[str, str | pa.DataType]:
    """Return the declared types, which may be empty; raise InvalidArgument unless they map names to types."""
    if partitioning is None:
        return {}
    if not isinstance(partitioning, Mapping):
        raise InvalidArgument(
            f"partitioning must be a mapping of columns to types, as in {{'day': 'date'}}, found {partitioning!r}"
        )
    for name, given in partitioning.items():
        if not isinstance(name, str):
            raise InvalidArgument(f"partitioning has the column {name!r}: a name is a string, as in {{'day': 'date'}}")
        if not isinstance(given, str | pa.DataType):
            raise InvalidArgument(
                f"partitioning has the type {given!r} for {name!r}: give its name, as in {{{name!r}: 'int'}}, or an "
                "Arrow type"
            )
    return partitioning


def resolve_declared_types(
    columns: tuple[str, ...], partitioning: Mapping[str, str | pa.DataType] | None
) -> dict[str, pa.DataType]:
    """Return the types that the user declared, by the column names of the directories."""
    declared: dict[str, pa.DataType] = {}
    for name, given in check_partitioning(partitioning).items():
        matches = [column for column in columns if column.lower() == name.lower()]
        if not matches:
            known = f"Partition columns: {', '.join(columns)}" if columns else "The table has no partition columns"
            hint = suggest_name(name, columns)
            raise InvalidArgument(f"partitioning declares {name!r}, which is not a partition column.{hint} {known}")
        data_type = type_from_name(given) if isinstance(given, str) else given
        check_declared(name, data_type)
        declared[matches[0]] = data_type
    return declared


@dataclass(frozen=True)
class PartitionTypes:
    """The partition columns of a table with their types, and the strings that these were inferred from."""

    schema: pa.Schema
    seen: Mapping[str, pa.StringArray]
    """The strings from which the type of a column was inferred, without declared columns."""

    def adopt_stored_types(self, stored: pa.Schema) -> PartitionTypes:
        """Return the columns with the file's type for a partition column that files store too, if it fits all its
        strings."""
        by_name = {field.name.lower(): field.type for field in stored}
        types = {field.name: field.type for field in self.schema}
        for column, raw in self.seen.items():
            found = by_name.get(column.lower())
            wanted = None if found is None else to_partition_type(found)
            if wanted is not None and can_parse(raw, wanted):
                types[column] = wanted
        return PartitionTypes(pa.schema(list(types.items())), self.seen)

    @property
    def note(self) -> str | None:
        """A note for the report on columns whose strings have leading zeros that their numbers lose."""
        columns = [name for name, raw in self.seen.items() if has_leading_zeros(raw, self.schema.field(name).type)]
        if not columns:
            return None
        names = " and ".join(f"'{name}'" for name in columns)
        declared = ", ".join(f'"{name}": "string"' for name in columns)
        return (
            f"directories of {names} have leading zeros, which their numbers lose: declare strings to keep them, with "
            f"partitioning={{{declared}}} or --partitioning {columns[0]}=string"
        )


def infer_types(tree: DirectoryTree, branch: Branch, declared: Mapping[str, pa.DataType]) -> PartitionTypes:
    """Return the partition columns with their types: declared, or inferred from directory names."""
    undeclared = [level for level, column in enumerate(branch.columns) if column not in declared]
    inferred: dict[str, pa.DataType] = {}
    seen: dict[str, pa.StringArray] = {}
    paths = [tree.storage.root]
    for level in range(max(undeclared, default=-1) + 1):
        levels_left = max(undeclared) - level + 1
        chosen = _sample(tree, paths, (tree.storage.tuning.inference_listings - tree.num_listed) // levels_left)
        partitions = tree.list_children(chosen).partitions
        if level in undeclared:
            texts = pc.drop_null(pc.unique(partitions["value"]))
            seen[branch.columns[level]] = texts
            inferred[branch.columns[level]] = infer_type(texts)
        paths = partitions["path"].to_pylist()
    types = {**inferred, **declared}
    return PartitionTypes(pa.schema([pa.field(column, types[column]) for column in branch.columns]), seen)


def _sample(tree: DirectoryTree, paths: list[str], budget: int) -> list[str]:
    """Return evenly spread directories within the budget of listings, and all directories that are listed already."""
    unlisted = [path for path in paths if not tree.is_listed(path)]
    if len(unlisted) <= budget:
        return paths
    spread = np.linspace(0, len(unlisted) - 1, max(0, budget)).astype(int).tolist()
    chosen = {unlisted[position] for position in spread}
    return [path for path in paths if path in chosen or tree.is_listed(path)]
