"""Values of every type, random choices among them, and predicates.

Read `by_type`, then `choices`, `random_rows` and `predicates`; `nodes` has short constructors of
expressions, `functions` a function that the language does not have.
"""
