"""Threads that enqueue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.stress.actor import Actor
from tests.stress.caller import Rollback
from tests.stress.jobs import new_job
from tests.stress.world import LOUD

if TYPE_CHECKING:
    from uuid import UUID

NEW = ("enqueued", "replaced", "sidelined")

ENQUEUE = """
select job_id, outcome from dibs.enqueue(
  %(queue)s, %(kind)s, %(payload)s::jsonb, headers => %(headers)s::jsonb, id => %(id)s::uuid,
  priority => %(priority)s::int, delay => make_interval(secs => %(delay)s::float8),
  ttl => make_interval(secs => %(ttl)s::float8), max_attempts => %(max_attempts)s::int, dedup_key => %(dedup_key)s,
  shard_key => %(shard_key)s, dedup_scope => %(dedup_scope)s,
  dedup_for => make_interval(secs => %(dedup_for)s::float8), on_duplicate => %(on_duplicate)s,
  "group" => %(group)s, cost => %(cost)s::int, resources => %(resources)s::jsonb)"""
OPTIONS = (
    "headers", "id", "priority", "delay", "ttl", "max_attempts", "dedup_key", "shard_key", "dedup_scope", "dedup_for",
    "on_duplicate", "group", "cost", "resources",
)  # fmt: skip


class Producer(Actor):
    """Enqueues single jobs and batches, some in transactions that stay open for a moment or are rolled back."""

    pause = 0.01

    def step(self) -> None:
        if self.world.crowded.is_set():
            self.world.stop.wait(0.05)
            return
        roll = self.chance.random()
        if roll < 0.4:
            self.enqueue_one(new_job(self.chance, self.queue()))
        elif roll < 0.75:
            self.enqueue_many(self.batch())
        else:
            self.enqueue_slowly()

    def queue(self) -> str:
        """Where to put a job: rarely into a queue that is dropped all the time."""
        if self.chance.random() < 0.08:
            return LOUD
        while True:
            queue = self.world.any_queue(self.chance)
            if not queue.startswith("tiny") or self.chance.random() < 0.3:
                return queue

    def batch(self, *, keyed: bool = True) -> list[dict[str, Any]]:
        """Jobs for one queue or for several."""
        queues = [self.queue() for _ in range(self.chance.choice((1, 1, 3)))]
        count = self.chance.choice((1, 2, 5, 20))
        return [new_job(self.chance, self.chance.choice(queues), keyed=keyed) for _ in range(count)]

    def enqueue_slowly(self) -> None:
        """Two calls in a transaction; the second is for a job without a key, a group or resources.

        Keys, and rows of queues, in two orders would be the caller's own deadlock.
        """
        with self.db.transaction():
            self.enqueue_many(self.batch())
            self.world.stop.wait(self.chance.random() * 0.03)
            if self.chance.random() < 0.5:
                job = new_job(self.chance, self.queue(), keyed=False)
                self.enqueue_one({name: job[name] for name in job.keys() - {"group", "cost", "resources"}})
            if self.chance.random() < 0.25:
                raise Rollback

    def enqueue_one(self, job: dict[str, Any]) -> None:
        options: dict[str, Any] = dict.fromkeys(OPTIONS) | job
        for name in ("payload", "headers", "resources"):
            options[name] = json.dumps(options[name]) if options[name] else None
        self.keep([(id, outcome) for id, outcome in self.db.run("enqueue", ENQUEUE, options)])

    def enqueue_many(self, jobs: list[dict[str, Any]]) -> None:
        self.keep(self.db.run("enqueue", "select id, outcome from dibs.enqueue_many(%s)", (json.dumps(jobs),)))

    def keep(self, rows: list[tuple[UUID, str]]) -> None:
        """Remember what is new."""
        self.db.made([id for id, outcome in rows if outcome in NEW])
