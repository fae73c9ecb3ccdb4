"""Notices changes of source files, for development."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

LOOK_EVERY = 0.5
"""Seconds between two looks at the files."""


async def changed(folder: Path) -> list[Path]:
    """Wait until Python files of the folder are changed, added or removed. Return them."""
    before = await asyncio.to_thread(_mtimes, folder)
    while True:
        await asyncio.sleep(LOOK_EVERY)
        after = await asyncio.to_thread(_mtimes, folder)
        if after != before:
            return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _mtimes(folder: Path) -> dict[Path, int]:
    mtimes = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in {"__pycache__", "node_modules", "venv"}]
        for name in files:
            if name.endswith(".py"):
                path = Path(root, name)
                try:
                    mtimes[path] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue
    return mtimes
