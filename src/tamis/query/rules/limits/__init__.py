"""Rules that push limits and top-n down."""
