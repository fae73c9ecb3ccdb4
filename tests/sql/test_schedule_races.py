"""Schedules beside open transactions, and slots that must not be fired: early, or of a retired schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.test_races import Later, later
from tests.sql.test_schedules import JOB, START, Life, declare, fire, life

if TYPE_CHECKING:
    from tests.conftest import Connect

__all__ = ["later", "life"]
ROUND = "select fired, troubled from dibs.run_schedules()"


@pytest.mark.parametrize("rule", [{"interval": 60}, {"fixed_rate": 60}, {"fixed_delay": 60}], ids=str)
@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_retired_schedule_makes_no_more_jobs_while_its_last_run_ends(
    life: Life, rule: dict[str, Any], overlap: str
) -> None:
    declare(life, "shop", s={**rule, "overlap": overlap})
    assert life.tick(60) == 1
    assert declare(life, "shop") == {"s": "retired"}
    assert life.tick() == 0
    assert life.tick(600) == 0
    life.work()
    assert life.tick() == 0
    assert life.tick(600) == 0
    assert life.look("status, succeeded, open_runs") == ("retired", 1, 0)


def test_a_slot_that_was_held_back_and_refused_brings_no_later_one_forward(life: Life) -> None:
    life.set({"interval": 60, "overlap": "queue"})
    assert life.tick(60) == 1
    assert life.tick(60) == 0  # held back behind the first
    life.work()
    life.client.queues.set("q", max_depth=1)
    life.client.enqueue("q", "other")
    assert life.db.execute(ROUND).fetchone() == (0, 1)
    life.work()
    assert life.tick(10) == 1
    assert life.slots() == [60, 120]
    life.work()
    assert life.tick() == 0
    assert life.look("next_scheduled") == START + timedelta(seconds=180)
    assert life.tick(50) == 1
    assert life.slots() == [60, 120, 180]


def test_a_run_whose_end_a_trigger_notes_is_followed_by_the_next(life: Life) -> None:
    life.set({"fixed_delay": 60}, {**JOB, "dedup_key": "same"})
    assert life.tick(60) == 1
    life.work()
    life.client.enqueue("q", "k", dedup_key="same")
    assert life.db.execute("select answer from dibs.trigger('s')").fetchone() == ("duplicate",)
    life.work()
    assert life.tick(59) == 0
    assert life.tick(1) == 1
    assert life.slots() == [60, 120]


def test_a_round_says_that_there_is_more_beside_a_schedule_that_waits_for_its_run(life: Life) -> None:
    life.set({"fixed_delay": 60}, name="a")
    assert life.tick(60) == 1
    for name in "bc":
        life.set({"interval": 60}, name=name)
    life.clock.move(60)
    rounds = [life.db.execute("select fired, more from dibs.run_schedules(1)").fetchone() for _ in range(3)]
    assert rounds == [(1, True), (1, True), (0, False)]


@pytest.mark.parametrize("cron", [False, True], ids=["round", "fire"])
def test_a_producer_who_holds_a_key_keeps_only_the_schedule_of_that_key_waiting(
    life: Life, connect: Connect, cron: bool
) -> None:
    life.set({"fixed_rate": 60}, {**JOB, "dedup_key": "same"}, name="a")
    life.set({"cron": "* * * * *"}, {**JOB, "dedup_key": "same"}, name="s")
    life.set({"fixed_rate": 60}, name="z")
    life.client.queues.set("q")
    assert fire(life, life.look("revision"), [], [START + timedelta(minutes=1)]) == ("ok", 0)
    producer = connect()
    producer.execute("begin")
    producer.execute("select dibs.enqueue('q', 'k', dedup_key => 'same')")
    life.db.execute("set statement_timeout = '10s'")
    life.clock.move(60)
    if cron:
        minute = [START + timedelta(minutes=n) for n in (1, 2)]
        assert fire(life, life.look("revision"), minute[:1], minute[1:]) == ("troubled", 0)
    else:
        assert life.db.execute(ROUND).fetchone() == (1, 1)
        assert life.slots("z") == [60]
        assert "lock timeout" in life.look("status_message", "a")
    producer.execute("rollback")
    assert life.tick(10) == (2 if cron else 1)
    assert life.slots("a") == [60]


def test_a_handler_that_completes_late_keeps_only_its_own_schedule_waiting(life: Life, connect: Connect) -> None:
    """What is to be cancelled may be held by a handler's open transaction."""
    life.set({"fixed_rate": 60, "overlap": "cancel"}, name="a")
    life.set({"fixed_rate": 60, "overlap": "allow"}, {**JOB, "queue": "r"}, name="z")
    assert life.tick(60) == 2
    [job] = life.client.claim("q")
    handler = connect()
    handler.execute("begin")
    handler.execute("select dibs.complete(%s, %s)", (job.id, job.token))
    life.db.execute("set statement_timeout = '10s'")
    life.clock.move(60)
    assert life.db.execute(ROUND).fetchone() == (1, 1)
    handler.execute("commit")
    assert life.tick(10) == 1
    assert life.slots("a") == [60, 120]


def test_a_schedule_that_is_declared_meanwhile_is_retired_as_it_is_then(
    life: Life, connect: Connect, later: Later
) -> None:
    """It was fired while its app was declared again without it: what was noted of that stays."""
    declare(life, "shop", a={"fixed_rate": 60})
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("select dibs.trigger('a')")
    retiring = later.start(other, "select * from dibs.declare_schedules('shop', %s)", Jsonb([]))
    assert not retiring.done()
    one.execute("commit")
    assert retiring.result() == [("a", "retired")]
    assert life.look("fired, status", "a") == (1, "retired")


@pytest.mark.parametrize("change", ["drop_schedule('s')", "pause_schedule('s')", "declare"], ids=str)
def test_what_is_changed_while_it_fires_is_changed_after_it(
    life: Life, connect: Connect, later: Later, change: str
) -> None:
    declare(life, "shop", s={"fixed_rate": 60, "overlap": "allow"})
    ticking, changing = connect(), connect()
    life.clock.move(60)
    ticking.execute("begin")
    assert ticking.execute(ROUND).fetchone() == (1, 0)
    statement = f"select dibs.{change}" if change != "declare" else "select dibs.declare_schedules('shop', '[]')"
    changed = later.start(changing, statement)
    assert not changed.done()
    ticking.execute("commit")
    changed.result()
    assert life.client.queues.depth("q").waiting == 1
    assert life.tick(60) == 0
    assert life.client.queues.depth("q").waiting == 1
    assert life.slots() == ([] if change.startswith("drop") else [60])
