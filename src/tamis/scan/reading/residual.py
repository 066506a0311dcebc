"""The residual filter, evaluated row by row: by Arrow's kernels if they support the functions, else by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions.table import may_fail, type_of
from tamis.expr.nodes import FALSE, Column, Expr, and_, find_columns
from tamis.scan.engine import get_embedded_engine


class Residual:
    """A conjunction that rows must satisfy. It is thread-safe."""

    def __init__(self, conjuncts: Sequence[Expr]) -> None:
        # `CASE WHEN x > 1 THEN NULL END` has no type: it is NULL for every row, and so never TRUE.
        conjuncts = [FALSE if type_of(conjunct) == types.NULL else conjunct for conjunct in conjuncts]
        by_arrow = [conjunct for conjunct in conjuncts if can_evaluate(conjunct)]
        others = [conjunct for conjunct in conjuncts if not can_evaluate(conjunct)]
        self.columns: tuple[Column, ...] = tuple(find_columns(and_(*conjuncts)))
        # `s <> 'n/a' AND CAST(s AS INT) > 5`: conjuncts that may fail see only rows that satisfy the others.
        safe = [conjunct for conjunct in by_arrow if not may_fail(conjunct)]
        risky = [conjunct for conjunct in by_arrow if may_fail(conjunct)]
        self._evaluators = [Evaluator(each) for each in ([and_(*safe)] if safe else []) + risky]
        self._engine = get_embedded_engine().compile_predicate(and_(*others)) if others else None

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which every conjunct is TRUE."""
        for mask in self._compute_masks():
            batch = batch.filter(mask(batch))
        return batch

    def find_matches(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Return the rows for which every conjunct is TRUE, and their positions in the batch."""
        positions: npt.NDArray[np.int64] | None = None
        for mask in self._compute_masks():
            kept = pc.indices_nonzero(mask(batch))
            if len(kept) < batch.num_rows:
                batch = batch.take(kept)
            own = kept.to_numpy().astype(np.int64, copy=False)
            positions = own if positions is None else positions[own]
        return batch, np.arange(batch.num_rows) if positions is None else positions

    def _compute_masks(self) -> Iterator[Callable[[pa.RecordBatch], pa.BooleanArray]]:
        # Arrow first: then fewer rows reach the engine, whose functions are the expensive ones.
        yield from self._evaluators
        if self._engine is not None:
            yield self._engine.evaluate


def check_functions(predicate: Expr, schema: pa.Schema) -> None:
    """Raise an error for a filter with unsupported functions or arguments.

    Without this check the error would come with the first row, or never for an empty table.
    """
    if not can_evaluate(predicate):
        get_embedded_engine().compile_predicate(predicate).check(schema)
