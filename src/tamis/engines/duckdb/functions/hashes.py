"""`crc32`, `sha2`, `hash` (Murmur3) and `xxhash64` as DuckDB macros.

DuckDB's integers do not wrap around, so 32-bit products are computed in 64 bits and 64-bit products in 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from zlib import crc32

from sqlglot import exp

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    Build,
    Macro,
    Macros,
    Rows,
    as_bytes,
    as_int,
    call_macro,
    is_text,
    make_unsupported_error,
)

_SEED = 42


def _write_crc_table() -> str:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        return value

    assert entry(1) ^ 0 == crc32(b"\x01") ^ crc32(b"\x00") ^ entry(0)
    return ", ".join(str(entry(value)) for value in range(256))


# --- Murmur3, 32 bits -----------------------------------------------------------------------------------------------

_MASK_32 = 0xFFFFFFFF


def _rotate(x: str, bits: int) -> str:
    """Write SQL that rotates a 32-bit number to the left."""
    return f"((({x}) * {1 << bits} & {_MASK_32}) | (({x}) >> {32 - bits}))"


def _multiply(x: str, factor: int) -> str:
    return f"(({x}) * CAST({factor} AS UBIGINT) & {_MASK_32})"


# --- xxHash, 64 bits ------------------------------------------------------------------------------------------------

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MODULUS = f"CAST({1 << 64} AS UHUGEINT)"


def _write_uhugeint(number: int) -> str:
    return f"CAST({number % (1 << 64)} AS UHUGEINT)"


def _multiply_64(x: str, factor: int) -> str:
    return f"(({x}) * {_write_uhugeint(factor)} % {_MODULUS})"


def _add_64(x: str, term: int | str) -> str:
    return f"((({x}) + {_write_uhugeint(term) if isinstance(term, int) else term}) % {_MODULUS})"


def _rotate_64(x: str, bits: int) -> str:
    return f"((({x}) * {_write_uhugeint(1 << bits)} % {_MODULUS}) + (({x}) // {_write_uhugeint(1 << (64 - bits))}))"


def _read_word(digits: str, start: str, size: int) -> str:
    """Write SQL that reads a little-endian number of `size` bytes, from byte `start` of hexadecimal digits."""
    parts = [f"substring({digits}, 2 * ({start}) + {2 * byte + 1}, 2)" for byte in reversed(range(size))]
    return f"CAST('0x' || {' || '.join(parts)} AS UBIGINT)"


_ROUND = _multiply_64(_rotate_64(_add_64("acc", f"({_multiply_64('word', _P2)})"), 31), _P1)
_ROUND_OF_0 = f"spark_xx_round({_write_uhugeint(0)}, {{}})"
_LANES = {"a": _SEED + _P1 + _P2, "b": _SEED + _P2, "c": _SEED, "d": _SEED - _P1}


def _define_hash(name: str, of_number: str, of_text: str, of_bytes: str) -> list[Macro]:
    """Return the overloads of the hash of one value, which is the seed for NULL."""
    of_int, of_long = (f"{of_number.format(kind)}({{}}, seed)" for kind in ("int", "long"))
    bodies = {
        "BOOLEAN": of_int.format("CAST(x AS INTEGER)"),
        **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER"), of_int.format("x")),
        "BIGINT": of_long.format("x"),
        "DATE": of_int.format("x - DATE '1970-01-01'"),
        **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), of_long.format("epoch_us(x)")),
        "VARCHAR": of_text,
        "BLOB": of_bytes,
    }
    found: list[Macro] = [
        ((f"x {kind}", "seed"), f"CASE WHEN x IS NULL THEN seed ELSE {body} END") for kind, body in bodies.items()
    ]
    return [*found, (("x", "seed"), f"error('{name} takes texts, bytes, whole numbers, dates and timestamps here')")]


MACROS: Macros = define_macros(
    rf"""
    crc32(x):
        CASE WHEN x IS NOT NULL THEN CAST(xor(list_reduce(regexp_extract_all(hex(x), '..'), lambda c, b:
        xor(c >> 8, [{_write_crc_table()}][CAST(xor(c, CAST('0x' || b AS BIGINT)) & 255 AS INTEGER) + 1]),
        CAST({_MASK_32} AS BIGINT)), {_MASK_32}) AS BIGINT) END
    sha2(x, bits):
        CASE WHEN bits IN (0, 256) THEN sha256(x)
        WHEN x IS NOT NULL AND bits IN (224, 384, 512) THEN error('sha2 supports only 256 bits here') END
    -- Murmur3
    murmur_word(h, k): spark_murmur_joined(h, spark_murmur_scrambled(k))
    murmur_joined(h, k): spark_murmur_added({_rotate('xor(h, k)', 13)})
    murmur_added(x): ((x) * 5 + {0xE6546B64} & {_MASK_32})
    murmur_shifted(x, bits): xor(x, x >> bits)
    murmur_signed(x):
        CAST(CASE WHEN x > {2**31 - 1} THEN CAST(x AS BIGINT) - {1 << 32}
        ELSE CAST(x AS BIGINT) END AS INTEGER)
    unsigned(x): CAST(CAST(x AS BIGINT) & {_MASK_32} AS UBIGINT)
    murmur_int(x, seed):
        spark_murmur_last(spark_murmur_word(spark_unsigned(seed), spark_unsigned(x)), CAST(4 AS UBIGINT))
    murmur_long(x, seed):
        spark_murmur_last(spark_murmur_word(spark_murmur_word(spark_unsigned(seed), spark_unsigned(x)),
        spark_unsigned(x >> 32)), CAST(8 AS UBIGINT))
    murmur_bytes(x, seed):
        -- Whole words first, then each remaining byte as a signed number.
        spark_murmur_last(list_reduce(range(octet_length(x) // 4 * 4, octet_length(x)), lambda h, i:
        spark_murmur_word(h, spark_unsigned(spark_signed_byte(substring(hex(x), 2 * i + 1, 2)))),
        list_reduce(range(octet_length(x) // 4), lambda h, i:
        spark_murmur_word(h, {_read_word('hex(x)', '4 * i', 4)}), spark_unsigned(seed))),
        CAST(octet_length(x) AS UBIGINT))
    murmur_scrambled(x): {_multiply(_rotate(_multiply("x", 0xCC9E2D51), 15), 0x1B873593)}
    murmur_last(h, size):
        spark_murmur_signed(spark_murmur_shifted(
        {_multiply(f"spark_murmur_shifted({_multiply('spark_murmur_shifted(xor(h, size), 16)', 0x85EBCA6B)}, 13)",
                   0xC2B2AE35)}, 16))
    signed_byte(x): (CAST('0x' || x AS INTEGER) + 128) % 256 - 128
    -- xxHash
    xx_last(x):
        spark_xx_signed(spark_xx_shifted(
        {_multiply_64(f"spark_xx_shifted({_multiply_64('spark_xx_shifted(x, 33)', _P2)}, 29)", _P3)}, 32))
    xx_round(acc, word): {_ROUND}
    xx_int(x, seed): spark_xx_last(spark_xx_four({_add_64("spark_xx_unsigned(seed)", _P5 + 4)}, spark_unsigned(x)))
    xx_long(x, seed):
        spark_xx_last(spark_xx_eight({_add_64("spark_xx_unsigned(seed)", _P5 + 8)}, spark_xx_unsigned(x)))
    xx_one(h, word): {_multiply_64(_rotate_64(f"xor(h, {_multiply_64('word', _P5)})", 11), _P1)}
    xx_four(h, word): {_add_64(_multiply_64(_rotate_64(f"xor(h, {_multiply_64('word', _P1)})", 23), _P2), _P3)}
    xx_eight(h, word): {_add_64(_multiply_64(_rotate_64(f"xor(h, {_ROUND_OF_0.format('word')})", 27), _P1), _P4)}
    xx_merged(h, acc): {_add_64(_multiply_64(f"xor(h, {_ROUND_OF_0.format('acc')})", _P1), _P4)}
    xx_shifted(x, bits): xor(x, x >> bits)
    xx_signed(x):
        CAST(CASE WHEN x >= {1 << 63} THEN CAST(x AS HUGEINT) - {1 << 64} ELSE CAST(x AS HUGEINT)
        END AS BIGINT)
    xx_unsigned(x): CAST(CASE WHEN x < 0 THEN CAST(x AS HUGEINT) + {1 << 64} ELSE CAST(x AS HUGEINT) END AS UHUGEINT)
    xx_of_lanes(x):
        spark_xx_merged(spark_xx_merged(spark_xx_merged(spark_xx_merged(
        (({_rotate_64('x.a', 1)} + {_rotate_64('x.b', 7)} + {_rotate_64('x.c', 12)} + {_rotate_64('x.d', 18)})
        % {_MODULUS}), x.a), x.b), x.c), x.d)
    xx_start(digits, size, seed):
        (CASE WHEN size >= 32 THEN spark_xx_of_lanes(spark_xx_lanes(digits, size, seed))
        ELSE {_add_64('seed', _P5)} END + CAST(size AS UHUGEINT)) % {_MODULUS}
    xx_bytes(digits, size, seed):
        spark_xx_last(list_reduce(range(size - size % 4, size), lambda h, i:
        spark_xx_one(h, CAST({_read_word('digits', 'i', 1)} AS UHUGEINT)),
        list_reduce(range(size % 8 // 4), lambda h, i:
        spark_xx_four(h, CAST({_read_word('digits', 'size - size % 8', 4)} AS UHUGEINT)),
        list_reduce(range(size % 32 // 8), lambda h, i:
        spark_xx_eight(h, CAST({_read_word('digits', 'size - size % 32 + 8 * i', 8)} AS UHUGEINT)),
        spark_xx_start(digits, size, spark_xx_unsigned(seed))))))
    """
) | {
    "hash_one": _define_hash(
        "hash", "spark_murmur_{}", "spark_murmur_bytes(encode(x), seed)", "spark_murmur_bytes(x, seed)",
    ),
    "xx_lanes": (
        ("digits", "size", "seed"),
        "list_reduce(range(size // 32), lambda s, i: {"
        + ", ".join(
            f"'{lane}': spark_xx_round(s.{lane}, CAST({_read_word('digits', f'32 * i + {8 * number}', 8)} AS UHUGEINT))"
            for number, lane in enumerate(_LANES)
        )
        + "}, {"
        + ", ".join(f"'{lane}': {_add_64('seed', offset - _SEED)}" for lane, offset in _LANES.items())
        + "})",
    ),
    "xxhash64_one": _define_hash(
        "xxhash64", "spark_xx_{}", "spark_xx_bytes(hex(x), strlen(x), seed)",
        "spark_xx_bytes(hex(x), octet_length(x), seed)",
    ),
}  # fmt: skip


def _build_hash(name: str, seed_type: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    if not args:
        raise make_unsupported_error(name, "it takes at least one value")
    found: exp.Expr = exp.cast(exp.Literal.number(_SEED), seed_type)
    for value in args:
        if isinstance(value, exp.Null):
            continue
        if not has_known_type(value):
            raise make_unsupported_error(
                name, "a computed value may have another type here: cast it, as in CAST(x AS INT)"
            )
        found = call_macro(f"{name}_one", value, found)
    return found


def has_known_type(node: exp.Expr) -> bool:
    """Return whether a value certainly has the same type in Spark and in DuckDB."""
    value = node.unnest()
    if isinstance(value, exp.Neg):
        value = value.this
    if isinstance(value, exp.Array | exp.Map):
        return all(map(has_known_type, value.expressions)) and not value.args.get("keys")
    known = exp.Column, exp.Literal, exp.Cast, exp.Boolean, exp.Null, exp.HexString, exp.Identifier
    return isinstance(value, known) or is_text(value)


ROWS: Rows = (
    ("crc32", Build(lambda args: call_macro("crc32", as_bytes(args[0])), (1,), propagates_null=True)),
    ("sha2", Build(lambda args: call_macro("sha2", as_bytes(args[0]), as_int(args[1])), (2,), propagates_null=True)),
    ("hash", Build(partial(_build_hash, "hash", "int"))),
    ("xxhash64", Build(partial(_build_hash, "xxhash64", "bigint"))),
)
