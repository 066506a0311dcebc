"""Predicates as JSON, so that another process prunes by the very same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.expr.expression_json import expression_from_json, expression_to_json
from tamis.expr.nodes import Call, Column
from tamis.expr.partition_filter import PartitionFilter
from tamis.skipping.predicate import Predicate


def predicate_to_json(predicate: Predicate) -> dict[str, Any]:
    """A predicate as values that `json` takes."""
    partition_filter = predicate.partition_filter
    return {
        "expr": expression_to_json(predicate.expr),
        "partition_filter": None if partition_filter is None else partition_filter.to_json(),
        # A list of columns is a call like any other here.
        "mentioned": expression_to_json(Call("mentioned", predicate.mentioned)),
        "on_partitions": None
        if predicate.on_partitions == predicate.expr
        else expression_to_json(predicate.on_partitions),
    }


def predicate_from_json(given: Mapping[str, Any]) -> Predicate:
    """The predicate that `predicate_to_json` described."""
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
