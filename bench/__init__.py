"""Speed, measured. ``python -m bench`` prints a table of all, ``python -m bench NAME --json`` one as JSON.

One module for each scenario; each has ``run(stage) -> dict`` and ``WANTED``, what its numbers must reach on a quiet
2-core machine. Compare ratios rather than numbers: machines differ, and are noisy.
"""
