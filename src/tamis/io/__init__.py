"""Input and output: places, listings, ranged reads, what they cost, and what is tried again."""
