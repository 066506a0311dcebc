"""What the author of a connector needs: the interface, and the values that its methods take and return.

See docs/connectors.md. `Session.attach` attaches a connector to a session.
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
    not_,
    or_,
)
from tamis.pushdown.connector import (
    Connector,
    Handle,
    Properties,
    PushedAggregation,
    PushedFilter,
    PushedJoin,
    PushedProjection,
    PushedRows,
)
from tamis.pushdown.nodes import AggregateCall, JoinKind, Named, Output, SortKey
from tamis.scan.key_sieve import KeySieve

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
    "KeySieve",
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
    "columns_of",
    "conjuncts_of",
    "Evaluator",
    "can_evaluate",
]
