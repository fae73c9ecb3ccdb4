"""What operators change by hand: delete, purge, move, edit, retry, cancel by filter, undo, drop a queue."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

import dibs
from dibs import State
from dibs.db import calls
from dibs.operation import ACTIONS, StepArgs
from dibs.policy import JobChanges
from dibs.types import JobFilter, StillDead
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.testing import Clock
    from tests.sql.conftest import Login

TRACE = """ValueError: user {n} has no card {id}
  File "/srv/shop/billing/tasks.py", line {n}, in charge
    card(user)
  File "/usr/lib/python3.11/site-packages/cards/api.py", line 9, in call
"""


def bury(client: dibs.Client, count: int, queue: str = "q", **options: Any) -> list[UUID]:
    """Jobs that failed for good."""
    made = [client.enqueue(queue, "k", {"n": n, "user": {"id": n % 2}}, **options).id for n in range(count)]
    for job in client.claim(queue, count):
        client.fail(job, TRACE.format(n=job.payload["n"], id=job.id), final=True)
    assert {client.status(id).state for id in made} == {State.FAILED}
    return made


def succeed(client: dibs.Client, count: int, queue: str = "q") -> list[UUID]:
    """Jobs that succeeded."""
    made = [client.enqueue(queue, "k").id for _ in range(count)]
    client.complete_many(client.claim(queue, count))
    return made


def one(db: psycopg.Connection[Any], statement: str, *args: Any) -> Any:
    [row] = db.execute(statement, args).fetchall()
    return row[0] if len(row) == 1 else row


def rows_of(db: psycopg.Connection[Any], id: UUID) -> list[str]:
    """The tables in which something is known of a job."""
    tables = ("job", "ready", "blocked", "lease", "dead", "attempt")
    return [t for t in tables if one(db, f"select count(*) from dibs.{t} where id = %s", id)]


# The filter


def test_the_filter_is_the_same_in_sql_and_python(db: psycopg.Connection[Any]) -> None:
    assert one(db, "select dibs._field_names('dibs.job_filter')") == list(JobFilter.__annotations__)
    assert one(db, "select dibs._field_names('dibs.job_change')") == list(JobChanges.__annotations__)


def test_each_condition_of_a_filter_chooses(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    first = bury(client, 1, group="g", dedup_key="key", headers={"team": "a"})[0]
    clock.move(60)
    other = bury(client, 2, queue="other")[1]
    client.upkeep.roll_up()
    [group] = client.failures.list(queue="q")
    clock.move(60)
    late, now = clock.now() - timedelta(seconds=90), clock.now()
    between = client.find_jobs({"queue": "other"}).jobs[-1].enqueued_at
    chosen: list[tuple[JobFilter, int]] = [
        ({}, 3),
        ({"ids": [first, other]}, 2),
        ({"queue": "other"}, 2),
        ({"kind": "k"}, 3),
        ({"kind": "x"}, 0),
        ({"states": ["failed"]}, 3),
        ({"states": ["expired", "cancelled"]}, 0),
        ({"group": "g"}, 1),
        ({"queue": "q", "dedup_key": "key"}, 1),
        ({"queue": "other", "dedup_key": "key"}, 0),
        ({"reason": "ValueError: user 1%"}, 1),
        ({"failure": group.fingerprint}, 3),
        ({"failure": "none"}, 0),
        ({"payload": {"user": {"id": 1}}}, 1),
        ({"headers": {"team": "a"}}, 1),
        ({"enqueued_after": between}, 2),
        ({"enqueued_before": between}, 1),
        ({"ended_after": late, "ended_before": now}, 2),
    ]
    for filter, count in chosen:
        found = client.retry(filter, dry_run=True)
        assert (found.matched, found.done, found.operation, found.more) == (count, 0, None, False), filter
    assert client.queues.depth("q").failed == 1


@pytest.mark.parametrize(
    ("filter", "sentence"),
    [
        ("[]", "a filter that is a JSON object"),
        ("null", "a filter that is a JSON object"),
        ('{"quue": "q"}', "no condition 'quue'"),
        ('{"states": ["ready"]}', "delete takes no job that is 'ready'"),
        ('{"dedup_key": "k"}', "names none"),
        ('{"queue": "nowhere"}', "there is no queue"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    shared_db: psycopg.Connection[Any], filter: str, sentence: str
) -> None:
    with pytest.raises(psycopg.Error, match=sentence) as refused:
        shared_db.execute("select dibs.delete(%s::jsonb)", (filter,))
    assert refused.value.sqlstate in {"DI010", "DI011"}


def test_a_step_looks_at_so_many_and_says_where_it_stopped(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    header = "create or replace function dibs._max_scanned(filter dibs.job_filter default null) returns integer"
    db.execute(f"{header} language sql immutable parallel safe return 3")
    bury(client, 4)
    bury(client, 4, queue="other")
    seen: list[int] = []
    found = client.retry({"queue": "other"}, dry_run=True, on_step=lambda far: seen.append(far.matched))
    assert (found.matched, seen) == (4, [0, 2, 4])
    done = client.delete({"queue": "other"}, max=3)
    assert (done.matched, done.done, done.more) == (3, 3, True)
    assert (client.queues.depth("other").failed, client.queues.depth("q").failed) == (1, 4)


def test_a_search_finds_the_newest_and_says_how_far_it_looked(
    db: psycopg.Connection[Any], client: dibs.Client, login: Login
) -> None:
    dead = bury(client, 3)
    waiting = client.enqueue("q", "k", {"user": {"id": 1}}, delay=60).id
    done = succeed(client, 2, queue="other")
    everything = [*reversed(done), waiting, *reversed(dead)]
    found = client.find_jobs()
    assert ([job.id for job in found.jobs], found.next) == (everything, None)
    assert found.jobs == client.find_jobs().jobs
    first = client.find_jobs(limit=2)
    assert [job.id for job in first.jobs] == everything[:2]
    assert [job.id for job in client.find_jobs(limit=9, before=first.next).jobs] == everything[2:]
    assert [job.id for job in client.find_jobs({"states": ["scheduled", "succeeded"]}).jobs] == everything[:3]
    assert {job.id for job in client.find_jobs({"payload": {"user": {"id": 1}}}).jobs} == {waiting, dead[1]}
    header = "create or replace function dibs._max_scanned(filter dibs.job_filter default null) returns integer"
    db.execute(f"{header} language sql immutable parallel safe return 2")
    far = client.find_jobs({"queue": "q", "states": ["failed", "succeeded"]}, limit=1, within=0)
    assert (far.jobs, far.looked) == ([], 2)
    assert far.next is not None
    db.execute(f"{header} language sql immutable parallel safe return 100")
    observer = login("dibs_observer")
    assert len(observer.find_jobs(limit=2).jobs) == 2
    looked = [
        len(who.find_jobs({"reason": text}).jobs) for who in (client, observer) for text in ("%card%", "%charge%")
    ]
    assert [bool(found) for found in looked] == [True, True, True, False], "what is below the first line is not shown"
    with pytest.raises(dibs.NotPermitted, match="may not see payloads"):
        observer.find_jobs({"payload": {}})


def test_a_job_that_waits_for_its_retry_shows_its_last_error(client: dibs.Client) -> None:
    client.enqueue("q", "k")
    client.fail(client.claim("q")[0], "ValueError: first line\nsecond", delay=60)
    assert [job.reason for job in client.find_jobs().jobs] == ["ValueError: first line"]


# delete and purge


def test_delete_takes_ended_jobs_with_all_that_is_known_of_them(
    db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    ended = bury(client, 2) + succeed(client, 2)
    waiting = client.enqueue("q", "k", delay=60).id
    [held] = client.claim("q") if client.enqueue("q", "k") else []
    done = client.delete({})
    assert (done.matched, done.done, done.more) == (4, 4, False)
    assert [rows_of(db, id) for id in ended] == [[]] * 4
    assert [client.status(id).state for id in (ended[0], waiting, held.id)] == ["unknown", "scheduled", "running"]
    assert client.stats.totals("q")[0].succeeded == 2, "what was deleted is counted first"
    assert client.stats.totals("q")[0].failed == 2


def test_a_run_that_is_not_counted_yet_is_not_deleted(
    db: psycopg.Connection[Any], client: dibs.Client, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    """Another process counts: what it is about to count stays until it has."""
    [id] = succeed(client, 1)
    counting = connect()
    with counting.transaction():
        counting.execute("select from dibs.chore where name = 'roll_up' for update")
        assert client.delete({}).done == 0
    assert client.delete({}).done == 1
    assert (client.status(id).state, client.stats.totals("q")[0].succeeded) == ("unknown", 1)


def test_a_dead_job_that_somebody_holds_is_left_alone(
    client: dibs.Client, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    first, second = bury(client, 2)
    other = connect()
    with other.transaction():
        other.execute("select from dibs.retry(jsonb_build_object('ids', array[%s::uuid]))", (first,))
        done = client.delete({})
        assert (done.matched, done.done) == (2, 1)
    assert [client.status(id).state for id in (first, second)] == ["ready", "unknown"]


@pytest.mark.parametrize("verb", ["delete", "retry"])
def test_two_at_once_change_each_job_once(client: dibs.Client, dsn: str, verb: str) -> None:
    bury(client, 60)
    client.upkeep.roll_up()
    done: list[int] = []

    def change() -> None:
        with dibs.Client(dsn) as other:
            done.append(getattr(other, verb)({"queue": "q"}).done)

    changing = [threading.Thread(target=change) for _ in range(2)]
    for thread in changing:
        thread.start()
    for thread in changing:
        thread.join()
    assert sum(done) == 60
    assert sum(audit.jobs or 0 for audit in client.audit()) == 60
    assert client.queues.depth("q").failed == 0


def test_purge_takes_what_waits_and_its_keys_and_turns(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.groups.set("q", concurrency=1)
    client.limits.set(kind="heavy", concurrency=1)
    kept = client.enqueue("q", "heavy", group="a").id
    [held] = client.claim("q")
    keyed = client.enqueue("q", "k", dedup_key="d").id
    blocked = client.enqueue("q", "heavy", group="b").id
    [other] = client.claim("q", 5)
    assert (other.id, client.release(other)) == (keyed, "ok")
    assert client.status(blocked).state == "blocked"
    after = client.enqueue("q", "k", group="b").id
    assert client.queues.purge("q", dry_run=True).matched == 3
    assert client.queues.purge("q").done == 3
    assert [rows_of(db, id) for id in (keyed, blocked, after)] == [[]] * 3
    assert client.enqueue("q", "k", dedup_key="d").outcome == "enqueued"
    assert (held.id, client.status(kept).state) == (kept, "running")
    client.complete(held)
    again = client.enqueue("q", "heavy", group="b").id
    assert again in {job.id for job in client.claim("q", 5)}, "the group's turn was given back"
    with pytest.raises(dibs.errors.UnknownQueue):
        client.queues.purge("nowhere")


# retry, cancel_where, undo


def test_retry_keeps_a_due_time_that_is_ahead_unless_it_is_told_now(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    later = client.enqueue("q", "k", delay=3600).id
    client.cancel(later)
    dead = bury(client, 2)
    assert client.retry({}, now=True).done == 2, "what somebody cancelled stays, unless the filter asks for it"
    assert client.retry({"ids": [later]}).done == 1
    assert {job.id for job in client.claim("q", 5)} == {*dead}
    assert client.status(later).state is State.SCHEDULED
    client.cancel(later)
    done = client.retry({"ids": [later]}, now=True)
    assert [job.id for job in client.claim("q", 5)] == [later]
    assert done.operation is not None
    assert client.undo(done.operation).done == 0, "it has run since"


def test_undo_of_a_retry_that_was_told_now_gives_the_due_time_back(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    later = client.enqueue("q", "k", delay=3600).id
    client.cancel(later)
    before = client.find_jobs().jobs
    done = client.retry({"ids": [later]}, now=True)
    assert done.operation is not None
    assert client.undo(done.operation).done == 1
    assert client.find_jobs().jobs == before


def test_now_with_a_rate_and_a_delay_still_spreads(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    ids = [client.enqueue("q", "k", delay=3600 * (n + 1)).id for n in range(3)]
    client.cancel_many(ids)
    assert client.retry({"ids": ids}, now=True, rate=0.5, delay=timedelta(seconds=10)).done == 3
    due = {job.id: job.due_at - clock.now() for job in client.find_jobs().jobs}
    assert [round(due[id].total_seconds()) for id in ids] == [10, 12, 14]


def test_retry_at_a_rate_spreads_over_all_steps(
    client: dibs.Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.freeze()
    bury(client, 6)
    monkeypatch.setattr("dibs.client.steps.STEP", 2)
    assert client.retry({}, rate=2).done == 6
    assert len(client.claim("q", 9)) == 1
    clock.move(1.5)
    assert len(client.claim("q", 9)) == 3
    clock.move(1)
    assert len(client.claim("q", 9)) == 2


def test_a_retry_of_a_job_whose_key_is_taken_leaves_it_dead(client: dibs.Client) -> None:
    bury(client, 1, dedup_key="d")
    client.enqueue("q", "k", dedup_key="d")
    done = client.retry({}, now=True)
    assert (done.matched, done.done) == (1, 0)
    assert done.refused == (StillDead(client.find_jobs({"states": ["failed"]}).jobs[0].id, dibs.Answer.DUPLICATE),)


def test_two_dead_jobs_of_one_key_do_not_both_come_back(client: dibs.Client) -> None:
    ids = [bury(client, 1, dedup_key="d")[0] for _ in range(2)]
    done = client.retry({})
    [refused] = done.refused
    assert (done.matched, done.done, refused.reason) == (2, 1, dibs.Answer.DUPLICATE)
    assert client.status(refused.id).state is State.FAILED
    assert refused.id in ids
    assert done.operation is not None
    assert client.undo(done.operation).done == 1
    assert client.retry({"ids": [refused.id]}).done == 1, "an undo gives the key back"


def test_a_retry_lists_what_others_hold_and_does_not_wait(
    client: dibs.Client, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    first, second, third = bury(client, 3)
    other = connect()
    with other.transaction(force_rollback=True):
        other.execute("select from dibs.retry(jsonb_build_object('ids', array[%s, %s]::uuid[]))", (first, second))
        done = client.retry({})
        assert (done.matched, done.done) == (3, 1)
        assert done.refused == (StillDead(first, dibs.Answer.BUSY), StillDead(second, dibs.Answer.BUSY))
        assert client.status(third).state is State.READY
    assert client.retry({}).done == 2


def test_the_refused_of_all_steps_are_listed_up_to_a_number(
    client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [bury(client, 1, dedup_key=f"d{n}")[0] for n in range(5)]
    for n in range(5):
        client.enqueue("q", "k", dedup_key=f"d{n}")
    monkeypatch.setattr("dibs.client.steps.STEP", 2)
    assert [r.id for r in client.retry({}).refused] == ids
    monkeypatch.setattr("dibs.client.steps.REFUSED", 3)
    done = client.retry({})
    assert ([r.id for r in done.refused], done.matched, done.done) == (ids[:3], 5, 0)


def test_a_retry_rings_once_for_each_queue(
    client: dibs.Client, db: psycopg.Connection[Any], connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    """Also if the first of them stays dead."""
    bury(client, 1, dedup_key="d")
    bury(client, 2)
    bury(client, 2, queue="other")
    client.enqueue("q", "k", dedup_key="d")
    heard = connect()
    heard.execute("listen dibs")
    assert client.retry({}).done == 4
    numbers = dict(db.execute("select number::text, queue from dibs.bells()").fetchall())
    rung = [numbers[ring.payload] for ring in heard.notifies(timeout=10, stop_after=2)]
    assert sorted(rung) == ["other", "q"]


def test_cancel_where_ends_what_waits_and_asks_what_runs(client: dibs.Client) -> None:
    running = client.enqueue("q", "k").id
    [held] = client.claim("q")
    waiting = client.enqueue("q", "k").id
    kept = client.enqueue("q", "other").id
    done = client.cancel_where({"kind": "k"}, reason="not now")
    assert done.done == 2
    assert [client.status(id).state for id in (running, waiting, kept)] == ["running", "cancelled", "ready"]
    assert client.extend(held) == "cancel"
    assert "not now" in client.why(waiting)


def test_undo_of_a_cancel_lets_jobs_wait_as_before(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    tried = client.enqueue("q", "k", dedup_key="d", group="g", priority=7).id
    client.fail(client.claim("q")[0], "boom", delay=30)
    late = client.enqueue("q", "k", delay=600).id
    taken = client.enqueue("q", "k", dedup_key="gone").id
    before = db.execute("select * from dibs.ready where id = any (%s) order by id", ([tried, late],)).fetchall()
    done = client.cancel_where({})
    other = client.enqueue("q", "k", dedup_key="gone").id
    assert done.operation is not None
    assert client.undo(done.operation, dry_run=True).matched == 3
    back = client.undo(done.operation)
    assert (back.matched, back.done) == (3, 2)
    assert [client.status(id).state for id in (tried, late, taken, other)] == [
        "scheduled",
        "scheduled",
        "cancelled",
        "ready",
    ]
    after = db.execute("select * from dibs.ready where id = any (%s) order by id", ([tried, late],)).fetchall()
    columns = [c.name for c in db.execute("select * from dibs.ready").description or ()]
    ring = columns.index("ring")
    assert [row[:ring] + row[ring + 1 :] for row in after] == [row[:ring] + row[ring + 1 :] for row in before]
    assert client.enqueue("q", "k", dedup_key="d").outcome == "duplicate"
    clock.move(30)
    assert tried in {job.id for job in client.claim("q", 5)}
    again = client.undo(done.operation)
    assert (again.matched, again.done) == (1, 0), "another job still has its key"


def test_undo_of_a_retry_lets_jobs_be_dead_as_before_unless_they_ran(
    db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    ids = bury(client, 3)
    before = dict(db.execute("select id, to_jsonb(d) from dibs.dead as d").fetchall())
    assert client.retry({}).done == 3
    [ran] = client.claim("q")
    client.release(ran)
    back = client.undo(client.audit()[0].operation)
    assert (back.matched, back.done) == (3, 2)
    after = dict(db.execute("select id, to_jsonb(d) from dibs.dead as d").fetchall())
    assert after == {id: before[id] for id in ids if id != ran.id}
    assert client.status(ran.id).state == "ready"


def test_undo_of_a_retry_leaves_a_job_that_was_retried_again(client: dibs.Client) -> None:
    [id] = bury(client, 1)
    first = client.retry({"ids": [id]}).operation or 0
    cancelled = client.cancel_where({"ids": [id]}).operation or 0
    second = client.retry({"ids": [id]}).operation or 0
    assert client.undo(first).done == 0
    assert client.status(id).state == "ready"
    assert client.undo(second).done == 1
    assert client.status(id).state == "cancelled"
    assert client.undo(cancelled).done == 1
    assert client.undo(first).done == 1
    assert client.status(id).state == "failed"


def test_what_cannot_be_undone_is_refused(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue("q", "k")
    client.queues.pause("q")
    [paused] = client.audit()
    done = client.cancel_where({})
    assert done.operation is not None
    with pytest.raises(dibs.InvalidArgument, match="is a pause, which cannot be undone"):
        client.undo(paused.operation)
    with pytest.raises(dibs.InvalidArgument, match="there is no operation 999"):
        client.undo(999)
    clock.move(3601)
    with pytest.raises(dibs.InvalidArgument, match="can no longer be undone"):
        client.undo(done.operation)
    client.upkeep.forget()
    clock.move(-3600)
    assert client.undo(done.operation).matched == 0


# move and edit


def test_move_takes_waiting_and_dead_jobs_to_another_queue(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.queues.set("there", priority=1)
    assert client.claim("there") == []
    dead = bury(client, 1, group="g", resources={"gpu": 1})[0]
    client.limits.set(resource="gpu", concurrency=1)
    waiting = client.enqueue("q", "k", group="g", priority=9, dedup_key="d", resources={"gpu": 1}).id
    late = client.enqueue("q", "k", delay=60).id
    assert client.move({"queue": "q"}, "there", dry_run=True).matched == 3
    assert client.move({"queue": "q"}, "there").done == 3
    assert (client.queues.depth("q").waiting, client.queues.depth("q").dead) == (0, 0)
    assert (client.queues.depth("there").waiting, client.queues.depth("there").failed) == (2, 1)
    assert {job.queue for job in client.find_jobs().jobs} == {"there"}
    [held] = client.claim("there", 5)
    assert (held.id, held.queue, held.priority) == (waiting, "there", 9)
    assert one(db, "select cardinality(limit_ids) from dibs.lease") == 1, "it holds a unit there"
    assert client.enqueue("q", "k", dedup_key="d").outcome == "duplicate"
    client.complete(held)
    assert client.retry({"ids": [dead]}).done == 1
    assert [job.queue for job in client.claim("there", 5)] == ["there"]
    assert client.status(late).state == "scheduled"
    with pytest.raises(dibs.errors.UnknownQueue):
        client.move({}, "nowhere")


def test_move_into_shards_keeps_groups_together(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.queues.set("there", shards=4)
    for n in range(12):
        client.enqueue("q", "k", group=f"g{n % 3}")
    client.move({}, "there")
    found = db.execute('select distinct "group", shard from dibs.jobs').fetchall()
    assert len(found) == 3
    [(straight,)] = db.execute("select dibs.enqueue('there', 'k', \"group\" => 'g0')").fetchall()
    assert straight is not None
    assert len(db.execute("select distinct shard from dibs.jobs where \"group\" = 'g0'").fetchall()) == 1


def test_a_strict_group_goes_on_without_what_was_moved_away(client: dibs.Client) -> None:
    client.groups.set("q", concurrency=1)
    client.queues.set("there")
    client.enqueue("q", "k", group="g")
    second = client.enqueue("q", "k", group="g").id
    client.fail(client.claim("q")[0], "boom", delay=60)
    assert client.claim("q") == [], "the group waits for its first"
    client.move({"states": ["scheduled"]}, "there")
    assert [job.id for job in client.claim("q")] == [second]


def test_edit_changes_a_job_that_waits_or_is_dead(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    id = client.enqueue("q", "k", {"a": 1}, delay=600).id
    with dibs.acting_as("ann"):
        assert client.edit(id, payload={"a": 2}, priority=9, delay=5) == "changed"
    assert client.claim("q") == []
    clock.move(5)
    [job] = client.claim("q")
    assert (job.payload, job.priority) == ({"a": 2}, 9)
    with pytest.raises(dibs.errors.JobRunning, match="runs, so it cannot be changed"):
        client.edit(id, priority=1)
    client.fail(job, "no", final=True)
    client.edit(id, payload=None, due_at=clock.now() + timedelta(seconds=60))
    client.retry({"ids": [id]})
    assert client.claim("q") == []
    clock.move(60)
    [job] = client.claim("q")
    assert job.payload is None
    client.complete(job)
    with pytest.raises(dibs.JobEnded):
        client.edit(id, priority=1)
    shown = client.show(id)
    assert shown is not None
    assert [(c["actor"], c["before"]["payload"]) for c in shown["changes"]] == [("ann", {"a": 1}), (None, {"a": 2})]
    assert "payload" not in str(client.audit()[0].detail).replace("'payload'", ""), "no payload where observers look"


def test_no_operation_lets_a_job_live_past_its_deadline(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.freeze()
    deadline = clock.now() + timedelta(hours=1)
    edited, resumed, undone = (client.enqueue("q", "k", ttl=600, deadline=deadline).id for _ in range(3))
    client.edit(edited, delay=1800)
    late = client.enqueue("late", "k", deadline=deadline).id
    for queue in ("q", "late"):
        client.queues.pause(queue)
    done = client.cancel_where({"ids": [undone]})
    assert done.operation is not None
    client.edit(undone, delay=1800)
    assert client.undo(done.operation).done == 1
    clock.move(1900)
    resume = client.queues.resume("q", extend=7200)
    assert (resume.late, resume.extended) == (1, 1)
    assert {job.id for job in client.claim("q", 10)} == {edited, resumed, undone}
    for id in (edited, resumed, undone):
        client.retry({"ids": [id]})
    clock.move(1800)
    resume = client.queues.resume("late", extend=7200)
    assert (resume.late, resume.extended) == (1, 0), "its deadline is over"
    assert client.claim("late") == []
    db.execute("select from dibs.maintain()")
    assert client.status(late).state is State.EXPIRED


def test_a_waiting_job_expires_at_its_deadline_after_every_postponement(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.freeze()
    deadline = clock.now() + timedelta(hours=1)
    id = client.enqueue("q", "k", ttl=600, deadline=deadline).id

    def expire_at() -> Any:
        return one(db, "select expire_at from dibs.ready where id = %s", id)

    client.edit(id, delay=600)
    assert expire_at() == deadline - timedelta(seconds=2400), "the TTL begins when the job is due"
    client.edit(id, delay=3000)
    assert expire_at() == deadline
    done = client.cancel_where({})
    client.edit(id, delay=3300)
    assert done.operation is not None
    client.undo(done.operation)
    assert expire_at() == deadline
    client.cancel(id)
    clock.move(4000)
    client.retry({"ids": [id], "states": ["cancelled"]}, now=True)
    assert expire_at() == clock.now() + timedelta(seconds=600), "a deadline that has passed no longer counts"
    client.edit(id, delay=100)
    assert expire_at() == clock.now() + timedelta(seconds=700)


def test_the_audit_keeps_what_an_edit_replaced(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    id = client.enqueue("q", "k", b"old", content_type="text/plain").id
    client.edit(id, priority=5)
    client.edit(id, payload=1)
    first, second = (row[0] for row in db.execute("select before from dibs.audit where job_id = %s order by id", (id,)))
    assert "payload" not in first, "the payload was not changed"
    assert (second["payload"], second["body"], second["content_type"]) == (None, "b2xk", "text/plain")


def test_the_audit_keeps_the_due_time_that_an_edit_replaced(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    id = client.enqueue("q", "k", max_attempts=2).id
    [job] = client.claim("q")
    client.fail(job, "once", delay=60)
    client.edit(id, delay=5)
    [due_at] = db.execute("select before ->> 'due_at' from dibs.audit where job_id = %s", (id,)).fetchall()
    assert datetime.fromisoformat(due_at[0]) == clock.now() + timedelta(seconds=60)


def test_an_edit_counts_headers_as_part_of_a_large_job(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    id = client.enqueue("q", "k", headers={"h": "x" * 5_000}).id
    client.edit(id, payload="y" * 60_000)
    assert db.execute("select has_large from dibs.queue where name = 'q'").fetchone() == (True,)


def test_edit_refuses_what_makes_no_sense(client: dibs.Client) -> None:
    client.queues.set("q", payload_limit=20)
    id = client.enqueue("q", "k").id
    with pytest.raises(dibs.errors.PayloadTooLarge):
        client.edit(id, payload="x" * 30)
    for wrong in ({}, {"priority": 101}, {"priority": 40_000}, {"priority": None}, {"kind": "x"}, {"delay": -1}):
        with pytest.raises(dibs.InvalidArgument):
            client.edit(id, **wrong)
    with pytest.raises(dibs.UnknownJob):
        client.edit(UUID(int=5), priority=1)
    assert client.audit(limit=1)[0].verb == "set_queue"


def test_edit_keeps_a_job_at_its_place_and_its_group_in_order(client: dibs.Client) -> None:
    client.groups.set("q", concurrency=1)
    ids = [client.enqueue("q", "k", group="g").id for _ in range(3)]
    held = client.claim("q")[0]
    client.fail(held, "boom", delay=0)
    client.edit(ids[0], payload={"new": True})
    client.edit(ids[2], payload={"new": True})
    seen = []
    while jobs := client.claim("q"):
        seen.append(jobs[0].id)
        client.complete(jobs[0])
    assert seen == ids


def test_a_claim_during_an_edit_never_hands_out_the_old_payload(
    client: dibs.Client, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    id = client.enqueue("q", "k", {"a": 1}).id
    editor = connect()
    with editor.transaction():
        editor.execute('select dibs.edit(%s, \'{"payload": {"a": 2}}\')', (id,))
        assert client.claim("q") == []
    assert [job.payload for job in client.claim("q")] == [{"a": 2}]


# drop_queue


def test_a_queue_is_dropped_only_when_it_has_nothing(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.queues.set("q", max_attempts=2)
    client.limits.set(queue="q", concurrency=3)
    client.groups.set("q", "g", weight=2)

    def refused(why: str) -> None:
        with pytest.raises(dibs.errors.QueueInUse, match=why):
            client.queues.drop("q")

    client.enqueue("q", "k", group="g", priority=3)
    refused("jobs that wait")
    [job] = client.claim("q")
    refused("jobs that run")
    client.fail(job, "no", final=True)
    refused("dead jobs")
    client.delete({})
    succeed(client, 1)
    refused("have succeeded and are kept")
    client.delete({"queue": "q"})
    client.schedules.set("nightly", dibs.NewJob(queue="q", kind="k"), interval=3600)
    refused("a schedule")
    client.schedules.drop("nightly")
    assert client.queues.drop("q") is True
    left = db.execute(
        "select relname from pg_class where relnamespace = 'dibs'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition and exists (select from pg_attribute where attrelid = pg_class.oid"
        " and attname = 'queue_id')"
    ).fetchall()
    kept = [t for (t,) in left if one(db, f"select count(*) from dibs.{t} where abs(queue_id) = 1")]
    assert kept in ([], ["attempt"])
    assert client.queues.list() == []
    client.enqueue("q", "k")
    assert client.queues.list()[0].max_attempts == 5
    with pytest.raises(dibs.errors.UnknownQueue):
        client.queues.drop("nowhere")


def test_an_enqueue_in_flight_keeps_its_queue(
    client: dibs.Client, dsn: str, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    client.queues.set("q")
    producer = connect()
    refused: list[BaseException] = []

    def drop() -> None:
        try:
            with dibs.Client(dsn) as other:
                other.queues.drop("q")
        except dibs.DibsError as error:
            refused.append(error)

    with producer.transaction():
        producer.execute("select dibs.enqueue('q', 'k')")
        dropping = threading.Thread(target=drop)
        dropping.start()
        waits = "select count(*) from pg_locks where relation = 'dibs.queue'::regclass and not granted"
        looking = connect()
        wait_until(lambda: bool(one(looking, waits)) or not dropping.is_alive(), what="the drop waits")
    dropping.join()
    assert len(refused) == 1
    assert [job.queue for job in client.claim("q")] == ["q"]


# The audit


def test_every_change_of_an_operator_is_written_down(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "k")
    with dibs.acting_as("ann"):
        client.queues.pause("q")
        client.queues.resume("q")
        client.queues.set("q", priority=3)
        client.queues.set("q", priority=3)
        client.queues.set_strict(False)
        client.groups.set("q", weight=2)
        client.groups.drop("q")
        client.limits.set(queue="q", concurrency=2)
        client.limits.set(queue="q", concurrency=2)
        client.limits.drop(queue="q")
        client.schedules.set("s", dibs.NewJob(queue="q", kind="k"), interval=60)
        client.schedules.pause("s")
        client.schedules.resume("s")
        client.schedules.trigger("s")
        client.schedules.drop("s")
        client.cancel(client.find_jobs().jobs[0].id)
        client.stats.set_retention(hours=864000)
        client.retry({})
        client.cancel_where({"queue": "q"})
    found = client.audit()
    assert [a.verb for a in reversed(found)] == [
        "pause", "resume", "set_queue", "set_strict", "set_group", "drop_group", "set_limit", "drop_limit",
        "set_schedule", "pause_schedule", "resume_schedule", "trigger", "drop_schedule", "cancel",
        "set_stat_retention", "cancel_where",
    ]  # fmt: skip
    assert {a.actor for a in found} == {"ann"}
    assert found[0].filter == {"queue": "q"}
    assert found[0].jobs == 1
    assert {a.role for a in found} == {one(db, "select session_user::text")}
    assert client.audit(limit=2, before=found[1].operation) == found[2:4]


def test_an_edit_without_a_delay_changes_none(client: dibs.Client) -> None:
    made = client.enqueue("q", "k", delay=60)
    due = client.status(made.id).due_at
    assert client._run(calls.operate.edit(made.id, {"delay": None, "priority": 3})) == "changed"
    assert client.status(made.id).due_at == due


def test_what_applications_do_is_written_down_only_for_somebody_who_acts(client: dibs.Client) -> None:
    client.cancel(client.enqueue("q", "k").id)
    assert client.audit() == []


def test_the_steps_of_a_change_are_one_operation(
    db: psycopg.Connection[Any], client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.client.steps.STEP", 2)
    bury(client, 5)
    done = client.delete({"queue": "q"})
    [seen] = client.audit()
    assert (seen.operation, seen.jobs, seen.filter) == (done.operation, 5, {"queue": "q"})
    assert one(db, "select count(*) from dibs.audit") == 3
    with pytest.raises(dibs.InvalidArgument, match="no operation"):
        client._run(calls.operate.purge("q", StepArgs(10, None, done.operation, False)))


@pytest.mark.parametrize(
    "statement",
    ["update dibs.audit set actor = 'bob'", "delete from dibs.audit", "truncate dibs.audit"],
)
def test_nobody_changes_the_audit(
    db: psycopg.Connection[Any], client: dibs.Client, login: Login, statement: str
) -> None:
    client.enqueue("q", "k")
    client.queues.pause("q")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        db.execute(statement)
    admin = login("dibs_admin")
    with psycopg.connect(admin.dsn, autocommit=True) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(statement)
    assert [a.verb for a in client.audit()] == ["pause"]


def test_the_audit_is_kept_for_its_retention_which_only_the_owner_sets(
    db: psycopg.Connection[Any], client: dibs.Client, login: Login, clock: Clock
) -> None:
    client.enqueue("q", "k")
    client.queues.pause("q")
    clock.move(399 * 86400)
    client.queues.resume("q")
    db.execute("select dibs.forget()")
    assert [a.verb for a in client.audit()] == ["resume", "pause"]
    clock.move(2 * 86400)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="never changed"):
        db.execute("delete from dibs.audit")  # one of them is not past it
    assert one(db, "select dibs.forget()") == 1
    assert [a.verb for a in client.audit()] == ["resume"]
    admin = login("dibs_admin", *(f"dibs_{action}" for action in ACTIONS))
    with pytest.raises(dibs.NotPermitted) as refused:
        admin._run(calls.operate.set_audit_retention(timedelta(days=30)))
    assert refused.value.hint == "only the role that dibs belongs to may do that"
    client._run(calls.operate.set_audit_retention(timedelta(days=30)))
    clock.move(29 * 86400)
    assert one(db, "select dibs.forget()") == 1
    assert [a.verb for a in client.audit()] == ["set_audit_retention"]


def test_the_audit_leaves_in_bounded_steps(db: psycopg.Connection[Any], clock: Clock) -> None:
    rows = "select n, now(), 'r', 'v' from generate_series(1, 25000) as n"
    db.execute(f"insert into dibs.audit (operation, at, role, verb) {rows}")
    db.execute("analyze dibs.audit")
    assert one(db, "select dibs.forget()") == 0
    clock.move(401 * 86400)
    assert [one(db, "select dibs.forget()") for _ in range(4)] == [10000, 10000, 5000, 0]


def test_an_actor_is_named_for_the_block_only(client: dibs.Client) -> None:
    client.enqueue("q", "k")
    with dibs.acting_as("a" * 300):
        client.queues.pause("q")
    client.queues.resume("q")
    assert [a.actor for a in client.audit()] == [None, "a" * 200]


def test_many_ids_are_kept_as_their_number(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    ids = bury(client, 1)
    many = json.dumps({"ids": [str(ids[0])] + [str(ids[0])] * 100})
    db.execute("select dibs.delete(%s::jsonb)", (many,))
    assert client.audit()[0].filter == {"ids": 101}


# Who may


VERBS = {
    "delete": "dibs.delete('{}')", "purge": "dibs.purge('q')", "move": "dibs.move('{}', 'q')",
    "retry": "dibs.retry('{}')", "cancel_where": "dibs.cancel_where('{}')", "undo": "dibs.undo(1)",
    "edit": "dibs.edit('00000000-0000-0000-0000-000000000001', '{}')", "drop_queue": "dibs.drop_queue('q')",
    "clone": "dibs.clone('00000000-0000-0000-0000-000000000001')",
}  # fmt: skip


@pytest.mark.parametrize("role", ["dibs_producer", "dibs_worker", "dibs_observer"])
def test_only_administrators_change_jobs_by_hand(client: dibs.Client, login: Login, role: str) -> None:
    client.enqueue("q", "k")
    with psycopg.connect(login(role).dsn, autocommit=True) as conn:
        for verb, call in VERBS.items():
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"function {verb}"):
                conn.execute(f"select {call}")


def test_a_single_verb_can_be_granted_and_stays_within_the_queues(
    db: psycopg.Connection[Any], client: dibs.Client, login: Login
) -> None:
    bury(client, 2)
    bury(client, 1, queue="mine")
    confined = login("dibs_observer", queues=["mine"])
    name = one(db, "select rolname from pg_roles where rolname like 'confined%%' order by 1 desc limit 1")
    for signature in (
        "delete(jsonb, integer, uuid, bigint, boolean)",
        "retry(jsonb, integer, uuid, bigint, double precision, interval, boolean, boolean)",
        "edit(uuid, jsonb)",
        "clone(uuid)",
        "payloads(uuid[])",
    ):
        db.execute(f"grant execute on function dibs.{signature} to {name}")
    assert confined.delete({}, dry_run=True).matched == 1
    with pytest.raises(dibs.NotPermitted, match="may not see payloads"):
        confined.retry({"payload": {"pin": 1}}, dry_run=True)
    with pytest.raises(dibs.NotPermitted, match="may not see payloads"):
        confined.delete({"headers": {"pin": "1"}}, dry_run=True)
    with pytest.raises(dibs.NotPermitted):
        confined.delete({"queue": "q"})
    with pytest.raises(dibs.NotPermitted):
        confined.queues.purge("mine")
    theirs = client.find_jobs({"queue": "q"}).jobs[0].id
    with pytest.raises(dibs.UnknownJob):
        confined.edit(theirs, priority=1)
    with pytest.raises(dibs.UnknownJob):
        confined.clone(theirs)
    assert [told["payload"] for told in confined._run(calls.operate.payloads([theirs]))] == [None]
    assert confined.retry({"ids": [theirs]}).matched == 0
    assert confined.delete({}).done == 1
    assert client.queues.depth("q").failed == 2
    assert [a.verb for a in confined.audit()] == []


# Clones, payloads and relatives


def test_a_clone_has_everything_of_its_original_but_the_key(client: dibs.Client, clock: Clock) -> None:
    made = client.enqueue(
        "q", "k", {"n": 1}, headers={"a": "b"}, priority=8, ttl=60, lease=7, lease_growth=2, lease_cap=30,
        max_attempts=4, backoff=dibs.constant(9), history="all", dedup_key="d", group="g", cost=2, resources={"gpu": 1},
        deadline=client.now() + timedelta(seconds=5),
    ).id  # fmt: skip
    kept = ("queue", "kind", "payload", "headers", "priority", "group", "cost", "resources", "policy", "deadline")
    with dibs.acting_as("ann"):
        clone = client.clone(made)
    first, second = client.show(made), client.show(clone)
    assert first
    assert second
    assert {name: first[name] for name in kept} == {name: second[name] for name in kept}
    [audit] = client.audit(limit=1)
    assert (audit.verb, audit.actor, audit.queue, audit.jobs) == ("clone", "ann", "q", 1)
    assert audit.detail == {"of": str(made), "clone": str(clone)}
    clock.move(10)
    assert (client.show(client.clone(made)) or {})["deadline"] is None
    body = client.enqueue("q", "k", b"\x00", content_type="x/y").id
    assert (client.show(client.clone(body)) or {})["body"] == "AA=="
    with pytest.raises(dibs.UnknownJob):
        client.clone(UUID(int=1))


def test_payloads_come_in_the_order_asked_for_and_not_more_than_fit(
    db: psycopg.Connection[Any], client: dibs.Client, login: Login
) -> None:
    client.queues.set("q", payload_limit=10_000_000)
    ids = [client.enqueue("q", "k", {"t": "x" * 9_000_000}).id for _ in range(3)]
    small = client.enqueue("q", "k", {"n": 1}, headers={"a": "b"}).id
    gone = UUID(int=7)
    told = db.execute("select id, payload is null from dibs.payloads(%s)", ([*ids, small],)).fetchall()
    assert told == [(ids[0], False), (ids[1], False)]
    told = db.execute("select id, payload, headers, body from dibs.payloads(%s)", ([small, gone],)).fetchall()
    assert told == [(small, {"n": 1}, {"a": "b"}, None), (gone, None, None, None)]
    with pytest.raises(dibs.NotPermitted):
        login("dibs_observer")._run(calls.operate.payloads([small]))


def test_a_job_knows_its_schedule_the_job_it_follows_and_what_follows_it(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    client.schedules.set("nightly", dibs.NewJob(queue="q", kind="first"), cron="0 3 * * *")
    client.schedules.trigger("nightly")
    [job] = client.claim("q")
    there = client.enqueue("q", "there", dedup_key="k").id
    after = [dibs.NewJob(queue="q", kind=f"next-{n}", payload={}, delay=0) for n in range(2)]
    client.complete(job, follow_ups=[*after, dibs.NewJob(queue="q", kind="again", dedup_key="k")])
    shown = client.show(job.id)
    assert shown
    assert (shown["schedule"], shown["parent"]) == ("nightly", None)
    # What was there before follows nobody.
    assert [(f["kind"], f["queue"], f["state"]) for f in shown["follow_ups"]] == [
        ("next-0", "q", "ready"), ("next-1", "q", "ready"),
    ]  # fmt: skip
    child = client.show(UUID(shown["follow_ups"][0]["id"]))
    assert child
    assert child["schedule"] is None
    assert child["parent"] == {"id": str(job.id), "kind": "first", "queue": "q", "state": "succeeded"}
    assert (client.show(there) or {})["parent"] is None
    client.upkeep.roll_up()
    assert client.delete({"ids": [job.id]}).done == 1
    assert (client.show(UUID(child["id"])) or {})["parent"] is None
    client.queues.purge("q")
    assert one(db, "select count(*) from dibs.follow_up") == 0


def test_what_followed_is_forgotten_with_the_jobs(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "k")
    client.complete(client.claim("q")[0], follow_ups=[dibs.NewJob(queue="q", kind="next")])
    old = UUID("01000000-0000-7000-8000-000000000000")
    db.execute("insert into dibs.follow_up (id, parent) values (%s, %s)", (old, old))
    client.upkeep.forget()
    assert one(db, "select count(*) from dibs.follow_up") == 1


def test_the_attempts_of_a_job_that_succeeded_are_those_in_its_history(client: dibs.Client) -> None:
    """Each run that was charged: a failure and the success, and not what was snoozed or given back."""
    for history in ("all", "failures", "none"):
        made = client.enqueue("q", "k", history=history)
        client.snooze(client.claim("q")[0], 0)
        client.fail(client.claim("q")[0], "no", delay=0)
        client.release(client.claim("q")[0])
        client.complete(client.claim("q")[0])
        [job] = client.find_jobs({"ids": [made.id]}).jobs
        assert (job.state, job.attempts) == ("succeeded", 2 if history == "all" else None)
        assert (job.expire_at, job.max_attempts) == (None, 5)
