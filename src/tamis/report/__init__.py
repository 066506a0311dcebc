"""Pictures of what Tamis knows: hand-written SVG."""
