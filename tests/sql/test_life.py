"""The life of a job: retries, failure, expired leases and deadlines, and coming back from `dead`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest

import dibs

if TYPE_CHECKING:
    from dibs.testing import Clock


def fail_until_dead(client: dibs.Client, clock: Clock, queue: str = "q") -> list[float]:
    """Claim and fail a job until it is dead; the delays before each retry."""
    delays: list[float] = []
    while jobs := client.claim(queue):
        failed = client.fail(jobs[0], "boom")
        if failed.due_at is None:
            return delays
        delays.append(round((failed.due_at - jobs[0].claimed_at).total_seconds(), 3))
        clock.move(delays[-1])
    raise AssertionError("nothing to claim")


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (dibs.constant(7), [7, 7, 7, 7]),
        (dibs.progressive([1, 5, 30]), [1, 5, 30, 30]),
        (dibs.exponential(2, factor=3, cap=40, jitter=0), [2, 6, 18, 40]),
    ],
)
def test_retries_wait_by_their_backoff(
    client: dibs.Client, clock: Clock, backoff: dibs.types.Backoff, delays: list[float]
) -> None:
    clock.freeze()
    made = client.enqueue("q", "k", backoff=backoff)
    assert fail_until_dead(client, clock) == delays
    assert client.status(made.id).state is dibs.State.EXHAUSTED


def test_jitter_shortens_and_no_attempt_number_overflows(db: psycopg.Connection[Any]) -> None:
    """A backoff without bound overflows and poisons a whole queue."""
    spread = db.execute(
        "select min(d), max(d) from generate_series(1, 500) as g,"
        " lateral (select dibs._backoff_delay(row('exponential', '{1 second}', 2, '10 min', 0.5), 5 + g * 0) as d) as x"
    ).fetchone()
    assert spread
    assert timedelta(seconds=8) <= spread[0] < timedelta(seconds=9) < timedelta(seconds=15) < spread[1]
    assert spread[1] <= timedelta(seconds=16)
    huge = db.execute(
        "select dibs._backoff_delay(row('exponential', '{1 year}', 100, '1 year', 0), 2147483647),"
        " dibs._backoff_delay(row('exponential', '{1 year}', 100, null, 0), 10000),"
        " dibs._lease_length('7 days', 100, '7 days', 32767)"
    ).fetchone()
    assert huge
    assert all(timedelta(0) < d <= timedelta(days=366) for d in huge)


def test_a_final_failure_is_dead_at_once(client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    failed = client.fail(client.claim("q")[0], "ValueError: never", final=True)
    assert (failed.state, failed.due_at) == ("failed", None)
    assert "ValueError: never" in client.why(made.id)


def test_the_caller_may_choose_the_delay(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue("q", "k")
    [job] = client.claim("q")
    failed = client.fail(job, "busy", delay=120)
    assert failed.due_at == job.claimed_at + timedelta(seconds=120)
    clock.move(121)
    [job] = client.claim("q")
    with pytest.raises(dibs.InvalidArgument, match="0 to 1 year"):
        client.fail(job, "busy", delay=timedelta(days=400))
    with pytest.raises(dibs.InvalidArgument, match="0 to 1 year"):
        client.snooze(job, -1)
    assert client.extend(job) == "ok"


def test_a_delay_may_be_a_year_of_365_days(client: dibs.Client) -> None:
    """PostgreSQL compares a year as 360 days."""
    year = timedelta(days=365)
    client.enqueue("q", "k", backoff=dibs.constant(year))
    [job] = client.claim("q")
    with pytest.raises(dibs.InvalidArgument, match="0 to 1 year"):
        client.snooze(job, timedelta(days=366))
    assert client.snooze(job, year) == "ok"


def test_snooze_and_release_charge_nothing(client: dibs.Client, clock: Clock) -> None:
    client.enqueue("q", "k", max_attempts=1)
    for _ in range(3):
        [job] = client.claim("q", wait=5)
        assert job.attempt == 1
        client.snooze(job, 1)
        clock.move(2)
        [job] = client.claim("q", wait=5)
        assert job.attempt == 1
        client.release(job)
    [job] = client.claim("q", wait=5)
    assert (job.run, job.attempt, job.is_last_attempt) == (7, 1, True)


def test_a_lost_lease_is_charged_counted_apart_and_quarantined(client: dibs.Client, clock: Clock) -> None:
    client.queues.set("q", max_losses=3)
    made = client.enqueue("q", "kills-its-worker", max_attempts=10)
    for attempt in range(1, 4):
        [job] = client.claim("q", wait=5)
        assert (job.attempt, job.losses) == (attempt, attempt - 1)
        clock.move(31)
        [rescued] = client.upkeep.rescue()
        assert rescued.id == made.id
    assert rescued.state is dibs.State.EXHAUSTED
    shown = client.show(made.id)
    assert shown
    assert [a["outcome"] for a in shown["attempts"]] == ["lost"] * 3
    assert shown["reason"].endswith("(3 times)")
    client.retry({"ids": [made.id]})
    [job] = client.claim("q", wait=5)
    assert (job.attempt, job.losses) == (1, 0)


def test_expiry_counts_from_when_it_is_due(client: dibs.Client, clock: Clock) -> None:
    """Nothing is stranded, and waiting for its time does not use its time up."""
    clock.freeze()
    late = client.enqueue("q", "k", delay=7200, ttl=3600)
    now = client.enqueue("q", "k", ttl=3600)
    dated = client.enqueue("q", "k", deadline=datetime.now(UTC) + timedelta(minutes=10))
    default = client.enqueue("q", "k")
    never = client.enqueue("q", "k", ttl=timedelta(days=9999))
    clock.move(3601)
    assert client.upkeep.expire() == 2
    assert [s.state for s in client.status_many([late.id, now.id, dated.id, default.id])] == [
        "scheduled",
        "expired",
        "expired",
        "ready",
    ]
    clock.move(3600)
    assert client.status(late.id).state is dibs.State.READY
    clock.move(86400)
    assert client.upkeep.expire() == 2
    assert client.queues.depth("q").expired == 4
    clock.move(300 * 86400)
    assert client.upkeep.expire() == 0
    assert client.status(never.id).state is dibs.State.READY
    assert "expired" in client.why(default.id)


def test_retries_and_snoozes_do_not_extend_the_ttl_but_to_be_brought_back_does(
    client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    made = client.enqueue("q", "k", ttl=100, backoff=dibs.constant(10))
    client.fail(client.claim("q")[0])
    clock.move(11)
    client.snooze(client.claim("q")[0], 80)
    clock.move(90)
    assert client.upkeep.expire() == 1
    assert client.retry({"ids": [made.id]}).done == 1
    clock.move(99)
    assert client.upkeep.expire() == 0
    [job] = client.claim("q")
    assert (job.attempt, job.run) == (1, 3)


def test_a_running_job_does_not_expire(client: dibs.Client, clock: Clock) -> None:
    client.enqueue("q", "k", ttl=10)
    [job] = client.claim("q", lease=600)
    clock.move(60)
    assert client.upkeep.expire() == 0
    assert client.complete(job) == "ok"


def test_a_paused_queue_expires_nothing_and_resume_can_extend(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue_many(dibs.NewJob(queue="q", ttl=60) for _ in range(5))
    client.queues.pause("q")
    clock.move(3600)
    assert client.upkeep.expire() == 0
    resumed = client.queues.resume("q", extend=120)
    assert (resumed.late, resumed.extended) == (5, 5)
    assert client.upkeep.expire() == 0
    assert len(client.claim("q", 10)) == 5
    client.enqueue("q", "k", ttl=60)
    client.queues.pause("q")
    clock.move(61)
    assert client.queues.resume("q").late == 1
    assert client.upkeep.expire() == 1


def test_expire_walks_in_chunks(db: psycopg.Connection[Any], client: dibs.Client, clock: Clock) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", ttl=60 if n % 2 else 600) for n in range(100))
    clock.move(61)
    expired, steps, after = 0, 0, "00000000-0000-0000-0000-000000000000"
    while after is not None:
        row = db.execute("select expired, next from dibs.expire(30, %s)", (after,)).fetchone()
        assert row
        expired, steps, after = expired + row[0], steps + 1, row[1]
    assert (expired, steps) == (50, 4)


def test_terminal_is_terminal(client: dibs.Client, clock: Clock) -> None:
    """A cancel is a request the holder sees; whatever it then reports, the ticket ends once."""
    made = client.enqueue("q", "k")
    [job] = client.claim("q")
    assert client.cancel(made.id) == "requested"
    assert client.extend(job) == "cancel"
    assert client.fail(job, "stopped").state == "cancelled"
    with pytest.raises(dibs.LeaseLost):
        client.complete(job)
    with pytest.raises(dibs.JobEnded, match="cancelled"):
        client.cancel(made.id)
    clock.move(3600)
    assert client.claim("q") == []
    assert client.upkeep.rescue() == []


def test_a_cancelled_job_whose_worker_dies_ends_as_cancelled(client: dibs.Client, clock: Clock) -> None:
    made = client.enqueue("q", "k")
    client.claim("q")
    client.cancel(made.id)
    clock.move(31)
    assert client.upkeep.rescue() == [dibs.types.Rescued(made.id, dibs.State.CANCELLED)]


def test_cancel_says_what_it_found(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    waiting, running, done = (client.enqueue("q", "k", priority=p).id for p in (1, 9, 10))
    client.complete(client.claim("q")[0])
    client.claim("q")
    unknown = client.enqueue("q", "k", conn=None).id
    db.execute("delete from dibs.ready where id = %s", (unknown,))
    db.execute("delete from dibs.job where id = %s", (unknown,))
    answers = client.cancel_many([waiting, running, done, unknown])
    assert [a.answer for a in answers] == ["cancelled", "requested", "ended", "unknown"]
    with pytest.raises(dibs.UnknownJob):
        client.cancel(unknown)


def test_a_retry_goes_on_past_a_conflict_and_spreads(client: dibs.Client, clock: Clock) -> None:
    """One conflict fails one job only; revived jobs get a full life, and not all at once."""
    clock.freeze()
    dead = [client.enqueue("q", "k", dedup_key=f"key-{n}") for n in range(5)]
    for job in client.claim("q", 5):
        client.fail(job, f"Error {job.id}", final=True)
    client.enqueue("q", "k", dedup_key="key-2")
    assert client.retry({"queue": "q"}, dry_run=True).matched == 5
    assert client.queues.depth("q").dead == 5
    done = client.retry({"queue": "q"}, rate=2)
    assert (done.matched, done.done) == (5, 4)
    assert done.refused == (dibs.types.StillDead(dead[2].id, dibs.Answer.DUPLICATE),)
    assert client.status(dead[2].id).state is dibs.State.FAILED
    jobs = {j.id: j for j in client.find_jobs({"queue": "q"}).jobs}
    first = jobs[dead[0].id].due_at
    assert [(jobs[dead[n].id].due_at - first).total_seconds() for n in (0, 1, 3, 4)] == [0, 0.5, 1.5, 2]


def test_what_a_retry_chooses(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    start = datetime.now(UTC)
    for kind, error in (("mail", "Timeout: 1"), ("mail", "Refused: 2"), ("sms", "Timeout: 3")):
        client.enqueue("q", kind)
        client.fail(client.claim("q")[0], error, final=True)
        clock.move(60)
    expired = client.enqueue("q", "sms", ttl=1)
    clock.move(60)
    client.upkeep.expire()

    def found(filter: dibs.types.JobFilter, most: int | None = None) -> int:
        return client.retry(filter, max=most, dry_run=True).matched

    assert found({"kind": "mail"}) == 2
    assert found({"reason": "Timeout:%"}) == 2
    assert found({"states": ["expired"]}) == 1
    assert found({"ended_after": start + timedelta(seconds=30)}) == 3
    assert found({"ended_before": start + timedelta(seconds=30)}) == 1
    assert found({}, 2) == 2
    assert found({"ids": [expired.id]}) == 1
    with pytest.raises(dibs.InvalidArgument, match="did you mean 'expired'"):
        found({"states": ["expird"]})
    with pytest.raises(dibs.InvalidArgument, match="retry takes no job that is 'ready'"):
        found({"states": ["ready"]})
    with pytest.raises(dibs.errors.UnknownQueue, match="did you mean 'q'"):
        found({"queue": "Q"})


def test_a_retry_leaves_cancelled_jobs_alone_and_keeps_due_times_ahead(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    christmas = datetime.now(UTC) + timedelta(days=40)
    failed, cancelled = client.enqueue("q", "k"), client.enqueue("q", "k", due_at=christmas)
    client.fail(client.claim("q")[0], "no", final=True)
    client.cancel(cancelled.id, "ordered twice")
    filters: list[dibs.types.JobFilter] = [
        {"queue": "q"}, {"kind": "k"}, {}, {"reason": "%"}, {"queue": "q", "states": ["cancelled"]},
    ]  # fmt: skip
    assert [client.retry(filter, dry_run=True).matched for filter in filters] == [1] * 5
    for null in ('{"ids": null}', '{"states": null, "queue": "q"}'):
        assert db.execute("select matched from dibs.retry(%s, dry_run => true)", (null,)).fetchall() == [(1,)]
    assert client.retry({"queue": "q"}, delay=60).done == 1
    assert client.status(cancelled.id).state is dibs.State.CANCELLED
    assert client.retry({"queue": "q", "states": ["cancelled"]}, delay=60).done == 1
    due = {job.id: job.due_at for job in client.find_jobs({"queue": "q"}).jobs}
    assert due[cancelled.id] == christmas
    assert timedelta(0) < due[failed.id] - datetime.now(UTC) <= timedelta(seconds=60)
    clock.move(timedelta(days=40, seconds=1))
    assert cancelled.id in {job.id for job in client.claim("q", 10)}, "its TTL counts from when it is due"


def test_history_keeps_what_the_policy_says(client: dibs.Client) -> None:
    """Keep everything, failures, or nothing; for queues and for single jobs."""
    for history, kept in (("all", ["failed", "succeeded"]), ("failures", ["failed"]), ("none", [])):
        client.queues.set(history, history=history, backoff=dibs.constant(0))  # type: ignore[arg-type]
        by_queue = client.enqueue(history, "k")
        by_job = client.enqueue("other", "k", history=history, backoff=dibs.constant(0))  # type: ignore[arg-type]
        for queue, made in ((history, by_queue), ("other", by_job)):
            client.fail(client.claim(queue)[0], "once")
            [job] = client.claim(queue)
            assert client.complete(job) == "ok"
            shown = client.show(made.id)
            assert shown
            assert [a["outcome"] for a in shown["attempts"]] == kept
            assert shown["state"] == "succeeded"
            if history == "all":
                assert client.complete(job) == "already"
            else:
                with pytest.raises(dibs.LeaseLost):
                    client.complete(job)


def test_history_of_a_batch_is_that_of_each_job(client: dibs.Client) -> None:
    for name in ("all", "failures", "none"):
        client.queues.set(name, history=name)
    own: list[Any] = [None, "all", "none"]
    ids = {(q, h): client.enqueue(q, "k", history=h).id for q in ("all", "failures", "none") for h in own}
    held = client.claim(["all", "failures", "none"], 20)
    client.queues.set("failures", history="all")
    assert {done.answer for done in client.complete_many(held)} == {"ok"}
    kept = {asked for asked, id in ids.items() if (client.show(id) or {})["attempts"]}
    assert kept == {("all", None), ("all", "all"), ("failures", None), ("failures", "all"), ("none", "all")}


def test_a_success_takes_no_room_in_the_history_and_everyone_reads_it_as_one(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", backoff=dibs.constant(0))
    client.enqueue_many([dibs.NewJob(queue="q", kind="k")] * 3)
    clock.move(600)
    jobs = client.claim("q", 3)
    client.fail(jobs[0], "no")
    [again] = client.claim("q")
    clock.move(2)
    ended = clock.now()
    client.complete(again, "one")
    client.complete_many(jobs[1:], ["two", "three"])
    clock.move(1)
    assert db.execute("select outcome from dibs.attempt where id = %s order by run", (again.id,)).fetchall() == [
        ("failed",), (None,)]  # fmt: skip
    assert db.execute("select count(*) from dibs.attempt where outcome is null").fetchall() == [(3,)]
    outcomes = db.execute("select outcome::text, count(*) from dibs.attempts group by 1 order by 1").fetchall()
    assert outcomes == [("failed", 1), ("succeeded", 3)]
    shown = client.show(again.id)
    assert shown
    assert [a["outcome"] for a in shown["attempts"]] == ["failed", "succeeded"]
    assert [client.status(job.id).result for job in (again, *jobs[1:])] == ["one", "two", "three"]
    assert (client.complete(again), client.fail(jobs[0], "no").answer) == ("already", "already")
    with pytest.raises(dibs.LeaseLost):
        client.snooze(again, 1)
    assert len(client.find_jobs({"states": ["succeeded"], "ended_after": ended}).jobs) == 3
    assert client.find_jobs({"states": ["succeeded"], "ended_before": ended}).jobs == []
    leaving = client.queues.drain_estimate("q", 300).leaving
    assert (leaving, client.upkeep.roll_up()) == (3 / 300, 4)
    [told] = client.stats.statistics()
    assert (told.succeeded, told.failed, told.runs, told.run_max) == (3, 1, 4, timedelta(seconds=2))
    assert [group.failures for group in client.failures.list()] == [1]


def test_follow_ups_are_enqueued_with_the_completion_or_not_at_all(client: dibs.Client) -> None:
    client.enqueue("q", "first")
    [job] = client.claim("q")
    client.complete(
        job, "done", follow_ups=[dibs.NewJob(queue="next", payload=1), dibs.NewJob(queue="next", payload=2)]
    )
    assert [j.payload for j in client.claim("next", 10)] == [1, 2]
    with pytest.raises(dibs.LeaseLost):
        client.complete(msgspec.structs.replace(job, _token=job._key), follow_ups=[dibs.NewJob(queue="next")])
    assert client.queues.depth("next").ready == 0


def test_a_completion_in_the_handlers_transaction_is_all_or_nothing(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    db.execute("create table effect (n integer)")
    client.enqueue("q", "k")
    [job] = client.claim("q")
    with db.transaction(force_rollback=True):
        db.execute("insert into effect values (1)")
        assert client.complete(job, conn=db) == "ok"
    assert client.status(job.id).state is dibs.State.RUNNING
    with db.transaction():
        db.execute("insert into effect values (2)")
        assert client.complete(job, conn=db) == "ok"
    assert db.execute("select n from effect").fetchall() == [(2,)]
    assert client.status(job.id).state is dibs.State.SUCCEEDED


def test_progress_is_kept_with_the_lease(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    client.extend(job, progress={"done": 3})
    client.extend(job)
    assert db.execute("select progress from dibs.jobs").fetchone() == ({"done": 3},)


def test_why_explains_every_state(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    clock.freeze()
    worker = db.execute("select worker from dibs.register_worker('w1')").fetchone()
    assert worker
    ready = client.enqueue("q", "k", priority=1)
    assert "nothing is ahead of it" in client.why(ready.id)
    expires = f"Unless it starts before, it expires at {client.now() + timedelta(days=1):%Y-%m-%d %H:%M:%SZ}."
    assert expires in client.why(ready.id)
    assert "expires" not in client.why(client.enqueue("other", "k", ttl=dibs.policy.FOREVER).id)
    client.enqueue("q", "k", priority=2)
    assert "1 jobs are ahead of it" in client.why(ready.id)
    client.queues.pause("q")
    assert "paused since" in client.why(ready.id)
    assert "expires" not in client.why(ready.id), "nothing expires in a paused queue"
    client.queues.resume("q")
    [job] = client.claim("q", worker=worker[0])
    assert "Worker 1 (w1" in client.why(job.id)
    assert "attempt 1 of 5" in client.why(job.id)
    clock.move(31)
    assert "waits to be rescued" in client.why(job.id)
    client.fail(job, "boom\ntraceback")
    assert "for attempt 2 of 5. The last attempt failed: boom. Unless it starts before" in client.why(job.id)
    clock.move(90000)
    assert "about to be expired" in client.why(ready.id)
    client.upkeep.expire()
    assert "ended as expired" in client.why(ready.id)
    assert client.why(job.id).startswith("It ended as expired")
    client.limits.set(kind="k", concurrency=0)
    client.retry({"ids": [ready.id]})
    assert client.claim("q") == []
    assert client.status(ready.id).state is dibs.State.BLOCKED
    assert "waits for 1 of the limit of kind k, which is 0; nobody holds it" in client.why(ready.id)
    assert client.queues.depth("q").blocked == 1
    assert client.cancel(ready.id) == "cancelled"


def test_times_without_a_zone_are_refused(client: dibs.Client, clock: Clock) -> None:
    """In a session they would mean its zone, in Python ours."""
    naive = datetime(2030, 1, 1)
    for use in (
        lambda: client.enqueue("q", "k", due_at=naive),
        lambda: client.enqueue("q", "k", deadline=naive),
        lambda: client.enqueue_many([dibs.NewJob(queue="q", due_at="2030-01-01")]),  # type: ignore[arg-type]
        lambda: client.retry({"ended_after": naive}, dry_run=True),
        lambda: client.retry({"ended_before": naive}, dry_run=True),
        lambda: clock.freeze(naive),
    ):
        with pytest.raises(dibs.InvalidArgument, match=r"has no time zone|is a datetime"):
            use()
    assert client.find_jobs().jobs == []


def test_an_error_may_say_anything(client: dibs.Client) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    assert client.fail(job, "nul \x00 and half a pair \ud800", final=True).state == "failed"
    assert "nul \ufffd and half a pair ?" in client.why(job.id)


def test_one_payload_that_cannot_be_read_spoils_no_other(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    """One poison job must not fail its batch, in the client either."""
    client.enqueue("q", "fine", {"n": 1})
    db.execute("select dibs.enqueue('q', 'deep', (repeat('[', 5000) || repeat(']', 5000))::jsonb)")
    client.enqueue("q", "fine", {"n": 2})
    first, deep, last = client.claim("q", 10)
    assert (first.payload, last.payload) == ({"n": 1}, {"n": 2})
    with pytest.raises(dibs.InvalidArgument, match="cannot be read"):
        _ = deep.payload
    assert client.fail(deep, "unreadable", final=True).state == "failed"


@pytest.mark.parametrize("deadline", ["infinity", "30000-01-01"])
def test_a_deadline_without_end_is_refused(shared_db: psycopg.Connection[Any], deadline: str) -> None:
    with pytest.raises(psycopg.DatabaseError, match="too far away") as raised:
        shared_db.execute("select dibs.enqueue('q', 'k', deadline => %s)", (deadline,))
    assert raised.value.sqlstate == "DI010"


@pytest.mark.parametrize("rate", [1e-9, 0, -1, float("nan")])
def test_a_rate_that_makes_no_sense_is_refused(client: dibs.Client, rate: float) -> None:
    with pytest.raises(dibs.InvalidArgument, match="makes no sense") as refused:
        client.retry({}, rate=rate)
    assert "within a year" in str(refused.value.hint)


def test_what_is_null_in_a_retry_is_as_if_it_were_not_given(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    """Nothing comes back due in the past, where no claim looks any more."""
    clock.freeze()
    client.enqueue("q", "k", delay=1)
    client.cancel(client.find_jobs().jobs[0].id)
    clock.move(3600)
    filter = '{"ids": null, "states": ["cancelled"]}'
    statement = "select done from dibs.retry(%s, rate => null, delay => null, now => null)"
    assert db.execute(statement, (filter,)).fetchone() == (1,)
    assert client.find_jobs().jobs[0].due_at == clock.now()
