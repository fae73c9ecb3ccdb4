"""Random jobs, as `enqueue_many` takes them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.stress.world import GROUPED, KINDS, LOUD, MOST_UNITS, RESOURCES, STILL

if TYPE_CHECKING:
    from random import Random

LARGE = "x" * 70_000
"""A payload above `dibs._constant('large_job_bytes')`."""
DAY_MS = 86_400_000
FAR = 600.0
"""A delay that ends after every run: only something else brings the job back."""


def make_id(chance: Random) -> UUID:
    """An id that the producer makes; now and then one of yesterday, whose day may have no partition."""
    ms = time.time_ns() // 1_000_000 - (DAY_MS if chance.random() < 0.2 else 0)
    raw = bytearray(ms.to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return UUID(bytes=bytes(raw))


def group_of(chance: Random, queue: str = "") -> str:
    """A group; a third of all jobs have the same one, so that there is a noisy one."""
    return "g0" if chance.random() < (0.7 if queue == LOUD else 0.3) else f"g{chance.randrange(1, 6)}"


def key_options(chance: Random, queue: str) -> dict[str, Any]:
    """A dedup key. One that begins with `keep` is never replaced, so only one live job may have it."""
    kind = chance.choice(("keep", "swap", "wait", "time"))
    if queue == STILL:
        kind = "swap"
    key = f"{kind}-{chance.randrange(4)}"
    options: dict[str, Any] = {"dedup_key": key, "headers": {"key": key}}
    if kind == "keep":
        options["on_duplicate"] = chance.choice(("keep", "keep", "refuse"))
    elif kind == "swap":
        options["on_duplicate"] = "replace"
    elif kind == "wait":
        options |= {"dedup_scope": "waiting", "on_duplicate": chance.choice(("keep", "replace"))}
    else:
        options["dedup_for"] = 0.3
    return options


def new_job(chance: Random, queue: str, *, keyed: bool = True) -> dict[str, Any]:
    """A job with options at random; its payload is never null."""
    job: dict[str, Any] = {"queue": queue, "kind": chance.choice(KINDS), "payload": {"n": chance.randrange(1000)}}
    if chance.random() < (0.85 if queue in {*GROUPED, LOUD} or "shards" in queue else 0.15):
        job["group"] = group_of(chance, queue)
        job["cost"] = chance.choice((1, 1, 1, 3))
    if chance.random() < 0.2:
        job["resources"] = {r: chance.randint(1, MOST_UNITS) for r in chance.sample(RESOURCES, chance.randint(1, 2))}
    if chance.random() < 0.25:
        job["priority"] = chance.choice((1, 5, 9))
    if chance.random() < 0.25:
        job["delay"] = chance.choice((0.005, 0.05, 0.3, 1))
    if chance.random() < 0.04:
        job["ttl"] = chance.choice((0.1, 1, 3))
    if chance.random() < 0.05:
        job["max_attempts"] = 2
    if chance.random() < 0.005:
        job["payload"]["filler"] = LARGE
    if "shards" in queue and chance.random() < 0.4:
        job["shard_key"] = f"s{chance.randrange(6)}"
    if keyed and chance.random() < (0.5 if queue == STILL else 0.12):
        job |= key_options(chance, queue)
    elif chance.random() < 0.1:
        job["id"] = str(make_id(chance))
    return job
