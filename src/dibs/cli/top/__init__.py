"""``dibs top``: a live page in the terminal."""
