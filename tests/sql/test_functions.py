"""Functions of the database as jobs: the allow-list, the envelope, deliveries, supervisors and the error log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

import dibs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.testing import Clock
    from tests.conftest import Connect

SHOP = """
create schema shop;
create table shop.note (text text);
create function shop.note(payload jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into shop.note values (payload ->> 'text');
  return dibs.envelope_ok(jsonb_build_object('by', session_user));
end $$;
create function shop.order_supervisor(payload jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform dibs.supervise('order/' || (payload ->> 'order'), payload, interval '5 seconds', 'orders');
  return dibs.envelope_ok();
end $$;
create function shop.answer(payload jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if payload ? 'write' then insert into shop.note values ('written'); end if;
  return nullif(payload -> 'answer', '"null"');
end $$;
create function shop.slow(payload jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin perform pg_sleep(30); return dibs.envelope_ok(); end $$;
revoke execute on all functions in schema shop from public;
grant usage on schema shop to dibs_worker;
grant execute on all functions in schema shop to dibs_worker;
grant insert on shop.note to dibs_worker;
select dibs.allow_function('shop.note(jsonb)'), dibs.allow_function('shop.answer(jsonb)'),
  dibs.allow_function('shop.order_supervisor(jsonb)'), dibs.allow_function('shop.slow(jsonb)', '50 ms');
"""
REFUSED = (dibs.errors.NotAllowed.sqlstate, dibs.errors.UnfitFunction.sqlstate)

INJECTIONS = [
    "shop.note('{}'); drop table shop.note; --",
    "shop.note; drop table shop.note",
    "shop.note(jsonb)",
    "shop.note ('{}'::jsonb)",
    "shop.note('{\"text\": \"pwned\"}') || ''",
    '(select shop.note(\'{"text": "pwned"}\'))',
    "shop.note/**/",
    "shop.note--",
    "shop.note\n",
    " shop.note",
    "SHOP.NOTE",
    '"shop"."note"',
    'shop."note"',
    "shop.note%00",
    "note",
    "pg_temp.note",
    "pg_catalog.pg_sleep",
    "dibs.enqueue",
    "dibs.envelope_ok",
    "shop.nоte",  # a Cyrillic o  # noqa: RUF001
    "shop.note' or '1'='1",
    "$$shop.note$$",
    "shop.%",
    "shop.n_te",
    "",
]


@pytest.fixture
def shop(db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    db.execute(SHOP)
    return db


@pytest.fixture
def worker(dsn: str, admin_dsn: str, shop: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A login that is a worker and nothing else."""
    name = f"shop_worker_{shop.info.backend_pid}"
    shop.execute(sql.SQL("create role {} login in role dibs_worker").format(sql.Identifier(name)))
    with psycopg.connect(re.sub(r"user=\w+", f"user={name}", dsn), autocommit=True) as conn:
        yield conn
    with psycopg.connect(admin_dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def run(conn: psycopg.Connection[Any], name: str | None, **payload: Any) -> dict[str, Any]:
    row = conn.execute("select dibs.run_function(%s, %s)", (name, Jsonb(payload))).fetchone()
    assert row
    result: dict[str, Any] = row[0]
    return result


def state_of(error: pytest.ExceptionInfo[psycopg.Error]) -> str | None:
    return error.value.sqlstate


def notes(db: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in db.execute("select text from shop.note")]


# The allow-list


def test_an_allowed_function_runs_with_its_owners_rights_and_the_callers_name(
    worker: psycopg.Connection[Any], shop: psycopg.Connection[Any]
) -> None:
    result = run(worker, "shop.note", text="hello")
    assert result["payload"]["by"].startswith("shop_worker_")
    assert notes(shop) == ["hello"]


def test_no_name_smuggles_anything_in(worker: psycopg.Connection[Any], shop: psycopg.Connection[Any]) -> None:
    """A run_function that pastes the name into a statement runs any expression."""
    assert len(set(INJECTIONS)) >= 20
    for name in INJECTIONS:
        with pytest.raises(psycopg.Error) as refused:
            run(worker, name, text="pwned")
        assert state_of(refused) == dibs.errors.NotAllowed.sqlstate, name
    assert notes(shop) == []


def test_null_and_misspelt_names_get_a_hint(worker: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error, match="null is not a function"):
        run(worker, None)
    with pytest.raises(psycopg.Error) as refused:
        run(worker, "shop.nota")
    assert "did you mean 'shop.note'" in (refused.value.diag.message_hint or "")


def test_a_worker_cannot_enqueue_or_allow_but_its_supervisor_enqueues(
    worker: psycopg.Connection[Any], client: dibs.Client
) -> None:
    """Unless it is revoked, a worker may enqueue."""
    for statement in (
        "select dibs.enqueue('orders', 'db_function')",
        "select dibs.enqueue_many('[]')",
        "select dibs.supervise('p', '{}')",
        "select dibs.allow_function('shop.note(jsonb)')",
        "insert into dibs.allowed_function values ('x', 'x', 'x', 'x')",
        "select * from dibs.delivery",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute(statement)
    assert run(worker, "shop.order_supervisor", order=7)["success"]
    assert client.queues.depth("orders").waiting == 1


UNFIT = [
    ("(p jsonb, q int) returns jsonb language sql return '{}'::jsonb", "one jsonb"),
    ("(p jsonb default '{}', variadic q int[] default '{}') returns jsonb language sql return p", "one jsonb"),
    ("(p text) returns jsonb language sql return '{}'::jsonb", "one jsonb"),
    ("(p jsonb) returns text language sql return ''", "one jsonb"),
    ("(p jsonb) returns setof jsonb language sql begin atomic select p; end", "one jsonb"),
    ("(p jsonb) returns jsonb language sql security definer return p", "pins no search_path"),
    (
        "(p jsonb) returns jsonb language sql security definer set search_path = pg_temp, pg_catalog return p",
        "pins no search_path",
    ),
    (
        "(p jsonb) returns jsonb language sql security definer set search_path = pg_catalog, pg_temp return p",
        "PUBLIC may execute",
    ),
]


def test_what_cannot_be_allowed(shop: psycopg.Connection[Any]) -> None:
    for made, words in UNFIT:
        shop.execute(f"create function shop.bad {made}")
        with pytest.raises(psycopg.Error, match=words) as refused:
            shop.execute("select dibs.allow_function(oid) from pg_proc where proname = 'bad'")
        assert state_of(refused) == dibs.errors.UnfitFunction.sqlstate
        shop.execute("drop function shop.bad")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("pg_temp, shop, pg_temp", "has pg_temp at its end only"),
        ('shop, "x, pg_temp"', "has pg_temp at its end only"),
        ('"pg_temp", shop', "has pg_temp at its end only"),
        ("shop", "has pg_temp at its end only"),
        ("pg_catalog, hall, pg_temp", "has hall, in which others may create"),
        ("pg_catalog, nowhere, pg_temp", "has nowhere, in which others may create"),
        ('"$user", pg_temp', r'has "\$user", in which others may create'),
        ('shop, "odd, ""name", pg_temp', None),
        ("pg_catalog, shop, pg_temp", None),
        ("pg_temp", None),
    ],
)
def test_a_definer_is_run_only_if_nobody_can_capture_it(
    shop: psycopg.Connection[Any], path: str, words: str | None
) -> None:
    """A schema in its search_path in which others may create things, or temporary tables before others."""
    shop.execute("create schema hall; grant create on schema hall to public")
    shop.execute('create schema "odd, ""name"')
    made = "create function shop.trap(p jsonb) returns jsonb language sql security definer"
    shop.execute(f"{made} set search_path = {path} return p")
    shop.execute("revoke execute on function shop.trap from public")
    if words is None:
        shop.execute("select dibs.allow_function('shop.trap(jsonb)')")
        return
    with pytest.raises(psycopg.Error, match=words) as refused:
        shop.execute("select dibs.allow_function('shop.trap(jsonb)')")
    assert state_of(refused) == dibs.errors.UnfitFunction.sqlstate


def test_a_schema_of_another_role_captures_a_definer(shop: psycopg.Connection[Any], admin_dsn: str) -> None:
    role = f"alice_{shop.info.backend_pid}"
    shop.execute(f"create role {role}")
    try:
        shop.execute(f"create schema theirs authorization {role}")
        made = "create function shop.trap(p jsonb) returns jsonb language sql security definer"
        shop.execute(f"{made} set search_path = pg_catalog, theirs, pg_temp return p")
        shop.execute("revoke execute on function shop.trap from public")
        with pytest.raises(psycopg.Error, match="has theirs, in which others may create") as refused:
            shop.execute("select dibs.allow_function('shop.trap(jsonb)')")
        assert "only the owner" in (refused.value.diag.message_hint or "")
        shop.execute(f"alter function shop.trap owner to {role}")
        shop.execute("select dibs.allow_function('shop.trap(jsonb)')")
    finally:
        shop.execute(f"drop owned by {role} cascade; drop role {role}")


def test_a_function_that_does_not_exist_cannot_be_allowed(shop: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error, match="null cannot be allowed: there is no such function") as refused:
        shop.execute("select dibs.allow_function(null)")
    assert state_of(refused) == dibs.errors.UnfitFunction.sqlstate


def test_the_catalogues_own_functions_cannot_be_allowed(shop: psycopg.Connection[Any]) -> None:
    for name in ("pg_catalog.jsonb_strip_nulls(jsonb)", "dibs.check_envelope(jsonb, text)"):
        if name.startswith("pg_catalog") and shop.info.server_version >= 180000:
            name = "pg_catalog.jsonb_pretty(jsonb)"
        with pytest.raises(psycopg.Error, match="not a business function"):
            shop.execute("select dibs.allow_function(%s)", (name,))
    with pytest.raises(psycopg.Error, match="from 10 ms to 1 day"):
        shop.execute("select dibs.allow_function('shop.note(jsonb)', '0')")


def test_a_function_is_looked_at_again_when_it_is_run(
    worker: psycopg.Connection[Any], shop: psycopg.Connection[Any]
) -> None:
    spoilings = {
        "grant execute on function shop.note to public": "revoke execute on function shop.note from public",
        "alter function shop.note reset search_path": "alter function shop.note set search_path = pg_catalog, pg_temp",
        "alter function shop.note rename to gone": "alter function shop.gone rename to note",
        "alter function shop.note owner to dibs_admin": f"alter function shop.note owner to {shop.info.user}",
    }
    for spoil, mend in spoilings.items():
        shop.execute(spoil)
        with pytest.raises(psycopg.Error) as refused:
            run(worker, "shop.note", text="x")
        assert state_of(refused) in REFUSED, spoil
        flaw = shop.execute("select flaw from dibs.functions where name = 'shop.note'").fetchone()
        assert flaw
        assert flaw[0], spoil
        shop.execute(mend)
    assert run(worker, "shop.note", text="mended")["success"]
    row = shop.execute("select dibs.disallow_function('shop.note'), dibs.disallow_function('shop.note')").fetchone()
    assert row == (True, False)
    with pytest.raises(psycopg.Error):
        run(worker, "shop.note")
    assert notes(shop) == ["mended"]


def test_an_overload_that_a_call_fits_as_well_is_named(
    worker: psycopg.Connection[Any], shop: psycopg.Connection[Any]
) -> None:
    """PostgreSQL cannot choose between f(jsonb) and f(jsonb, integer default 1)."""
    for kind, given in [
        ("function", "(p jsonb, x int default 1) returns jsonb language sql return p"),
        ("function", "(p jsonb default '{}', x text default '') returns jsonb language sql return p"),
        ("function", "(p jsonb, variadic x int[] default '{}') returns jsonb language sql return p"),
        ("procedure", "(p jsonb, x int default 1) language sql begin atomic end"),
    ]:
        shop.execute(f"create {kind} shop.note {given}")
        for statement in ("select dibs.run_function('shop.note', '{}')", "select dibs.find_function('shop.note')"):
            with pytest.raises(psycopg.Error, match=r"shop\.note\(jsonb,.* as well, by its defaults") as refused:
                worker.execute(statement)
            assert state_of(refused) == dibs.errors.UnfitFunction.sqlstate
        with pytest.raises(psycopg.Error, match="cannot be allowed") as refused:
            shop.execute("select dibs.allow_function('shop.note(jsonb)')")
        assert refused.value.diag.message_hint == "rename or drop the other one"
        shop.execute(f"drop {kind} shop.note (jsonb, {'text' if 'text' in given else 'int'}{'[]' * ('[]' in given)})")
    for harmless in ("(p jsonb, x int)", "(p text, x int default 1)", "(p anyelement, x int default 1)", "(p json)"):
        shop.execute(f"create function shop.note {harmless} returns int language sql as 'select 1'")
    assert run(worker, "shop.note", text="it runs")["success"]


def test_a_function_needs_a_grant_beside_the_list(
    worker: psycopg.Connection[Any], shop: psycopg.Connection[Any]
) -> None:
    shop.execute("revoke execute on function shop.note from dibs_worker")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="function note"):
        run(worker, "shop.note")


def test_a_function_past_its_time_is_stopped(worker: psycopg.Connection[Any]) -> None:
    worker.execute("begin")
    worker.execute("select dibs.begin_function('shop.slow')")
    assert worker.execute("show statement_timeout").fetchone() == ("50ms",)
    with pytest.raises(psycopg.errors.QueryCanceled):
        run(worker, "shop.slow")
    worker.execute("rollback")
    assert worker.execute("show statement_timeout").fetchone() == ("0",)


def test_a_job_and_its_function_end_together(
    worker: psycopg.Connection[Any], shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    made = client.enqueue("q", "db_function")
    [job] = client.claim("q")
    call = "select dibs.run_job(%s, %s, %s, %s) ->> 'success'"
    error = {"answer": {"success": False, "error": "not now"}, "write": True}
    assert worker.execute(call, (job.id, job.token, "shop.answer", Jsonb(error))).fetchone() == ("false",)
    assert (client.status(made.id).state, notes(shop)) == ("running", ["written"])
    with pytest.raises(psycopg.Error) as lost:
        worker.execute(call, (job.id, uuid4(), "shop.answer", Jsonb(error)))
    assert (state_of(lost), notes(shop)) == (dibs.LeaseLost.sqlstate, ["written"])
    stale = (job.id, uuid4(), "shop.note", Jsonb({"text": "stale"}))
    good = (job.id, job.token, "shop.note", Jsonb({"text": "once"}))
    with pytest.raises(psycopg.Error) as lost:
        worker.execute(call, stale)
    assert state_of(lost) == dibs.LeaseLost.sqlstate
    assert worker.execute(call, good).fetchone() == ("true",)
    with pytest.raises(psycopg.Error) as again:
        worker.execute(call, good)
    assert state_of(again) == dibs.LeaseLost.sqlstate
    assert (client.status(made.id).state, notes(shop)) == ("succeeded", ["written", "once"])


# The envelope


ENVELOPES = [
    ({"success": True}, (True, "", "", {})),
    ({"success": True, "error": None, "payload": None}, (True, "", "", {})),
    (
        {"success": True, "error": "", "validation_failure_message": "", "payload": {"a": [1]}},
        (True, "", "", {"a": [1]}),
    ),
    ({"success": False, "error": "no disk"}, (False, "no disk", "", {})),
    ({"success": False, "validation_failure_message": "no such user"}, (False, "", "no such user", {})),
]
VIOLATIONS: list[tuple[Any, str]] = [
    ("null", "returned null"),
    (None, "JSON null"),
    (5, "JSON number"),
    ([], "JSON array"),
    ({}, "success"),
    ({"success": "true"}, "success"),
    ({"success": 1}, "success"),
    ({"success": True, "succeeded": True}, "the key 'succeeded'"),
    ({"success": True, "error": 5}, "error"),
    ({"success": True, "error": "but"}, "at once"),
    ({"success": True, "validation_failure_message": "but"}, "at once"),
    ({"success": False}, "either"),
    ({"success": False, "error": ""}, "either"),
    ({"success": False, "error": "a", "validation_failure_message": "b"}, "not both"),
    ({"success": False, "validation_failure_message": {}}, "not a text"),
    ({"success": True, "payload": [1]}, "not an object"),
]


def test_an_envelope_is_read(shop: psycopg.Connection[Any]) -> None:
    for answer, expected in ENVELOPES:
        found = run(shop, "shop.answer", answer=answer)
        assert tuple(found[k] for k in ("success", "error", "validation_failure_message", "payload")) == expected


def test_anything_else_breaks_the_contract_and_is_rolled_back(shop: psycopg.Connection[Any]) -> None:
    for answer, words in VIOLATIONS:
        with pytest.raises(psycopg.Error, match=words) as broken:
            run(shop, "shop.answer", answer=answer, write=True)
        assert state_of(broken) == dibs.errors.BrokenContract.sqlstate
    assert notes(shop) == []


def test_helpers_build_envelopes(db: psycopg.Connection[Any]) -> None:
    row = db.execute(
        "select dibs.envelope_ok('{\"a\": 1}'), dibs.envelope_error('e'), dibs.envelope_invalid('v')"
    ).fetchone()
    assert row
    assert [(r["success"], r["error"], r["validation_failure_message"], r["payload"]) for r in row] == [
        (True, "", "", {"a": 1}), (False, "e", "", {}), (False, "", "v", {}),
    ]  # fmt: skip
    for call in ("envelope_error('')", "envelope_invalid(null)", "envelope_ok('[]')"):
        with pytest.raises(psycopg.Error) as broken:
            db.execute(f"select dibs.{call}")
        assert state_of(broken) == dibs.errors.BrokenContract.sqlstate


# Deliveries


def begin(db: psycopg.Connection[Any], job: dibs.Claimed) -> str:
    row = db.execute("select stage from dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token)).fetchone()
    assert row
    return str(row[0])


def record(db: psycopg.Connection[Any], job: dibs.Claimed, step: str) -> None:
    db.execute("select dibs.record_delivery(%s, %s, %s, '{\"n\": 1}')", (job.id, job.token, step))


def seen(db: psycopg.Connection[Any], id: UUID) -> tuple[Any, ...]:
    [row] = db.execute("select sends, interrupted, step from dibs.deliveries where job_id = %s", (id,)).fetchall()
    return tuple(row)


def test_an_accepted_message_is_not_sent_again(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    assert (begin(db, job), begin(db, job)) == ("none", "none")
    record(db, job, "accepted")
    record(db, job, "accepted")
    client.fail(job, "the handler failed", delay=0)
    [again] = client.claim("q")
    assert begin(db, again) == "accepted"
    record(db, again, "recorded")
    client.fail(again, "lost", delay=0)
    [third] = client.claim("q")
    assert begin(db, third) == "done"
    assert seen(db, job.id) == (1, 0, "recorded")


def test_an_interrupted_send_is_seen_and_counted(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    assert begin(db, job) == "none"
    assert seen(db, job.id) == (1, 0, "sending")
    clock.move(60)
    client.upkeep.rescue()
    assert seen(db, job.id) == (1, 1, "sending")
    [again] = client.claim("q")
    assert begin(db, again) == "sending"
    # Late, but true: the provider of the first run did accept it.
    record(db, again, "failed")
    with pytest.raises(psycopg.Error) as lost:
        record(db, job, "accepted")
    assert state_of(lost) == dibs.LeaseLost.sqlstate
    assert seen(db, job.id) == (2, 1, "failed")


def test_what_a_provider_did_is_recorded_though_the_lease_is_over(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    begin(db, job)
    clock.move(60)
    client.upkeep.rescue()
    record(db, job, "accepted")
    with pytest.raises(psycopg.Error) as lost:
        begin(db, job)
    assert state_of(lost) == dibs.LeaseLost.sqlstate
    [again] = client.claim("q")
    assert begin(db, again) == "accepted"


def test_a_refusal_is_sent_again_after_a_retry(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    begin(db, job)
    record(db, job, "refused")
    record(db, job, "recorded")
    client.fail(job, "no such mailbox", final=True)
    client.retry({"ids": [job.id]})
    [again] = client.claim("q")
    assert begin(db, again) == "none"


def test_a_handler_that_may_not_run_is_found_before_sending(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    with pytest.raises(psycopg.Error) as refused:
        db.execute("select dibs.begin_delivery(%s, %s, 'smtp', '{shop.gone}')", (job.id, job.token))
    assert state_of(refused) == dibs.errors.NotAllowed.sqlstate
    with pytest.raises(psycopg.Error, match="not as 'sent'"):
        record(db, job, "sent")
    assert db.execute("select count(*) from dibs.delivery").fetchone() == (0,)


def test_a_handler_is_told_once(shop: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    begin(shop, job)
    record(shop, job, "accepted")
    told = "select dibs.run_handler(%s, %s, %s, %s)"
    with shop.transaction(force_rollback=True):
        shop.execute(told, (job.id, job.token, "shop.note", Jsonb({"text": "rolled back"})))
    assert begin(shop, job) == "accepted"
    failing = Jsonb({"answer": {"success": False, "error": "not now"}})
    shop.execute(told, (job.id, job.token, "shop.answer", failing))
    assert begin(shop, job) == "accepted"
    shop.execute(told, (job.id, job.token, "shop.note", Jsonb({"text": "told"})))
    assert shop.execute("select stage from dibs.delivery_stage(%s)", (job.id,)).fetchone() == ("done",)
    assert client.status(job.id).state is dibs.State.SUCCEEDED
    assert notes(shop) == ["told"]


def test_a_refused_message_is_told_and_failed_in_one_transaction(
    shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    """Otherwise a worker that dies between the two would send the message again."""
    client.enqueue("q", "email", max_attempts=5)
    [job] = client.claim("q")
    begin(shop, job)
    record(shop, job, "refused")
    call = "select dibs.run_handler(%s, %s, 'shop.note', %s, error => 'no mailbox')"
    args = (job.id, job.token, Jsonb({"text": "told"}))
    shop.execute(call, args)
    assert client.status(job.id).state is dibs.State.FAILED
    with pytest.raises(psycopg.Error) as repeated:
        shop.execute(call, args)
    assert state_of(repeated) == dibs.LeaseLost.sqlstate
    assert notes(shop) == ["told"]


def test_a_repeated_begin_of_a_delivery_still_tells_of_an_interrupted_send(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    assert begin(db, job) == "none"
    clock.move(60)
    client.upkeep.rescue()
    [again] = client.claim("q")
    assert (begin(db, again), begin(db, again)) == ("sending", "sending")
    record(db, again, "failed")
    client.fail(again, "not sent", delay=0)
    [third] = client.claim("q")
    assert (begin(db, third), begin(db, third)) == ("failed", "failed")
    assert seen(db, job.id) == (3, 1, "sending")


# Supervisors


def test_a_supervisor_redelivered_a_hundred_times_has_one_recheck(
    worker: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    """A redelivered supervisor must not enqueue itself twice: its chains would multiply."""
    client.enqueue("orders", "db_function", {"db_function": "shop.order_supervisor", "order": 1})
    for _ in range(20):
        [job] = client.claim("orders")
        for _ in range(5):
            run(worker, "shop.order_supervisor", order=1)
        assert (client.queues.depth("orders").waiting, client.queues.depth("orders").running) == (1, 1)
        client.complete(job)
        clock.move(5)
    assert client.queues.depth("orders").waiting == 1


def test_rechecks_are_one_for_each_process_and_can_be_hastened(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    ask = "select outcome from dibs.supervise(%s, '{}', %s, 'orders')"
    asked = [("a", "1 hour"), ("b", "1 hour"), ("a", "2 hours"), ("a", "1 minute"), ("a", "0")]
    outcomes = [row[0] for name, delay in asked for row in db.execute(ask, (name, delay))]
    assert outcomes == ["enqueued", "enqueued", "duplicate", "hastened", "hastened"]
    assert [row[0] for row in db.execute("select state from dibs.supervised_processes order by name")] == [
        "ready",
        "scheduled",
    ]
    [job] = client.claim("orders", 10)
    assert db.execute("select dibs.supervised('a', 'orders'), dibs.supervised('c', 'orders')").fetchone() == (
        "running",
        "none",
    )
    assert db.execute(ask, ("a", "0")).fetchone() == ("enqueued",)
    client.complete(job)
    client.cancel_many([j.id for j in client.find_jobs({"queue": "orders"}).jobs])
    assert db.execute("select dibs.supervised('a', 'orders'), dibs.supervised('b', 'orders')").fetchone() == (
        "none",
        "none",
    )
    clock.move(2 * 86400)
    assert db.execute("select dibs.forget()").fetchone() == (2,)
    with pytest.raises(psycopg.Error, match="from 0 to 1 year"):
        db.execute("select dibs.supervise('a', '{}', '-1 s')")


def test_a_hastened_look_wakes_idle_workers(db: psycopg.Connection[Any], connect: Connect, client: dibs.Client) -> None:
    ask = "select outcome from dibs.supervise('a', '{}', %s, 'orders')"
    db.execute(ask, ("1 hour",))
    listener = connect()
    listener.execute("listen dibs")
    assert db.execute(ask, ("0",)).fetchone() == ("hastened",)
    [queue_id] = db.execute("select id from dibs.queue where name = 'orders'").fetchall()
    assert [n.payload for n in listener.notifies(timeout=10, stop_after=1)] == [str(queue_id[0])]


# The error log


def test_the_error_log_is_appended_to_and_forgotten(
    worker: psycopg.Connection[Any], db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    made = client.enqueue("mail", "email")
    worker.execute("select dibs.append_error('no route', %s, 'smtp')", (made.id,))
    worker.execute("select dibs.append_error(null, %s)", (uuid4(),))
    rows = db.execute("select source, queue, kind, message from dibs.error_log order by id").fetchall()
    assert rows == [("smtp", "mail", "email", "no route"), ("sql", None, None, "an error that said nothing")]
    for statement in ("update dibs.error set message = ''", "delete from dibs.error", "table dibs.error_log"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute(statement)
    db.execute("select dibs.set_error_retention('2 days')")
    clock.move(86400)
    db.execute("select dibs.append_error('newer')")
    clock.move(86401)
    db.execute("select dibs.forget()")
    assert db.execute("select message from dibs.error_log").fetchall() == [("newer",)]
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("select dibs.set_error_retention('0')")


def test_deliveries_leave_with_their_job(db: psycopg.Connection[Any], client: dibs.Client, clock: Clock) -> None:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    begin(db, job)
    db.execute(
        "insert into dibs.delivery (job_id, token, at, run, step) values (%s, %s, dibs.now(), 1, 'sending')",
        (uuid4(), uuid4()),
    )
    clock.move(3 * 86400)
    db.execute("select dibs.forget()")
    assert db.execute("select job_id from dibs.delivery").fetchall() == [(job.id,)]
