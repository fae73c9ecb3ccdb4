"""Threads that claim and end jobs in every way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.stress.actor import Actor
from tests.stress.caller import Refused, Rollback
from tests.stress.jobs import FAR, make_id, new_job
from tests.stress.world import KINDS, LOUD, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stress.world import World


Held = tuple[UUID, UUID]
"""A job's id and token."""
CLAIM = "select id, token, queue, kind, payload from dibs.claim(%s, %s, lease => make_interval(secs => %s::float8))"
SHORT = 1.5
MOST_HELD = 40


class Worker(Actor):
    """Claims from a random subset of queues, singly or in transactions, and ends what it holds at random."""

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.held: list[Held] = []
        self.verbs: dict[Callable[[Held], None], float] = {
            self.complete: 10, self.follow_up: 1, self.fail: 2, self.fail_finally: 0.6, self.release: 2, self.snooze: 2,
            self.put_far: 0.1, self.park: 1, self.extend: 2, self.report: 0.5, self.abandon: 0.6,
        }  # fmt: skip

    def step(self) -> None:
        if len(self.held) < MOST_HELD:
            if self.chance.random() < 0.25:
                self.work_in_transaction()
            else:
                self.held += self.claim()
        if not self.held:
            self.world.stop.wait(0.01)
        if self.chance.random() < 0.4:
            self.complete_many()
        self.chance.shuffle(self.held)
        while self.held and self.chance.random() < 0.8:
            self.end_one()

    def end_one(self) -> None:
        held = self.held.pop()
        verb = self.chance.choices(list(self.verbs), list(self.verbs.values()))[0]
        try:
            verb(held)
        except Refused:
            self.db.reset()

    def claim(self) -> list[Held]:
        """Take jobs, and look at what was handed out."""
        if self.chance.random() < 0.2:
            return self.checked(self.db.run("claim", CLAIM, ([LOUD], self.chance.choice((1, 1, 2)), None)))
        names = self.world.names()
        queues = self.chance.sample(names, self.chance.choice((1, 1, 2, 4, len(names))))
        # A queue that a producer made has the usual policy, and leases that would outlast the run.
        lease = None if SETTINGS.keys() >= set(queues) else SHORT
        return self.checked(self.db.run("claim", CLAIM, (queues, self.chance.choice((1, 1, 2, 5, 20, 50)), lease)))

    def checked(self, rows: list[tuple[Any, ...]]) -> list[Held]:
        """What a claim answered, if it makes sense."""
        for id, _, queue, kind, payload in rows:
            if kind not in KINDS or payload is None:
                self.world.find(
                    "a claim handed out a job without its kind or payload", f"{id} of {queue}: {kind!r} {payload!r}"
                )
            if self.world.done[id]:
                self.world.find("a claim handed out a job that was completed", f"{id} of {queue}")
        return [(row[0], row[1]) for row in rows]

    def work_in_transaction(self) -> None:
        """Claim and complete some in one transaction, which may be rolled back."""
        kept: list[Held] = []
        with self.db.transaction():
            # Sorted: ends in two orders would be the caller's own deadlock.
            held = sorted(self.claim())
            self.world.stop.wait(self.chance.random() * 0.02)
            for one in held:
                if self.chance.random() < 0.5:
                    self.complete(one)
                else:
                    kept.append(one)
            if self.chance.random() < 0.3:
                raise Rollback
        self.held += kept

    def complete(self, held: Held) -> None:
        [[answer]] = self.db.run("complete", "select dibs.complete(%s, %s, '1')", held, ends=held[:1])
        self.db.done(held[:1] if answer == "ok" else ())

    def follow_up(self, held: Held) -> None:
        """Complete a job and enqueue another with it."""
        job = new_job(self.chance, self.chance.choice(self.world.names()), keyed=False) | {
            "id": str(make_id(self.chance))
        }
        sql = "select dibs.complete(%s, %s, null, %s)"
        [[answer]] = self.db.run("complete", sql, (*held, json.dumps([job])), ends=held[:1])
        if answer == "ok":
            self.db.done(held[:1])
            self.db.made([UUID(job["id"])])

    def complete_many(self) -> None:
        """End some of what it holds in one call."""
        held = self.held[: self.chance.randint(1, 20)]
        self.held = self.held[len(held) :]
        if held:
            ids, tokens = [h[0] for h in held], [h[1] for h in held]
            rows = self.db.run("complete", "select id, answer from dibs.complete_many(%s, %s)", (ids, tokens), ends=ids)
            self.db.done([id for id, answer in rows if answer == "ok"])

    def fail(self, held: Held) -> None:
        delay = self.chance.choice((None, 0, 0.01, 0.1))
        self.db.run(
            "fail", "select dibs.fail(%s, %s, 'again', delay => make_interval(secs => %s::float8))", (*held, delay)
        )

    def fail_finally(self, held: Held) -> None:
        self.db.run("fail", "select dibs.fail(%s, %s, 'never', true)", held)

    def release(self, held: Held) -> None:
        delay = self.chance.choice((None, None, 0.01))
        self.db.run("release", "select dibs.release(%s, %s, make_interval(secs => %s::float8))", (*held, delay))

    def snooze(self, held: Held) -> None:
        self.db.run(
            "snooze", "select dibs.snooze(%s, %s, make_interval(secs => %s))", (*held, self.chance.random() * 0.1)
        )

    def put_far(self, held: Held) -> None:
        """Let it wait until somebody cancels or edits it."""
        self.db.run("release", "select dibs.release(%s, %s, make_interval(secs => %s))", (*held, FAR))

    def park(self, held: Held) -> None:
        self.db.run("park", "select dibs.park(%s, %s)", held)

    def extend(self, held: Held) -> None:
        self.db.run("extend", "select dibs.extend(%s, %s, make_interval(secs => %s))", (*held, SHORT))
        self.held.insert(0, held)

    def report(self, held: Held) -> None:
        self.db.run("report", """select dibs.progress(%s, %s, '{"done": 1}')""", held)
        self.held.insert(0, held)

    def abandon(self, held: Held) -> None:
        """Its lease runs out, and a rescue takes it."""


class OldSnapshotWorker(Worker):
    """Completes and enqueues in REPEATABLE READ.

    What it enqueues has no key: the completions have freed keys, and keys in two orders would be its own deadlock.
    """

    def step(self) -> None:
        held = sorted(self.claim()[:20])
        if not held:
            self.world.stop.wait(0.01)
            return
        with self.db.transaction(old_snapshot=True):
            self.db.run("look", "select count(*) from dibs.ready")
            self.world.stop.wait(self.chance.random() * 0.02)
            ids, tokens = [h[0] for h in held], [h[1] for h in held]
            rows = self.db.run("complete", "select id, answer from dibs.complete_many(%s, %s)", (ids, tokens), ends=ids)
            self.db.done([id for id, answer in rows if answer == "ok"])
            job = new_job(self.chance, self.chance.choice(self.world.names()), keyed=False)
            [[id, outcome]] = self.db.run(
                "enqueue", "select id, outcome from dibs.enqueue_many(%s)", (json.dumps([job]),)
            )
            self.db.made([id] if outcome in {"enqueued", "replaced", "sidelined"} else [])


class ShardWorker(Worker):
    """Registers, holds the shards of sharded queues, and claims what is its own."""

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        facts = json.dumps({"queues": [*world.names(), "shards"]})
        sql = "select worker from dibs.register_worker(%s, %s, %s)"
        [[self.worker]] = self.db.run("register", sql, (self.name, facts, list(KINDS)))

    def claim(self) -> list[Held]:
        queues = self.world.sharded[-3:]
        if not queues:
            return []
        names = self.db.run("hold", "select name, claimable from dibs.hold_shards(%s, %s)", (self.worker, queues))
        got: list[Held] = []
        sql = "select id, token, queue, kind, payload from dibs.claim(array[%s], %s, %s)"
        for name in [n for n, is_claimable in names if is_claimable]:
            got += self.checked(self.db.run("claim shard", sql, (name, 20, self.worker)))
        return got

    def work_in_transaction(self) -> None:
        """A refused claim of one shard would take the others back."""
        self.held += self.claim()
        self.db.run("unpark", "select dibs.unpark(%s)", (self.worker,))
