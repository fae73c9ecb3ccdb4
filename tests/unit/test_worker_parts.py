"""Parts of a worker that need no database."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

import dibs
from dibs.worker import Share
from dibs.worker.buffer import Buffer
from dibs.worker.processes import _describe_exit
from dibs.worker.shares import Shares
from dibs.worker.source import Source

MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
from dibs.worker.child import _limited_memory
with _limited_memory(1 << 34):
    print(resource.getrlimit(resource.RLIMIT_AS)[0] == 1 << 33)
"""


class Job:
    def __init__(self, queue: str) -> None:
        self.queue, self.job = queue, self


@pytest.mark.parametrize(("weights", "places"), [((2, 1), 9), ((3, 1), 4), ((2, 2, 2), 10), ((5, 3, 2), 10)])
def test_queues_share_the_places_by_weight_though_one_place_is_free_at_a_time(
    weights: tuple[int, ...], places: int
) -> None:
    names = "abcdef"[: len(weights)]
    shares = Shares({name: Share(weight=weight) for name, weight in zip(names, weights, strict=True)})
    running: list[Any] = []
    for _ in range(20 * places):
        if len(running) == places:
            shares.remove([running.pop(0)])
        [queue], count = next(shares.claims(1))
        assert count == 1
        running.append(Job(queue))
        shares.add(running[-1:])
    found = Counter(job.queue for job in running)
    for name, weight in zip(names, weights, strict=True):
        assert abs(found[name] - places * weight / sum(weights)) <= 1


def test_a_queue_gets_the_room_that_others_leave_up_to_its_slots() -> None:
    shares = Shares({"a": Share(weight=3), "b": Share(weight=1, slots=2)})
    assert list(shares.claims(4)) == [(["a"], 3), (["b"], 1), (["a"], 4), (["b"], 2)]
    shares.add([Job("b#7")] * 2)  # type: ignore[list-item]
    assert list(shares.claims(4)) == [(["a"], 4), (["a"], 4)]


async def test_a_runner_that_is_cancelled_as_it_wakes_up_wakes_another() -> None:
    buffer = Buffer()
    first, second = (asyncio.create_task(buffer.wait()) for _ in range(2))
    await asyncio.sleep(0)
    buffer.add([Job("q")])  # type: ignore[list-item]
    first.cancel()
    async with asyncio.timeout(5):
        await second


async def test_a_worker_that_waits_for_an_exclusive_queue_has_no_trouble() -> None:
    class NoneHeld:
        def names_of(self, _: object) -> list[str]:
            return []

    nothing: Any = None
    holding: Any = NoneHeld()
    source = Source(nothing, holding, nothing, dibs.App().events, 1.0)
    source._claimed_at -= 3600
    assert await source.claim(["q"], 1) == []
    assert source.since_claim < 60


def test_the_end_of_a_process_by_a_signal_without_a_name() -> None:
    assert _describe_exit(-9) == "signal SIGKILL"
    assert _describe_exit(-40) == "signal 40"


def test_a_memory_cap_above_the_hard_limit_of_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
