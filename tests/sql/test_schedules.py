"""Schedules as SQL decides them: slots, overlap, catch-up, pauses and health, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import dibs

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.testing import Clock

START = datetime(2030, 1, 1, tzinfo=UTC)
JOB = {"queue": "q", "kind": "k"}
FAILING = {**JOB, "max_attempts": 1}


@dataclass
class Life:
    """A database at a known time, and the few things these tests do with it."""

    db: psycopg.Connection[Any]
    client: dibs.Client
    clock: Clock

    def set(self, rule: dict[str, Any], job: dict[str, Any] | None = None, name: str = "s") -> str:
        row = self.db.execute("select dibs.set_schedule(%s, %s, %s)", (name, Jsonb(rule), Jsonb(job or JOB))).fetchone()
        assert row
        return str(row[0])

    def tick(self, move: float = 0) -> int:
        """Let time pass, then run a round; how many jobs it made."""
        self.clock.move(move)
        row = self.db.execute("select fired, troubled from dibs.run_schedules()").fetchone()
        assert row
        assert row[1] == 0
        return int(row[0])

    def look(self, columns: str, name: str = "s") -> Any:
        row = self.db.execute(f"select {columns} from dibs.schedules where name = %s", (name,)).fetchone()
        assert row
        return row[0] if len(row) == 1 else row

    def slots(self, name: str = "s") -> list[int]:
        """The slots that have their job, as seconds from the start."""
        rows = self.db.execute("select slot from dibs.schedule_runs where schedule = %s order by slot", (name,))
        return [int((row[0] - START).total_seconds()) for row in rows]

    def work(self, *, fail: str | None = None, took: float = 0) -> int:
        """Claim what is due, take that long, and end it."""
        jobs = self.client.claim("q", 100)
        self.clock.move(took)
        for job in jobs:
            if fail is None:
                self.client.complete(job)
            else:
                self.client.fail(job, fail)
        return len(jobs)


@pytest.fixture
def life(db: psycopg.Connection[Any], client: dibs.Client, clock: Clock) -> Life:
    clock.freeze(START)
    return Life(db, client, clock)


def test_an_interval_counts_from_when_it_was_fired(life: Life) -> None:
    life.set({"interval": 60, "overlap": "allow"})
    assert life.tick(59) == 0
    assert life.tick(11) == 1  # 10 s late, and so is everything after
    assert life.tick(59) == 0
    assert life.tick(1) == 1
    assert life.slots() == [60, 130]
    assert life.look("next_scheduled") == START + timedelta(seconds=190)


def test_a_fixed_rate_keeps_its_beat(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "allow"})
    assert life.tick(70) == 1
    assert life.tick(49) == 0
    assert life.tick(1) == 1
    assert life.slots() == [60, 120]


def test_a_fixed_delay_counts_from_the_end_of_the_run(life: Life) -> None:
    life.set({"fixed_delay": 60})
    assert life.tick(60) == 1
    assert life.look("next_scheduled") is None
    assert life.work(took=25) == 1  # ends at 85
    assert life.tick(10) == 0
    assert life.look("next_scheduled") == START + timedelta(seconds=145)
    assert life.tick(49) == 0
    assert life.tick(1) == 1
    assert life.slots() == [60, 145]
    life.work(fail="no", took=5)  # a retry is still the same run
    assert life.tick(1) == 0
    assert life.look("next_scheduled") is None


def test_a_fixed_delay_goes_on_after_a_run_that_died(life: Life) -> None:
    life.set({"fixed_delay": 60}, FAILING)
    life.tick(60)
    life.work(fail="no")
    life.tick(1)
    assert life.look("next_scheduled") == START + timedelta(seconds=120)


def test_once_is_once(life: Life) -> None:
    life.set({"once": "2030-01-01T00:10Z"})
    assert life.tick(599) == 0
    assert life.tick(1) == 1
    assert life.tick(3600) == 0
    assert life.look("status, next_scheduled, fired") == ("ended", None, 1)


def test_start_and_end_bound_the_slots(life: Life) -> None:
    life.set({"fixed_rate": 60, "start_at": "2030-01-01T00:05Z", "end_at": "2030-01-01T00:07Z", "overlap": "allow"})
    for _ in range(20):
        life.tick(30)
    assert life.slots() == [300, 360, 420]
    assert life.look("status") == "ended"
    life.set({"end_at": None})
    assert life.look("status") == "healthy"


def test_a_job_carries_its_slot_and_may_be_jittered(life: Life) -> None:
    life.set({"fixed_rate": 100, "jitter": 50, "overlap": "allow"}, {**JOB, "payload": {"x": 1}, "headers": {"a": "b"}})
    for _ in range(20):
        life.tick(100)
    rows = life.db.execute(
        "select j.due_at - r.slot, j.headers, j.payload from dibs.job j join dibs.schedule_run r using (id)"
    )
    found = rows.fetchall()
    offsets = {row[0].total_seconds() for row in found}
    assert len(offsets) == 20
    assert all(0 <= offset < 50 for offset in offsets)
    assert found[0][1] == {"a": "b", "dibs-schedule": "s", "dibs-slot": "2030-01-01 00:01:40Z"}
    assert found[0][2] == {"x": 1}


# --- overlap ----------------------------------------------------------------------------------------------------------


def test_skip_makes_no_job_while_one_goes_on(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "skip"})
    assert [life.tick(60) for _ in range(3)] == [1, 0, 0]
    assert life.look("skipped, open_runs") == (2, 1)
    life.work()
    assert life.tick(60) == 1
    assert life.slots() == [60, 240]


def test_queue_holds_one_back_until_the_run_has_ended(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "queue"})
    assert [life.tick(60) for _ in range(3)] == [1, 0, 0]
    assert life.look("held, skipped") == ([START + timedelta(seconds=120)], 1)
    life.work()
    assert life.tick(1) == 1
    assert life.tick() == 0
    assert life.slots() == [60, 120]
    life.work()
    assert life.tick(1) == 0


def test_allow_lets_them_run_together(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "allow"})
    assert [life.tick(60) for _ in range(3)] == [1, 1, 1]
    assert life.look("open_runs") == 3


def test_cancel_ends_the_run_before(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "cancel"})
    assert [life.tick(60) for _ in range(2)] == [1, 1]  # the first one waited, and is gone at once
    (second,) = life.client.claim("q")
    assert life.tick(60) == 0  # it runs: its holder is asked to stop, and the next one waits for that
    assert life.client.extend(second) == "cancel"
    assert life.tick(60) == 0
    assert life.look("held") == [START + timedelta(seconds=240)]
    life.client.fail(second, "stopped", final=True)
    assert life.tick(1) == 1
    assert life.slots() == [60, 120, 240]
    assert life.look("failed_runs, status") == (0, "healthy")


# --- catch-up ---------------------------------------------------------------------------------------------------------

OUTAGE = 3 * 86400


@pytest.mark.parametrize(("catch_up", "made"), [("none", 0), ("last", 1), (5, 5), (1000, 71)])
@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_catch_up_is_bounded_after_three_days(life: Life, catch_up: Any, made: int, overlap: str) -> None:
    life.set({"fixed_rate": 3600, "overlap": overlap, "catch_up": catch_up})
    fired = life.tick(OUTAGE - 100)  # 71 slots are gone, none of them in time
    for _ in range(made + 3 if overlap == "skip" else 0):  # one after the other, and then no more
        life.work()
        fired += life.tick()
    assert fired == made
    assert life.slots() == [3600 * n for n in range(72 - made, 72)]
    assert life.look("missed") == 71 - made
    assert life.look("next_scheduled") == START + timedelta(seconds=OUTAGE)
    assert life.tick(100) == 1


def test_a_slot_within_its_grace_is_in_time(life: Life) -> None:
    life.set({"fixed_rate": 60, "catch_up": "none", "grace": 150, "overlap": "allow"})
    assert life.tick(300) == 3  # 180, 240, 300
    assert life.look("missed") == 2


# --- pausing and triggering -------------------------------------------------------------------------------------------


def test_the_slots_of_a_pause_are_gone(life: Life) -> None:
    life.set({"fixed_rate": 60, "catch_up": 100, "overlap": "allow"})
    assert life.client.schedules.pause("s", "holidays") is True
    assert life.client.schedules.pause("s") is False
    assert life.look("status, pause_reason, next_attempt") == ("paused", "holidays", None)
    assert life.tick(600) == 0
    assert life.client.schedules.resume("s") is True
    assert life.client.schedules.resume("s") is False
    assert life.tick(30) == 0
    assert life.tick(30) == 1
    assert life.slots() == [660]


def test_a_trigger_makes_a_job_and_leaves_the_slots_alone(life: Life) -> None:
    life.set({"fixed_rate": 60})
    life.client.schedules.pause("s")
    made = life.client.schedules.trigger("s")
    assert made.answer is dibs.Answer.TRIGGERED
    assert made.job_id
    assert life.client.status(made.job_id).state is dibs.State.READY
    assert life.client.schedules.trigger("s").answer == "skipped"
    assert life.client.schedules.trigger("s", force=True).answer == "triggered"
    assert life.look("next_scheduled, fired, last_slot") == (START + timedelta(seconds=60), 2, None)
    life.client.schedules.resume("s")
    life.work()
    assert life.tick(60) == 1


def test_preview_tells_the_next_slots(life: Life) -> None:
    life.set({"fixed_rate": 60, "end_at": "2030-01-01T00:03Z"})
    rows = life.db.execute("select dibs.preview_schedule('s', 2)").fetchall()
    assert [row[0] for row in rows] == [START + timedelta(seconds=n) for n in (60, 120)]
    assert len(life.db.execute("select dibs.preview_schedule('s', 10)").fetchall()) == 3


# --- failures and health ----------------------------------------------------------------------------------------------


def test_a_failure_moves_the_next_attempt_and_not_the_next_slot(life: Life) -> None:
    life.set({"fixed_rate": 3600, "on_failure": "retry"}, {**JOB, "backoff": {"kind": "constant", "delays": [600]}})
    life.tick(3600)
    slot = START + timedelta(hours=2)
    assert life.look("next_scheduled, next_attempt") == (slot, slot)
    life.work(fail="the disk is full\nfull trace", took=10)
    life.tick(1)
    retry = START + timedelta(seconds=3600 + 10 + 600)
    assert life.look("next_scheduled, next_attempt") == (slot, retry)
    assert life.look("status, status_message, failed_attempts, failed_runs") == ("failing", "the disk is full", 1, 0)
    life.clock.move(610)
    life.work(took=30)
    life.tick(1)
    assert life.look("next_scheduled, next_attempt") == (slot, slot)
    assert life.look("status, status_message, failed_attempts, failed_runs") == ("healthy", None, 0, 0)
    assert life.look("last_success") == life.look("last_attempt") + timedelta(seconds=30)


def test_or_a_failed_slot_waits_for_the_next(life: Life) -> None:
    life.set({"fixed_rate": 60, "on_failure": "next"}, {**JOB, "max_attempts": 10})
    life.tick(60)
    life.work(fail="no")
    life.tick(1)
    assert life.look("open_runs, failed_attempts, failed_runs, next_attempt") == (
        0,
        1,
        1,
        START + timedelta(seconds=120),
    )
    assert life.tick(59) == 1


def test_a_schedule_pauses_after_failures_in_a_row(life: Life) -> None:
    life.set({"fixed_rate": 60, "pause_after": 3}, FAILING)
    for fail in ("no", "no", None, "no", "no"):
        assert life.tick(60) == 1
        life.work(fail=fail)
        assert life.tick() == 0
        assert life.look("status") != "paused"
    assert life.tick(60) == 1
    life.work(fail="no")
    life.tick()
    assert life.look("status, pause_reason, failed_runs") == ("paused", "3 runs in a row have failed", 3)
    assert life.tick(600) == 0
    life.client.schedules.resume("s")
    assert life.tick(60) == 1
    life.work(fail="no")
    life.tick()
    assert life.look("status, failed_runs") == ("failing", 1)


def test_runs_count_in_the_order_in_which_they_ended(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "allow"}, FAILING)
    assert life.tick(60) + life.tick(60) == 2
    [first, second] = life.client.claim("q", 2)
    life.client.fail(first, "no")
    life.clock.move(1)
    life.client.complete(second)
    life.tick()
    assert life.look("status, failed_runs, status_message, succeeded") == ("healthy", 0, None, 1)


def test_durations_are_kept(life: Life) -> None:
    life.set({"fixed_rate": 86400})
    for took in (10, 20, 60):
        life.tick(86400 - (life.look("fired") and 0))
        life.work(took=took)
        life.clock.move(-took)
    life.tick(100)
    seconds = life.look("last_duration, average_duration, total_duration, average_hour, average_week, succeeded")
    assert [s.total_seconds() for s in seconds[:5]] == [60, 30, 90, 60, 30]
    assert seconds[5] == 3


def test_a_run_whose_worker_vanishes_and_one_that_expires_are_failures(life: Life) -> None:
    life.set({"fixed_rate": 3600, "overlap": "skip"}, {**JOB, "ttl": 60, "max_attempts": 2})
    life.tick(3600)
    assert len(life.client.claim("q", lease=10)) == 1
    life.clock.move(20)
    assert life.client.upkeep.rescue() != []
    life.tick()
    assert life.look("failed_attempts, failed_runs") == (1, 0)
    life.clock.move(60)
    assert life.client.upkeep.expire() == 1
    life.tick()
    assert life.look("failed_attempts, failed_runs, open_runs") == (1, 1, 0)
    assert "expired" in life.look("status_message")


def test_a_refused_job_stays_awaited_and_stops_nobody_else(life: Life) -> None:
    life.set({"fixed_rate": 60}, {**JOB, "queue": "small", "payload": "x" * 100}, name="bad")
    life.set({"fixed_rate": 60}, name="good")
    life.client.queues.set("small", payload_limit=10)
    life.clock.move(60)
    row = life.db.execute("select fired, troubled from dibs.run_schedules()").fetchone()
    assert row == (1, 1)
    assert life.slots("good") == [60]
    assert life.look("next_scheduled, next_attempt", "bad") == (
        START + timedelta(seconds=60),
        START + timedelta(seconds=70),
    )
    assert "the payload of job 1 has" in life.look("status_message", "bad")
    life.client.queues.set("small", payload_limit=1000)
    assert life.tick(10) == 1
    assert life.slots("bad") == [60]


# --- cron, as SQL sees it ---------------------------------------------------------------------------------------------


def fire(life: Life, revision: int, slots: list[datetime], upcoming: list[datetime]) -> Any:
    return life.db.execute(
        "select answer, fired from dibs.fire('s', %s, %s, %s)", (revision, slots, upcoming)
    ).fetchone()


def test_no_worker_postpones_a_schedule_for_good(life: Life) -> None:
    life.set({"cron": "* * * * *"})
    life.db.execute("select from dibs.run_schedules()")
    for upcoming in ([], [START + timedelta(days=9 * 365)]):
        assert fire(life, life.look("revision"), [], upcoming) == ("troubled", 0)
        assert "no slot within 8 years" in life.look("status_message")
        assert (life.look("ended_at"), life.look("next_scheduled")) == (None, None)


def test_cron_is_planned_by_a_client_and_fired_once(life: Life) -> None:
    life.set({"cron": "* * * * *", "overlap": "allow"})
    row = life.db.execute("select cron from dibs.run_schedules()").fetchone()
    assert row
    (asked,) = row[0]
    assert (asked["name"], asked["cron"], asked["zone"]) == ("s", "* * * * *", "UTC")
    minute = [START + timedelta(minutes=n) for n in range(5)]
    assert fire(life, asked["revision"], [], minute[1:]) == ("ok", 0)
    assert life.look("next_scheduled") == minute[1]
    assert fire(life, asked["revision"], [], minute[1:]) == ("stale", 0)
    life.clock.move(60)
    revision = life.look("revision")
    assert fire(life, revision, minute[1:2], minute[2:]) == ("ok", 1)
    assert fire(life, revision, minute[1:2], minute[2:]) == ("stale", 0)
    assert life.slots() == [60]
    with pytest.raises(psycopg.DatabaseError) as refused:
        fire(life, life.look("revision"), minute[3:4], minute[4:])  # not yet
    assert refused.value.sqlstate == "DI051"


def test_what_a_client_cannot_read_is_shown_and_tried_again(life: Life) -> None:
    life.set({"cron": "* * 99 * *"})
    life.db.execute("select dibs.fire('s', %s, '{}', '{}', 'Bad day')", (life.look("revision"),))
    assert life.look("status, status_message") == ("failing", "the slot could not be fired: Bad day")
    row = life.db.execute("select cron from dibs.run_schedules()").fetchone()
    assert row == ([],)


def test_a_slot_that_has_its_job_gets_no_second_when_the_clock_is_set_back(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "allow"})
    assert life.tick(60) == 1
    life.clock.move(-60)
    life.set({"fixed_rate": 30, "overlap": "allow"})
    life.set({"fixed_rate": 60, "overlap": "allow"})
    assert life.look("next_scheduled") == START + timedelta(seconds=60)
    assert life.tick(60) == 0
    assert life.slots() == [60]


# --- setting ----------------------------------------------------------------------------------------------------------


def test_what_is_not_named_stays_as_it_is(life: Life) -> None:
    assert life.set({"fixed_rate": 60, "overlap": "queue"}) == "created"
    life.clock.move(30)
    assert life.set({"jitter": 5}) == "changed"
    assert life.look("overlap, jitter, next_scheduled") == (
        "queue",
        timedelta(seconds=5),
        START + timedelta(seconds=60),
    )
    assert life.set({"jitter": 5}) == "unchanged"
    assert life.set({"fixed_rate": 120}) == "changed"  # planned again
    assert life.look("next_scheduled") == START + timedelta(seconds=150)
    life.db.execute("select dibs.set_schedule('s', '{\"pause_after\": 2}')")
    assert life.look("queue, kind, pause_after") == ("q", "k", 2)


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, JOB, "has no rule yet"),
    ({"fixed_rat": 60}, JOB, "no setting 'fixed_rat'"),
    ({"interval": 60, "cron": "* * * * *"}, JOB, "it got cron and interval"),
    ({"cron": "* * *"}, JOB, "not a cron expression"),
    ({"cron": "* * * * *", "zone": "Europe/Berlim"}, JOB, "no time zone"),
    ({"fixed_rate": "1 month"}, JOB, "months differ in length"),
    ({"interval": 60, "overlap": None}, JOB, "overlap cannot be null"),
    ({"interval": 60}, {"queue": "q"}, "a queue and a kind"),
    ({"interval": 60}, {**JOB, "delay": 5}, "cannot have delay"),
    ({"interval": 60}, {**JOB, "prio": 5}, "no option 'prio'"),
    ({"interval": 0.5}, JOB, "schedule_every_range"),
    ({"interval": 60, "overlap": "both"}, JOB, "schedule_overlap_known"),
    ({"interval": 60, "catch_up": 1001}, JOB, "schedule_catch_up_range"),
    ({"interval": 60, "grace": 0}, JOB, "schedule_grace_range"),
    ({"interval": 60, "on_failure": "x"}, JOB, "schedule_on_failure_known"),
    ({"interval": 60, "pause_after": 0}, JOB, "schedule_pause_after_range"),
    ({"interval": 60, "jitter": "8 days"}, JOB, "schedule_jitter_range"),
    ({"interval": 60, "start_at": "2031-01-01Z", "end_at": "2030-01-01Z"}, JOB, "schedule_window_range"),
    ({"interval": 60, "catch_up": "some"}, JOB, "invalid input syntax"),
    ({"interval": 60, "start_at": "4713-01-01 BC"}, JOB, "no time that a schedule can have"),
    ({"interval": 60, "end_at": "infinity"}, JOB, "no time that a schedule can have"),
    ({"once": "20000-01-01"}, JOB, "no time that a schedule can have"),
]


def test_every_bad_rule_is_refused_by_name(life: Life) -> None:
    for rule, job, said in BAD:
        with pytest.raises(psycopg.DatabaseError, match=said) as refused:
            life.set(rule, job)
        assert (refused.value.sqlstate or "").startswith(("DI010", "DI051", "23514", "22"))
    assert life.client.schedules.list() == []


def test_hints_name_the_nearest(life: Life) -> None:
    with pytest.raises(dibs.errors.InvalidSchedule, match="did you mean 'overlap'"):
        life.client.schedules.set("s", dibs.NewJob(queue="q", kind="k"), interval=5, overlaps="skip")  # type: ignore[call-arg]
    with pytest.raises(psycopg.DatabaseError) as refused:
        life.set({"cron": "* * * * *", "zone": "Europe/Berlim"})
    assert refused.value.diag.message_hint
    assert "did you mean 'Europe/Berlin'" in refused.value.diag.message_hint
    life.set({"interval": 60}, name="nightly")
    actions: list[Callable[[str], object]] = [
        life.client.schedules.pause, life.client.schedules.resume, life.client.schedules.trigger,
        life.client.schedules.drop, life.client.schedules.preview,
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(dibs.errors.UnknownSchedule, match="did you mean 'nightly'"):
            action("nighly")


def test_a_schedule_is_removed_and_its_jobs_stay(life: Life) -> None:
    life.set({"interval": 60})
    made = life.client.schedules.trigger("s").job_id
    assert made
    life.client.schedules.drop("s")
    assert life.client.schedules.list() == []
    assert life.client.status(made).state is dibs.State.READY
    assert life.db.execute("select count(*) from dibs.schedule_run").fetchone() == (0,)


# --- declared in code -------------------------------------------------------------------------------------------------


def declare(life: Life, app: str, **rules: dict[str, Any]) -> dict[str, str]:
    schedules = [{"name": name, "rule": rule, "job": JOB} for name, rule in rules.items()]
    return dict(life.db.execute("select * from dibs.declare_schedules(%s, %s)", (app, Jsonb(schedules))).fetchall())


def test_declared_schedules_are_never_duplicated_and_retire_when_they_vanish(life: Life) -> None:
    assert declare(life, "shop", a={"fixed_rate": 60}, b={"fixed_rate": 60}) == {"a": "created", "b": "created"}
    assert declare(life, "blog", c={"fixed_rate": 60}) == {"c": "created"}
    assert declare(life, "shop", a={"fixed_rate": 60}, b={"fixed_rate": 90}) == {"a": "unchanged", "b": "changed"}
    assert declare(life, "shop", a={"fixed_rate": 60}) == {"a": "unchanged", "b": "retired"}
    assert [life.look("status", name) for name in "abc"] == ["healthy", "retired", "healthy"]
    assert life.tick(600) == 2
    assert life.slots("b") == []
    assert declare(life, "shop", a={"fixed_rate": 60}) == {"a": "unchanged"}
    assert declare(life, "shop", b={"fixed_rate": 90}) == {"a": "retired", "b": "changed"}
    assert life.look("status, next_scheduled", "b") == ("healthy", START + timedelta(seconds=690))


def test_what_was_changed_by_hand_stays_until_the_code_changes(life: Life) -> None:
    declare(life, "shop", s={"fixed_rate": 60, "overlap": "allow"})
    life.set({"fixed_rate": 300})
    life.client.schedules.pause("s")
    assert declare(life, "shop", s={"fixed_rate": 60, "overlap": "allow"}) == {"s": "unchanged"}
    assert life.look("every, overlap, status") == (timedelta(seconds=300), "allow", "paused")
    assert declare(life, "shop", s={"fixed_rate": 90}) == {"s": "changed"}
    assert life.look("every, overlap, status") == (timedelta(seconds=90), "skip", "paused")


def test_a_retired_schedule_can_be_taken_over_by_hand(life: Life) -> None:
    declare(life, "shop", s={"fixed_rate": 60})
    declare(life, "shop")
    life.set({"fixed_rate": 60})
    assert life.look("status, app") == ("healthy", None)
    assert declare(life, "shop") == {}


# --- locks and cost ---------------------------------------------------------------------------------------------------


def test_a_round_leaves_a_schedule_that_somebody_holds_to_the_next(
    life: Life, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    life.set({"fixed_rate": 60}, name="a")
    life.set({"fixed_rate": 60}, name="b")
    other = connect()
    with other.transaction():
        other.execute("select dibs.pause_schedule('a')")
        assert life.tick(60) == 1
    assert life.slots("b") == [60]


def test_it_refuses_older_snapshots(life: Life) -> None:
    with life.db.transaction():
        life.db.execute("set transaction isolation level repeatable read")
        with pytest.raises(psycopg.DatabaseError) as refused:
            life.db.execute("select dibs.run_schedules()")
        assert refused.value.sqlstate == "DI020"


def test_old_records_of_runs_are_forgotten(life: Life) -> None:
    life.set({"fixed_rate": 60, "catch_up": "none"})
    life.tick(60)
    life.work()
    life.tick(1)
    life.clock.move(9 * 86400)
    life.db.execute("select dibs.forget()")
    assert life.slots() == []
    assert life.look("succeeded") == 1


def test_maintain_runs_them_too(life: Life) -> None:
    life.set({"fixed_rate": 60})
    life.clock.move(60)
    done = dict(life.db.execute("select chore, counts from dibs.maintain()").fetchall())
    assert done["schedule"]["fired"] == 1
