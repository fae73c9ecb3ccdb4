"""A state machine drives every verb against the model, with the clock moved at will."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.sql.model import TTL, Job, Model

if TYPE_CHECKING:
    from dibs.testing import Clock

QUEUES = ["red", "blue"]
GROUPS = {"two": 2, "strict": 1}
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
FOUND_WITHIN = 3.0
Claim = tuple[Job, UUID]

TICKETS = """
select t.id, array_agg(t.place) from (
  select id, 'ready' as place from dibs.ready union all select id, 'ready' from dibs.blocked
  union all select id, 'lease' from dibs.lease union all select id, state from dibs.dead) as t group by t.id
"""

UNITS = """
select b.name, b.concurrency + b.debt, (
  select coalesce(sum(s.units), 0) from dibs.limit_unit as s where s.limit_id = b.id) + (
  select coalesce(sum(u.units), 0) from dibs.lease as l, unnest(l.limit_ids, l.limit_units) as u (id, units)
  where u.id = b.id)
from dibs.limit_rule as b where b.is_set
union all
select l.group_key::text, coalesce((
  select g.running from dibs.group_gate as g where g.group_key = l.group_key order by g.n desc limit 1), 0), (
  select coalesce(sum(t.ended_runs), 0) from dibs.group_pointer as t where t.group_key = l.group_key) + (
  select count(*) from dibs.lease as h where h.group_key = l.group_key and h.group_hold > 'none') + (
  select count(*) from dibs.blocked as h where h.group_key = l.group_key and h.group_hold > 'none')
from (select group_key from dibs.group_gate union select group_key from dibs.lease where group_hold > 'none') as l
"""

STRANDED = """
select r.id, r.due_at, r.priority from dibs.ready as r
where r.group_key is not null and not exists (
    select from dibs.group_pointer as t
    where t.group_key = r.group_key and t.priority = r.priority and t.floor_at <= r.due_at
      and (t.floor_at < r.due_at or t.floor_id is null or t.floor_id <= r.id))
  and not exists (
    select from dibs.group_gate as g cross join lateral unnest(g.floors) as f
    where g.group_key = r.group_key and f.priority = r.priority and f.due_at <= r.due_at
      and (g.running > 0 or g.next_id is not null))
"""


ANY = st.integers(0, 1_000_000)


class Verbs(RuleBasedStateMachine):
    """Each rule does to the database what it does to the model; the invariants compare the two."""

    db: psycopg.Connection[Any]
    clock: Clock

    @initialize()
    def begin(self) -> None:
        self.db.execute("truncate dibs.job, dibs.attempt, dibs.ready, dibs.blocked, dibs.lease, dibs.dead,"
                        " dibs.fingerprint, dibs.floor_hint, dibs.queue, dibs.group_pointer, dibs.group_gate,"
                        " dibs.group_policy,"
                        " dibs.limit_rule, dibs.limit_unit, dibs.limit_rate")  # fmt: skip
        for name in QUEUES:
            self.db.execute(
                'select dibs.set_queue(%s, \'{"lease": 30, "max_attempts": 3, "ttl": 3600,'
                ' "backoff": {"kind": "constant", "delays": [10]}}\')',
                (name,),
            )
            for group, concurrency in GROUPS.items():
                policy = f'{{"concurrency": {concurrency}}}'
                self.db.execute("select dibs.set_group(%s, %s, %s)", (name, group, policy))
        self.db.execute("select dibs.set_queue('blue', '{\"newest_first\": true}')")
        self.db.execute("reset all")
        self.db.execute("set jit = off")
        self.model = Model(START, groups=dict(GROUPS))
        self.made: list[Job] = []
        self.taken: list[Claim] = []
        self.clock.freeze(START)

    # Which job of many a claim takes is partly chance, so what is drawn must not depend on it: a number stands for any.

    def some_job(self, at: int) -> Job | None:
        return self.made[at % len(self.made)] if self.made else None

    def some_claim(self, at: int, *, consume: bool = False) -> Claim | None:
        if not self.taken:
            return None
        return self.taken.pop(at % len(self.taken)) if consume else self.taken[at % len(self.taken)]

    def one(self, statement: str, *args: Any) -> Any:
        return self.db.execute(statement, args).fetchone()

    def answer(self, statement: str, *args: Any) -> str | None:
        """The answer of a single verb, or the SQLSTATE it raised."""
        try:
            return str(self.one(statement, *args)[0])
        except psycopg.DatabaseError as error:
            return error.sqlstate

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.integers(0, 10),
        delay=st.sampled_from([0, 0, 0, 1, 60]),
        key=st.sampled_from([None, None, "a", "b"]),
        scope=st.sampled_from([None, "waiting"]),
        replace=st.booleans(),
        kind=st.sampled_from(["k", "k", "limited"]),
        group=st.sampled_from([None, None, "free", "two", "strict"]),
    )
    def enqueue(
        self,
        queue: str,
        priority: int,
        delay: int,
        key: str | None,
        scope: str | None,
        replace: bool,
        kind: str,
        group: str | None,
    ) -> None:
        id, outcome = self.one(
            "select * from dibs.enqueue(%s, %s, priority => %s, delay => make_interval(secs => %s), dedup_key => %s,"
            ' dedup_scope => %s, on_duplicate => %s, "group" => %s)',
            queue, kind, priority, delay, key, scope if key else None, "replace" if key and replace else None, group,
        )  # fmt: skip
        due = self.model.now + timedelta(seconds=delay)
        job = Job(id, queue, priority, due, due + TTL, key, scope, kind, group)
        stands, expected = self.model.enqueue(job, replace=replace)
        assert (id, outcome) == (stands.id, expected)
        if stands is job:
            self.made.append(job)

    @rule(at=ANY)
    def enqueue_the_same_id_again(self, at: int) -> None:
        job = self.some_job(at)
        if job is None:
            return
        made = self.one("select * from dibs.enqueue(%s, 'k', id => %s, dedup_key => %s)", job.queue, job.id, job.key)
        assert made == (job.id, "duplicate")

    @rule(queues=st.sampled_from([["red"], ["blue"], QUEUES]), count=st.integers(1, 4))
    def claim(self, queues: list[str], count: int) -> None:
        # What lies below the floor is found a little later, never lost; so ask again while something is missing.
        taken: list[Claim] = []
        end = time.monotonic() + FOUND_WITHIN
        while len(taken) < count:
            rows = self.db.execute(
                "select id, token, run, attempt from dibs.claim(%s, %s)", (queues, count - len(taken))
            ).fetchall()
            for id, token, run, attempt in rows:
                job = self.model.jobs[id]
                assert job in self.model.claimable(queues)
                assert self.model.may_start(job)
                self.model.claim(job, token)
                assert (run, attempt) == (job.run, job.charged)
                taken.append((job, token))
            if not any(map(self.model.may_start, self.model.claimable(queues))):
                break
            assert time.monotonic() < end, f"claimed {len(taken)} of {count}"
        self.taken += taken

    @rule(at=ANY)
    def extend(self, at: int) -> None:
        claim = self.some_claim(at)
        if claim is None:
            return
        job, token = claim
        got = self.answer("select dibs.extend(%s, %s)", job.id, token)
        if not self.model.held(job, token):
            assert got == "DI001"
            return
        assert got == ("cancel" if job.cancel else "ok")
        job.until = self.model.now + timedelta(seconds=30)

    @rule(at=ANY)
    def complete(self, at: int) -> None:
        claim = self.some_claim(at)
        if claim is None:
            return
        job, token = claim
        got = self.answer("select dibs.complete(%s, %s)", job.id, token)
        if self.model.held(job, token):
            assert got == "ok"
            self.model.complete(job)
        else:
            assert got == ("already" if job.place == "succeeded" and job.token == token else "DI001")

    @rule(at=ANY, final=st.booleans())
    def fail(self, at: int, final: bool) -> None:
        claim = self.some_claim(at, consume=True)
        if claim is None:
            return
        job, token = claim
        got = self.answer("select state from dibs.fail(%s, %s, 'boom', %s)", job.id, token, final)
        if self.model.held(job, token):
            self.model.fail(job, final=final)
            assert got == job.state(self.model.now)
        elif got != "DI001":
            assert job.token == token
            assert job.attempts[-1] in {"failed", "cancelled"}

    @rule(at=ANY, delay=st.sampled_from([1, 60, 7200]))
    def snooze(self, at: int, delay: int) -> None:
        claim = self.some_claim(at, consume=True)
        if claim is None:
            return
        job, token = claim
        got = self.answer("select dibs.snooze(%s, %s, make_interval(secs => %s))", job.id, token, delay)
        if self.model.held(job, token):
            assert got == "ok"
            self.model.snooze(job, timedelta(seconds=delay))

    @rule(at=ANY)
    def release(self, at: int) -> None:
        claim = self.some_claim(at, consume=True)
        if claim is None:
            return
        job, token = claim
        got = self.answer("select dibs.release(%s, %s)", job.id, token)
        if self.model.held(job, token):
            assert got == "ok"
            self.model.release(job)

    @rule(at=ANY, verb=st.sampled_from(["extend", "complete", "release"]))
    def report_with_a_wrong_token(self, at: int, verb: str) -> None:
        claim = self.some_claim(at)
        if claim is None:
            return
        assert self.answer(f"select dibs.{verb}(%s, %s)", claim[0].id, uuid4()) == "DI001"

    @rule(at=ANY)
    def cancel(self, at: int) -> None:
        job = self.some_job(at)
        if job is None:
            return
        got = self.one("select answer from dibs.cancel_many(array[%s])", job.id)
        assert got == (self.model.cancel(job),)

    @rule()
    def rescue(self) -> None:
        rows = self.db.execute("select id from dibs.rescue()").fetchall()
        assert {row[0] for row in rows} == self.model.rescue()

    @rule()
    def expire(self) -> None:
        assert self.one("select expired from dibs.expire()") == (self.model.expire(),)

    @rule(at=ANY)
    def retry(self, at: int) -> None:
        job = self.some_job(at)
        if job is None:
            return
        statement = "select matched, done, refused from dibs.retry(jsonb_build_object('ids', array[%s::uuid]))"
        row = self.one(statement, job.id)
        if job.place in {"ready", "lease", "succeeded"}:
            assert row == (0, 0, [])
        elif self.model.retry(job) == "back":
            assert row == (1, 1, [])
        else:
            assert row == (1, 0, [{"id": str(job.id), "reason": "duplicate"}])

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        assert self.one("select dibs.pause(%s)", queue) == (queue not in self.model.paused,)
        self.model.paused.add(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        late = sum(
            j.place == "ready" and j.queue == queue and j.expire <= self.model.now for j in self.model.jobs.values()
        )
        assert self.one("select late from dibs.resume(%s)", queue) == (late,)
        self.model.paused.discard(queue)

    @rule(by=st.sampled_from([0.1, 1, 11, 31, 1800, 3700, -1, -20, -1800]))
    def move_the_clock(self, by: float) -> None:
        self.clock.move(by)
        self.model.now += timedelta(seconds=by)
        if by < 0:
            self.db.execute("select dibs.repair_groups(), dibs.repair_limits()")

    @rule(kind=st.sampled_from(["limited", "k"]), concurrency=st.sampled_from([1, 2, 5]))
    def set_limit(self, kind: str, concurrency: int) -> None:
        self.db.execute("select dibs.set_limit(kind => %s, concurrency => %s)", (kind, concurrency))
        self.model.kinds[kind] = concurrency

    @rule(kind=st.sampled_from(["limited", "k"]))
    def drop_limit(self, kind: str) -> None:
        known = self.model.kinds.pop(kind, None) is not None
        assert self.answer("select dibs.drop_limit(kind => %s)", kind) == ("True" if known else "DI030")

    @invariant()
    def every_state_is_the_models(self) -> None:
        ids = list(self.model.jobs)
        rows = self.db.execute("select id, state from dibs.status_many(%s)", (ids,)).fetchall()
        # Which of those that wait have been found to lack a slot is not the model's business.
        states = {id: job.state(self.model.now) for id, job in self.model.jobs.items()}
        assert {id: states[id] if state == "blocked" else state for id, state in rows} == states

    @invariant()
    def every_ticket_is_in_one_table_or_nowhere(self) -> None:
        tickets = dict(self.db.execute(TICKETS).fetchall())
        assert tickets == {id: [j.place] for id, j in self.model.jobs.items() if j.place != "succeeded"}

    @invariant()
    def every_ended_run_is_in_the_history_once(self) -> None:
        rows = self.db.execute(
            "select id, array_agg(outcome::text order by run) from dibs.attempts group by id"
        ).fetchall()
        assert dict(rows) == {id: j.attempts for id, j in self.model.jobs.items() if j.attempts}

    @invariant()
    def every_live_key_has_one_fingerprint(self) -> None:
        rows = self.db.execute("select id from dibs.fingerprint").fetchall()
        assert {row[0] for row in rows} == {job.id for job in self.model.keys.values()}

    @invariant()
    def every_unit_is_free_or_held(self) -> None:
        rows = self.db.execute(UNITS).fetchall()
        assert [row for row in rows if row[1] != row[2]] == []

    @invariant()
    def every_ticket_of_a_group_is_pointed_at(self) -> None:
        assert self.db.execute(STRANDED).fetchall() == []


def test_the_verbs_do_what_the_model_does(db: psycopg.Connection[Any], clock: Clock) -> None:
    machine = type("Machine", (Verbs,), {"db": db, "clock": clock})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=40))
