"""Split-block Bloom filters of column chunks (256-bit blocks, xxh64).

A filter answers whether a chunk may contain a value; "no" is certain. It is an array of blocks of eight 32-bit words.
The upper half of a value's hash selects the block. The lower half, multiplied by eight odd salts, selects one bit in
each word. A value whose eight bits are not all set was never written.

An untrustworthy filter is `Unavailable`, with a reason: an unsupported header, a size that is not a multiple of the
block size, that contradicts the footer or that exceeds the file. Every written value sets a bit in *each* word of its
block, so a block with only some empty words is damaged and also excludes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from inspect import iscoroutinefunction
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tamis import types
from tamis.errors import InvalidArgument, TamisError, add_article, make_argument_error, make_user_code_error
from tamis.parquet.footer.bounds import get_nanoseconds_per_tick, get_stored_type
from tamis.parquet.footer.datetime_rebase import get_rebase_limit
from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.footer.thrift import INTEGER32, RAW_STRUCT, Malformed, make_struct_kind, read_struct

Array = np.ndarray[Any, Any]

WORDS_PER_BLOCK = 8
BLOCK_BYTES = 4 * WORDS_PER_BLOCK
MAX_BITSET_BYTES = 128 * 1024 * 1024
"""The largest filter that writers produce, and the largest that is read."""
MAX_HEADER_BYTES = 64
"""The maximum header length in bytes. Headers take about 15 bytes; a later format version may add fields."""

SALTS = np.array(
    (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31), np.uint32
)
_ONE = np.uint32(1)
_SHIFT = np.uint32(27)
_HALF = np.uint64(32)
_FULL = np.uint32(0xFFFFFFFF)

# The format defines one option for each of the three unions, always as field 1.
_UNION = make_struct_kind({1: RAW_STRUCT})
_HEADER = {1: INTEGER32, 2: _UNION, 3: _UNION, 4: _UNION}
_UNIONS = {2: "algorithm", 3: "hash", 4: "compression"}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The reason why a filter cannot be used; the row group is kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """The header before the bitset: `size` is the length of the header, `bitset_size` that of the bitset, in bytes."""

    size: int
    bitset_size: int

    @property
    def block_count(self) -> int:
        return self.bitset_size // BLOCK_BYTES


def parse_header(data: bytes) -> BloomHeader | Unavailable:
    """Parse the header at the start of the bytes."""
    try:
        found, size = read_struct(data[:MAX_HEADER_BYTES], 0, _HEADER)
    except IndexError:
        return Unavailable("the Bloom filter header is truncated")
    except Malformed as error:
        return Unavailable(f"the Bloom filter header is damaged: {error}")
    for identifier, name in _UNIONS.items():
        if found.get(identifier) is None or 1 not in found[identifier]:
            return Unavailable(f"the Bloom filter has an unsupported {name}")
    bitset_size = found.get(1, 0)
    if bitset_size <= 0 or bitset_size % BLOCK_BYTES:
        return Unavailable(f"the Bloom filter has {bitset_size} bytes, expected a multiple of {BLOCK_BYTES}")
    if bitset_size > MAX_BITSET_BYTES:
        return Unavailable(f"the Bloom filter has {bitset_size} bytes, expected at most {MAX_BITSET_BYTES}")
    return BloomHeader(size, bitset_size)


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """The blocks of a filter: all of them, or only those that were read because some hashes need them.

    `bits` has a row of eight words for each available block. `held` lists their numbers in ascending order; None means
    all blocks.
    """

    bits: Array
    block_count: int
    block_numbers: Array | None = None

    @staticmethod
    def from_bytes(bitset: Any) -> BloomFilter:
        """Wrap a complete bitset, which follows the header of a stored filter, without copying it."""
        size = memoryview(bitset).nbytes
        if not size or size % BLOCK_BYTES:
            raise InvalidArgument(f"a Bloom filter has {size} bytes, expected a multiple of {BLOCK_BYTES}")
        bits = np.frombuffer(bitset, "<u4").reshape(-1, WORDS_PER_BLOCK)
        return BloomFilter(bits, len(bits))

    @staticmethod
    def from_blocks(blocks: Any, held: Array, block_count: int) -> BloomFilter:
        """Build a filter from the blocks that were read; `held` are their numbers."""
        return BloomFilter(np.frombuffer(blocks, "<u4").reshape(-1, WORDS_PER_BLOCK), block_count, held)

    def might_contain_hashes(self, hashes: Array) -> Array:
        """Return for each hash whether the chunk may contain its value; False is certain."""
        return _has_bits(self._gather_words(find_blocks(hashes, self.block_count)), hashes)

    def _gather_words(self, blocks: Array) -> Array:
        """Return the words of the given blocks, with all bits set for blocks that were not read."""
        if self.block_numbers is None:
            return self.bits[blocks]
        if not len(self.block_numbers):
            return np.full((len(blocks), WORDS_PER_BLOCK), _FULL)
        positions = np.minimum(np.searchsorted(self.block_numbers, blocks), len(self.block_numbers) - 1)
        return np.where((self.block_numbers[positions] == blocks)[:, None], self.bits[positions], _FULL)


def find_blocks(hashes: Array, block_count: int | Array) -> Array:
    """Return the block number of each hash in a filter with `block_count` blocks."""
    return (((hashes >> _HALF) * np.asarray(block_count, np.uint64)) >> _HALF).astype(np.int64)


_PROBES_PER_STEP = 1 << 16


def might_contain_any(filters: Sequence[BloomFilter], hashes: Array) -> Array:
    """Return for each filter whether it may contain one of the hashes.

    Many filters with few hashes are probed together; few filters with many hashes are probed one after the other.
    """
    if not len(hashes):
        return np.zeros(len(filters), bool)
    step = _PROBES_PER_STEP // len(hashes)
    if step < 2:
        return np.array([each.might_contain_hashes(hashes).any() for each in filters], bool)
    found = np.zeros(len(filters), bool)
    for start in range(0, len(filters), step):
        step_filters = filters[start : start + step]
        blocks = find_blocks(hashes, np.array([[each.block_count] for each in step_filters]))
        words = np.stack([each._gather_words(own) for each, own in zip(step_filters, blocks, strict=True)])
        found[start : start + step] = _has_bits(words, hashes).any(axis=1)
    return found


def _has_bits(words: Array, hashes: Array) -> Array:
    """Return whether the bits of each hash are set in its words; the last axis holds the eight words."""
    lower = hashes.astype(np.uint32)
    shape = words.shape[:-1]
    found, some_empty, all_empty = np.ones(shape, bool), np.zeros(shape, bool), np.ones(shape, bool)
    with np.errstate(over="ignore"):
        for position, salt in enumerate(SALTS):
            word = words[..., position]
            empty = word == 0
            found &= (word & (_ONE << ((lower * salt) >> _SHIFT))) != 0
            some_empty |= empty
            all_empty &= empty
    # No writer produces a block with both empty and non-empty words, so that block excludes nothing.
    return found | (some_empty & ~all_empty)


# --- Hashes of literals in their stored form, for Bloom filter lookups ------------------------------------------------
#
# A filter hashes the bytes of the *stored* values, so a literal of the table's type is converted back to the file's
# type first: to the stored value that is read as the literal. There is at most one, because a reader rejects values
# that the table's type cannot represent exactly. A literal without a stored value is in no row of the file:
#
# | table type    | file type             | stored value of the literal                              | in no file      |
# |---------------|-----------------------|----------------------------------------------------------|-----------------|
# | integers      | other integers        | the number                                               | 300 as an int8  |
# | decimals      | integers, decimals    | the digits at the file's scale                           | 1.5 as an int   |
# | float, double | integers              | the number; unknown from where floats skip integers      | 1.5, infinities |
# | float, double | narrower floats       | the number; **both** zeros, which are equal; NaN unknown | 0.1 as a float  |
# | times         | times of another unit | the ticks of the file's unit                             | 1 µs as ms      |
# | timestamps    | dates                 | the day                                                  | noon            |
# | text, bytes   | bytes                 | the bytes                                                | another width   |
#
# Storage forms: INT32 and INT64 in little endian (an int8 as INT32, an unsigned number by its bits), floats in IEEE
# 754, fixed-length decimals as big-endian numbers of exactly that width, bytes without a length prefix. No lookup is
# made where writers differ (decimals of variable length), write no filter (booleans), or have several forms for one
# value (INT96).

_NO_HASHES = np.empty(0, np.uint64)
_PHYSICAL = {"INT32": "<i4", "INT64": "<i8"}
_FLOATS = {16: "<f2", 32: "<f4", 64: "<f8"}


def hash_stored_values(values: pa.Array, leaf: Leaf) -> Array | Unavailable:
    """Return the hashes of all stored values that equal one of `values`, which have the table's type.

    A column chunk contains one of the values only if its filter contains one of the hashes; without hashes it contains
    none of the values. NULL equals nothing and has no hash.
    """
    values = _decode_plain(values.drop_null())
    source = get_stored_type(leaf)
    if source is None or pa.types.is_boolean(source):
        return Unavailable(f"Bloom filters are not supported for {leaf.physical} {leaf.logical}")
    if not len(values):
        return _NO_HASHES
    if leaf.needs_rebase and _may_need_rebase(values):
        return Unavailable("dates before 1582 may be stored in the Julian calendar")
    if types.is_bytes(source):
        return _hash_bytes(values, source)
    if pa.types.is_floating(source):
        return _hash_floats(values, source)
    if pa.types.is_decimal(source) and leaf.physical not in _PHYSICAL:
        return _hash_decimals(values, source, leaf)
    numbers = _to_stored_numbers(values, source, leaf)
    if isinstance(numbers, Unavailable):
        return numbers
    return hash_rows(_as_byte_rows(numbers.astype(_PHYSICAL[leaf.physical])))


def _may_need_rebase(values: pa.Array) -> bool:
    """Return whether some value may be stored in the Julian calendar: see `tamis.parquet.footer.datetime_rebase`."""
    if not (pa.types.is_date32(values.type) or pa.types.is_timestamp(values.type)):
        return True
    numbers = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return bool(pc.min(numbers).as_py() < get_rebase_limit(values.type))


def _decode_plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


def _not_convertible(values: pa.Array, source: pa.DataType) -> Unavailable:
    target, stored = types.type_name(values.type), types.type_name(source)
    return Unavailable(f"a {target} literal cannot be converted to the stored type {stored} exactly")


def _as_byte_rows(numbers: Array) -> Array:
    """Return the bytes of the numbers, one row each."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)


# --- Whole numbers ---------------------------------------------------------------------------------------------------


def _to_stored_numbers(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    """Return the stored numbers of the values, without those that the file's type cannot represent."""
    numbers: list[int] | Array | Unavailable
    if pa.types.is_decimal(source):
        numbers = _to_unscaled(values, source)
    elif not pa.types.is_integer(source):
        return _to_ticks(values, source, leaf)
    elif pa.types.is_decimal(values.type):
        numbers = _to_unscaled(values, pa.decimal128(38, 0))
    elif pa.types.is_floating(values.type):
        numbers = _to_whole_numbers(values)
    elif pa.types.is_integer(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
    else:
        numbers = _not_convertible(values, source)
    if isinstance(numbers, Unavailable):
        return numbers
    return _keep_in_range(np.array(numbers, object) if isinstance(numbers, list) else numbers, source, leaf)


def _keep_in_range(numbers: Array, source: pa.DataType, leaf: Leaf) -> Array:
    """Return the numbers in the range of the file's type; large unsigned numbers share the bits of negative ones."""
    if pa.types.is_integer(source):
        smallest, largest = types.get_integer_range(source)
    else:
        smallest, largest = types.get_integer_range(pa.int32() if leaf.physical == "INT32" else pa.int64())
    if numbers.dtype.kind in "iu":
        limits = np.iinfo(numbers.dtype)
        smallest, largest = max(smallest, int(limits.min)), min(largest, int(limits.max))
    fitting = numbers[(numbers >= smallest) & (numbers <= largest)]
    return fitting.astype(np.uint64 if largest >= 2**63 else np.int64)


def _to_whole_numbers(values: pa.Array) -> Array | Unavailable:
    floats = values.to_numpy(zero_copy_only=False)
    # From this magnitude on, several integers are read as the same float, or none is.
    first_gap = 2.0 ** (np.finfo(floats.dtype).nmant + 1)
    finite = floats[np.isfinite(floats)]
    if (np.abs(finite) >= first_gap).any():
        return Unavailable("several integers of the file convert to the same float at this magnitude")
    whole: Array = finite[finite == np.floor(finite)].astype(np.int64)
    return whole


def _to_ticks(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    if not _is_same_kind_of_time(values.type, source, leaf):
        return _not_convertible(values, source)
    ticks = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_numpy(zero_copy_only=False)
    ticks = ticks.astype(np.int64)
    numerator, denominator = get_nanoseconds_per_tick(values.type), get_nanoseconds_per_tick(source)
    common = int(np.gcd(numerator, denominator))
    numerator, denominator = numerator // common, denominator // common
    largest = (2**63 - 1) // numerator
    ticks = ticks[(ticks >= -largest) & (ticks <= largest)] * np.int64(numerator)
    return _keep_in_range(ticks[ticks % denominator == 0] // denominator, source, leaf)


def _is_same_kind_of_time(target: pa.DataType, source: pa.DataType, leaf: Leaf) -> bool:
    is_type = pa.types
    if is_type.is_timestamp(target) and is_type.is_timestamp(source):
        # An instant and a local timestamp differ by an unknown zone. Files with only converted types do not
        # distinguish the two, so the table's type decides.
        zone_is_known = not leaf.parameters.get("is_from_converted_type", False)
        return not zone_is_known or (target.tz is None) == (source.tz is None)
    if is_type.is_timestamp(target) and is_type.is_date(source):
        return target.tz is None
    return any(same(target) and same(source) for same in (is_type.is_date, is_type.is_time, is_type.is_duration))


# --- Decimals --------------------------------------------------------------------------------------------------------


def _hash_decimals(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    if leaf.physical != "FIXED_LEN_BYTE_ARRAY":
        return Unavailable("decimals of variable length have more than one stored form")
    digits = _to_unscaled(values, source)
    if isinstance(digits, Unavailable):
        return digits
    limit = 1 << (8 * leaf.length - 1)
    return hash_byte_strings(
        [each.to_bytes(leaf.length, "big", signed=True) for each in digits if -limit <= each < limit]
    )


def _to_unscaled(values: pa.Array, source: pa.DataType) -> list[int] | Unavailable:
    """Return the unscaled integers of the values at the scale of `source`, without values that have more digits."""
    if not pa.types.is_decimal(values.type):
        return _not_convertible(values, source)
    scale = values.type.scale
    digits = [_unscale(value, scale) for value in values.to_pylist()]
    if source.scale >= scale:
        factor = 10 ** (source.scale - scale)
        return [each * factor for each in digits]
    divisor = 10 ** (scale - source.scale)
    return [each // divisor for each in digits if each % divisor == 0]


def _unscale(value: Decimal, scale: int) -> int:
    # From its digits, because arithmetic on decimals rounds to the context's precision.
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # Arrow has no infinite decimals
    whole = int("".join(map(str, digits))) * int(10 ** (exponent + scale))
    return -whole if sign else whole


# --- Floats ----------------------------------------------------------------------------------------------------------


def _hash_floats(values: pa.Array, source: pa.DataType) -> Array | Unavailable:
    if not pa.types.is_floating(values.type):
        return _not_convertible(values, source)
    wide = values.to_numpy(zero_copy_only=False).astype(np.float64)
    if np.isnan(wide).any():
        return Unavailable("NaN has many bit patterns, and a Bloom filter contains only those that were written")
    with np.errstate(over="ignore"):
        stored = wide.astype(_FLOATS[source.bit_width])
    stored = stored[stored.astype(np.float64) == wide]
    zeros = stored == 0
    if zeros.any():
        stored = np.concatenate([stored[~zeros], np.array([0.0, -0.0], stored.dtype)])
    return hash_rows(_as_byte_rows(stored))


# --- Bytes -----------------------------------------------------------------------------------------------------------


def _hash_bytes(values: pa.Array, source: pa.DataType) -> Array | Unavailable:
    is_text = types.is_text(values.type)
    if not (is_text or types.is_bytes(values.type)) or (is_text and pa.types.is_fixed_size_binary(source)):
        return _not_convertible(values, source)
    stored: list[Any] = pc.cast(values, pa.large_binary()).to_pylist()
    if pa.types.is_fixed_size_binary(source):
        stored = [value for value in stored if len(value) == source.byte_width]
    return hash_byte_strings(stored)


# --- Vectorised xxh64 with seed 0, the hash of Parquet's Bloom filters ------------------------------------------------
#
# The library needs one call per value. Here a hundred thousand numbers are hashed in a few milliseconds, all rows
# side by side: below 32 bytes the hash is a short chain of steps that is the same for all values of one width. Longer
# values, and values of different lengths, use the library.

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)

_MAX_WIDTH = 31
"""The maximum width here. From 32 bytes on the hash has four lanes, which are left to the library."""


def hash_rows(rows: Array) -> Array:
    """Return the hashes of the rows of a byte matrix.

    >>> [hex(each) for each in hash_rows(np.frombuffer(b"abcdefgh", np.uint8).reshape(2, 4)).tolist()]
    ['0xde0327b0d25d92cc', '0xfe796c96042e67c9']
    """
    count, width = rows.shape
    if width > _MAX_WIDTH:
        return hash_byte_strings([row.tobytes() for row in rows])
    rows = np.ascontiguousarray(rows)
    with np.errstate(over="ignore"):
        state = np.full(count, _PRIME_5 + np.uint64(width), np.uint64)
        position = 0
        while position + 8 <= width:
            lane = _read_integers(rows, position, "<u8") * _PRIME_2
            state ^= _rotate_left(lane, 31) * _PRIME_1
            state = _rotate_left(state, 27) * _PRIME_1 + _PRIME_4
            position += 8
        if position + 4 <= width:
            state ^= _read_integers(rows, position, "<u4") * _PRIME_1
            state = _rotate_left(state, 23) * _PRIME_2 + _PRIME_3
            position += 4
        for last in range(position, width):
            state ^= rows[:, last].astype(np.uint64) * _PRIME_5
            state = _rotate_left(state, 11) * _PRIME_1
        state ^= state >> np.uint64(33)
        state *= _PRIME_2
        state ^= state >> np.uint64(29)
        state *= _PRIME_3
        state ^= state >> np.uint64(32)
    return state


def hash_byte_strings(values: Sequence[bytes]) -> Array:
    """Return the hashes of values of any length."""
    digest = xxhash.xxh64_intdigest
    return np.fromiter((digest(value) for value in values), np.uint64, len(values))


def _read_integers(rows: Array, position: int, form: str) -> Array:
    width = np.dtype(form).itemsize
    column = np.ascontiguousarray(rows[:, position : position + width])
    return column.view(form).reshape(len(rows)).astype(np.uint64)


def _rotate_left(values: Array, bits: int) -> Array:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


# --- Bloom provider -------------------------------------------------------------------------------------------------
#
# Bloom filters from another source than the file: a cache, a sidecar file, a service.
#
# A provider is called once per file, for all filters that could skip a row group.


Chunk: TypeAlias = tuple[int, int]
"""The numbers of a row group and of a leaf column, in the order of the footer."""

StoredFilter: TypeAlias = BloomFilter | bytes | bytearray | memoryview | pa.Buffer
"""A filter, or its bytes as in a Parquet file: the header and the bitset."""


class BloomFilterProvider(Protocol):
    """A source of Bloom filters."""

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, StoredFilter | None]:
        """Return the filters of these column chunks; a chunk without one is missing or None."""
        ...


class AsyncBloomFilterProvider(Protocol):
    """A source of Bloom filters that is awaited on the event loop of `prune_async`."""

    async def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, StoredFilter | None]:
        """Return the filters of these column chunks; a chunk without one is missing or None."""
        ...


def check_provider(provider: BloomFilterProvider | AsyncBloomFilterProvider | None) -> BloomFilterProvider | None:
    """Return a provider that can be called here; one that must be awaited is an error, and so is any other object."""
    method = getattr(provider, "bloom_filters", None)
    if provider is not None and not callable(method):
        raise make_argument_error("bloom_filters", "a provider with a method bloom_filters(chunks)", provider)
    if iscoroutinefunction(method):
        kind = type(provider).__name__
        raise InvalidArgument(f"the provider {kind} is asynchronous: await prune_async() instead of calling prune()")
    return provider  # type: ignore[return-value]  # the asynchronous ones were refused


def fetch_filters(provider: BloomFilterProvider, chunks: Sequence[Chunk]) -> dict[Chunk, BloomFilter | Unavailable]:
    """Return the filters of the chunks that a provider has, from one call."""
    owner = provider.provider if isinstance(provider, _AwaitedProvider) else provider
    try:
        return _to_filters(owner, chunks, provider.bloom_filters(chunks))
    except (TamisError, CancelledError):
        raise
    except Exception as error:  # a provider of the user may raise anything
        shown = ", ".join(map(str, chunks[:5])) + (", …" if len(chunks) > 5 else "")
        task = f"return the Bloom filters of the column chunks (row group, column) {shown}"
        raise make_user_code_error(owner, task, error) from error


def _to_filters(owner: object, chunks: Sequence[Chunk], found: object) -> dict[Chunk, BloomFilter | Unavailable]:
    if not isinstance(found, Mapping):
        raise InvalidArgument(
            f"bloom_filters() of {type(owner).__name__} must return a mapping of (row group, column) to filters, "
            f"found {add_article(type(found).__name__)}"
        )
    return {chunk: _to_filter(owner, chunk, given) for chunk in chunks if (given := found.get(chunk)) is not None}


def _to_filter(owner: object, chunk: Chunk, given: object) -> BloomFilter | Unavailable:
    if isinstance(given, BloomFilter):
        return given
    if not isinstance(given, bytes | bytearray | memoryview | pa.Buffer):
        raise InvalidArgument(
            f"the Bloom filter of row group {chunk[0]}, column {chunk[1]} by {type(owner).__name__} must be a "
            f"BloomFilter or bytes, found {add_article(type(given).__name__)}"
        )
    content = memoryview(given).cast("B")
    header = parse_header(bytes(content[:MAX_HEADER_BYTES]))
    if isinstance(header, Unavailable):
        return header
    if len(content) != header.size + header.bitset_size:
        expected = header.size + header.bitset_size
        return Unavailable(f"the Bloom filter has {len(content)} bytes, expected {expected} by its header")
    return BloomFilter.from_bytes(content[header.size :])


@contextmanager
def call_from_threads(
    provider: BloomFilterProvider | AsyncBloomFilterProvider | None,
) -> Iterator[BloomFilterProvider | AsyncBloomFilterProvider | None]:
    """Yield a provider that other threads may call while the running event loop awaits an asynchronous one.

    On exit, a call that still runs is cancelled.
    """
    if not iscoroutinefunction(getattr(provider, "bloom_filters", None)):
        yield provider
        return
    awaited = _AwaitedProvider(provider, asyncio.get_running_loop())  # type: ignore[arg-type]
    try:
        yield awaited
    finally:
        awaited.cancel()


class _AwaitedProvider:
    """A provider for threads beside an event loop, on which it awaits an asynchronous provider."""

    def __init__(self, provider: AsyncBloomFilterProvider, loop: asyncio.AbstractEventLoop) -> None:
        self.provider = provider
        self._loop = loop
        self._lock = Lock()
        self._running: Future[Mapping[Chunk, StoredFilter | None]] | None = None
        self._is_cancelled = False

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, StoredFilter | None]:
        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            self._running = asyncio.run_coroutine_threadsafe(self.provider.bloom_filters(chunks), self._loop)
        return self._running.result()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._running is not None:
                self._running.cancel()
