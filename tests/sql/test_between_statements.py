"""A commit between two statements of a verb loses no ticket, strands none, and makes no verb fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.sql.halting import halted
from tests.sql.test_races import Later
from tests.sql.test_shards import workers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from dibs.testing import Clock
    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

TICKETS = """
select j.id, count(t.id) from dibs.job as j left join (
  select id from dibs.ready union all select id from dibs.blocked union all select id from dibs.lease
  union all select id from dibs.dead) as t on t.id = j.id
group by j.id
"""


@pytest.fixture
def later(connect: Connect) -> Iterator[Later]:
    later = Later(connect())
    yield later
    later.close()


def misplaced(db: Connection) -> list[UUID]:
    """Unfinished jobs that have no ticket, and so read as succeeded, or that have two."""
    return [id for id, tickets in db.execute(TICKETS).fetchall() if tickets != 1]


def work_off(client: dibs.Client, *queues: str) -> int:
    """Claim and complete all there is; how many jobs that was."""
    done = 0
    while jobs := client.claim(list(queues or ("q",)), 100):
        client.complete_many(jobs)
        done += len(jobs)
    return done


def refusal(pending: Any) -> str | None:
    with pytest.raises(psycopg.DatabaseError) as raised:
        pending.result()
    return raised.value.sqlstate


def enqueue(client: dibs.Client, count: int, queue: str = "q", **options: Any) -> list[UUID]:
    return [m.id for m in client.enqueue_many(dibs.NewJob(queue=queue, kind="k", **options) for _ in range(count))]


# Limits


@pytest.mark.parametrize("of", ["kind => 'k'", "resource => 'gpu'"])
def test_a_limit_that_is_unset_while_a_claim_lets_jobs_wait_for_it(
    of: str, connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    enqueue(client, 10, resources={"gpu": 1})
    db.execute(f"select dibs.set_limit({of}, concurrency => 1)")
    with halted(db, "_block_tickets"):
        claim = later.start(connect(), "select id from dibs.claim('{q}', 5)")
        assert not claim.done()
        db.execute(f"select dibs.drop_limit({of})")
    claimed = len(claim.result())
    assert misplaced(db) == []
    assert claimed + work_off(client) == 10


def test_a_limit_that_was_replaced_while_a_claim_lets_jobs_wait_for_it(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    enqueue(client, 10)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 1)")
    with halted(db, "_block_tickets"):
        claim = later.start(connect(), "select id from dibs.claim('{q}', 5)")
        db.execute("select dibs.drop_limit(kind => 'k')")
        db.execute("select dibs.set_limit(kind => 'k', rate => 1000)")
    claimed = len(claim.result())
    assert misplaced(db) == []
    assert claimed + work_off(client) == 10


def test_nothing_is_left_of_a_limit_that_was_unset(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    enqueue(client, 10)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 1, rate => 1000)")
    with halted(db, "_block_tickets"):
        claim = later.start(connect(), "select id from dibs.claim('{q}', 5)")
        db.execute("select dibs.drop_limit(kind => 'k')")
    assert len(claim.result()) + work_off(client) == 10
    for _ in range(2):  # One sees that the limit is unset, and a later one that all claims of that time are over.
        assert db.execute("select dibs.repair_limits()").fetchone() == (0,)
    for table in ("limit_rule", "limit_unit", "limit_rate", "blocked"):
        assert db.execute(f"select count(*) from dibs.{table}").fetchone() == (0,), table


def test_the_upkeep_brings_back_what_waits_for_a_limit_that_is_gone(client: dibs.Client, db: Connection) -> None:
    """As an older version left it: without any limit."""
    enqueue(client, 3)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 1)")
    [held] = client.claim("q", 3)
    db.execute("delete from dibs.limit_rule")
    db.execute("select dibs.do_chore('repair_limits', true)")
    assert client.queues.depth("q").blocked == 0
    client.complete(held)
    assert work_off(client) == 2


def test_a_rate_that_is_set_while_a_claim_counts_what_it_needs(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    enqueue(client, 4, resources={"gpu": 1})
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 2)")
    with halted(db, "_take_units"):
        claim = later.start(connect(), "select id from dibs.claim('{q}', 4)")
        db.execute("select dibs.set_limit(kind => 'k', rate => 1000)")
    assert len(claim.result()) == 2
    assert misplaced(db) == []


def test_a_rate_that_is_taken_away_while_a_claim_spends_from_it(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    """What an earlier claim, still in flight, writes back of the rate is found by the next."""
    enqueue(client, 4)
    db.execute("select dibs.set_limit(kind => 'k', rate => 1000)")
    with halted(db, "_take_tokens"):
        claim = later.start(connect(), "select id from dibs.claim('{q}', 4)")
        db.execute("select dibs.drop_limit(kind => 'k')")
        db.execute("insert into dibs.limit_rate (limit_id, tat) select id, dibs.now() from dibs.limit_rule")
        db.execute("insert into dibs.limit_rate (limit_id, tat) select 1, dibs.now()")
    done = len(claim.result())
    assert misplaced(db) == []
    assert done + work_off(client) == 4
    db.execute("select dibs.repair_limits()")
    assert db.execute("select count(*) from dibs.limit_rate").fetchone() == (0,)


def test_a_rate_that_is_set_while_a_claim_holds_a_reservation_starts_with_its_burst(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    """The claim returns tokens that it took of the earlier rate; the new one gains none by it."""
    enqueue(client, 3)
    db.execute("select dibs.set_limit(queue => 'q', rate => 0.001, burst => 10)")
    with halted(db, "_return_tokens"):
        claim = later.start(connect(), "select id from dibs.claim('{q}', 10)")
        db.execute("select dibs.set_limit(queue => 'q', rate => 0.002, burst => 5)")
    assert len(claim.result()) == 3
    enqueue(client, 10)
    assert len(client.claim("q", 10)) == 5
    assert misplaced(db) == []


def test_a_reservation_returns_the_tokens_and_units_that_it_does_not_use(client: dibs.Client, db: Connection) -> None:
    enqueue(client, 3)
    db.execute("select dibs.set_limit(queue => 'q', concurrency => 8, rate => 0.001, burst => 10)")
    for expected in (3, 0):
        assert len(client.claim("q", 10)) == expected
    assert db.execute("select sum(units) from dibs.limit_unit").fetchone() == (5,)
    enqueue(client, 20)
    jobs = client.claim("q", 20)
    assert len(jobs) == 5, "8 units, of which 3 are held; 7 tokens"
    client.complete_many(jobs)
    assert [len(client.claim("q", 20)) for _ in range(2)] == [2, 0]
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)


def test_claims_that_pay_what_two_lowered_limits_owe_do_not_wait_for_each_other(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    held = {}
    for queue in ("a", "b"):
        enqueue(client, 5, queue)
        db.execute("select dibs.set_limit(queue => %s, concurrency => 3)", (queue,))
        held[queue] = client.claim(queue, 3)
        db.execute("select dibs.set_limit(queue => %s, concurrency => 1)", (queue,))
        client.complete(held[queue][0])
    one, other = connect(), connect()
    claim = "select id from dibs.claim(%s, 5)"
    for conn, queue in ((one, "a"), (other, "b")):
        conn.execute("begin")
        assert conn.execute(claim, ([queue],)).fetchall() == []
    for queue in ("a", "b"):
        client.complete_many(held[queue][1:])
    crossed = [later.start(one, claim, ["b"]), later.start(other, claim, ["a"])]
    assert [pending.result() for pending in crossed] == [[], []]
    one.execute("commit")
    other.execute("commit")
    assert [len(client.claim(queue, 5)) for queue in ("a", "b")] == [1, 1]
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)


def test_a_run_that_ends_while_its_limit_gets_a_concurrency_again_loses_no_unit(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    """Units that a lease holds of an earlier limit are not those of the limit there is now."""
    enqueue(client, 6)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 4)")
    held = client.claim("q", 2)
    db.execute("select dibs.set_limit(kind => 'k', rate => 1000000)")
    ending = connect()
    ending.execute("begin")
    ending.execute("select dibs.complete(%s, %s)", (held[0].id, held[0].token))
    setting = later.start(connect(), "select dibs.set_limit(kind => 'k', concurrency => 4)")
    ending.execute("commit")
    setting.result()
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)
    assert len(client.claim("q", 10)) == 3


def test_units_above_a_limit_are_owed(client: dibs.Client, db: Connection) -> None:
    enqueue(client, 9)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 2)")
    db.execute("insert into dibs.limit_unit (limit_id, units, freed_at) select id, 3, dibs.now() from dibs.limit_rule")
    assert db.execute("select dibs.repair_limits()").fetchone() == (1,)
    assert db.execute("select min(units) from dibs.limit_unit").fetchone() == (1,)
    assert len(client.claim("q", 9)) == 2
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)


def test_a_queue_made_while_a_limit_of_a_kind_is_set_obeys_it(
    connect: Connect, client: dibs.Client, db: Connection
) -> None:
    producer = connect()
    producer.execute("begin")
    for _ in range(5):
        producer.execute("select dibs.enqueue('q', 'k')")
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 1)")
    producer.execute("commit")
    assert len(client.claim("q", 5)) == 1
    assert client.queues.depth("q").blocked == 4


def test_a_limit_of_a_kind_is_set_beside_a_producer_that_stays_open(connect: Connect, client: dibs.Client) -> None:
    """Nobody waits for a transaction that has noted something of its queue."""
    client.enqueue("q", "k")
    producer = connect()
    producer.execute("begin")
    producer.execute("""select dibs.enqueue('q', 'k', resources => '{"gpu": 1}', "group" => 'g')""")
    setter = connect()
    setter.execute("set statement_timeout = '5s'")
    setter.execute("select dibs.set_limit(kind => 'k', concurrency => 1)")
    assert len(client.claim("q", 5)) == 1
    producer.execute("commit")


def test_two_workers_drop_one_declared_limit(connect: Connect, later: Later) -> None:
    one, other = connect(), connect()
    declare = "select answer from dibs.declare_limits(%s)"
    one.execute(declare, (json.dumps([{"kind": "k", "concurrency": 2}]),))
    none = json.dumps([{"kind": "k", "concurrency": None}])
    one.execute("begin")
    assert one.execute(declare, (none,)).fetchall() == [("removed",)]
    second = later.start(other, declare, none)
    one.execute("commit")
    assert second.result() == [("unchanged",)]


@pytest.mark.parametrize("most", [1000001, 9999999])
def test_a_declared_limit_is_at_most_a_million(most: int, shared_db: Connection) -> None:
    with pytest.raises(psycopg.DatabaseError, match="from 0 to 1000000") as raised:
        shared_db.execute("select * from dibs.declare_limits(%s)", (json.dumps([{"kind": "k", "concurrency": most}]),))
    assert raised.value.sqlstate == "DI010"


def test_a_job_that_waits_for_a_rate_needs_its_units_too(client: dibs.Client, db: Connection) -> None:
    enqueue(client, 5, resources={"gpu": 3})
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 9, rate => 0.001, burst => 1)")
    assert len(client.claim("q", 2)) == 1
    assert client.queues.depth("q").blocked == 4
    assert db.execute("select distinct units from dibs.blocked").fetchall() == [(3,)]


def test_a_rate_that_is_changed_beside_a_claim_is_one_rate(
    connect: Connect, client: dibs.Client, db: Connection, clock: Clock
) -> None:
    """Of two rows that the change leaves, the older takes no one's place."""
    clock.freeze()
    enqueue(client, 40)
    db.execute("select dibs.set_limit(queue => 'q', rate => 10, burst => 10)")
    one, other = connect(), connect()
    one.execute("begin")
    assert len(one.execute("select from dibs.claim('{q}', 1)").fetchall()) == 1
    db.execute("select dibs.set_limit(queue => 'q', rate => 10.5, burst => 10)")
    one.execute("commit")
    one.execute("begin")
    started = len(one.execute("select from dibs.claim('{q}', 20)").fetchall())
    started += len(other.execute("select from dibs.claim('{q}', 20)").fetchall())
    one.execute("commit")
    started += len(other.execute("select from dibs.claim('{q}', 20)").fetchall())
    assert started <= 10
    db.execute("select dibs.repair_limits()")
    assert db.execute("select count(*) from dibs.limit_rate").fetchone() == (1,)


def test_two_repairs_at_once_mend_a_limit_once(connect: Connect, client: dibs.Client, db: Connection) -> None:
    enqueue(client, 9)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 5)")
    db.execute("delete from dibs.limit_unit")
    one, other = connect(), connect()
    one.execute("begin")
    assert one.execute("select dibs.repair_limits()").fetchone() == (1,)
    assert other.execute("select dibs.repair_limits()").fetchone() == (0,)
    one.execute("commit")
    assert len(client.claim("q", 9)) == 5


def test_a_repair_keeps_no_claim_waiting(connect: Connect, client: dibs.Client, db: Connection) -> None:
    """Also within `maintain`, which is one transaction."""
    enqueue(client, 2)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 5)")
    db.execute("select dibs.drop_limit(kind => 'k')")
    upkeep = connect()
    upkeep.execute("begin")
    upkeep.execute("select dibs.repair_limits(), dibs.repair_limits()")
    db.execute("set statement_timeout = '5s'")
    assert len(db.execute("select id from dibs.claim('{q}', 5)").fetchall()) == 2


# Operators


def test_a_move_behind_the_drop_of_its_queue_is_refused(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    [dead, *waiting] = enqueue(client, 3)
    client.fail(client.claim("q")[0], "no", final=True)
    client.queues.set("to")
    dropper = connect()
    dropper.execute("begin")
    dropper.execute("select dibs.drop_queue('to')")
    move = later.start(connect(), """select done from dibs.move('{"queue": "q"}', 'to')""")
    assert not move.done()
    dropper.execute("commit")
    assert refusal(move) == "DI011"
    assert misplaced(db) == []
    assert client.status(dead).state is dibs.State.FAILED
    assert {client.status(id).state for id in waiting} == {dibs.State.READY}


def test_a_policy_behind_the_drop_of_its_queue_is_refused(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    client.queues.set("to")
    dropper = connect()
    dropper.execute("begin")
    dropper.execute("select dibs.drop_queue('to')")
    unset = later.start(connect(), "select dibs.drop_group('to', 'g')")
    dropper.execute("commit")
    assert refusal(unset) == "DI011"
    assert db.execute("select count(*) from dibs.group_policy").fetchone() == (0,)


def test_an_undo_gives_a_job_that_ran_meanwhile_no_old_run(
    connect: Connect, client: dibs.Client, db: Connection, clock: Clock, later: Later
) -> None:
    """Its next run would have the number of one that is in the history, and a rescue would fail for everybody."""
    clock.freeze()
    first, second = enqueue(client, 2)
    locker = connect()
    locker.execute("begin")
    locker.execute("select from dibs.ready where id = %s for update", (first,))
    cancel = later.start(connect(), """select operation from dibs.cancel_where('{"queue": "q"}')""")
    [held] = client.claim("q", 2)
    assert held.id == second
    client.release(held)
    locker.execute("commit")
    [(operation,)] = cancel.result()
    assert {client.status(id).state for id in (first, second)} == {dibs.State.CANCELLED}
    assert db.execute("select done from dibs.undo(%s)", (operation,)).fetchone() == (2,)
    enqueue(client, 1, "other")
    assert len(client.claim(["q", "other"], 5)) == 3
    clock.move(600)
    assert db.execute("select count(*) from dibs.rescue()").fetchone() == (3,)
    runs = {job.id: job.run for job in client.claim(["q", "other"], 5)}
    assert (runs[first], runs[second]) == (2, 3)


def test_an_undo_brings_back_a_job_that_was_released_while_it_was_cancelled(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    first, second = enqueue(client, 2)
    [held] = [job for job in client.claim("q", 2) if job.id == second or client.release(job) is None]
    locker = connect()
    locker.execute("begin")
    locker.execute("select from dibs.ready where id = %s for update", (first,))
    cancel = later.start(connect(), """select operation from dibs.cancel_where('{"queue": "q"}')""")
    client.release(held)
    locker.execute("commit")
    [(operation,)] = cancel.result()
    assert {client.status(id).state for id in (first, second)} == {dibs.State.CANCELLED}
    assert db.execute("select done from dibs.undo(%s)", (operation,)).fetchone() == (2,)
    assert {client.status(id).state for id in (first, second)} == {dibs.State.READY}


@pytest.mark.parametrize(
    "change",
    ["select dibs.set_queue('q', '{\"lease\": 40}')", "select dibs.pause('q')", "select from dibs.resume('q')"],
)
def test_a_switch_that_a_producer_sets_while_shards_change_stays_set(
    change: str, connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    client.queues.set("q", shards=2)
    if "resume" in change:
        client.queues.pause("q")
    operator, producer = connect(), connect()
    operator.execute("begin")
    operator.execute(change)
    jobs = [{"queue": "q", "kind": "k", "shard_key": str(n), "group": "g", "resources": {"gpu": 1}} for n in range(20)]
    enqueued = later.start(producer, "select count(*) from dibs.enqueue_many(%s)", json.dumps(jobs))
    operator.execute("commit")
    assert enqueued.result() == [(20,)]
    switches = "select bool_and(has_groups and has_job_limits) from dibs.queue where name like 'q%'"
    assert db.execute(switches).fetchone() == (True,)


def test_an_edit_behind_an_edit_changes_the_job(connect: Connect, client: dibs.Client, later: Later) -> None:
    [id] = enqueue(client, 1)
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("""select dibs.edit(%s, '{"priority": 9}')""", (id,))
    second = later.start(other, "select dibs.edit(%s, %s)", id, '{"payload": {"n": 2}}')
    one.execute("commit")
    assert second.result() == [("changed",)]
    [job] = client.claim("q")
    assert (job.priority, job.payload) == (9, {"n": 2})


def test_an_edit_that_makes_the_first_large_job_waits_for_the_queue_before_the_key(
    connect: Connect, client: dibs.Client, later: Later
) -> None:
    id = client.enqueue("q", "k", dedup_key="d").id
    producer, operator = connect(), connect()
    large = {"queue": "q", "kind": "k", "payload": "x" * 70_000}
    producer.execute("begin")
    producer.execute("select from dibs.enqueue_many(%s)", (json.dumps([large]),))
    edited = later.start(operator, "select dibs.edit(%s, %s)", id, json.dumps({"payload": "y" * 70_000}))
    assert not edited.done()
    replacement = {"queue": "q", "kind": "k", "dedup_key": "d", "on_duplicate": "replace"}
    producer.execute("select from dibs.enqueue_many(%s)", (json.dumps([replacement]),))
    producer.execute("commit")
    assert edited.result() == [("changed",)]


def test_an_edit_behind_a_release_changes_the_job(connect: Connect, client: dibs.Client, later: Later) -> None:
    [id] = enqueue(client, 1)
    one, other = connect(), connect()
    one.execute("begin")
    [(id, token)] = one.execute("select id, token from dibs.claim('{q}')").fetchall()
    second = later.start(other, "select dibs.edit(%s, %s)", id, '{"priority": 9}')
    one.execute("select dibs.release(%s, %s)", (id, token))
    one.execute("commit")
    assert second.result() == [("changed",)]
    assert client.claim("q")[0].priority == 9


@pytest.mark.parametrize(
    "change", ["edit(%s, '{\"priority\": 9}')", "move(jsonb_build_object('ids', array[%s]), 'to')"]
)
def test_a_job_that_is_changed_is_replaced_after_that(
    change: str, connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    client.queues.set("to")
    old = client.enqueue("q", "k", dedup_key="x")
    operator = connect()
    operator.execute("begin")
    operator.execute(f"select from dibs.{change}", (old.id,))
    enqueued = later.start(
        connect(), "select * from dibs.enqueue('q', 'k', dedup_key => 'x', on_duplicate => 'replace')"
    )
    operator.execute("commit")
    [(new, outcome)] = enqueued.result()
    assert outcome == "replaced"
    assert client.status(old.id).state is dibs.State.CANCELLED
    assert db.execute("select id from dibs.ready").fetchall() == [(new,)]


def test_a_job_that_a_claim_only_looks_at_is_replaced(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    """A claim may lock a ticket and let it wait on."""
    old = client.enqueue("q", "k", dedup_key="x")
    claimer = connect()
    claimer.execute("begin")
    claimer.execute("select from dibs.ready where id = %s for update", (old.id,))
    enqueued = later.start(
        connect(), "select outcome from dibs.enqueue('q', 'k', dedup_key => 'x', on_duplicate => 'replace')"
    )
    claimer.execute("rollback")
    assert enqueued.result() == [("replaced",)]
    assert db.execute("select count(*) from dibs.ready").fetchone() == (1,)


@pytest.mark.parametrize("change", ["edited", "moved"])
def test_a_dead_job_that_was_changed_is_claimed_when_it_comes_back(
    change: str, client: dibs.Client, db: Connection
) -> None:
    """Its priority may be one that the queue has never had."""
    client.queues.set("to")
    [id] = enqueue(client, 1, priority=9 if change == "moved" else None)
    client.fail(client.claim("q")[0], "no", final=True)
    if change == "edited":
        client.edit(id, priority=9)
    else:
        db.execute("""select dibs.move('{"queue": "q"}', 'to')""")
    assert client.retry({"ids": [id]}).done == 1
    assert [job.id for job in client.claim(["q", "to"])] == [id]


def test_a_drop_behind_a_split_takes_the_shards_too(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    client.queues.set("q")
    operator = connect()
    operator.execute("begin")
    operator.execute("""select dibs.set_queue('q', '{"shards": 4}')""")
    drop = later.start(connect(), "select dibs.drop_queue('q')")
    operator.execute("commit")
    drop.result()
    assert db.execute("select count(*) from dibs.queue").fetchone() == (0,)


@pytest.mark.parametrize(
    "what", ["set_limit(queue => 'q', concurrency => 1)", "set_group('q', 'g', '{\"weight\": 2}')"]
)
def test_a_queue_that_is_being_split_takes_no_limit_of_its_own(
    what: str, connect: Connect, client: dibs.Client, later: Later
) -> None:
    client.queues.set("q")
    operator = connect()
    operator.execute("begin")
    operator.execute("""select dibs.set_queue('q', '{"shards": 4}')""")
    setting = later.start(connect(), f"select dibs.{what}")
    operator.execute("commit")
    assert refusal(setting) == "DI010"
    client.queues.set("q", lease=40)


def test_a_job_for_a_queue_that_is_split_meanwhile_goes_to_its_shard(
    client: dibs.Client, db: Connection, later: Later, connect: Connect
) -> None:
    keys = [str(n) for n in range(20)]
    jobs = json.dumps([{"queue": "q", "kind": key, "shard_key": key} for key in keys])
    with halted(db, "_check_queue_access"):
        producer = later.start(connect(), "select count(*) from dibs.enqueue_many(%s)", jobs)
        db.execute("""select dibs.set_queue('q', '{"shards": 8}')""")
    assert producer.result() == [(20,)]
    assert db.execute("select count(distinct shard) > 1 from dibs.jobs").fetchone() == (True,)


def test_a_policy_behind_another_is_written_down(connect: Connect, client: dibs.Client, later: Later) -> None:
    client.queues.set("q", ttl=60)
    first = connect()
    first.execute("begin")
    first.execute("""select dibs.set_queue('q', '{"ttl": "2 minutes"}')""")
    second = later.start(connect(), """select dibs.set_queue('q', '{"ttl": "1 minute"}')""")
    first.execute("commit")
    second.result()
    last, before, _ = (entry.detail for entry in client.audit() if entry.verb == "set_queue")
    assert before == {"policy": {"ttl": "2 minutes"}, "before": {"ttl": "00:01:00"}}
    assert last == {"policy": {"ttl": "1 minute"}, "before": {"ttl": "00:02:00"}}


def test_a_queue_becomes_exclusive_behind_a_claim_in_flight(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    enqueue(client, 2)
    claimer = connect()
    claimer.execute("begin")
    assert len(claimer.execute("select * from dibs.claim('{q}')").fetchall()) == 1
    change = later.start(connect(), """select dibs.set_queue('q', '{"exclusive": true}')""")
    assert not change.done()
    claimer.execute("commit")
    change.result()
    [worker] = workers(db, 1)
    rows = db.execute("select claimable from dibs.hold_shards(%s, '{q}')", (worker,)).fetchall()
    assert rows == [(False,)]


def test_a_purge_leaves_what_was_moved_away(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    client.queues.set("to")
    enqueue(client, 3)
    operator = connect()
    operator.execute("begin")
    operator.execute("""select dibs.move('{"queue": "q"}', 'to')""")
    purge = later.start(connect(), "select done from dibs.purge('q')")
    operator.execute("commit")
    assert purge.result() == [(0,)]
    assert client.queues.depth("to").ready == 3


def test_a_delete_of_failed_jobs_leaves_one_that_succeeded_meanwhile(
    client: dibs.Client, db: Connection, later: Later, connect: Connect
) -> None:
    [id] = enqueue(client, 1)
    client.fail(client.claim("q")[0], "no", final=True)
    with halted(db, "_find_deletable"):
        delete = later.start(connect(), """select done from dibs.delete('{"queue": "q", "states": ["failed"]}')""")
        client.retry({"ids": [id]})
        client.complete(client.claim("q")[0])
    assert delete.result() == [(0,)]
    assert client.status(id).state is dibs.State.SUCCEEDED


@pytest.mark.parametrize("ends", ["failed", "succeeded"])
def test_a_delete_leaves_a_job_whose_last_run_is_not_counted(
    ends: str, client: dibs.Client, db: Connection, later: Later, connect: Connect
) -> None:
    [id] = enqueue(client, 1)
    client.fail(client.claim("q")[0], "no", final=True)
    with halted(db, "_lock_dead"):
        delete = later.start(connect(), """select done from dibs.delete('{"queue": "q"}')""")
        db.execute("select dibs._retry_jobs(array[%s], null, '0', true, dibs.now())", (id,))
        [job] = client.claim("q")
        client.complete(job) if ends == "succeeded" else client.fail(job, "no", final=True)
    assert delete.result() == [(0,)]
    assert client.status(id).state == ends
    client.upkeep.roll_up()
    assert client.delete({"queue": "q"}).done == 1
    assert db.execute("select sum(runs) from dibs.stat where grain = 'ever'").fetchone() == (2,)


def test_a_purge_leaves_a_job_whose_last_run_is_not_counted(
    client: dibs.Client, db: Connection, later: Later, connect: Connect
) -> None:
    ran, idle = enqueue(client, 2, group="g")
    with halted(db, "_withdraw_tickets"):
        purge = later.start(connect(), "select done from dibs.purge('q')")
        [job] = client.claim("q")
        client.fail(job, "no", delay=0)
    assert job.id == ran
    assert purge.result() == [(1,)]
    assert [client.status(id).state for id in (ran, idle)] == ["ready", "unknown"]
    assert misplaced(db) == []
    assert work_off(client) == 1


@pytest.mark.parametrize("change", ["moved", "retried", "waiting"])
def test_a_move_leaves_a_job_that_was_changed_since_it_was_found(
    change: str, client: dibs.Client, db: Connection, later: Later, connect: Connect
) -> None:
    for queue in ("to", "other"):
        client.queues.set(queue)
    [id] = enqueue(client, 1)
    filter = '{"queue": "q", "states": ["ready"]}'
    if change != "waiting":
        client.fail(client.claim("q")[0], "no", final=True)
        filter = '{"queue": "q", "states": ["failed"]}'
    with halted(db, "_move_jobs"):
        move = later.start(connect(), "select done from dibs.move(%s, 'to')", filter)
        if change == "retried":
            client.retry({"ids": [id]})
        else:
            db.execute(
                "select dibs._move_jobs_unhalted(array[%s], dibs._read_filter('move', '{}', '{ready,failed}'), q.id,"
                " dibs.now()) from dibs.queue as q where q.name = 'other'",
                (id,),
            )
    assert move.result() == [(0,)]
    row = db.execute("select queue from dibs.jobs where id = %s", (id,)).fetchone()
    assert row == ("q" if change == "retried" else "other",)


def test_an_edit_behind_a_purge_says_that_the_job_is_unknown(
    connect: Connect, client: dibs.Client, later: Later
) -> None:
    [id] = enqueue(client, 1)
    operator = connect()
    operator.execute("begin")
    operator.execute("select dibs.purge('q')")
    edit = later.start(connect(), """select dibs.edit(%s, '{"priority": 1}')""", id)
    operator.execute("commit")
    assert refusal(edit) == "DI002"


@pytest.mark.parametrize("change", ["cancelled", "moved", "deleted", "claimed"])
def test_a_retry_leaves_alone_what_was_changed_since_it_was_found(
    change: str, client: dibs.Client, db: Connection, later: Later, connect: Connect
) -> None:
    """It is no longer one that the filter chooses, and nobody's fault: it is not among those that are refused."""
    client.queues.set("to")
    [id] = enqueue(client, 1)
    client.fail(client.claim("q")[0], "no", final=True)
    client.upkeep.roll_up()
    statement = """select matched, done, refused from dibs.retry('{"queue": "q", "states": ["failed"]}')"""
    with halted(db, "_retake_dedup_keys"):
        retry = later.start(connect(), statement)
        if change == "moved":
            client.move({"queue": "q"}, "to")
        elif change == "deleted":
            assert client.delete({"ids": [id]}).done == 1
        else:
            db.execute("select dibs._retry_jobs(array[%s], null, '0', true, dibs.now())", (id,))
            if change == "claimed":
                assert len(client.claim("q")) == 1
            else:
                client.cancel(id)
    assert retry.result() == [(1, 0, [])]
    states = {"cancelled": "cancelled", "moved": "failed", "deleted": "unknown", "claimed": "running"}
    assert client.status(id).state == states[change]


def test_two_retries_and_an_undo_at_once_change_each_job_once(
    connect: Connect, client: dibs.Client, later: Later
) -> None:
    ids = enqueue(client, 4)
    for job in client.claim("q", 4):
        client.fail(job, "no", final=True)
    one, other = connect(), connect()
    one.execute("begin")
    first = one.execute("select done, operation from dibs.retry('{}', max => 2)").fetchone()
    assert first
    second = other.execute("select matched, done, refused from dibs.retry('{}')").fetchone()
    assert second == (4, 2, [{"id": str(id), "reason": "busy"} for id in ids[:2]])
    assert first[0] == 2
    one.execute("commit")
    assert len(client.claim("q", 10)) == 4
    assert client.undo(first[1]).done == 0
    assert client.retry({}).matched == 0


def test_an_undo_skips_what_a_claim_holds_and_a_claim_what_an_undo_holds(connect: Connect, client: dibs.Client) -> None:
    enqueue(client, 3)
    for job in client.claim("q", 3):
        client.fail(job, "no", final=True)
    done = client.retry({})
    claimer = connect()
    claimer.execute("begin")
    assert len(claimer.execute("select id from dibs.claim('{q}')").fetchall()) == 1
    undoer = connect()
    undoer.execute("begin")
    assert undoer.execute("select matched, done from dibs.undo(%s)", (done.operation,)).fetchone() == (3, 2)
    assert client.claim("q", 10) == []
    assert client.retry({}).matched == 0
    claimer.execute("rollback")
    undoer.execute("commit")
    depth = client.queues.depth("q")
    assert (depth.ready, depth.failed) == (1, 2)


def test_a_cancel_beside_a_retry_sees_the_job_dead_until_it_commits(
    connect: Connect, client: dibs.Client, later: Later
) -> None:
    [id] = enqueue(client, 1)
    client.fail(client.claim("q")[0], "no", final=True)
    operator = connect()
    operator.execute("begin")
    operator.execute("select from dibs.retry('{}')")
    with pytest.raises(dibs.JobEnded):
        client.cancel(id)
    operator.execute("commit")
    assert client.cancel(id) == "cancelled"


def test_a_cancel_of_waiting_jobs_asks_no_run_to_stop(
    connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    enqueue(client, 1)
    claimer = connect()
    claimer.execute("begin")
    [(id, token)] = claimer.execute("select id, token from dibs.claim('{q}')").fetchall()
    cancel = later.start(connect(), """select done from dibs.cancel_where('{"states": ["ready"]}')""")
    claimer.execute("commit")
    assert cancel.result() == [(0,)]
    assert db.execute("select answer from dibs.extend_many(array[%s], array[%s])", (id, token)).fetchone() == ("ok",)


def test_a_resume_that_gives_more_time_and_a_cancel_do_not_wait_in_a_circle(
    connect: Connect, client: dibs.Client, db: Connection, clock: Clock
) -> None:
    """A ticket that another transaction holds is left out."""
    clock.freeze()
    ids = enqueue(client, 3, ttl=5)
    client.queues.pause("q")
    clock.move(10)
    holder = connect()
    holder.execute("begin")
    holder.execute("select from dibs.ready where id = %s for update", (ids[1],))
    db.execute("set statement_timeout = '5s'")
    assert db.execute("select extended from dibs.resume('q', '1 minute')").fetchone() == (2,)


# Days


@pytest.mark.parametrize("has_claimed", [True, False])
def test_a_day_that_is_made_late_hides_no_job_from_a_claim(
    has_claimed: bool, connect: Connect, client: dibs.Client, clock: Clock, later: Later
) -> None:
    """The upkeep was off for weeks, so today's jobs lie in the default partition."""
    clock.freeze()
    clock.move(40 * 86400)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", payload={"n": n}) for n in range(4))
    maker, claimer = connect(), connect()
    if has_claimed:
        assert len(claimer.execute("select kind from dibs.claim('{q}', 2)").fetchall()) == 2
    maker.execute("begin")
    wait_until(lambda: made(maker), what="no other statement is in the way")
    claim = later.start(claimer, "select kind, payload is null from dibs.claim('{q}', 2)")
    assert not claim.done()
    maker.execute("commit")
    assert claim.result() == [("k", False)] * 2


def made(maker: Connection) -> bool:
    return "made" in {row[0] for row in maker.execute("select outcome from dibs.make_days()").fetchall()}


def test_a_day_that_is_made_late_refuses_no_producer(
    connect: Connect, client: dibs.Client, db: Connection, clock: Clock, later: Later
) -> None:
    clock.freeze()
    clock.move(40 * 86400)
    maker, producer = connect(), connect()
    enqueue(client, 3)
    producer.execute("select dibs.enqueue('q', 'k')")
    maker.execute("begin")
    wait_until(lambda: made(maker), what="no other statement is in the way")
    enqueued = later.start(producer, "select dibs.enqueue('q', 'k')")
    maker.execute("commit")
    assert len(enqueued.result()) == 1
    assert db.execute("select count(*) from dibs.job_default").fetchone() == (0,)
    assert work_off(client) == 5


@pytest.mark.parametrize(
    "change",
    ["set_queue('q', '{\"priority\": 9}')", "pause('q')", "resume('q')"],
)
def test_shards_are_locked_in_the_order_of_their_ids(
    change: str, connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    """A producer that notes groups of several shards locks them in that order: otherwise both wait in a circle."""
    client.queues.set("q", shards=3)
    if change.startswith("resume"):
        client.queues.pause("q")
    db.execute("update dibs.queue set ring = ring where name = 'q#1'")  # Its row lies behind that of q#2 from now on.
    db.execute("vacuum dibs.queue")
    producer, operator, other = connect(), connect(), connect()
    producer.execute("begin")
    producer.execute("select from dibs.queue where name = 'q#1' for update")
    changing = later.start(operator, f"select from dibs.{change}")
    assert not changing.done()
    try:
        other.execute("select from dibs.queue where name = 'q#2' for update nowait")
    finally:
        producer.execute("rollback")
        changing.result()


@pytest.mark.parametrize("verb", ["retry", "undo"])
def test_keys_are_locked_before_the_tickets_of_dead_jobs(
    verb: str, connect: Connect, client: dibs.Client, db: Connection, later: Later
) -> None:
    """An edit locks a job's key and then its ticket: otherwise both wait in a circle."""
    id = client.enqueue("q", "k", dedup_key="one").id
    producer, operator, other = connect(), connect(), connect()
    producer.execute("begin")
    producer.execute("select from dibs.fingerprint for update")
    operation = client.cancel_where({"queue": "q"}).operation  # The key stays behind, since it is locked.
    asked = {
        "retry": """select from dibs.retry('{"states": ["cancelled"]}')""",
        "undo": f"select from dibs.undo({operation})",
    }
    bringing = later.start(operator, asked[verb])
    assert not bringing.done()
    try:
        other.execute("select from dibs.dead where id = %s for update nowait", (id,))
    finally:
        producer.execute("rollback")
        bringing.result()
    assert client.status(id).state == "ready"
    assert client.enqueue("q", "k", dedup_key="one").id == id


def test_a_job_whose_time_is_extended_is_replaced_after_that(
    connect: Connect, client: dibs.Client, clock: Clock, later: Later
) -> None:
    """Its ticket is locked while a resume is open: a producer must not take it for one that is claimed."""
    clock.freeze()
    client.enqueue("q", "k", dedup_key="one", ttl=60)
    client.queues.pause("q")
    clock.move(120)
    operator, producer = connect(), connect()
    operator.execute("begin")
    operator.execute("select from dibs.resume('q', '1 hour')")
    replacing = later.start(
        producer, "select outcome from dibs.enqueue('q', 'k', dedup_key => 'one', on_duplicate => 'replace')"
    )
    assert not replacing.done()
    operator.execute("commit")
    assert replacing.result() == [("replaced",)]
    assert client.queues.depth("q").waiting == 1


def test_of_dead_jobs_with_one_key_the_oldest_comes_back(client: dibs.Client) -> None:
    ids = []
    for _ in range(2):
        ids.append(client.enqueue("q", "k", dedup_key="one").id)
        client.fail(client.claim("q")[0], "no", final=True)
    done = client.retry({"queue": "q"})
    assert (done.done, [(r.id, r.reason) for r in done.refused]) == (1, [(ids[1], "duplicate")])
    assert client.status(ids[0]).state == "ready"


def test_an_undo_can_be_repeated_for_a_job_that_was_held(connect: Connect, client: dibs.Client) -> None:
    id = client.enqueue("q", "k").id
    operation = client.cancel_where({"queue": "q"}).operation
    assert operation is not None
    editor = connect()
    editor.execute("begin")
    editor.execute("select dibs.edit(%s, '{\"priority\": 9}')", (id,))
    assert client.undo(operation).done == 0
    editor.execute("rollback")
    assert client.undo(operation).done == 1
    assert client.status(id).state == "ready"
    assert client.undo(operation).done == 0
