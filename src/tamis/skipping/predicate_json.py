"""JSON serialisation of predicates, so that other processes prune identically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.expr.expression_json import expression_from_json, expression_to_json
from tamis.expr.nodes import Call, Column
from tamis.expr.partition_filter import PartitionFilter
from tamis.skipping.predicate import Predicate


def predicate_to_json(predicate: Predicate) -> dict[str, Any]:
    """Return a predicate as JSON-compatible values."""
    partition_filter = predicate.partition_filter
    return {
        "expr": expression_to_json(predicate.expr),
        "partition_filter": None if partition_filter is None else partition_filter.to_json(),
        # The columns are serialised as the arguments of a call.
        "mentioned": expression_to_json(Call("mentioned", predicate.mentioned)),
        "on_partitions": None
        if predicate.on_partitions == predicate.expr
        else expression_to_json(predicate.on_partitions),
    }


def predicate_from_json(given: Mapping[str, Any]) -> Predicate:
    """Build the predicate from the result of `predicate_to_json`."""
    partition_filter = given["partition_filter"]
    mentioned = expression_from_json(given["mentioned"])
    assert isinstance(mentioned, Call)
    expr = expression_from_json(given["expr"])
    return Predicate(
        expr,
        None if partition_filter is None else PartitionFilter.from_json(partition_filter),
        tuple(column for column in mentioned.args if isinstance(column, Column)),
        expr if given["on_partitions"] is None else expression_from_json(given["on_partitions"]),
    )
