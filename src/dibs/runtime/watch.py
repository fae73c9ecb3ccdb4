"""Notices changes of source files, for development."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

EVERY = 0.5


async def changed(folder: Path) -> list[Path]:
    """Wait until a Python file of the folder is changed, added or removed; which ones were."""
    before = await asyncio.to_thread(_seen, folder)
    while True:
        await asyncio.sleep(EVERY)
        now = await asyncio.to_thread(_seen, folder)
        if now != before:
            return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def _seen(folder: Path) -> dict[Path, int]:
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in {"__pycache__", "node_modules", "venv"}]
        for name in files:
            if name.endswith(".py"):
                path = Path(root, name)
                try:
                    found[path] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue
    return found
