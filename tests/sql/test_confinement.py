"""Roles that may use some queues: they cannot touch, claim or see what is in others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.sql.conftest import Login


def test_a_producer_of_one_queue_cannot_see_or_touch_another(client: dibs.Client, login: Login) -> None:
    bill = client.enqueue("billing", "charge")
    mail = login("dibs_producer", queues=["mail"])
    mine = mail.enqueue("mail", "welcome")
    for queue in ("billing", "not-there-yet"):
        with pytest.raises(dibs.NotPermitted, match="confined to other queues") as refused:
            mail.enqueue(queue, "charge")
        assert refused.value.hint == "it may use mail"
    with pytest.raises(dibs.UnknownJob):
        mail.cancel(bill.id)
    assert [a.answer for a in mail.cancel_many([bill.id, mine.id])] == ["unknown", "cancelled"]
    assert (mail.status(bill.id).state, mail.status(mine.id).state) == ("unknown", "cancelled")
    assert "There is no job" in mail.why(bill.id)
    assert client.status(bill.id).state is dibs.State.READY
    client.enqueue("made-later", "k")
    with pytest.raises(dibs.NotPermitted):
        mail.enqueue("made-later", "k")


def test_a_worker_of_one_queue_claims_from_no_other(client: dibs.Client, login: Login) -> None:
    client.enqueue("billing", "charge")
    client.enqueue("mail", "welcome")
    worker = login("dibs_worker", queues=["mail", "news"])
    for queues in (["billing"], ["mail", "billing"]):
        with pytest.raises(dibs.NotPermitted):
            worker.claim(queues)
    [job] = worker.claim(["mail", "news"], 10)
    assert (job.kind, worker.complete(job)) == ("welcome", "ok")
    assert (worker.queues.depth("billing").ready, client.queues.depth("billing").ready) == (0, 1)


def test_an_observer_of_one_queue_sees_no_other(client: dibs.Client, login: Login, db: psycopg.Connection[Any]) -> None:
    for queue in ("billing", "mail"):
        made = client.enqueue(queue, queue)
        db.execute("select dibs.append_error('oh', %s)", (made.id,))
        db.execute("select dibs.supervise(%s, '{}', queue => %s)", (queue, queue))
        [job, *_] = client.claim(queue)
        db.execute("select dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token))
        client.fail(job, "once", delay=0)
        client.claim(queue)
    mail = login("dibs_observer", queues=["mail"])
    assert {job.queue for job in mail.find_jobs().jobs} == {"mail"}
    assert [q.name for q in mail.queues.list()] == ["mail"]
    with psycopg.connect(mail.dsn, autocommit=True) as conn:
        views = {
            "attempts": "queue",
            "running": "queue",
            "error_log": "queue",
            "supervised_processes": "name",
            "deliveries": "kind",
        }
        for view, column in views.items():
            seen = conn.execute(f"select distinct {column} from dibs.{view}").fetchall()
            assert seen == [("mail",)], view
    assert {q.name for q in client.queues.list()} == {"billing", "mail"}


def test_confinement_comes_with_membership_and_adds_up(client: dibs.Client, login: Login) -> None:
    first = login("dibs_producer", queues=["mail"])
    second = login("dibs_producer", queues=["news"])
    both = login(*(re.search(r"user=(\w+)", c.dsn)[1] for c in (first, second)))  # type: ignore[index]
    for queue in ("mail", "news"):
        both.enqueue(queue, "k")
    with pytest.raises(dibs.NotPermitted):
        both.enqueue("billing", "k")
    free = login("dibs_producer")
    assert free.enqueue("billing", "k").is_new
    assert client.enqueue("billing", "k").is_new


def test_confinement_can_be_changed_and_lifted(db: psycopg.Connection[Any], login: Login) -> None:
    mail = login("dibs_producer", queues=["mail"])
    name = re.search(r"user=(\w+)", mail.dsn)
    assert name
    assert db.execute("select role, queues from dibs.confinements").fetchall() == [(name[1], ["mail"])]
    db.execute("select dibs.confine(%s, '{news}')", (name[1],))
    mail.enqueue("news", "k")
    with pytest.raises(dibs.NotPermitted):
        mail.enqueue("mail", "k")
    db.execute("select dibs.confine(%s, null)", (name[1],))
    mail.enqueue("mail", "k")
    with pytest.raises(psycopg.Error, match="as dibs_admin"):
        db.execute("select dibs.confine('dibs_admin', '{mail}')")


def test_without_confined_roles_nothing_is_looked_up(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "k")
    assert db.execute("select bool_or(is_confined) from dibs.queue").fetchone() == (False,)
    db.execute("revoke all on function dibs.confined_to from public")
    db.execute("create or replace function dibs._check_queue_access(names text[]) returns void language plpgsql stable"
               " as $$ begin raise exception 'looked up'; end $$")  # fmt: skip
    client.enqueue("q", "k")
    assert client.claim("q")


def user(client: dibs.Client) -> str:
    """The login of a client."""
    found = re.search(r"user=(\w+)", client.dsn)
    assert found
    return found[1]


def ask(client: dibs.Client, statement: str, *args: Any) -> list[Any]:
    with psycopg.connect(client.dsn, autocommit=True) as conn:
        return conn.execute(statement, args).fetchall()


DECLARE = "select answer from dibs.declare_schedules(%s, %s)"


def schedule(name: str, queue: str, every: int = 60) -> str:
    return json.dumps([{"name": name, "rule": {"interval": every}, "job": {"queue": queue, "kind": "k"}}])


def test_what_is_taken_by_another_queue_is_refused_and_not_described(
    client: dibs.Client, login: Login, db: psycopg.Connection[Any]
) -> None:
    """Ids and names of schedules are shared by all queues: that one is taken cannot be hidden, all else is."""
    bill = client.enqueue("billing", "charge")
    db.execute(DECLARE, ("shop", schedule("nightly", "billing")))
    mail = login("dibs_producer", queues=["mail"])
    with pytest.raises(dibs.NotPermitted, match=f"a job cannot have the id {bill.id}"):
        mail.enqueue("mail", "k", id=bill.id)
    for name in (user(mail), "dibs"):
        db.execute("update dibs.schedule set declared_by = %s", (name,))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="'nightly' belongs to somebody else"):
            ask(mail, DECLARE, "shop", schedule("nightly", "mail"))
    assert client.status(bill.id).state is dibs.State.READY
    assert db.execute("select queue from dibs.schedules").fetchall() == [("billing",)]


def test_the_upkeep_of_a_confined_worker_covers_all_queues(
    login: Login, db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    """A worker of mail that did the schedules of all stopped those of every other queue."""
    clock.freeze()
    rule, job = '{"interval": 10, "overlap": "cancel"}', '{"queue": "billing", "kind": "k"}'
    db.execute("select dibs.set_schedule('s', %s, %s)", (rule, job))
    late = client.enqueue("billing", "late", ttl=5)
    worker = login("dibs_worker", queues=["mail"])
    for fired in (1, 2):
        clock.move(11)
        assert ask(worker, "select outcome from dibs.do_chore('schedule', true)") == [("done",)]
        assert db.execute("select fired, status_message from dibs.schedules").fetchall() == [(fired, None)]
    assert client.queues.depth("billing").cancelled == 1, "the run before"
    assert ask(worker, "select expired, next from dibs.expire(1)") == [(1, None)]
    assert client.status(late.id).state is dibs.State.EXPIRED


def test_a_chore_that_fails_tells_a_confined_worker_nothing(
    login: Login, db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    held = client.enqueue("billing", "k")
    client.claim("billing")
    clock.move(60)
    worker = login("dibs_worker", queues=["mail"])
    assert ask(worker, "select id, state from dibs.rescue()") == [(None, "ready")]
    assert client.status(held.id).state is dibs.State.READY
    db.execute("create or replace function dibs._delete_old_schedule_runs() returns void language plpgsql as"
               " $$ begin raise exception 'billing is odd'; end $$")  # fmt: skip
    [(outcome, error)] = ask(worker, "select outcome, error from dibs.do_chore('forget', true)")
    assert (outcome, "billing" in error) == ("failed", False)
    assert "billing is odd" in str(db.execute("select error from dibs.chores").fetchall())


def test_follow_ups_stay_within_the_queues_of_their_role(client: dibs.Client, login: Login) -> None:
    both = login("dibs_worker", "dibs_producer", queues=["mail"])
    client.enqueue("mail", "k")
    [job] = both.claim("mail")
    with pytest.raises(dibs.NotPermitted):
        both.complete(job, follow_ups=[dibs.NewJob(queue="billing")])
    assert both.complete(job, follow_ups=[dibs.NewJob(queue="mail")]) == "ok"


def test_a_schedule_belongs_to_the_login_that_declared_it(login: Login, db: psycopg.Connection[Any]) -> None:
    """Anyone who knew the name of an app could retire its schedules, or put others in their place."""
    team = login("dibs_producer")
    first, second, other = (
        login("dibs_producer", user(team)),
        login("dibs_producer", user(team)),
        login("dibs_producer"),
    )
    assert ask(first, DECLARE, "shop", schedule("s", "q")) == [("created",)]
    assert ask(other, DECLARE, "shop", schedule("s", "q")) == [("unchanged",)]
    assert ask(other, DECLARE, "shop", "[]") == []
    for app in ("shop", "another"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to somebody else"):
            ask(other, DECLARE, app, schedule("s", "evil"))
    assert ask(second, DECLARE, "shop", schedule("s", "q", 90)) == [("changed",)], "a login of the same team"
    assert db.execute("select declared_by, status from dibs.schedules").fetchall() == [(user(second), "healthy")]
    db.execute("update dibs.schedule set declared_by = 'gone'")
    assert ask(other, DECLARE, "another", schedule("s", "q")) == [("changed",)], "its login is gone"


def test_a_kind_cannot_be_drawn_to_another_queue(
    login: Login, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    """Producers that enqueue by name take the queue from the registry: jobs, with their payloads, would go there."""
    billing, mail = login("dibs_worker", queues=["billing"]), login("dibs_worker", queues=["mail"])
    register = "select dibs.set_tasks(jsonb_build_array(jsonb_build_object('kind', 'charge', 'queue', %s::text)))"
    found = "select queue from dibs.find_task('charge')"
    ask(billing, register, "billing")
    assert ask(mail, register, "billing") == [(0,)]
    assert ask(mail, register, "mail") == [(1,)]
    assert db.execute(found).fetchall() == [("billing",)]
    assert (ask(mail, found), ask(billing, found)) == ([("mail",)], [("billing",)])
    db.execute(register, ("moved",))
    assert db.execute(found).fetchall() == [("moved",)]
    assert len(client.workers.tasks()) == 1


def test_a_process_is_of_one_queue(login: Login, db: psycopg.Connection[Any]) -> None:
    """The first to name a process had it: a confined producer could hasten others' supervisors, or take their place."""
    supervise = "select outcome from dibs.supervise('invoice/7', '{}', %s, %s)"
    db.execute(supervise, ("1 hour", "billing"))
    mail = login("dibs_producer", queues=["mail"])
    assert ask(mail, supervise, "0", "mail") == [("enqueued",)]
    assert ask(mail, supervise, "1 day", "mail") == [("duplicate",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(mail, supervise, "0", "billing")
    states = db.execute("select queue, state from dibs.supervised_processes order by 1").fetchall()
    assert states == [("billing", "scheduled"), ("mail", "ready")]


def test_only_null_lifts_a_confinement(login: Login, db: psycopg.Connection[Any]) -> None:
    """An empty list, as from a settings file, opened everything."""
    mail = login("dibs_producer", queues=["mail"])
    with pytest.raises(psycopg.Error, match="confine needs the names of the queues") as refused:
        db.execute("select dibs.confine(%s, '{}')", (user(mail),))
    assert refused.value.sqlstate == "DI010"
    with pytest.raises(dibs.NotPermitted):
        mail.enqueue("billing", "k")


def test_why_names_no_job_of_another_queue(client: dibs.Client, login: Login) -> None:
    client.limits.set(kind="render", concurrency=1)
    held = client.enqueue("billing", "render")
    assert client.claim("billing")
    mine = client.enqueue("mail", "render")
    assert client.claim("mail") == []
    assert str(held.id) in client.why(mine.id)
    told = login("dibs_producer", queues=["mail"]).why(mine.id)
    assert "1 holds it: a job of another queue" in told
    assert str(held.id) not in told


def test_a_refusal_says_which_role_has_the_right(client: dibs.Client, login: Login) -> None:
    client.enqueue("mail", "k")
    producer = login("dibs_producer")
    for ask, roles in (
        (lambda: producer.queues.pause("mail"), "dibs_admin or dibs_pause"),
        (lambda: producer.claim("mail"), "dibs_admin or dibs_worker"),
        (producer.find_jobs, "dibs_admin or dibs_observer"),
    ):
        with pytest.raises(dibs.NotPermitted) as refused:
            ask()
        assert refused.value.hint == f"that takes {roles}; see: dibs grants give --help"
    with pytest.raises(dibs.NotPermitted, match="schema dibs") as refused:
        login().enqueue("mail", "k")
    assert "one of dibs_producer, dibs_worker" in (refused.value.hint or "")


def test_a_producer_reads_what_its_job_returned(client: dibs.Client, login: Login) -> None:
    client.queues.set("other")
    web, stranger = login("dibs_producer"), login("dibs_producer", queues=["other"])
    job = web.job(web.enqueue("mail", "k").id)
    assert job.result() is None
    client.complete(client.claim("mail")[0], {"sent": 1})
    assert (job.wait(5), job.status().state) == ({"sent": 1}, "succeeded")
    assert stranger.status(job.id).result is None, "as if there were no such job"


def test_the_end_of_a_confinement_turns_nothing_on(db: psycopg.Connection[Any]) -> None:
    db.execute("select dibs.confine('dibs_worker', null)")
    assert db.execute("select confined from dibs.setting").fetchone() == (False,)
    db.execute("select dibs.confine('dibs_admin', null)")
