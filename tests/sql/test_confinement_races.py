"""Roles are confined while queues are made and dropped in other transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.sql.test_confinement import user
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    from tests.conftest import Connect
    from tests.sql.conftest import Login

    Connection = psycopg.Connection[Any]

__all__ = ["later"]
CONFINE = "select from dibs.confine(%s, '{mail}')"
PUT = "select dibs.enqueue('news', 'k')"


@pytest.fixture
def mail(login: Login) -> dibs.Client:
    """A producer that is not confined yet."""
    return login("dibs_producer")


def is_guarded(db: Connection) -> bool:
    return db.execute("select is_confined from dibs.queue where name = 'news'").fetchone() == (True,)


def test_a_queue_made_in_an_open_transaction_is_guarded(
    db: Connection, connect: Connect, later: Later, mail: dibs.Client
) -> None:
    making, confining = connect(), connect()
    making.execute("begin")
    making.execute(PUT)
    confined = later.start(confining, CONFINE, user(mail))
    assert not confined.done()
    making.execute("commit")
    confined.result()
    assert is_guarded(db)


def test_a_queue_made_while_a_role_is_being_confined_is_guarded(
    db: Connection, connect: Connect, later: Later, mail: dibs.Client
) -> None:
    making, confining = connect(), connect()
    confining.execute("begin")
    confining.execute(CONFINE, (user(mail),))
    made = later.start(making, PUT)
    assert not made.done()
    confining.execute("commit")
    made.result()
    assert is_guarded(db)


@pytest.mark.parametrize("statement", [PUT, "select from dibs.set_queue('news')"], ids=["enqueue", "set_queue"])
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_queue_made_in_an_older_snapshot_is_not_made_unguarded(
    isolation: str, statement: str, db: Connection, connect: Connect, mail: dibs.Client
) -> None:
    making = connect()
    making.execute(f"begin isolation level {isolation}")
    making.execute("select count(*) from dibs.queue")
    db.execute(CONFINE, (user(mail),))
    with pytest.raises(psycopg.errors.SerializationFailure):
        making.execute(statement)
    making.execute("rollback")
    making.execute(statement)
    assert is_guarded(db)


def test_a_role_is_not_confined_in_an_older_snapshot(connect: Connect, mail: dibs.Client) -> None:
    """It would not see the queues made since, and leave them unguarded."""
    confining = connect()
    confining.execute("begin isolation level repeatable read")
    with pytest.raises(psycopg.Error) as refused:
        confining.execute(CONFINE, (user(mail),))
    assert refused.value.sqlstate == dibs.errors.WrongIsolation.sqlstate


def test_a_role_does_not_get_free_with_the_queue_it_is_confined_to(
    client: dibs.Client, db: Connection, mail: dibs.Client
) -> None:
    db.execute("select dibs.confine(%s, '{mail,post}')", (user(mail),))
    assert client.queues.drop("post")
    with pytest.raises(dibs.errors.QueueInUse, match="a role that is confined to it alone"):
        client.queues.drop("mail")
    with pytest.raises(dibs.NotPermitted):
        mail.enqueue("news", "k")
    db.execute("select dibs.confine(%s, '{letters}')", (user(mail),))
    assert client.queues.drop("mail")
    with pytest.raises(dibs.NotPermitted):
        mail.enqueue("news", "k")


def test_a_role_confined_while_its_queue_is_dropped_gets_it_again(
    db: Connection, connect: Connect, later: Later, mail: dibs.Client
) -> None:
    db.execute("select dibs.set_queue('mail')")
    dropping, confining = connect(), connect()
    dropping.execute("begin")
    dropping.execute("select dibs.drop_queue('mail')")
    confined = later.start(confining, CONFINE, user(mail))
    assert not confined.done()
    dropping.execute("commit")
    confined.result()
    assert mail.enqueue("mail", "k").is_new
    with pytest.raises(dibs.NotPermitted):
        mail.enqueue("news", "k")
