"""Manifests pruned by what their snapshot summarises of them, before any of them is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile
from tamis.expr.nodes import columns_of
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.tables.iceberg.account import ManifestAccount, Sizes, with_reason
from tamis.tables.iceberg.file_request import Request
from tamis.tables.iceberg.partition_bounds import bounds_of_summaries
from tamis.tables.iceberg.specs import Spec

Bits = npt.NDArray[np.bool_]

NOT_A_PARTITION_COLUMN = "not a partition column"


@dataclass(frozen=True)
class KeptManifests:
    """The manifests that are left, and how the others were ruled out."""

    table: pa.Table
    account: ManifestAccount


def prune_manifests(manifests: pa.Table, request: Request, place: str) -> KeptManifests:
    """The manifests that may hold a file with a matching row, each judged under the spec that it was written under."""
    total = Sizes.of(manifests["length"])
    if not request.by_manifests or not request.predicate.conjuncts or not manifests.num_rows:
        return KeptManifests(manifests, ManifestAccount(total, total))
    keep = np.ones(manifests.num_rows, bool)
    spec_ids = manifests["spec_id"].to_numpy()
    account = ManifestAccount()
    for spec_id in np.unique(spec_ids).tolist():
        own = np.flatnonzero(spec_ids == spec_id)
        selection, found = _judge(manifests.take(pa.array(own)), spec_of(request.layout.specs, spec_id, place), request)
        keep[own] = selection
        account += found
    kept = manifests.filter(pa.array(keep))
    return KeptManifests(kept, account)


def spec_of(specs: Mapping[int, Spec], spec_id: int, place: str) -> Spec:
    """The spec with an id."""
    found = specs.get(spec_id)
    if found is None:
        raise CorruptFile(f"{place} was written under the partition spec {spec_id}, which the table's metadata lacks")
    return found


def _judge(manifests: pa.Table, spec: Spec, request: Request) -> tuple[Bits, ManifestAccount]:
    summaries = manifests["summaries"].combine_chunks()
    units = pa.record_batch(bounds_of_summaries(spec, summaries))
    conjuncts = request.conjuncts(spec)
    pruned = prune(units, conjuncts, with_matches=False)
    selection = np.asarray(pruned.selection)
    outcomes = not_of_partitions(pruned.outcomes, spec, request)
    counts = pc.fill_null(manifests["files"], 0).to_numpy()
    in_files = tuple(
        ConjunctOutcome(outcome.predicate, int(counts[_skips(units, request, spec, position)].sum()), None)
        if outcome.skipped
        else outcome
        for position, outcome in enumerate(outcomes)
    )
    lengths = manifests["length"]
    return selection, ManifestAccount(
        Sizes.of(lengths),
        Sizes.of(lengths.filter(pa.array(selection))),
        int(counts[~selection].sum()),
        outcomes,
        in_files,
    )


def _skips(units: pa.RecordBatch, request: Request, spec: Spec, position: int) -> Bits:
    """Which units one conjunct alone skips."""
    return ~np.asarray(prune(units, request.conjuncts(spec)[position : position + 1], with_matches=False).selection)


def not_of_partitions(
    outcomes: tuple[ConjunctOutcome, ...], spec: Spec, request: Request
) -> tuple[ConjunctOutcome, ...]:
    """The outcomes, saying which conjuncts are about no column that the partitions are made of."""
    own = {field.source.path for field in spec.useful if field.source is not None}
    applies = [
        not outcome.skipped and not any(column.path in own for column in columns_of(conjunct.predicate))
        for outcome, conjunct in zip(outcomes, request.predicate.conjuncts, strict=True)
    ]
    return with_reason(outcomes, NOT_A_PARTITION_COLUMN, applies)
