"""Row filters and masks, applied before anything that the user asked for. Errors and reports do not reveal hidden rows.

Reading order:

- `model`, `load_policies`  policies, and where they come from
- `apply_policies`          policies in plans
- `reach`                   what a query may name
- `leakproof`               conditions that may run on hidden rows
- `protected_table`         tables and scans under a policy
- `protected_reading`       their rows
"""

from tamis.query.policies.apply_policies import apply_policies
from tamis.query.policies.load_policies import PolicySource, load_policies
from tamis.query.policies.model import Policies

__all__ = ["Policies", "PolicySource", "apply_policies", "load_policies"]
