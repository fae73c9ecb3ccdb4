"""Schedules at their edges: the end of a schedule, failed ticks, pauses, duplicates, and schedules nobody can read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.types.json import Jsonb

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


def test_once_that_replaced_an_earlier_rule_fires_once(life: Life) -> None:
    life.set({"fixed_rate": 600, "overlap": "allow"})
    assert life.tick(600) == 1
    life.set({"once": "2030-01-01T00:05Z"})  # before the last slot
    assert life.tick() == 1
    life.work()
    life.tick(1)
    life.clock.move(9 * 86400)
    life.db.execute("select dibs.forget()")
    assert life.set({"zone": "Europe/Berlin"}) == "changed"
    assert life.tick() == 0
    assert life.look("status, fired, skipped") == ("ended", 2, 0)


@pytest.mark.parametrize("change", [{"zone": "Europe/Berlin"}, {"end_at": "2031-01-01T00:00Z"}])
def test_once_that_was_skipped_stays_skipped(life: Life, change: dict[str, str]) -> None:
    life.set({"once": "2030-01-01T00:10Z"})
    life.client.schedules.trigger("s")
    assert life.tick(600) == 0
    assert life.look("skipped, status") == (1, "ended")
    life.work()
    life.tick(1)
    assert life.set(change) == "changed"
    assert life.tick() == 0
    assert life.look("skipped, status, fired") == (1, "ended", 1)
    assert life.set({"once": "2030-01-01T00:05Z"}) == "changed"  # another time is another slot
    assert life.tick() == 1


def test_once_that_is_held_or_cut_off_by_the_end_is_planned_again(life: Life) -> None:
    life.set({"once": "2030-01-01T00:10Z", "overlap": "queue", "end_at": "2030-01-01T00:05Z"})
    assert life.look("status") == "ended"
    life.set({"end_at": None})
    life.client.schedules.trigger("s")
    assert life.tick(600) == 0
    assert len(life.look("held")) == 1
    life.set({"zone": "Europe/Berlin"})
    life.work()
    assert life.tick() == 1
    assert life.slots() == [0, 600]


def test_cron_may_start_more_than_eight_years_from_now(life: Life) -> None:
    first = datetime(2040, 1, 1, tzinfo=UTC)
    life.set({"cron": "0 0 * * *", "start_at": "2040-01-01T00:00Z"})
    assert fire(life, life.look("revision"), [], [first]) == ("ok", 0)
    assert life.look("next_scheduled, status_message") == (first, None)
    life.set({"cron": "0 1 * * *"})
    assert fire(life, life.look("revision"), [], [first + timedelta(days=8 * 366)]) == ("troubled", 0)


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


def test_a_held_slot_that_was_refused_waits_ten_seconds_for_its_next_try(life: Life) -> None:
    life.set({"fixed_rate": 60, "overlap": "queue"})
    assert life.tick(60) == 1
    assert life.tick(60) == 0  # held
    life.work()
    refuse_jobs(life)
    tries = []
    for _ in range(21):
        life.clock.move(1)
        tries.append(life.db.execute("select troubled from dibs.run_schedules()").fetchone())
    assert [n for n, (troubled,) in enumerate(tries) if troubled] == [0, 10, 20]  # type: ignore[misc]
    life.work()
    assert life.tick(10) == 1
    assert life.slots() == [60, 120]


def test_fire_gives_the_place_of_a_run_that_ended_to_the_held_slot(life: Life) -> None:
    life.set({"cron": "* * * * *", "overlap": "queue"})
    assert fire(life, life.look("revision"), [], MINUTES[1:]) == ("ok", 0)
    for n in (1, 2):
        life.clock.move(60)
        assert fire(life, read_cron(life)[2], [MINUTES[n]], MINUTES[n + 1 :])[0] == "ok"
    assert life.look("held") == [MINUTES[2]]
    life.clock.move(60)
    revision = read_cron(life)[2]
    life.work()
    assert fire(life, revision, [MINUTES[3]], MINUTES[4:]) == ("ok", 1)
    assert life.slots() == [60, 120]
    assert life.look("held, skipped") == ([MINUTES[3]], 0)


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


def test_a_paused_cron_schedule_previews_no_slots_of_the_past(life: Life) -> None:
    life.set({"cron": "* * * * *"})
    assert fire(life, life.look("revision"), [], MINUTES[1:6]) == ("ok", 0)
    life.client.schedules.pause("s")
    life.clock.move(150)
    assert life.client.schedules.preview("s", 2) == MINUTES[3:5]
    life.client.schedules.resume("s")
    assert life.client.schedules.preview("s", 2) == MINUTES[3:5]


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


# --- the job ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["German", "SQL, DMY"])
def test_the_slot_in_the_headers_does_not_depend_on_the_session(life: Life, style: str) -> None:
    life.set({"interval": 60})
    life.clock.move(1.5)
    life.db.execute("select set_config('DateStyle', %s, false)", (style,))
    try:
        life.db.execute("select dibs.trigger('s')")
    finally:
        life.db.execute("reset DateStyle")
    (job,) = life.client.claim("q")
    assert (job.headers or {})["dibs-slot"] == "2030-01-01 00:00:01.5Z"


# --- others' queues ---------------------------------------------------------------------------------------------------


def test_a_retired_schedule_with_an_open_run_is_no_more_to_do(life: Life) -> None:
    declared = Jsonb([{"name": "s", "rule": {"cron": "* * * * *"}, "job": JOB}])
    life.db.execute("select dibs.declare_schedules('app', %s)", (declared,))
    life.client.schedules.trigger("s")
    life.client.schedules.pause("s")
    life.db.execute("select dibs.declare_schedules('app', '[]')")
    life.client.schedules.resume("s")
    life.clock.move(60)
    assert life.db.execute("select more, wait from dibs.run_schedules(1)").fetchone() == (False, None)


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
