"""The skipping rewrite: one evaluation over the metadata of a million units, against a check written by hand."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from harness import Ratio, Section, Settings, Target, format_milliseconds, here, interleave, make_markdown_table, ratio

from tamis.expr.bind import bind
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import Call, Expr
from tamis.expr.normalise import normalise
from tamis.skipping.handler import ArrowExpressionHandler
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import Conjunct, rewrite

NAME = "rewrite"

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("s", pa.string()), ("k", pa.int64())])
DAY = "2024-03-03"
FIRST_ID, LAST_ID = 200_000_000, 900_000_000
PREFIX, AFTER_PREFIX = "k", "l"
ITEMS = [number * 1_999 + 7 for number in range(50)]
WHERE = (
    f"day = DATE '{DAY}' AND id BETWEEN {FIRST_ID} AND {LAST_ID} AND s LIKE '{PREFIX}%' "
    f"AND k IN ({', '.join(map(str, ITEMS))})"
)


def make_units(count: int, missing: float) -> pa.RecordBatch:
    """Return metadata of files: each has two days, a range of ids, a range of strings and a range of keys.

    `missing` is the share of bounds that are unknown.
    """
    generator = np.random.default_rng(7)
    columns: dict[str, pa.Array] = {"row_count": pa.array(generator.integers(1, 100_000, count))}

    def add_bounds(name: str, lower: pa.Array, upper: pa.Array) -> None:
        for kind, values in (("lower", lower), ("upper", upper)):
            unknown = pa.array(generator.random(count) < missing)
            known = pc.if_else(unknown, pa.scalar(None, values.type), values) if missing else values
            columns[f"{kind}:{name}"] = known
        columns[f"null_count:{name}"] = pa.array(generator.integers(0, 3, count))

    days = np.datetime64("2024-01-01", "D") + generator.integers(0, 100, count)
    add_bounds("day", pa.array(days), pa.array(days + 1))
    ids = generator.integers(0, 1_000_000_000, count)
    add_bounds("id", pa.array(ids), pa.array(ids + 1_000_000))
    starts = generator.integers(0, 26 * 26 - 30, count)
    letters = pa.array([chr(97 + pair // 26) + chr(97 + pair % 26) for pair in range(26 * 26)])
    tail = pa.array(generator.integers(0, 1_000_000, count)).cast(pa.string())
    low, high = letters.take(pa.array(starts)), letters.take(pa.array(starts + 29))
    add_bounds("s", pc.binary_join_element_wise(low, tail, "-"), pc.binary_join_element_wise(high, tail, "-"))
    keys = generator.integers(0, 100_000, count)
    add_bounds("k", pa.array(keys), pa.array(keys + 500))
    return pa.record_batch(columns)


# --- By hand --------------------------------------------------------------------------------------------------------
# The check of a programmer who knows the types of the columns and this one predicate. Bounds may be unknown, so AND is
# Kleene's, and a unit with an unknown result is kept: otherwise the result would be wrong.


def _and_all(*parts: pa.Array) -> pa.Array:
    result = parts[0]
    for part in parts[1:]:
        result = pc.and_kleene(result, part)
    return result


def _test_items_by_ranges(units: pa.RecordBatch) -> pa.Array:
    lower, upper = units["lower:k"], units["upper:k"]
    found = None
    for item in ITEMS:
        inside = pc.and_kleene(pc.less_equal(lower, item), pc.greater_equal(upper, item))
        found = inside if found is None else pc.or_kleene(found, inside)
    return found


_ITEMS = np.array(sorted(ITEMS))
_ITEMS_AND_END = pa.array([*sorted(ITEMS), np.iinfo(np.int64).max])


def _test_items_by_search(units: pa.RecordBatch) -> pa.Array:
    lower, upper = units["lower:k"], units["upper:k"]
    known = lower.fill_null(0) if lower.null_count else lower
    first_not_below = _ITEMS_AND_END.take(pa.array(np.searchsorted(_ITEMS, known.to_numpy())))
    inside = pc.less_equal(first_not_below, upper)
    return pc.if_else(pc.is_valid(lower), inside, None) if lower.null_count else inside


def _check_bounds(units: pa.RecordBatch, listed: Callable[[pa.RecordBatch], pa.Array]) -> list[pa.Array]:
    day = pa.scalar(datetime.date.fromisoformat(DAY))
    return [
        pc.less_equal(units["lower:day"], day),
        pc.greater_equal(units["upper:day"], day),
        pc.less_equal(units["lower:id"], LAST_ID),
        pc.greater_equal(units["upper:id"], FIRST_ID),
        pc.less(units["lower:s"], AFTER_PREFIX),
        pc.greater_equal(units["upper:s"], PREFIX),
        listed(units),
    ]


def _check_null_counts(units: pa.RecordBatch) -> list[pa.Array]:
    has_value = [pc.less(units[f"null_count:{name}"], units["row_count"]) for name in SCHEMA.names]
    return [*has_value, pc.greater(units["row_count"], 0)]


def select_by_hand(
    units: pa.RecordBatch, listed: Callable[[pa.RecordBatch], pa.Array], *, with_null_counts: bool
) -> pa.BooleanArray:
    parts = _check_bounds(units, listed)
    if with_null_counts:
        parts += _check_null_counts(units)
    return pc.fill_null(_and_all(*parts), True)


def prune_by_hand(units: pa.RecordBatch) -> pa.BooleanArray:
    """Compute all that `prune` computes: the kept units, and the fully matched units of each of the four conditions."""
    kept = select_by_hand(units, _test_items_by_search, with_null_counts=True)
    day = pa.scalar(datetime.date.fromisoformat(DAY))
    no_nulls = {name: pc.equal(units[f"null_count:{name}"], 0) for name in SCHEMA.names}
    one_value = pc.equal(units["lower:k"], units["upper:k"])
    fully_matched = [
        _and_all(no_nulls["day"], pc.equal(units["lower:day"], day), pc.equal(units["upper:day"], day)),
        _and_all(
            no_nulls["id"], pc.greater_equal(units["lower:id"], FIRST_ID), pc.less_equal(units["upper:id"], LAST_ID)
        ),
        _and_all(no_nulls["s"], pc.greater_equal(units["lower:s"], PREFIX), pc.less(units["upper:s"], AFTER_PREFIX)),
        _and_all(no_nulls["k"], one_value, pc.is_in(units["lower:k"], pa.array(ITEMS))),
    ]
    for each in fully_matched:
        pc.fill_null(each, False)
    return kept


# --- By tamis -------------------------------------------------------------------------------------------------------


def _parse_filter() -> Expr:
    parsed = to_expr(WHERE)
    assert isinstance(parsed, Call)
    return parsed


def rewrite_filter() -> tuple[Conjunct, ...]:
    return rewrite(normalise(bind(_parse_filter(), SCHEMA)))


def select_with_handler(units: pa.RecordBatch, conjuncts: tuple[Conjunct, ...]) -> pa.BooleanArray:
    """Return the kept units, without the other results of `prune`."""
    handler = ArrowExpressionHandler()
    selection = None
    for conjunct in conjuncts:
        selection = handler.predicate_evaluator(units.schema, conjunct.keeps).eval(units, selection)
    assert selection is not None
    return selection


def _time_steps(repeats: int) -> list[tuple[str, float]]:
    """Return the time of each step from text to rewritten conjuncts."""
    parsed = _parse_filter()
    bound = bind(parsed, SCHEMA)
    normal = normalise(bound)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("parse the text", lambda: to_expr(WHERE)),
        ("bind", lambda: bind(parsed, SCHEMA)),
        ("normalise", lambda: normalise(bound)),
        ("rewrite", lambda: rewrite(normal)),
    ]
    found = []
    for name, step in steps:
        taken = []
        for _ in range(repeats):
            started = time.perf_counter()
            step()
            taken.append(time.perf_counter() - started)
        found.append((name, median(taken)))
    return found


OURS = ("tamis prune", "tamis keeps only")
SEARCH = "by hand, IN by binary search"
RANGES = "by hand, IN by 50 ranges"
SAME_WORK = "by hand, all results of prune"


def _compare(units: pa.RecordBatch, rounds: int) -> tuple[str, Ratio, Ratio]:
    conjuncts = rewrite_filter()

    def count(selection: pa.BooleanArray) -> int:
        return int(selection.true_count)

    contenders = [
        here(OURS[0], lambda: count(prune(units, conjuncts).selection)),
        here(OURS[1], lambda: count(select_with_handler(units, conjuncts))),
        here(RANGES, lambda: count(select_by_hand(units, _test_items_by_ranges, with_null_counts=False))),
        here(
            f"{RANGES}, null counts", lambda: count(select_by_hand(units, _test_items_by_ranges, with_null_counts=True))
        ),
        here(SEARCH, lambda: count(select_by_hand(units, _test_items_by_search, with_null_counts=False))),
        here(
            f"{SEARCH}, null counts", lambda: count(select_by_hand(units, _test_items_by_search, with_null_counts=True))
        ),
        here(SAME_WORK, lambda: count(prune_by_hand(units))),
    ]
    timings = interleave(contenders, rounds)
    rows = [
        [
            name,
            format_milliseconds(timing.seconds),
            *(str(ratio(timings[our], timing)) for our in OURS),
            *(f"{ratio(timings[our], timing, cpu=True).median:.2f}" for our in OURS),
        ]
        for name, timing in timings.items()
    ]
    table = make_markdown_table(
        ["", "time", "prune costs × of it", "keeps only costs × of it", "prune by CPU", "keeps by CPU"], rows
    )
    prune_ratio = ratio(timings[OURS[0]], timings[f"{SEARCH}, null counts"])
    keeps_ratio = ratio(timings[OURS[1]], timings[f"{SEARCH}, null counts"])
    return table, prune_ratio, keeps_ratio


def run(settings: Settings) -> Section:
    count = 20_000 if settings.quick else 1_000_000
    section = Section(
        NAME,
        "Skipping rewrite",
        f"`day = d AND id BETWEEN a AND b AND s LIKE 'p%' AND k IN (50 values)` over the metadata of {count:,} units, "
        "against the same check of bounds written by hand with pyarrow's kernels. *prune* finds, for each of the four "
        "conditions, the units that may match and the fully matched units, and counts what it skips. *keeps only* "
        "finds just the first. The checks by hand keep units with unknown bounds too, as they must.",
    )
    for title, missing in (("All bounds known", 0.0), ("1 % of the bounds missing", 0.01)):
        units = make_units(count, missing)
        table, prune_ratio, keeps_ratio = _compare(units, settings.rounds)
        kept = prune(units, rewrite_filter()).selection.true_count
        section.add(title, f"{kept:,} of {count:,} units are kept.\n\n{table}")
        text = f"{title.lower()}: {{}} costs at most 3 × the strongest check by hand that gives the same selection"
        section.targets += [
            Target(text.format("prune"), prune_ratio, at_most=3),
            Target(text.format("the selection alone"), keeps_ratio, at_most=3),
        ]
    steps = _time_steps(5 if settings.quick else 50)
    section.add(
        "From text to rewritten conjuncts, once per query",
        make_markdown_table(["step", "time"], [[name, format_milliseconds(seconds)] for name, seconds in steps]),
    )
    return section
