"""Roles that may use some queues: they cannot touch, claim or see what is in others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs

if TYPE_CHECKING:
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
    assert (mail.state(bill.id), mail.state(mine.id)) == ("unknown", "cancelled")
    assert "There is no job" in mail.why(bill.id)
    assert client.state(bill.id) is dibs.State.READY
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
    assert (worker.depth("billing").ready, client.depth("billing").ready) == (0, 1)


def test_an_observer_of_one_queue_sees_no_other(client: dibs.Client, login: Login, db: psycopg.Connection[Any]) -> None:
    for queue in ("billing", "mail"):
        made = client.enqueue(queue, queue)
        db.execute("select dibs.append_error('oh', %s)", (made.id,))
        db.execute("select dibs.supervise(%s, '{}', queue => %s)", (queue, queue))
        [job, *_] = client.claim(queue)
        db.execute("select dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token))
        client.fail(job, "once", delay=0)
    mail = login("dibs_observer", queues=["mail"])
    assert {job.queue for job in mail.jobs()} == {"mail"}
    assert [q.name for q in mail.queues()] == ["mail"]
    with psycopg.connect(mail.dsn, autocommit=True) as conn:
        for view, column in (("attempts", "queue"), ("errors", "queue"), ("processes", "name"), ("deliveries", "kind")):
            seen = conn.execute(f"select distinct {column} from dibs.{view}").fetchall()
            assert seen == [("mail",)], view
    assert {q.name for q in client.queues()} == {"billing", "mail"}


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
    db.execute("create or replace function dibs._check_queues(names text[]) returns void language plpgsql stable"
               " as $$ begin raise exception 'looked up'; end $$")  # fmt: skip
    client.enqueue("q", "k")
    assert client.claim("q")
