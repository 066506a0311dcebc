"""The expression language: nodes, functions, parsing, printing, binding, normalising and evaluating."""
