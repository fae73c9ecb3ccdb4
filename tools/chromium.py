"""Prints where Chromium is, installing Debian's where that is allowed."""

from __future__ import annotations

import os
import shutil

from tools.debian import install

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """``DIBS_CHROMIUM``, or the first that is on the path."""
    return os.environ.get("DIBS_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


if __name__ == "__main__":
    if find() is None:
        install(["chromium"])
    print(find())
