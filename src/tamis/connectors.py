"""What the author of a connector needs: the interface, and the values that its methods take and return.

See docs/how-to/write-a-connector.md. `Session.attach` attaches a connector to a session.
"""

from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.nodes import (
    FALSE,
    NULL,
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    and_,
    find_columns,
    not_,
    or_,
    split_conjuncts,
)
from tamis.query.connectors.connector import (
    Connector,
    Handle,
    Properties,
    PushedAggregation,
    PushedFilter,
    PushedJoin,
    PushedProjection,
    PushedRows,
)
from tamis.query.plan.nodes import AggregateCall, JoinKind, Named, Output, SortKey
from tamis.scan.reading.bloom_join_filter import BloomJoinFilter

__all__ = [
    "Connector",
    "Handle",
    "Properties",
    "PushedAggregation",
    "PushedFilter",
    "PushedJoin",
    "PushedProjection",
    "PushedRows",
    "AggregateCall",
    "JoinKind",
    "BloomJoinFilter",
    "Named",
    "Output",
    "SortKey",
    "Call",
    "Column",
    "Expr",
    "Literal",
    "FALSE",
    "NULL",
    "TRUE",
    "and_",
    "or_",
    "not_",
    "find_columns",
    "split_conjuncts",
    "Evaluator",
    "can_evaluate",
]
