"""How many workers a queue needs: by what is due, what comes, how long runs take, and what limits allow."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml

import dibs
from dibs.db import calls
from tests.docs.pages import ROOT, blocks
from tests.sql.test_size import pages

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.sql.conftest import Login

    Connection = psycopg.Connection[Any]


def fill(client: dibs.Client, count: int, queue: str = "q", **options: Any) -> None:
    client.enqueue_many(dibs.NewJob(queue=queue, kind="k", **options) for _ in range(count))


def wanted(client: dibs.Client, **options: Any) -> int:
    """The number for the queue q, whose workers run 10 jobs at once."""
    [found] = client.workers.wanted("q", **{"slots": 10, "run_time": 10, **options})
    return found.workers


@pytest.fixture
def client(client: dibs.Client, clock: Clock) -> dibs.Client:
    """With a queue into which nothing has come for a while."""
    clock.freeze()
    client.queues.set("q")
    return client


def test_what_is_due_is_done_within_the_target(client: dibs.Client, clock: Clock) -> None:
    assert client.workers.wanted("q") == [dibs.types.WorkersWanted("q", 0, 0, 0, 0, 0, 0.0, None, 100.0, False)]
    fill(client, 600)
    fill(client, 50, delay=3600)
    clock.move(301)
    [found] = client.workers.wanted("q", slots=10, run_time=10)
    assert found == dibs.types.WorkersWanted("q", 2, 0, 600, 0, 0, 0.0, timedelta(seconds=10), 10.0, False)
    assert wanted(client, target=60) == 10
    assert wanted(client, target=60, slots=100) == 1
    assert wanted(client, target=6000) == 1, "as long as anything is due"
    client.queues.pause("q")
    assert wanted(client) == 0


def test_it_keeps_up_with_what_comes_and_stops_nothing_that_runs(client: dibs.Client, clock: Clock) -> None:
    fill(client, 300)
    held = client.claim("q", 300)
    [found] = client.workers.wanted("q", slots=10, run_time=10, target=3600)
    assert (found.arriving, found.running) == (1.0, 300)
    assert found.workers == 30, "as many as run, which is more than what comes needs"
    client.queues.pause("q")
    assert wanted(client) == 30
    client.queues.resume("q")
    client.complete_many(held[:299])
    assert wanted(client) == 1, "one per second, which takes ten"
    client.complete_many(held[299:])
    assert wanted(client) == 0


def test_a_run_takes_as_long_as_it_did_lately(client: dibs.Client, clock: Clock) -> None:
    def run_for(seconds: int) -> None:
        client.enqueue("q", "k")
        [job] = client.claim("q")
        clock.move(seconds)
        client.complete(job)
        client.upkeep.roll_up()

    def measured() -> float:
        [found] = client.workers.wanted("q")
        assert found.run_mean is not None
        return found.run_mean.total_seconds()

    run_for(20)
    assert measured() == 20
    run_for(10)
    assert measured() == 15
    clock.move(3 * 3600)
    assert measured() == 15, "of all time, if nothing ran lately"
    run_for(4)
    assert measured() == 4


def test_no_more_are_wanted_than_limits_let_run(client: dibs.Client, clock: Clock) -> None:
    def limited(**options: Any) -> tuple[int, bool]:
        [found] = client.workers.wanted("q", slots=10, run_time=10, target=10, **options)
        return found.workers, found.limited

    fill(client, 1000)
    clock.move(301)
    assert limited() == (100, False)
    client.limits.set(queue="q", concurrency=25)
    assert limited() == (3, True)
    client.limits.set(queue="q", rate=2)
    assert limited() == (2, True)
    client.limits.set(queue="q", concurrency=0)
    assert limited() == (0, True)
    client.limits.drop(queue="q")
    client.limits.set(kind="k", concurrency=4)
    while client.claim("q", 100):
        pass
    [found] = client.workers.wanted("q", slots=10, run_time=10, target=10)
    assert (found.blocked, found.running, found.workers) == (996, 4, 1), "what waits for a limit needs nobody more"


def test_no_more_are_wanted_than_groups_and_shards_let_run(client: dibs.Client, clock: Clock) -> None:
    client.groups.set("q", concurrency=2)
    for n in range(10):
        fill(client, 100, group=f"g{n}")
    fill(client, 1000, queue="only")
    clock.move(301)
    assert wanted(client, target=10) == 2
    assert len(client.claim("q", 100)) == 20
    assert wanted(client, target=10) in {2, 3, 4}, "a group that is full has no pointer"
    client.queues.set("only", shards=3)
    [found] = client.workers.wanted("only", slots=1, run_time=10)
    assert (found.workers, found.limited) == (3, True)


def test_jobs_without_a_group_are_not_bound_by_a_group_policy(client: dibs.Client, clock: Clock) -> None:
    client.groups.set("q", concurrency=1)
    fill(client, 600)
    clock.move(301)
    assert wanted(client, target=60) == 10
    fill(client, 5, group="g")
    [found] = client.workers.wanted("q", slots=1, run_time=10, target=1)
    assert found.workers == 601, "and one of the group"


def test_a_group_may_run_more_than_the_others(client: dibs.Client, clock: Clock) -> None:
    client.groups.set("q", concurrency=1)
    client.groups.set("q", "large", concurrency=50)
    fill(client, 100, group="large")
    fill(client, 100, group="small")
    clock.move(301)
    assert wanted(client, target=1, slots=1) == 51
    client.groups.set("q", "free", weight=2, concurrency=None)
    fill(client, 100, group="free")
    clock.move(301)
    assert wanted(client, target=1, slots=1) == 3000, "its own policy has no concurrency"


@pytest.mark.parametrize("nonsense", [1e400, "many", None, [7], -5, 0])
def test_what_workers_say_of_themselves_may_be_nonsense(client: dibs.Client, db: Connection, nonsense: Any) -> None:
    facts = json.dumps({"queues": ["q", "q", 7], "slots": nonsense, "clock": nonsense}).replace("Infinity", "1e400")
    db.execute("select from dibs.register_worker('w', %s)", (facts,))
    db.execute('select from dibs.register_worker(\'w\', \'{"queues": "q", "slots": 10}\')')
    [found] = client.workers.wanted("q")
    assert found.live == 1
    assert 1 <= found.jobs_each <= 1_000_000
    client.doctor()


def test_live_workers_count_and_say_how_much_they_run(client: dibs.Client, clock: Clock) -> None:
    for concurrency in (10, 30):
        client._run(calls.workers.register_worker("w", {"queues": ["q", "r"], "slots": concurrency}, None))
    [found] = client.workers.wanted("q")
    assert (found.live, found.jobs_each) == (2, 20.0)
    clock.move(31)
    [found] = client.workers.wanted("q")
    assert (found.live, found.jobs_each) == (0, 100.0)


@pytest.mark.parametrize(
    "options",
    [{"target": 0}, {"target": 8 * 86400}, {"target": -1}, {"slots": 0}, {"run_time": 0}, {"run_time": -1}],
)
def test_nonsense_is_refused(client: dibs.Client, options: Any) -> None:
    with pytest.raises(dibs.InvalidArgument):
        client.workers.wanted("q", **options)


def test_an_unknown_queue_and_a_role_without_the_right_are_refused(client: dibs.Client, login: Login) -> None:
    with pytest.raises(dibs.errors.UnknownQueue):
        client.workers.wanted("none")
    client.queues.set("other")
    for role in ("dibs_worker", "dibs_observer"):
        assert [w.queue for w in login(role).workers.wanted()] == ["other", "q"]
        assert [w.queue for w in login(role, queues=["q"]).workers.wanted()] == ["q"]
    with pytest.raises(dibs.NotPermitted):
        login("dibs_producer").workers.wanted()


def test_a_thousand_queues_are_a_short_look(client: dibs.Client, db: Connection) -> None:
    db.execute("select dibs.set_queue('q' || n) from generate_series(1, 1000) as n")
    fill(client, 1)
    db.execute("analyze")
    assert len(client.workers.wanted()) == len(client.queues.depths()) == 1001
    assert pages(db, "select * from dibs.workers_wanted('q')") < 2_000
    for look in ("workers_wanted", "depth"):
        # Several pages for each queue; if all queues were read for each one, it would be hundreds.
        assert pages(db, f"select * from dibs.{look}()") < 60_000, look


def test_kedas_query_answers_with_a_number_to_an_observer(client: dibs.Client, login: Login) -> None:
    client.queues.set("mail")
    [query] = [
        trigger["metadata"]["query"]
        for block in blocks(ROOT / "docs" / "run" / "autoscaling.md")
        if block.language == "yaml"
        for document in yaml.safe_load_all(block.text)
        for trigger in document["spec"].get("triggers", ())
        if trigger["type"] == "postgresql"
    ]
    with psycopg.connect(login("dibs_observer").dsn) as conn:
        assert conn.execute(query).fetchall() == [(0,)]
