"""The stress as a test: a random seed each time, which it prints; the same seed makes the same choices again."""

from __future__ import annotations

import os
import random

import pytest

from tests.stress.run import stress

SECONDS = float(os.environ.get("DIBS_STRESS_SECONDS", "50"))


@pytest.mark.parametrize("widened", [False, True], ids=["plain", "widened"])
def test_everything_at_once(installed_dsn: str, widened: bool) -> None:
    """No job is lost, doubled or stranded, and no call fails in a way that it should not."""
    seed = int(os.environ.get("DIBS_STRESS_SEED", random.randrange(10**6)))
    summary = stress(installed_dsn, seed, SECONDS, widened=widened)
    if summary.findings:
        pytest.fail(f"to repeat it, set DIBS_STRESS_SEED={seed}\n{summary}", pytrace=False)
