"""Pruning manifests by the partition field summaries in the manifest list, before any manifest is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import find_columns
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.iceberg.partitioning.partition_bounds import compute_summary_bounds
from tamis.formats.iceberg.partitioning.specs import Spec
from tamis.formats.iceberg.planning.file_request import Request
from tamis.formats.iceberg.planning.plan_metrics import ManifestMetrics, Sizes, with_reason
from tamis.skipping.prune import ConjunctOutcome, prune

Bits = npt.NDArray[np.bool_]

NOT_A_PARTITION_COLUMN = "not a partition column"


@dataclass(frozen=True)
class KeptManifests:
    """The kept manifests, and the metrics of all manifests."""

    table: pa.Table
    metrics: ManifestMetrics


def prune_manifests(manifests: pa.Table, request: Request, location: str) -> KeptManifests:
    """Return the manifests that may hold a file with a matching row, each evaluated under its own partition spec."""
    total = Sizes.of(manifests["length"])
    if not request.by_manifests or not request.predicate.conjuncts or not manifests.num_rows:
        return KeptManifests(manifests, ManifestMetrics(total, total))
    keep = np.ones(manifests.num_rows, bool)
    spec_ids = manifests["spec_id"].to_numpy()
    metrics = ManifestMetrics()
    for spec_id in np.unique(spec_ids).tolist():
        own = np.flatnonzero(spec_ids == spec_id)
        selection, found = _prune_under_spec(
            manifests.take(pa.array(own)), get_spec(request.layout.specs, spec_id, location), request
        )
        keep[own] = selection
        metrics += found
    kept = manifests.filter(pa.array(keep))
    return KeptManifests(kept, metrics)


def get_spec(specs: Mapping[int, Spec], spec_id: int, location: str) -> Spec:
    """Return the partition spec with an id."""
    found = specs.get(spec_id)
    if found is None:
        raise make_corrupt_snapshot_error(
            f"{location} was written with the partition spec {spec_id}, which the table metadata lacks"
        )
    return found


def _prune_under_spec(manifests: pa.Table, spec: Spec, request: Request) -> tuple[Bits, ManifestMetrics]:
    summaries = manifests["summaries"].combine_chunks()
    units = pa.record_batch(compute_summary_bounds(spec, summaries))
    conjuncts = request.get_conjuncts(spec)
    pruned = prune(units, conjuncts, handler=request.predicate.handler, with_matches=False)
    selection = np.asarray(pruned.selection)
    outcomes = explain_unused_conjuncts(pruned.outcomes, spec, request)
    counts = pc.fill_null(manifests["files"], 0).to_numpy()
    in_files = tuple(
        ConjunctOutcome(outcome.predicate, int(counts[np.asarray(skipped)].sum()), None) if outcome.skipped else outcome
        for outcome, skipped in zip(outcomes, pruned.skipped_by, strict=True)
    )
    lengths = manifests["length"]
    return selection, ManifestMetrics(
        Sizes.of(lengths),
        Sizes.of(lengths.filter(pa.array(selection))),
        int(counts[~selection].sum()),
        outcomes,
        in_files,
    )


def explain_unused_conjuncts(
    outcomes: tuple[ConjunctOutcome, ...], spec: Spec, request: Request
) -> tuple[ConjunctOutcome, ...]:
    """Return the outcomes, with a reason for the conjuncts that refer to no partition source column."""
    own = {field.source.path for field in spec.prunable_fields if field.source is not None}
    applies = [
        not outcome.skipped and not any(column.path in own for column in find_columns(conjunct.predicate))
        for outcome, conjunct in zip(outcomes, request.predicate.conjuncts, strict=True)
    ]
    return with_reason(outcomes, NOT_A_PARTITION_COLUMN, applies)
