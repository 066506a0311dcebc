"""What the author of a connector needs: the interface, and the values that its methods take and return.

See docs/how-to/write-a-connector.md. `Session.attach` attaches a connector to a session.
"""

from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions.kernels import to_arrow_scalar
from tamis.expr.functions.table import type_of
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
    transform,
    walk,
)
from tamis.expr.sql.printer import to_sql
from tamis.query.connectors.column_ranges import ColumnRanges, ValueRange, column_ranges
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
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.query.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Output,
    Project,
    Sort,
    SortKey,
    TableScan,
    TopN,
    Union,
    get_outputs,
)
from tamis.query.plan.optimizer import Context, Rule
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
    "Rule",
    "Context",
    "Node",
    "TableScan",
    "Filter",
    "Project",
    "Aggregate",
    "Join",
    "Sort",
    "Limit",
    "TopN",
    "Union",
    "get_outputs",
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
    "column_ranges",
    "ColumnRanges",
    "ValueRange",
    "substitute",
    "transform",
    "walk",
    "is_deterministic",
    "type_of",
    "Evaluator",
    "can_evaluate",
    "to_arrow_scalar",
    "to_sql",
]
