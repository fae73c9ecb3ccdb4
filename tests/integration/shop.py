"""An app that lives in a module, as a separate process needs it."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import dibs

app = dibs.App(queue="q")
NOW = dibs.Retry(max_attempts=2, backoff=dibs.constant(0))


class Marks(dibs.Middleware):
    def run(self, context, proceed):  # type: ignore[no-untyped-def]
        result = proceed()
        return {**result, "marked": context.attempt} if isinstance(result, dict) else result


app.add_middleware(Marks())


@app.task(process=True, name="where")
def where(n: int) -> dict[str, int]:
    dibs.context().enqueue(after.call(n))
    return {"pid": os.getpid(), "n": n, "attempt": dibs.context().attempt}


@app.task(process=True, name="where_async")
async def where_async() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@app.task(name="after")
def after(n: int) -> int:
    return n + 1


@app.task(process=True, name="spins", timeout=0.5, retry=NOW)
def spins() -> None:
    while True:
        time.sleep(60)


@app.task(process=True, name="dies", retry=NOW)
def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(process=True, name="undecodable", retry=dibs.Retry(max_attempts=1))
def undecodable() -> None:
    raise ValueError("no such file: \udcff")


@app.task(process=True, name="grows", memory=200_000_000, retry=dibs.Retry(max_attempts=1))
def grows(size: int) -> int:
    return len(bytearray(size))


@app.task(process=True, name="writes", retry=NOW)
def writes(word: str) -> None:
    with dibs.context().transaction() as conn:
        conn.execute("insert into written values (%s)", (word,))


@app.task(process=True, name="tells")
def tells() -> None:
    dibs.context().progress(1, message="from there")


def stopped_by() -> str:
    here = dibs.context()
    until = time.monotonic() + 60
    while not here.should_stop and time.monotonic() < until:
        time.sleep(0.01)
    return str(here.stop_reason)


@app.task(process=True, name="until_told")
def until_told() -> str:
    return stopped_by()


@app.task(process=True, name="softly", timeout=60, soft_timeout=0.2)
def softly() -> str:
    return stopped_by()


@app.task(process=True, name="should_stop")
def should_stop() -> bool:
    return dibs.context().should_stop


@app.task(process=True, name="sleeps")
def sleeps() -> None:
    time.sleep(600)
