"""The app whose tasks the scenarios' worker processes run."""

from __future__ import annotations

import time

import dibs

app = dibs.App(queue="tasks")


@app.task(name="noop")
async def noop(user_id: int, lang: str = "en") -> None: ...


@app.task(name="stamp")
async def stamp() -> float:
    """The time of its start, by the clock that all processes of a machine share."""
    return time.monotonic()
