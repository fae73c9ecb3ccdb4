"""Debian's Prometheus, for tests of metrics, queries and alerts: installed where that is allowed."""

from __future__ import annotations

import shutil

from tools.debian import install


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``."""
    if shutil.which(name) is None:
        install(["prometheus"])
    found = shutil.which(name)
    assert found is not None, f"Debian's package prometheus has no {name}"
    return found
