"""Schedules at their edges: the end of a schedule, failed ticks, pauses, duplicates, and schedules nobody can read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.sql.test_schedules import JOB, START, Life, fire, life

if TYPE_CHECKING:
    from tests.sql.conftest import Login

__all__ = ["life"]
MINUTES = [START + timedelta(minutes=n) for n in range(20)]


def read_cron(life: Life) -> tuple[datetime, datetime, int]:
    """The times between which the due cron schedule has to be read, and its revision."""
    row = life.db.execute("select cron from dibs.run_schedules()").fetchone()
    assert row
    (asked,) = row[0]
    return datetime.fromisoformat(asked["after"]), datetime.fromisoformat(asked["until"]), asked["revision"]


# --- start and end ----------------------------------------------------------------------------------------------------


def test_a_fixed_rate_that_is_ticked_late_fires_no_slot_after_its_end(life: Life) -> None:
    life.set({"fixed_rate": 60, "end_at": "2030-01-01T00:03Z", "overlap": "allow"})
    assert life.tick(600) == 1
    assert life.slots() == [180]
    assert life.look("missed, status") == (2, "ended")


def test_cron_that_is_read_late_fires_no_slot_after_its_end(life: Life) -> None:
    life.set({"cron": "* * * * *", "end_at": "2030-01-01T00:03Z", "overlap": "allow", "grace": 3600})
    assert fire(life, life.look("revision"), [], MINUTES[1:3]) == ("ok", 0)
    life.clock.move(600)
    after, until, revision = read_cron(life)
    assert (after, until) == (START, MINUTES[3])
    assert fire(life, revision, MINUTES[1:11], MINUTES[11:]) == ("ok", 3)
    assert life.slots() == [60, 120, 180]
    assert life.look("status") == "ended"


def test_cron_that_is_resumed_before_its_start_waits_for_it(life: Life) -> None:
    life.set({"cron": "* * * * *", "start_at": "2030-01-01T00:05Z"})
    life.client.schedules.pause("s")
    life.clock.move(60)
    life.client.schedules.resume("s")
    assert read_cron(life)[0] == MINUTES[5] - timedelta(microseconds=1)


def test_once_that_has_fired_does_not_fire_again_when_its_run_is_forgotten(life: Life) -> None:
    life.set({"once": "2030-01-01T00:10Z"})
    assert life.tick(600) == 1
    life.work()
    life.tick(1)
    life.clock.move(9 * 86400)
    life.db.execute("select dibs.forget()")
    assert life.set({"zone": "Europe/Berlin"}) == "changed"
    assert life.tick() == 0
    assert life.look("status, fired") == ("ended", 1)


def test_once_that_came_during_a_pause_is_late(life: Life) -> None:
    life.set({"once": "2030-01-01T00:10Z"}, name="s")
    life.set({"once": "2030-01-01T00:10Z", "catch_up": "none"}, name="none")
    for name in ("s", "none"):
        life.client.schedules.pause(name)
    life.clock.move(3600)
    for name in ("s", "none"):
        life.client.schedules.resume(name)
    assert life.tick() == 1
    assert life.slots() == [600]
    assert life.look("missed, status", "none") == (1, "ended")


def test_a_null_kind_of_rule_counts_as_left_out(life: Life) -> None:
    life.set({"cron": "* * * * *"})
    assert life.set({"cron": None}) == "unchanged"
    life.set({"once": "2030-01-01T00:10Z"}, name="once")
    assert life.set({"once": None}, name="once") == "unchanged"
    with pytest.raises(psycopg.DatabaseError, match="has no rule yet") as refused:
        life.set({"cron": None}, name="new")
    assert refused.value.sqlstate == "DI051"


@pytest.mark.parametrize(
    ("zone", "near"), [("America/Argentina/Buenos_Aire", "America/Argentina/Buenos_Aires"), ("Mars/Olympus", None)]
)
def test_a_wrong_zone_is_answered_with_a_zone_that_exists(life: Life, zone: str, near: str | None) -> None:
    with pytest.raises(psycopg.DatabaseError, match="no time zone") as refused:
        life.set({"cron": "* * * * *", "zone": zone})
    hint = refused.value.diag.message_hint or ""
    assert (f"did you mean '{near}'?" in hint) if near else ("did you mean" not in hint)


# --- ticks that failed ------------------------------------------------------------------------------------------------


def refuse_jobs(life: Life) -> None:
    life.client.queues.set("q", max_depth=1)
    life.client.enqueue("q", "other")


def test_an_ended_schedule_whose_held_slot_was_refused_is_not_due_forever(life: Life) -> None:
    life.set({"once": "2030-01-01T00:10Z", "overlap": "queue"})
    life.client.schedules.trigger("s")
    assert life.tick(600) == 0  # held behind the triggered run
    life.work()
    refuse_jobs(life)
    assert life.db.execute("select fired, troubled from dibs.run_schedules()").fetchone() == (0, 1)
    life.work()
    assert life.tick(10) == 1
    life.work()
    life.tick(1)
    assert life.db.execute("select tick_at from dibs.schedule").fetchone() == (None,)
    assert life.db.execute("select wait from dibs.run_schedules()").fetchone() == (None,)


def test_an_error_beside_a_slot_does_not_delay_the_next_slot(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "queue"})
    assert life.tick(60) == 1
    assert life.tick(60) == 0  # held
    life.work()
    refuse_jobs(life)
    life.clock.move(59)
    assert life.db.execute("select fired, troubled from dibs.run_schedules()").fetchone() == (0, 1)
    assert life.look("next_attempt") == START + timedelta(seconds=180)


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_a_run_that_pauses_cron_while_it_is_read_lets_no_other_fire(life: Life) -> None:
    life.set({"cron": "* * * * *", "overlap": "allow", "pause_after": 1}, {**JOB, "max_attempts": 1})
    assert fire(life, life.look("revision"), [], MINUTES[1:]) == ("ok", 0)
    life.clock.move(60)
    assert fire(life, life.look("revision"), MINUTES[1:2], MINUTES[2:]) == ("ok", 1)
    life.clock.move(60)
    revision = read_cron(life)[2]
    life.work(fail="no")
    assert fire(life, revision, MINUTES[2:3], MINUTES[3:]) == ("ok", 0)
    assert life.look("status, fired") == ("paused", 1)
    life.client.schedules.resume("s")
    assert read_cron(life)[0] == MINUTES[2]


def test_held_slots_that_are_dropped_count_as_skipped(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "queue"})
    for dropped in (1, 2):
        life.client.schedules.trigger("s", force=True)
        assert life.tick(60) == 0
        assert len(life.look("held")) == 1
        if dropped == 1:
            life.client.schedules.pause("s")
            life.client.schedules.resume("s")
        else:
            life.set({"fixed_rate": 90})
        assert life.look("held, skipped") == ([], dropped)


# --- duplicates -------------------------------------------------------------------------------------------------------


def test_a_trigger_answers_duplicate_also_in_the_moment_of_the_first(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "allow"}, {**JOB, "dedup_key": "same"})
    first = life.client.schedules.trigger("s")
    assert first.answer == "triggered"
    second = life.client.schedules.trigger("s")
    assert (second.answer, second.job_id) == ("duplicate", None)
    assert life.look("fired, skipped, last_job") == (1, 1, first.job_id)


def test_slots_that_replace_each_other_are_runs_of_their_own(life: Life) -> None:
    life.set(
        {"fixed_rate": 60, "overlap": "allow", "grace": 3600}, {**JOB, "dedup_key": "a", "on_duplicate": "replace"}
    )
    assert life.tick(60) == 1
    assert life.tick(60) == 1
    assert life.tick(180) >= 1
    assert life.look("status_message") is None


# --- others' queues ---------------------------------------------------------------------------------------------------


def test_due_cron_schedules_of_hidden_queues_keep_no_other_waiting(life: Life, login: Login) -> None:
    for n in range(3):
        life.set({"cron": "* * * * *"}, {**JOB, "queue": "hidden"}, name=f"hidden {n}")
    life.client.queues.set("hidden")
    life.client.queues.set("q")
    life.set({"interval": 60})
    life.clock.move(60)
    confined = login("dibs_worker", queues=["q"])
    with psycopg.connect(confined.dsn, autocommit=True) as db:
        row = db.execute("select fired, more, cron from dibs.run_schedules(2)").fetchone()
    assert row == (1, False, [])
