"""Metadata of units: `units` writes some by hand, `small_worlds` has all that a few values can make."""
