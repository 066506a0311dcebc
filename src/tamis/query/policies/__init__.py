"""Row filters and masks, applied before anything that the user asked for. Errors and reports do not reveal hidden rows.

Reading order:

- `model`, `load_policies`  policies, and where they come from
- `apply_policies`          policies in plans
- `reach`                   what a query may name
- `leakproof`               conditions that may run on hidden rows
- `protected_table`         tables and scans under a policy
- `protected_reading`       their rows
"""

from tamis.query.policies.apply_policies import BoundPolicy, apply_policies, bind_policy
from tamis.query.policies.leakproof import is_leakproof
from tamis.query.policies.load_policies import PolicySource, load_policies
from tamis.query.policies.model import Policies, TablePolicy

__all__ = [
    "BoundPolicy",
    "Policies",
    "PolicySource",
    "TablePolicy",
    "apply_policies",
    "bind_policy",
    "is_leakproof",
    "load_policies",
]
