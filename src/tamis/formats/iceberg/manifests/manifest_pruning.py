"""Pruning manifests by the partition field summaries in the manifest list, before any manifest is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.file_funnel import Bits, Outcomes, Sizes, mark_data_conjuncts
from tamis.formats.iceberg.partitioning.partition_bounds import compute_summary_bounds
from tamis.formats.iceberg.partitioning.specs import Spec
from tamis.formats.iceberg.planning.file_request import Request
from tamis.skipping.metrics import LevelReport, merge_outcomes
from tamis.skipping.prune import ConjunctOutcome, prune


@dataclass(frozen=True, slots=True)
class ManifestMetrics:
    """The pruning metrics of manifests."""

    total: Sizes = field(default_factory=Sizes)
    kept: Sizes = field(default_factory=Sizes)
    skipped_files: int = 0
    """The number of files in the skipped manifests, as far as the manifest list records it."""
    outcomes: Outcomes = ()
    outcomes_in_files: Outcomes = ()
    """`outcomes`, counted in files instead of manifests."""

    def __add__(self, other: ManifestMetrics) -> ManifestMetrics:
        return ManifestMetrics(
            self.total + other.total,
            self.kept + other.kept,
            self.skipped_files + other.skipped_files,
            merge_outcomes(self.outcomes, other.outcomes),
            merge_outcomes(self.outcomes_in_files, other.outcomes_in_files),
        )

    def describe(self, notes: Sequence[str | None]) -> LevelReport:
        """Return the report of the level of manifests."""
        sizes = (self.total.files, self.kept.files, self.total.bytes, self.kept.bytes)
        return LevelReport("manifests", *sizes, self.outcomes, "; ".join(filter(None, notes)) or None)


@dataclass(frozen=True)
class KeptManifests:
    """The kept and the skipped manifests, and the metrics of all."""

    table: pa.Table
    metrics: ManifestMetrics
    skipped: pa.Table


def prune_manifests(manifests: pa.Table, request: Request, location: str) -> KeptManifests:
    """Return the manifests that may hold a file with a matching row, each evaluated under its own partition spec."""
    total = Sizes.of(manifests["length"])
    if not request.by_manifests or not request.predicate.conjuncts or not manifests.num_rows:
        return KeptManifests(manifests, ManifestMetrics(total, total), manifests.slice(0, 0))
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
    return KeptManifests(manifests.filter(pa.array(keep)), metrics, manifests.filter(pa.array(~keep)))


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


def explain_unused_conjuncts(outcomes: Outcomes, spec: Spec, request: Request) -> Outcomes:
    """Return the outcomes, with a reason for the conjuncts that refer to no partition source column."""
    own = {field.source.path for field in spec.prunable_fields if field.source is not None}
    own.update(column.path for column in request.predicate.partition_texts)
    return mark_data_conjuncts(outcomes, request.predicate.conjuncts, own)
