"""The drain: from whatever state a run has left, everything that waits has to come to its end."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.stress.caller import Caller, Refused
from tests.stress.checks import TICKETS, rows_of
from tests.stress.limit_operators import UNSET
from tests.stress.workers import CLAIM
from tests.stress.world import KINDS, MOST_UNITS

if TYPE_CHECKING:
    from typing import LiteralString
    from uuid import UUID

    from tests.stress.world import World

DRAINERS = 3
TABLES: tuple[LiteralString, ...] = ("ready", "blocked", "lease")
STALL = 12.0
"""After so many seconds without any change, with nothing due later, the rest is stranded."""
LONGEST = 600.0
"""Seconds after which a drain ends although something still changes."""

LEFT = """
select (select count(*) from dibs.ready), (select count(*) from dibs.blocked), (select count(*) from dibs.lease)"""
LATER = """
select exists (select from dibs.ready where due_at > now())
  or exists (select from dibs.lease where lease_until > now())"""
CLOSED = """
select scope, name, rate, burst from dibs.limit_rule
where concurrency < case scope when 'resource' then %s else 1 end"""
QUIET = """
select dibs.set_queue(name, '{"noisy_share": null}') from dibs.queue
where noisy_share is not null and shard_of is null"""
CANCEL_FAR = "select count(dibs.cancel(id)) from dibs.ready where due_at > now() + interval '20 seconds'"
OF_QUEUE = " as t left join dibs.queue as q on q.id = t.queue_id group by 1, 2 order by 2"
OF_LANE = " where group_key = (select t.group_key from ticket as t where t.id = %(id)s)"
WHY: dict[str, LiteralString] = {
    "ticket": "select to_jsonb(r) from dibs.ready as r where id = %(id)s"
    " union all select to_jsonb(b) from dibs.blocked as b where id = %(id)s"
    " union all select to_jsonb(l) from dibs.lease as l where id = %(id)s",
    "why": "select dibs.why(%(id)s)",
    "job": "select kind, group_name, resources, deadline from dibs.job where id = %(id)s",
    "queue": "select to_jsonb(q) - 'backoff' from dibs.queue as q"
    " where q.id = (select j.queue_id from dibs.job as j where j.id = %(id)s)",
    "limits": "select b.*, (select sum(units) from dibs.limit_unit as u where u.limit_id = b.id) as free,"
    " (select max(tat) from dibs.limit_rate as p where p.limit_id = b.id) as tat from dibs.limit_rule as b",
    "policies": "select p.* from dibs.group_policy as p"
    " where p.queue_id = (select j.queue_id from dibs.job as j where j.id = %(id)s)",
    "pointers": TICKETS + "select * from dibs.group_pointer" + OF_LANE,
    "gates": TICKETS + "select * from dibs.group_gate" + OF_LANE,
    "attempts": "select run, outcome, claimed_at, ended_at from dibs.attempt where id = %(id)s"
    " order by run desc limit 3",
}
"""All there is to know of a ticket that is stranded."""
ORPHANS = """
select count(*) from dibs.blocked as b
where b.kind is null and not exists (select from dibs.limit_rule as r where r.id = b.limit_id)"""


class Drain:
    """Claims and completes until nothing waits. Its only chores are rescue and expire."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.over = threading.Event()
        self.main = Caller(world, "main-drain")
        self.main_worker = ""

    def run(self) -> float:
        """Drain, and find what stays. Returns how long it took."""
        began = time.monotonic()
        self._open_gates()
        threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(DRAINERS)]
        for thread in threads:
            thread.start()
        try:
            if not self._wait() and self._has_orphans():
                self.world.calls["drains that needed repair_limits"] += 1
                self._unset_limits()
                self._wait()
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        self._report()
        took = time.monotonic() - began
        self.main.close()
        return took

    def _open_gates(self) -> None:
        """Resume queues, raise limits that let nothing run, cancel what is due long after; all else stays as it is."""
        run = self.main.run
        queues = [row[0] for row in run("drain", "select name from dibs.queue where shard_of is null order by id")]
        for name in queues:
            run("drain", "select dibs.resume(%s, interval '10 minutes')", (name,))
        for scope, name, rate, burst in run("drain", CLOSED, (MOST_UNITS,)):
            most = MOST_UNITS if scope == "resource" else 1
            names = [name if scope == s else None for s in ("queue", "kind", "resource")]
            run("drain", "select dibs.set_limit(%s, %s, %s, %s, %s, %s)", (*names, most, rate, burst))
        # Groups that were noisy when their queue stopped looking for such are to be served, too.
        if self.main.chance.random() < 0.5:
            run("drain", QUIET)
        run("drain", CANCEL_FAR)
        facts = json.dumps({"queues": queues})
        sql = "select worker from dibs.register_worker('drain', %s, %s)"
        [[self.main_worker]] = run("drain", sql, (facts, list(KINDS)))

    def _work(self, number: int) -> None:
        """Claim and complete; one of the threads serves what is sharded, too."""
        caller = Caller(self.world, f"main-drain-{number}")
        while not self.over.is_set():
            try:
                rows = caller.run("drain", CLAIM, (self._names_for(caller), 50, None))
                self._finish(caller, rows)
                if number == 0:
                    self._serve_shards(caller)
            except Refused:
                caller.reset()
                rows = []
            if not rows:
                self.over.wait(0.02)
        caller.close()

    def _names_for(self, caller: Caller) -> list[str]:
        sql = "select name from dibs.queue where shard_of is null and shards is null order by id"
        return [row[0] for row in caller.run("drain", sql)]

    def _serve_shards(self, caller: Caller) -> None:
        """Claim from every shard. Holds last a second, so each queue's are taken when it is its turn, in any order."""
        queues = [row[0] for row in caller.run("drain", "select name from dibs.queue where shards is not null")]
        caller.chance.shuffle(queues)
        for queue in queues:
            hold = "select name from dibs.hold_shards(%s, array[%s]) where claimable and name is not null"
            for (name,) in caller.run("drain", hold, (self.main_worker, queue)):
                with suppress(Refused):
                    sql = "select id, token from dibs.claim(array[%s], 50, %s)"
                    self._finish(caller, caller.run("drain shard", sql, (name, self.main_worker)))

    def _finish(self, caller: Caller, rows: list[Any]) -> None:
        if rows:
            ids = [row[0] for row in rows]
            sql = "select id, answer from dibs.complete_many(%s, %s)"
            answers = caller.run("drain", sql, (ids, [row[1] for row in rows]))
            caller.done([id for id, answer in answers if answer == "ok"])

    def _wait(self) -> bool:
        """Until nothing is left, or nothing changes any more."""
        began = changed = time.monotonic()
        before: Any = None
        while time.monotonic() < began + LONGEST:
            for sql in ("select dibs.do_chore('rescue', true)", "select dibs.do_chore('expire', true)"):
                self.main.run("drain", sql)
            self.main.run("drain", "select dibs.unpark(%s)", (self.main_worker,))
            [left] = self.main.run("drain", LEFT)
            if not any(left):
                return True
            if left != before:
                before, changed = left, time.monotonic()
            [[later]] = self.main.run("drain", LATER)
            if time.monotonic() > changed + STALL and not later:
                return False
            self.over.wait(0.2)
        return False

    def _has_orphans(self) -> bool:
        """Whether jobs wait for limits that are gone: the chore of the limits sees to what a claim has left so."""
        [[orphans]] = self.main.run("drain", ORPHANS)
        return bool(orphans)

    def _unset_limits(self) -> None:
        """The chore has to do its work even if no limit is left."""
        for scope, name in self.main.run("drain", "select scope, name from dibs.limit_rule"):
            self.main.run("drain", UNSET[scope], (name,))
        self.main.run("drain", "select dibs.do_chore('repair_limits', true)")

    def _report(self) -> None:
        """Say of some tickets of each sort that is left all there is to know."""
        for table in TABLES:
            sql = "select t.queue_id, q.name, array_agg(t.id order by t.id) from dibs." + table + OF_QUEUE
            for _, queue, ids in self.main.run("drain", sql):
                text = "\n".join(self._why(id) for id in ids[:2])
                where = queue.rstrip("0123456789#") if queue else "a queue that is gone"
                name = f"tickets are stranded in {table} after the drain: {where}"
                self.world.find(name, f"{len(ids)} tickets of {queue}\n{text}")

    def _why(self, id: UUID) -> str:
        """A ticket, and what it may wait for."""
        lines = [f"-- {id}"]
        lines += [f"{name}: {rows_of(self.main.run('drain', sql, {'id': id}), 12)}" for name, sql in WHY.items()]
        return "\n".join(lines)
