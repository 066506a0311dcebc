"""Rules that push aggregations down."""
