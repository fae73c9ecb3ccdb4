"""The registry of workers: what they say of themselves, and asking one to stop."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from dibs.db import calls
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    from tests.conftest import Connect
    from tests.sql.conftest import Login

__all__ = ["later"]


def test_a_worker_says_what_it_uses_and_keeps_what_it_does_not_say_again(client: dibs.Client) -> None:
    secret, number = client._run(calls.workers.register_worker("w", {}))
    [worker] = client.workers.list()
    assert (worker.id, worker.cpu, worker.memory, worker.stop_asked_at) == (number, None, None, None)
    assert client._run(calls.workers.beat_worker(secret, cpu=0.25, memory=10**8)) is False
    client._run(calls.workers.beat_worker(secret))
    [worker] = client.workers.list()
    assert (worker.cpu, worker.memory) == (0.25, 10**8)
    for cpu, memory in ((-1, 1), (float("nan"), 1), (1, -1)):
        with pytest.raises(dibs.errors.InvalidPolicy):
            client._run(calls.workers.beat_worker(secret, cpu=cpu, memory=memory))


def test_a_worker_that_is_asked_to_stop_hears_of_it_and_nobody_else_can_tell_which_it_is(
    client: dibs.Client, dsn: str
) -> None:
    secret, number = client._run(calls.workers.register_worker("w", {}))
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute("listen dibs")
        with dibs.acting_as("ann"):
            assert client.workers.stop(number) is dibs.Answer.REQUESTED
        [rung] = [note.payload for note in listening.notifies(timeout=10, stop_after=1)]
    assert rung == "stop " + hashlib.sha256(secret.bytes).hexdigest()[:16]
    [asked] = [worker.stop_asked_at for worker in client.workers.list()]
    assert asked is not None
    assert client._run(calls.workers.beat_worker(secret)) is True
    client.workers.stop(number)
    assert [worker.stop_asked_at for worker in client.workers.list()] == [asked]
    audit = client.audit()[-1]
    assert (audit.verb, audit.actor, audit.detail) == ("stop_worker", "ann", {"worker": number, "name": "w"})
    with pytest.raises(dibs.errors.UnknownWorker, match="there is no worker 4711"):
        client.workers.stop(4711)


def test_who_may_stop_a_worker(db: psycopg.Connection[Any], login: Login, client: dibs.Client) -> None:
    client.queues.set("ours")
    client.queues.set("theirs")
    _, theirs = client._run(calls.workers.register_worker("t", {"queues": ["theirs"]}))
    _, both = client._run(calls.workers.register_worker("b", {"queues": ["ours", "theirs"]}))
    _, ours = client._run(calls.workers.register_worker("o", {"queues": ["ours"]}))
    for role in ("dibs_producer", "dibs_worker", "dibs_observer"):
        with pytest.raises(dibs.NotPermitted):
            login(role).workers.stop(ours)
    # A role that is confined stops those that work on its queues alone, if it may stop any.
    db.execute("grant execute on function dibs.stop_worker to dibs_observer")
    confined = login("dibs_observer", queues=["ours"])
    for number in (theirs, both):
        with pytest.raises(dibs.errors.UnknownWorker):
            confined.workers.stop(number)
    confined.workers.stop(ours)
    asked = db.execute("select id from dibs.workers where stop_asked_at is not null").fetchall()
    assert asked == [(ours,)]


def test_a_worker_that_is_forgotten_while_it_beats_is_told_so(
    db: psycopg.Connection[Any], connect: Connect, client: dibs.Client, later: Later
) -> None:
    secret, _ = client._run(calls.workers.register_worker("w", {}))
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("select dibs.retire_worker(%s)", (secret,))
    beating = later.start(other, "select dibs.beat_worker(%s)", secret)
    assert not beating.done()
    one.execute("commit")
    with pytest.raises(psycopg.Error) as unknown:
        beating.result()
    assert unknown.value.sqlstate == dibs.errors.UnknownWorker.sqlstate


def test_a_kind_that_two_move_at_once_is_where_the_second_put_it(
    db: psycopg.Connection[Any], connect: Connect, later: Later
) -> None:
    move = "select dibs.set_tasks(jsonb_build_array(jsonb_build_object('kind', 'k', 'queue', %s::text)))"
    one, other = connect(), connect()
    one.execute(move, ("old",))
    one.execute("begin")
    one.execute(move, ("first",))
    moving = later.start(other, move, "second")
    assert not moving.done()
    one.execute("commit")
    moving.result()
    assert db.execute("select kind, queue from dibs.task").fetchall() == [("k", "second")]
