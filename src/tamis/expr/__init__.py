"""The expression language: nodes, functions, text in and out, binding and normalising."""
