"""One run: the load, the judge, the drain, the judge again."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from tests.stress.checks import LEFTOVERS, rows_of
from tests.stress.drain import Drain
from tests.stress.job_operators import Surgeon
from tests.stress.judge import MEMORY, judge
from tests.stress.limit_operators import Declarer, Limiter
from tests.stress.producers import Producer
from tests.stress.queue_operators import Grouper, Queuer
from tests.stress.upkeep import Caretaker, Killer, Watcher
from tests.stress.widen import calm, widen
from tests.stress.workers import OldSnapshotWorker, ShardWorker, Worker
from tests.stress.world import COMMON, SETTINGS, Finding, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stress.actor import Actor

HANG = 45.0
"""A thread that has not ended its step after so many seconds hangs."""
SAY_EVERY = 5.0

ACTIVITY = """
select application_name, wait_event_type, wait_event, state, query from pg_stat_activity
where datname = current_database()"""
OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""
OUTCOMES = "select coalesce(outcome::text, 'succeeded'), count(*) from dibs.attempt group by 1"


@dataclass
class Summary:
    """How a run went."""

    seed: int
    seconds: float
    widened: int
    jobs: int
    ended: int
    drained_in: float
    outcomes: dict[str, int]
    calls: dict[str, int]
    errors: dict[str, int]
    warnings: dict[str, int]
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.jobs} jobs, {self.ended} completed, drained in {self.drained_in:.1f} s"
        head += f", {self.widened} functions widened" if self.widened else ", plain"
        errors = ", ".join(f"{name} {times}" for name, times in sorted(self.errors.items()))
        found = "\n".join(f"  - {finding}" for finding in self.findings)
        verdict = f"{len(self.findings)} findings:\n{found}" if self.findings else "no findings"
        return f"{head}\n  outcomes: {json.dumps(self.outcomes)}\n  expected errors: {errors}\n  {verdict}"


def stress(
    dsn: str,
    seed: int,
    seconds: float,
    *,
    widened: bool = False,
    workers: int = 4,
    without: frozenset[str] = frozenset(),
    say: Callable[[str], object] = print,
) -> Summary:
    """Load a database that has dibs and nothing else, and judge it."""
    world = World(dsn, seed, without=without)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(MEMORY)
        _make_queues(conn)
        count = widen(conn) if widened else 0
        say(f"seed {seed}: {seconds:.0f} s, {f'{count} functions widened' if count else 'plain'}")
        _load(conn, world, seconds, workers, say)
        if widened:
            calm(conn)
        judge(conn, world, when="after the load")
        took = Drain(world).run()
        judge(conn, world, when="after the drain")
        _judge_repairs(conn, world)
        return _summary(conn, world, seconds, count, took)


def _make_queues(conn: psycopg.Connection[Any]) -> None:
    for name, policy in SETTINGS.items():
        conn.execute("select dibs.set_queue(%s, %s)", (name, json.dumps(COMMON | policy)))
    conn.execute("select dibs.set_group('strict', null, '{\"concurrency\": 1}')")
    conn.execute("select dibs.set_group('mixed', 'g1', '{\"concurrency\": 2}')")


def _load(
    conn: psycopg.Connection[Any], world: World, seconds: float, workers: int, say: Callable[[str], object]
) -> None:
    """Let all threads work for so long, and wait until they have ended."""
    actors: list[Actor] = [Worker(world, n) for n in range(workers)]
    actors += [OldSnapshotWorker(world), ShardWorker(world), Killer(world), Watcher(world)]
    actors += [Producer(world, n) for n in range(3)] + [Caretaker(world, n) for n in range(2)]
    actors += [Surgeon(world, n) for n in range(2)] + [Declarer(world, n) for n in range(2)]
    actors += [Limiter(world), Grouper(world), Queuer(world)]
    for actor in actors:
        actor.thread.start()
    said = 0.0
    while world.seconds() < seconds and not world.stop.wait(0.2):
        if world.seconds() > said + SAY_EVERY:
            said = world.seconds()
            say(_progress(world))
    world.stop.set()
    until = time.monotonic() + HANG
    for actor in actors:
        actor.thread.join(max(0.0, until - time.monotonic()))
        if actor.thread.is_alive():
            rows = conn.execute(ACTIVITY).fetchall()
            world.find(f"{actor.name} hangs", rows_of(rows, 30))
    _wait_for_backends(conn)


def _wait_for_backends(conn: psycopg.Connection[Any]) -> None:
    """A backend that was killed may still be rolling back."""
    until = time.monotonic() + 10
    while conn.execute(OTHERS).fetchone() != (0,) and time.monotonic() < until:
        time.sleep(0.05)


def _progress(world: World) -> str:
    errors: Counter[str] = Counter()
    for (_, code), times in list(world.errors.items()):
        errors[code] += times
    verbs = ", ".join(
        f"{world.calls[verb]} {verb}" for verb in ("fail", "release", "snooze", "park", "set_limit", "edit")
    )
    head = f"  {world.seconds():5.0f} s: {len(world.made)} jobs, {len(world.done)} completed, {verbs}"
    return f"{head}; errors {dict(errors)}; {len(world.findings)} findings"


def _judge_repairs(conn: psycopg.Connection[Any], world: World) -> None:
    """What repairs has nothing to do where nothing went wrong."""
    for verb in ("repair_limits", "repair_groups"):
        row = conn.execute(f"select dibs.{verb}()").fetchone()
        if row != (0,):
            world.find(f"{verb} had something to mend after the drain", str(row))
    rows = conn.execute(LEFTOVERS.sql).fetchall()
    if rows:
        world.find(f"{LEFTOVERS.name} (after repair_limits)", LEFTOVERS.describe(rows))


def _summary(conn: psycopg.Connection[Any], world: World, seconds: float, widened: int, took: float) -> Summary:
    return Summary(
        seed=world.seed,
        seconds=seconds,
        widened=widened,
        jobs=len(world.made),
        ended=len(world.done),
        drained_in=round(took, 1),
        outcomes=dict(conn.execute(OUTCOMES).fetchall()),
        calls=dict(world.calls),
        errors={f"{verb} {code}": times for (verb, code), times in world.errors.items()},
        warnings=dict(world.warnings),
        findings=list(world.findings.values()),
    )
