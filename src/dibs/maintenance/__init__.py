"""The upkeep: one file, one loop."""
