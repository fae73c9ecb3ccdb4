"""A queue in detail: by priority, its groups, and where each value of its policy comes from."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.queue_settings import SETTINGS
from tests.sql.test_size import MANY, fill, pages

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.sql.conftest import Login

    Connection = psycopg.Connection[Any]


def test_jobs_are_counted_by_priority_and_state(client: dibs.Client, db: Connection) -> None:
    for priority, count in ((9, 2), (5, 3), (-1, 1)):
        client.enqueue_many(dibs.NewJob(queue="q", kind="k", priority=priority) for _ in range(count))
    client.enqueue("q", "k", priority=9, delay=60)
    client.claim("q")
    client.enqueue("q", "k", priority=7, group="g")
    fill(db, "blocked", 4)
    told = {p.priority: (p.scheduled, p.ready, p.blocked, p.running) for p in client.queues.depth_by_priority("q")}
    assert told == {9: (1, 1, 0, 1), 7: (0, 1, 0, 0), 5: (0, 3, 4, 0), -1: (0, 1, 0, 0)}
    assert [p.estimated for p in client.queues.depth_by_priority("q")] == [[], [], [], []]
    with pytest.raises(dibs.errors.UnknownQueue):
        client.queues.depth_by_priority("nowhere")


def test_few_of_a_priority_are_counted_beside_many_of_another(client: dibs.Client, db: Connection) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", priority=50) for _ in range(3))
    fill(db, "ready", MANY)
    high, usual = client.queues.depth_by_priority("q")
    assert (high.priority, high.ready, high.estimated) == (50, 3, [])
    assert usual.ready == pytest.approx(MANY, rel=0.05)
    assert usual.estimated == ["ready"]
    assert usual.told("ready").startswith("≈ ")


@pytest.mark.parametrize("what", ["ready", "group_key", "blocked", "lease"])
def test_priorities_cost_no_more_in_a_large_queue(what: str, db: Connection) -> None:
    costs = []
    for _ in range(2):
        fill(db, what, MANY)
        costs.append(pages(db, "select * from dibs.depth_by_priority('q')"))
    # The tickets of groups lie in the order of the groups, each on another page.
    assert max(costs) < (12_000 if what == "group_key" else 3000)
    assert what == "group_key" or costs[1] < 1.2 * costs[0]


def test_groups_are_the_busiest_the_longest_waiting_and_the_noisy(
    clock: Clock, client: dibs.Client, db: Connection
) -> None:
    client.queues.set("q", noisy_share=0.5)
    client.groups.set("q", "vip", weight=3, concurrency=7)
    assert client.groups.list("q") == []
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="greedy") for _ in range(6))
    client.claim("q", 4)
    client.enqueue("q", "k", group="patient")
    clock.move(600)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="vip") for _ in range(2))
    client.enqueue("q", "k", group="later", delay=3600)
    found = {g.group: g for g in client.groups.list("q")}
    assert (found["greedy"].running, found["greedy"].waiting) == (4, 2)
    assert (found["vip"].running, found["vip"].waiting, found["vip"].weight, found["vip"].concurrency) == (0, 2, 3, 7)
    assert client.groups.list("q")[0].group == "greedy"
    assert (found["patient"].oldest or timedelta()) >= timedelta(minutes=10)
    assert not any(g.noisy for g in found.values())
    db.execute("select from dibs.claim('{q}')")  # A connection looks once a second who has more than its share.
    assert {g.group for g in client.groups.list("q") if g.noisy} == {"greedy"}
    with pytest.raises(dibs.InvalidArgument, match="1 to 100"):
        client.groups.list("q", limit=0)


def test_a_group_is_noisy_while_its_rate_makes_it_wait(client: dibs.Client, db: Connection) -> None:
    client.queues.set("q", noisy_share=0.5)
    client.groups.set("q", "greedy", rate=0.01, burst=5)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="greedy") for _ in range(8))
    assert len(client.claim("q", 4)) == 4
    db.execute("select from dibs.claim('{q}')")  # Finds that the group is noisy, and spends its last token.
    ahead = "select bool_and(look_at > dibs.now()) from dibs.group_pointer where queue_id < 0"
    assert db.execute(ahead).fetchone() == (True,)
    assert [(g.group, g.noisy) for g in client.groups.list("q")] == [("greedy", True)]


def test_a_hundred_thousand_groups_cost_no_more_than_some(client: dibs.Client, db: Connection) -> None:
    """Not so many here: what is counted are the pages that are touched."""
    client.enqueue("q", "k", group="first")
    costs = []
    for start in (0, 20_000):
        fill(db, "ready", 20_000)
        db.execute(
            "update dibs.ready as r set group_key = dibs._group_key(r.queue_id, n.n::text) from ("
            "  select id, %s + row_number() over (order by id) as n from dibs.ready where group_key is null) as n"
            " where n.id = r.id",
            (start,),
        )
        db.execute(
            "update dibs.job as j set group_name = 'g' || left(r.group_key::text, 8) from dibs.ready as r"
            " where r.id = j.id and j.group_name is null"
        )
        db.execute("delete from dibs.group_pointer")
        db.execute(
            "insert into dibs.group_pointer (queue_id, group_key, look_at, priority, floor_at)"
            " select queue_id, group_key, due_at, priority, due_at from dibs.ready where group_key is not null"
        )
        db.execute("vacuum (analyze) dibs.ready, dibs.job, dibs.group_pointer")
        costs.append(pages(db, "select * from dibs.groups('q')"))
    assert 20 <= len(client.groups.list("q")) <= 4 * 20
    assert max(costs) < 5000
    assert costs[1] < 1.2 * costs[0]


def test_each_value_of_a_policy_says_where_it_comes_from(client: dibs.Client, db: Connection) -> None:
    client.enqueue("q", "k")
    assert {one.source for one in client.queues.settings("q")} == {"default"}
    with dibs.acting_as("ann"):
        client.queues.set("q", max_attempts=9, ttl=None, lease=45)
    task = {"kind": "report", "queue": "q", "options": {"max_attempts": 2, "lease": None}}
    db.execute("select dibs.set_tasks(%s)", (json.dumps([task]),))
    told = {one.setting: one for one in client.queues.settings("q")}
    assert [*told] == [setting.name for setting in SETTINGS]
    for name, value, standard in (("max_attempts", 9, 5), ("ttl", None, 86400), ("lease", 45, 30)):
        one = told[name]
        assert (one.value, one.standard, one.source, one.set_by) == (value, standard, "set", "ann"), name
    assert told["max_attempts"].tasks == {"report": 2}
    assert told["lease"].tasks == {}
    assert (told["priority"].source, told["priority"].set_by) == ("default", None)
    client.queues.set("q", max_attempts=5)
    back = {one.setting: one for one in client.queues.settings("q")}["max_attempts"]
    assert (back.value, back.source, back.set_by) == (5, "set", db.info.user)
    with pytest.raises(dibs.errors.UnknownQueue):
        client.queues.settings("nowhere")


def test_a_queue_has_no_settings_of_one_that_was_dropped(client: dibs.Client, clock: Clock) -> None:
    client.queues.set("q", ttl=60)
    client.queues.drop("q")
    clock.move(1)
    client.queues.set("q", max_attempts=9)
    told = {one.setting: one for one in client.queues.settings("q")}
    assert (told["ttl"].source, told["ttl"].set_by) == ("default", None)
    assert told["max_attempts"].source == "set"


def test_the_audit_says_that_a_setting_was_taken_away(client: dibs.Client) -> None:
    client.queues.set("q", max_depth=5)
    client.queues.set("q", ttl=None, max_depth=None)
    [last, first] = [a for a in client.audit() if a.verb == "set_queue"]
    assert last.detail == {"policy": {"ttl": "none", "max_depth": "none"}, "before": {"ttl": "1 day", "max_depth": 5}}
    assert first.detail == {"policy": {"max_depth": 5}}


def test_the_defaults_are_what_a_new_queue_has(client: dibs.Client, db: Connection) -> None:
    client.queues.set("q")
    [(new, known)] = db.execute(
        "select to_jsonb(q), d.policy from dibs.queue as q, dibs.default_policy as d where q.name = 'q'"
    ).fetchall()
    assert [(s.name, new[s.name]) for s in SETTINGS] == [(s.name, known[s.name]) for s in SETTINGS]


def test_a_setting_is_read_as_it_is_written(client: dibs.Client, login: Login) -> None:
    client.queues.set("q", backoff=dibs.progressive([1, 86400, 5400.25], jitter=0.2), ttl=None, retention=86400 * 40)
    for one, setting in zip(client.queues.settings("q"), SETTINGS, strict=True):
        client.queues.set("q", **{setting.name: setting.read(setting.write(one.value))})
    assert {one.setting: one.value for one in client.queues.settings("q")}["retention"] == 86400 * 40
    assert client.queues.settings("q")[6].value["kind"] == "list"
    assert login("dibs_observer").queues.settings("q") != []
    with pytest.raises(dibs.NotPermitted):
        login("dibs_producer").queues.settings("q")


def test_what_is_ahead_of_a_job_is_counted_in_its_order(client: dibs.Client) -> None:
    low, high = (client.enqueue("q", "k", priority=priority).id for priority in (1, 9))
    first, *_, last = client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(4))
    one, two = (client.enqueue("q", "k", group="g").id for _ in range(2))
    client.enqueue("q", "k", priority=9, delay=60)

    def ahead() -> list[str]:
        found = [client.why(id) for id in (high, first.id, last.id, low, one, two)]
        return [told.split(" ahead of it")[0].split("; ")[-1].split(". ")[-1] for told in found]

    none, some = "nothing is", "{} jobs are"
    assert [word.split(":")[-1].strip() for word in ahead()] == [
        none, some.format(1), some.format(4), some.format(5), none, some.format(1)
    ]  # fmt: skip
    client.queues.set("q", newest_first=True)
    assert [word.split(":")[-1].strip() for word in ahead()][:4] == [
        none, some.format(4), some.format(1), some.format(5)
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["ready", "group_key"])
def test_why_reads_no_more_in_a_large_queue(what: str, client: dibs.Client, db: Connection) -> None:
    fill(db, what, MANY)  # All are due at the same moment, as after a bulk enqueue.
    ids = db.execute(
        "(select min(id::text) from dibs.ready) union all (select max(id::text) from dibs.ready)"
    ).fetchall()
    for (id,) in ids:
        assert pages(db, "select dibs.why(%s)", (id,)) < 1500, id
    assert "nothing is ahead of it" in client.why(ids[0][0])


def test_a_group_is_counted_however_it_comes_to_be_shown(clock: Clock, client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="first") for _ in range(300))
    clock.move(60)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="most") for _ in range(400))
    found = {g.group: g for g in client.groups.list("q", limit=1)}
    assert [(found[name].waiting, found[name].is_estimate) for name in ("first", "most")] == [(300, True), (400, True)]


def test_the_running_jobs_of_every_group_that_is_shown_are_counted(clock: Clock, client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="busy") for _ in range(5))
    assert len(client.claim("q", 5)) == 5
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="waiting") for _ in range(4))
    assert len(client.claim("q", 3)) == 3
    clock.move(60)
    found = {g.group: g for g in client.groups.list("q", limit=1)}
    assert {name: g.running for name, g in found.items()} == {"busy": 5, "waiting": 3}
