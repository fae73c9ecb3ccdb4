"""Channels, end to end: a worker, a database, and real servers on loopback that take the messages."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import logging
import os
import ssl
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from contextlib import asynccontextmanager
from decimal import Decimal
from email import policy
from email.errors import MessageError
from email.message import EmailMessage
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, quote_plus

import pytest
import trustme
from examples.loopback import MailServer, WebServer
from psycopg.types.json import Jsonb

import dibs
from dibs import channels
from dibs.channels.http import Http, HttpAnswer, Unanswered
from dibs.channels.mime import _written
from dibs.events import RunEnded
from dibs.worker import Worker, WorkerSettings
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import psycopg

    from dibs.testing import Clock

SHOP = """
create schema shop;
create table shop.told (n bigint generated always as identity, what text, payload jsonb);
create table shop.plan (name text primary key, answers jsonb[]);
create function shop.answer(name text, payload jsonb, otherwise jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare v_answer jsonb;
begin
  -- A sequence is not rolled back with the function.
  select p.answers[nextval(('shop.turn_' || p.name)::regclass)] into v_answer
  from shop.plan as p where p.name = answer.name;
  if v_answer ? 'raise' then raise exception '%', v_answer ->> 'raise'; end if;
  if v_answer is null or (v_answer ->> 'success')::boolean then
    insert into shop.told (what, payload) values (name, payload);
  end if;
  return coalesce(v_answer, otherwise);
end $$;
create function shop.work(payload jsonb) returns jsonb
language sql security definer set search_path = pg_catalog, pg_temp
return shop.answer('work', payload, dibs.envelope_ok('{"done": true}'));
create function shop.before(payload jsonb) returns jsonb
language sql security definer set search_path = pg_catalog, pg_temp
return shop.answer('before', payload, dibs.envelope_ok(payload -> 'mail'));
create function shop.success(payload jsonb) returns jsonb
language sql security definer set search_path = pg_catalog, pg_temp
return shop.answer('success', payload, dibs.envelope_ok());
create function shop.error(payload jsonb) returns jsonb
language sql security definer set search_path = pg_catalog, pg_temp
return shop.answer('error', payload, dibs.envelope_ok());
revoke execute on all functions in schema shop from public;
select dibs.allow_function(p.oid) from pg_proc as p
where p.pronamespace = 'shop'::regnamespace and p.proname <> 'answer';
"""
HANDLERS = {"before_handler": "shop.before", "success_handler": "shop.success", "error_handler": "shop.error"}
MAIL = {"to": "ann@example.org", "subject": "Hi", "text": "Hello"}
SMS = {"to": "+15550001", "text": "Hello"}


@pytest.fixture
def shop(db: psycopg.Connection[Any], client: dibs.Client) -> psycopg.Connection[Any]:
    db.execute(SHOP)
    client.queues.set("q", backoff=dibs.constant(0), max_attempts=3)
    return db


def plan(db: psycopg.Connection[Any], name: str, *answers: Any) -> None:
    """What a function answers in its first calls; then it does what it is there for."""
    db.execute("insert into shop.plan values (%s, %s)", (name, [Jsonb(a) for a in answers]))
    db.execute(f"create sequence shop.turn_{name}")


def told(db: psycopg.Connection[Any]) -> list[tuple[str, Any]]:
    return list(db.execute("select what, payload from shop.told order by n").fetchall())


def errors(db: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in db.execute("select message from dibs.error_log order by id")]


def totals(db: psycopg.Connection[Any]) -> tuple[int, int]:
    row = db.execute("select coalesce(sum(sends), 0)::int, coalesce(sum(interrupted), 0)::int from dibs.deliveries")
    found = row.fetchone()
    assert found
    return found[0], found[1]


async def drain(app: dibs.App, **settings: Any) -> Worker:
    """Run what is due, to its end."""
    worker = Worker(app, WorkerSettings(("q",), drain=True, upkeep=False, **settings))
    async with asyncio.timeout(60):
        await worker.run()
    return worker


@asynccontextmanager
async def channel_app(dsn: str, **environment: str) -> AsyncIterator[channels.ChannelApp]:
    app = channels.app(dsn, queue="q", environment=environment)
    yield app
    await app.aclose()
    app.close()


# Functions of the database


async def test_a_db_function_runs_and_its_payload_is_the_result(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    payload = {"task_type": "db_function", "db_function": "shop.work", "order": 7}
    made = client.enqueue("q", "db_function", payload)
    async with channel_app(dsn) as app:
        await drain(app)
    assert client.status(made.id).state is dibs.State.SUCCEEDED
    assert told(shop) == [("work", payload)]
    shown = client.show(made.id)
    assert shown
    assert shown["attempts"][0]["result"] == {"done": True}


async def test_errors_are_logged_and_retried_and_validation_failures_are_final(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    plan(shop, "work", {"success": False, "error": "no disk"}, {"raise": "out of luck"})
    work = client.enqueue("q", "db_function", {"db_function": "shop.work"})
    async with channel_app(dsn) as app:
        await drain(app)
        assert client.status(work.id).state is dibs.State.SUCCEEDED
        assert errors(shop) == ["shop.work: no disk", "shop.work: out of luck"]

        shop.execute("truncate shop.plan; drop sequence shop.turn_work")
        plan(shop, "work", {"success": False, "validation_failure_message": "no such order"}, {"hello": "world"})
        invalid = client.enqueue("q", "db_function", {"db_function": "shop.work"})
        await drain(app)
        broken = client.enqueue("q", "db_function", {"db_function": "shop.work"})
        await drain(app)
    assert (client.status(invalid.id).state, client.status(broken.id).state) == ("failed", "failed")
    assert "shop.work: no such order" in client.why(invalid.id)
    assert "broke its contract" in client.why(broken.id)
    assert len(errors(shop)) == 3, "a validation failure is not an error of the worker"


async def test_bad_payloads_and_names_end_and_harm_nothing(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    bad: list[tuple[str, Any]] = [
        ("db_function", None),
        ("db_function", {"db_function": 5}),
        ("db_function", {"db_function": "shop.work", "task_type": "email"}),
        ("email", {"before_handler": "shop.before", "task_type": "sms"}),
        ("email", {"success_handler": "shop.success"}),
        ("email", {"message": MAIL, "on_error": "panic"}),
        ("email", [1]),
    ]
    made = [client.enqueue("q", kind, payload) for kind, payload in bad]
    forbidden = [
        client.enqueue("q", "db_function", {"db_function": "shop.work('{}'); drop table shop.told; --"}),
        client.enqueue("q", "email", {"message": MAIL, "success_handler": "shop.gone"}),
    ]
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert {client.status(m.id).state for m in made} == {dibs.State.FAILED}
    assert {client.status(m.id).state for m in forbidden} == {dibs.State.EXHAUSTED}
    assert server.mailbox.messages == []
    assert told(shop) == []


SESSION = """
create function shop.spoil(payload jsonb) returns jsonb language plpgsql as $$
begin
  perform set_config('app.tenant', 'ACME', false), set_config('lock_timeout', '9s', false),
    set_config('default_transaction_read_only', 'on', false), set_config('role', 'dibs_admin', false),
    pg_advisory_lock(7, 7);
  reset role;
  create temporary table mine on commit preserve rows as select 1;
  set role dibs_admin;
  return dibs.envelope_ok(jsonb_build_object('pid', pg_backend_pid()));
end $$;
create function shop.look(payload jsonb) returns jsonb language sql return dibs.envelope_ok(jsonb_build_object(
  'pid', pg_backend_pid(), 'prepared', (select count(*) > 0 from pg_prepared_statements),
  'tenant', nullif(current_setting('app.tenant', true), ''), 'user', current_user,
  'lock_timeout', current_setting('lock_timeout'), 'read_only', current_setting('default_transaction_read_only'),
  'mine', to_regclass('pg_temp.mine'),
  'locks', (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and classid = 7),
  'isolation', current_setting('transaction_isolation')));
select dibs.allow_function(oid) from pg_proc
where pronamespace = 'shop'::regnamespace and proname in ('spoil', 'look');
"""


def results(client: dibs.Client, made: list[dibs.types.Enqueued]) -> list[Any]:
    shown = [client.show(m.id) for m in made]
    return [one and one["attempts"][-1]["result"] for one in shown]


async def test_what_a_function_sets_in_its_session_is_gone_for_the_next(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    shop.execute(SESSION)
    shop.execute(f"alter database {shop.info.dbname} set default_transaction_isolation = 'repeatable read'")
    names = ["spoil", "look", "look"] * 10
    made = [client.enqueue("q", "db_function", {"db_function": f"shop.{name}"}) for name in names]
    async with channel_app(dsn) as app:
        await drain(app, slots=1)
    assert errors(shop) == []
    spoilt, looks = results(client, made[::3]), results(client, made[1::3] + made[2::3])
    assert {one["pid"] for one in spoilt} & {look.pop("pid") for look in looks}, "they shared a session"
    assert True in [look.pop("prepared") for look in looks], "what was prepared is kept: to prepare it is what costs"
    clean = {
        "tenant": None, "user": shop.info.user, "lock_timeout": "0", "read_only": "off", "mine": None, "locks": 0,
        "isolation": "read committed",
    }  # fmt: skip
    assert looks == [clean] * 20


# E-mail


async def test_an_email_goes_out_and_its_handler_is_told(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    payload = {"task_type": "email", "mail": MAIL, "order": 7, **HANDLERS}
    made = client.enqueue("q", "email", payload)
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    [sent] = server.mailbox.messages
    assert (sent["To"], sent["From"], sent["Subject"]) == ("ann@example.org", "shop@example.org", "Hi")
    assert sent["Message-ID"] == f"<{made.id}@example.org>"
    assert sent["Idempotency-Key"] == str(made.id)
    [before, success] = told(shop)
    assert before == ("before", payload)
    assert success[1]["original_payload"] == payload
    assert success[1]["worker_payload"]["id"] == f"<{made.id}@example.org>"
    assert (client.status(made.id).state, totals(shop)) == ("succeeded", (1, 0))


async def test_an_email_may_have_everything(dsn: str, shop: psycopg.Connection[Any], client: dibs.Client) -> None:
    picture = bytes(range(256))
    message = {
        "to": ["Žofie <zofie@example.org>", "jörg@bücher.example"],
        "cc": "cc@example.org",
        "bcc": ["bcc@example.org"],
        "from": "Der Händler <shop@example.org>",
        "reply_to": "help@example.org",
        "subject": "Grüße — 你好",
        "text": "Hallo Žofie\n.\nEnde",
        "html": "<p>Hallo <b>Žofie</b></p>",
        "headers": {"X-Order": "7"},
        "attachments": [
            {"filename": "bild.png", "content": b64encode(picture).decode()},
            {"filename": "übersicht.csv", "text": "a;b\n", "content_type": "text/csv"},
        ],
    }
    client.enqueue("q", "email", {"message": message})
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert errors(shop) == []
    [sent] = server.mailbox.messages
    [recipients] = server.mailbox.recipients
    assert recipients == ["zofie@example.org", "jörg@xn--bcher-kva.example", "cc@example.org", "bcc@example.org"]
    assert (sent["Subject"], sent["Bcc"], sent["X-Order"]) == ("Grüße — 你好", None, "7")
    text, html = sent.get_body(("plain",)), sent.get_body(("html",))
    assert text
    assert html
    assert text.get_content().replace("\r\n", "\n").strip() == "Hallo Žofie\n.\nEnde"
    assert "<b>Žofie</b>" in html.get_content()
    files = list(sent.iter_attachments())
    assert [f.get_filename() for f in files] == ["bild.png", "übersicht.csv"]
    assert files[0].get_content() == picture


async def test_messages_that_cannot_be_sent_are_refused_and_told(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    bad: list[dict[str, Any]] = [
        {**MAIL, "to": "nobody"},
        {**MAIL, "to": "a@example.org, b@example.org"},
        {**MAIL, "to": "a@example.org\r\nBcc: b@example.org"},
        {**MAIL, "subject": "Hi\r\nBcc: b@example.org"},
        {**MAIL, "headers": {"X-A\r\nBcc": "b@example.org"}},
        {**MAIL, "headers": {"To": "b@example.org"}},
        {**MAIL, "headers": {"X-A": "1\r\nBcc: b@example.org"}},
        {**MAIL, "attachments": [{"filename": "a"}]},
        {**MAIL, "attachments": [{"filename": "a", "content": "%%%"}]},
        {**MAIL, "colour": "red"},
        {"to": "a@example.org"},
        {"subject": "to nobody", "text": ""},
        {**MAIL, "to": "gone@example.org"},
    ]
    made = [client.enqueue("q", "email", {"mail": message, **HANDLERS}) for message in bad]
    with MailServer() as server:
        server.mailbox.refused.add("gone@example.org")
        async with channel_app(dsn, **server.environment) as app:
            ends: list[RunEnded] = []
            app.events.on(RunEnded, ends.append)
            await drain(app)
    assert {client.status(m.id).state for m in made} == {dibs.State.FAILED}
    assert [(end.outcome, end.state) for end in ends] == [("failed", "failed")] * len(bad)
    assert server.mailbox.messages == []
    reported = [payload["error"] for what, payload in told(shop) if what == "error"]
    assert len(reported) == len(bad)
    assert "550 5.1.1 no such mailbox" in reported


EVIL = "=?utf-8?q?Hi=0D=0AReply-To:_evil@example.org=0D=0A=0D=0APay_to_XX?="


async def test_no_text_of_a_message_becomes_a_header_or_a_body(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    """The email package decodes encoded words in what it is given, and writes the line breaks that come out."""
    bad: list[dict[str, Any]] = [
        {**MAIL, "subject": EVIL},
        {**MAIL, "headers": {"X-A": EVIL}},
        *({**MAIL, field: f"{EVIL} <ann@example.org>"} for field in ("to", "cc", "bcc", "from", "reply_to")),
        {**MAIL, "to": "=?utf-8?b?YQ0KQmNjOiB4QHkueg==?= <ann@example.org>"},
        {**MAIL, "to": "a@=?utf-8?q?=0D=0A?=.org"},
        {**MAIL, "attachments": [{"filename": EVIL, "text": "a"}]},
        {**MAIL, "subject": "one\u2028two"},
    ]
    made = [client.enqueue("q", "email", {"mail": message, **HANDLERS}) for message in bad]
    harmless = client.enqueue("q", "email", {"message": {**MAIL, "subject": "Is 1+1=2? Yes = sure"}})
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert {client.status(m.id).state for m in made} == {dibs.State.FAILED}
    assert [m["Message-ID"] for m in server.mailbox.messages] == [f"<{harmless.id}@example.org>"]
    assert len([what for what, _ in told(shop) if what == "error"]) == len(bad)
    assert totals(shop)[1] == 0, "each was refused before anything was sent"


async def test_addresses_and_headers_that_are_not_a_messages_own_are_refused(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    addresses = ["a@b.c> SIZE=1", "g: a@b.c;", "a@b..c", "a@-b.c", "a@b c", "a b@c.d", "a@[127.0.0.1", "a@b.c <d@e.f>"]
    headers = ["Resent-To", "Received", "DKIM-Signature", "ARC-Seal", "idempotency-key", "Content-Type", "X A"]
    bad: list[dict[str, Any]] = [{**MAIL, "to": address} for address in addresses] + [
        {**MAIL, "headers": {h: "x"}} for h in headers
    ]
    bad += [{**MAIL, "headers": {"X-A": "1", "x-a": "2"}}]
    bad += [{**MAIL, "attachments": [{"filename": "a", "text": "b", "content_type": "multipart/mixed"}]}]
    made = [client.enqueue("q", "email", {"mail": message, **HANDLERS}) for message in bad]
    good = ['"Doe, Ann" <ann@example.org>', " ann+tag@example.org ", "o'hara@[127.0.0.1]", '"Ann @ home" <a@b.org>']
    for address in good:
        client.enqueue("q", "email", {"message": {**MAIL, "to": address}})
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert [client.status(m.id).state for m in made] == [dibs.State.FAILED] * len(bad)
    taken = sorted(recipient for [recipient] in server.mailbox.recipients)
    assert taken == ["a@b.org", "ann+tag@example.org", "ann@example.org", "o'hara@[127.0.0.1]"]


def test_what_is_written_has_the_fields_that_were_set() -> None:
    """The last look, at the bytes: whatever got past the others is refused here, or by the email package itself."""
    made = EmailMessage(policy.SMTP)
    made["Subject"], made["To"] = EVIL, "ann@example.org"
    with pytest.raises((channels.Refusal, MessageError)):
        _written(made)


async def test_one_refused_recipient_does_not_stop_the_others(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    client.enqueue("q", "email", {"mail": {**MAIL, "to": ["ann@example.org", "gone@example.org"]}, **HANDLERS})
    with MailServer() as server:
        server.mailbox.refused.add("gone@example.org")
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert server.mailbox.recipients == [["ann@example.org"]]
    assert told(shop)[-1][1]["worker_payload"]["refused"] == {"gone@example.org": "550 5.1.1 no such mailbox"}


async def test_tls_login_and_a_wrong_password(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, tmp_path: Path
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with MailServer(tls=tls, login=("shop", "correct-horse")) as server:
        good = {
            **server.environment, "DIBS_SMTP_HOST": "localhost", "DIBS_SMTP_TLS": "starttls",
            "DIBS_SMTP_CA": str(trusted), "DIBS_SMTP_USER": "shop", "DIBS_SMTP_PASSWORD": "correct-horse",
        }  # fmt: skip
        for number, (environment, words) in enumerate(
            [
                (good, None),
                ({**good, "DIBS_SMTP_PASSWORD": "wrong-horse"}, "refused our login: 535"),
                ({**good, "DIBS_SMTP_CA": ""}, "CERTIFICATE_VERIFY_FAILED"),
            ]
        ):
            made = client.enqueue("q", "email", {"message": MAIL}, max_attempts=1)
            async with channel_app(dsn, **environment) as app:
                await drain(app)
            assert len(server.mailbox.messages) == 1, number
            if words:
                assert words in client.why(made.id)
    with pytest.raises(dibs.InvalidArgument, match="plain text"):
        channels.app(dsn, environment={**good, "DIBS_SMTP_TLS": "none"})


async def test_what_the_mail_server_says_decides(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    payload = {"mail": MAIL, **HANDLERS}
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            server.mailbox.rules = ["451 4.3.0 not now", "452 4.2.2 full"]
            retried = client.enqueue("q", "email", payload)
            await drain(app)
            assert client.status(retried.id).state is dibs.State.SUCCEEDED
            assert errors(shop) == ["451 4.3.0 not now", "452 4.2.2 full"]

            server.mailbox.rules = ["450 4.7.1 greylisted"]
            throttled = client.enqueue("q", "email", payload)
            await drain(app)
            assert client.status(throttled.id).state is dibs.State.SCHEDULED
            shown = client.show(throttled.id)
            assert shown
            assert shown["charged"] == 0
            clock.move(31)
            await drain(app)
            assert client.status(throttled.id).state is dibs.State.SUCCEEDED

            blocked_texts = ["550 5.7.1 client [10.4.7.12] blocked", "554 4.7.1 blocked"]
            blocked = [client.enqueue("q", "email", {"message": MAIL}) for _ in blocked_texts]
            server.mailbox.rules = [*blocked_texts]
            await drain(app)
            assert {client.status(j.id).state for j in blocked} == {dibs.State.FAILED}

            server.mailbox.rules = ["554 5.6.0 spam"]
            refused = client.enqueue("q", "email", payload)
            server.mailbox.rules += ["451 no"] * 3
            await drain(app)
            exhausted = client.enqueue("q", "email", payload)
            await drain(app)
            server.mailbox.rules = ["451 no"]
            reported = client.enqueue("q", "email", {**payload, "on_error": "report"})
            await drain(app)
    assert {client.status(j.id).state for j in (refused, exhausted, reported)} == {dibs.State.FAILED}
    assert [p["error"] for what, p in told(shop) if what == "error"] == ["554 5.6.0 spam", "451 no", "451 no"]
    assert max(server.mailbox.counts.values()) == 1


async def test_a_failing_handler_loses_no_outcome_and_sends_nothing_again(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    failing = [{"raise": "locked"}, {"success": False, "error": "not now"}] * 4
    plan(shop, "success", *failing)
    plan(shop, "error", *failing)
    good = client.enqueue("q", "email", {"mail": MAIL, **HANDLERS})
    bad = client.enqueue("q", "email", {"mail": {**MAIL, "to": "gone@example.org"}, **HANDLERS})
    with MailServer() as server:
        server.mailbox.refused.add("gone@example.org")
        async with channel_app(dsn, **server.environment) as app:
            for _ in range(9):
                assert not client.status(good.id).state.has_ended
                await drain(app)
                clock.move(61)
    assert (client.status(good.id).state, client.status(bad.id).state) == ("succeeded", "failed")
    assert len(server.mailbox.messages) == 1
    assert sorted(what for what, _ in told(shop)) == ["before", "before", "error", "success"]
    assert len(errors(shop)) == 16
    shown = client.show(good.id)
    assert shown
    assert [a["outcome"] for a in shown["attempts"]] == ["snoozed"] * 8 + ["succeeded"]


async def test_an_answer_that_never_came_is_an_interrupted_send(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    made = client.enqueue("q", "email", {"mail": MAIL, "on_error": "report", **HANDLERS})
    with MailServer() as server:
        server.mailbox.rules = ["hang up"]
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert client.status(made.id).state is dibs.State.SUCCEEDED
    assert totals(shop) == (2, 1)
    assert any("may go out twice" in text for text in errors(shop))


async def test_an_idle_connection_that_was_closed_is_replaced(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    first = MailServer()
    with first:
        async with channel_app(dsn, **first.environment) as app:
            client.enqueue("q", "email", {"message": MAIL})
            await drain(app)
            provider: Any = app.channels.providers["email"]
            for idle in provider._idle:
                idle.transport.abort()
            client.enqueue("q", "email", {"message": MAIL})
            await drain(app)
    assert len(first.mailbox.messages) == 2
    assert errors(shop) == []


@pytest.mark.parametrize("answer", ["421 4.4.2 idle for too long", "503 5.5.1 not now"])
async def test_an_idle_connection_that_cannot_be_reset_is_replaced(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    answers = ["250 OK", answer]

    async def handle(*_: Any) -> str:
        return answers.pop(0) if answers else "250 OK"

    monkeypatch.setattr("examples.loopback.Mailbox.handle_RSET", handle, raising=False)
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            for _ in range(2):
                made = client.enqueue("q", "email", {"message": MAIL})
                await drain(app)
                assert client.status(made.id).state is dibs.State.SUCCEEDED
    assert (answers, errors(shop)) == ([], [])


async def test_a_mail_server_that_refuses_every_connection_refuses_no_message(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"554 5.3.2 closed for maintenance\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    environment = {
        "DIBS_SMTP_HOST": "127.0.0.1", "DIBS_SMTP_PORT": str(server.sockets[0].getsockname()[1]),
        "DIBS_SMTP_TLS": "none", "DIBS_EMAIL_FROM": "shop@example.org",
    }  # fmt: skip
    made = client.enqueue("q", "email", {"message": MAIL}, max_attempts=2)
    async with server, channel_app(dsn, **environment) as app:
        await drain(app)
    shown = client.show(made.id)
    assert shown
    assert [a["outcome"] for a in shown["attempts"]] == ["failed", "failed"]
    assert "refused the connection: 554 5.3.2" in errors(shop)[0]


async def test_a_message_that_cannot_be_made_is_told_after_the_last_attempt(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    plan(shop, "before", *[{"success": False, "error": "not now"}] * 3)
    made = client.enqueue("q", "email", {"mail": MAIL, **HANDLERS})
    with MailServer() as server:
        async with channel_app(dsn, **server.environment) as app:
            await drain(app)
    assert client.status(made.id).state.has_ended
    assert [payload["error"] for what, payload in told(shop) if what == "error"] == ["shop.before: not now"]


# Text messages


def sms_environment(server: WebServer) -> dict[str, str]:
    return {
        "DIBS_SMS_URL": server.url, "DIBS_SMS_ACCOUNT": "AC1", "DIBS_SMS_TOKEN": "top-secret-token",
        "DIBS_SMS_FROM": "+15559999",
    }  # fmt: skip


async def test_a_text_message_goes_out(dsn: str, shop: psycopg.Connection[Any], client: dibs.Client) -> None:
    made = client.enqueue("q", "sms", {"task_type": "sms", "mail": SMS, **HANDLERS})
    with WebServer() as server:
        async with channel_app(dsn, **sms_environment(server)) as app:
            await drain(app)
    [request] = server.requests
    assert request.path == "/2010-04-01/Accounts/AC1/Messages.json"
    assert parse_qs(request.body) == {"To": ["+15550001"], "From": ["+15559999"], "Body": ["Hello"]}
    assert request.headers["idempotency-key"] == str(made.id)
    assert request.headers["authorization"] == "Basic " + b64encode(b"AC1:top-secret-token").decode()
    assert told(shop)[-1][1]["worker_payload"] == {"provider": "twilio", "id": "SM1", "status": "queued"}


async def test_what_the_service_says_decides(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    later = {"Retry-After": "120"}
    cases: list[tuple[int, dict[str, str], Any, str]] = [
        (500, {}, {}, "succeeded"),
        (401, {}, {"code": 20003, "message": "authenticate"}, "succeeded"),
        (0, {}, {}, "succeeded"),
        (504, {}, {}, "succeeded"),
        (429, later, {"code": 20429, "message": "too many"}, "scheduled"),
        (503, later, {}, "scheduled"),
        (400, {}, {"code": 21211, "message": "not a number"}, "failed"),
        (302, {"Location": "http://127.0.0.1:9/"}, {}, "succeeded"),
        (201, {}, {"sid": "a\0b", "status": "x" * 100_000}, "succeeded"),
        (201, {}, {"sid": [["deep"]], "code": [1], "message": {"a": 1}}, "succeeded"),
        (400, {}, {"code": {"a": 1}, "message": "no\0"}, "failed"),
        (400, {"Retry-After": "Sun, 99 Nov 9999999 00:00:00 GMT"}, [], "failed"),
    ]
    with WebServer() as server:
        async with channel_app(dsn, **sms_environment(server)) as app:
            for status, headers, said, expected in cases:
                server.answers = [(status, headers, said)]
                made = client.enqueue("q", "sms", {"mail": SMS, **HANDLERS})
                await drain(app)
                assert client.status(made.id).state == expected, status
                if expected == "scheduled":
                    asked = "select extract(epoch from due_at - dibs.now())::float from dibs.jobs where id = %s"
                    [(wait,)] = shop.execute(asked, (made.id,)).fetchall()
                    assert 100 < wait <= 120
            clock.move(121)
            await drain(app)
    assert {j.state for j in client.find_jobs({"queue": "q"}, limit=100).jobs} == {"succeeded", "failed"}
    assert totals(shop)[1] == 2, "no answer, and a gateway's answer, leave it open whether it was sent"


async def test_a_webhook_is_a_template(dsn: str, shop: psycopg.Connection[Any], client: dibs.Client) -> None:
    with WebServer() as server:
        template = {
            "url": server.url + "/send?channel=sms",
            "headers": {"Authorization": "Bearer ${SMS_KEY}"},
            "body": {"recipients": ["{to}"], "body": "Shop: {text}", "dedupe": "{key}"},
            "id": "/data/ids/0",
        }
        environment = {
            "DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": json.dumps(template), "SMS_KEY": "hush-hush"
        }  # fmt: skip
        made = client.enqueue("q", "sms", {"mail": SMS, **HANDLERS})
        async with channel_app(dsn, **environment) as app:
            await drain(app)
    [request] = server.requests
    assert json.loads(request.body) == {"recipients": ["+15550001"], "body": "Shop: Hello", "dedupe": str(made.id)}
    assert request.headers["authorization"] == "Bearer hush-hush"
    assert told(shop)[-1][1]["worker_payload"]["id"] == 1


async def test_headers_of_a_webhook_replace_its_own_in_any_case(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, str]] = []

    async def send(_self: Http, _method: str, headers: dict[str, str], _body: bytes) -> HttpAnswer:
        sent.append(headers)
        return HttpAnswer(200, {}, "{}")

    monkeypatch.setattr(Http, "send", send)
    headers = {"content-type": "text/plain", "ACCEPT": "text/html", "idempotency-key": "mine", "X-A": "a"}
    template = json.dumps({"url": "https://sms.example.org", "headers": headers})
    made = client.enqueue("q", "sms", {"message": SMS})
    async with channel_app(dsn, DIBS_SMS_PROVIDER="webhook", DIBS_SMS_WEBHOOK=template) as app:
        await drain(app)
    wanted = {"content-type": "text/plain", "ACCEPT": "text/html", "X-A": "a", "Idempotency-Key": str(made.id)}
    assert sent == [wanted]


async def test_a_webhook_can_be_used_again_after_its_app_was_closed(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    with WebServer() as server:
        template = {"url": server.url, "form": True, "body": {"from": "{from}", "to": "{to}", "text": "To {from}{to}"}}
        environment = {"DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": json.dumps(template)}
        async with channel_app(dsn, **environment) as app:
            for _ in range(2):
                client.enqueue("q", "sms", {"message": {**SMS, "from": None}})
                await drain(app)
                await app.aclose()
    assert [request.body for request in server.requests] == ["to=%2B15550001&text=To+%2B15550001"] * 2
    assert errors(shop) == []


def test_settings_are_checked_before_anything_runs(dsn: str) -> None:
    bad = [
        ({"DIBS_EMAIL_PROVIDER": "smtps"}, "did you mean 'smtp'"),
        ({"DIBS_EMAIL_PROVIDER": "smtp"}, "DIBS_SMTP_HOST is not set"),
        ({"DIBS_SMTP_HOST": "h", "DIBS_SMTP_TLS": "ssl"}, "starttls, tls, none"),
        ({"DIBS_SMTP_HOST": "h", "DIBS_SMTP_PORT": "smtp"}, "a number above zero"),
        ({"DIBS_SMTP_HOST": "h", "DIBS_SMTP_PORT": "inf"}, "a number above zero"),
        ({"DIBS_SMTP_HOST": "h", "DIBS_SMTP_USER": "u"}, "DIBS_SMTP_PASSWORD is not set"),
        ({"DIBS_SMS_ACCOUNT": "AC1"}, "DIBS_SMS_TOKEN is not set"),
        ({"DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": "{"}, "not a template"),
        ({"DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": '{"url": "ftp://x"}'}, "not an address of HTTP"),
        ({"DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": '{"url": "https://x/${NOPE}"}'}, "NOPE is not set"),
    ]
    for environment, words in bad:
        with pytest.raises(dibs.InvalidArgument) as refused:
            channels.app(dsn, environment=environment)
        assert words in str(refused.value)
    assert sorted(channels.app(dsn, environment={}).tasks) == ["db_function"]


async def test_secrets_are_nowhere_to_be_seen(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A service that repeats our password in its answer does not get it into a log, an error or a table."""
    caplog.set_level(logging.DEBUG)
    proof = b64encode(b"AC1:top-secret-token").decode()
    echo = f"you said top-secret-token, which is {proof}"
    with WebServer() as server:
        environment = sms_environment(server)
        async with channel_app(dsn, **environment) as app:
            for status in (400, 401, 429, 504, 201):
                server.answers = [(status, {}, {"message": echo, "code": 1, "sid": echo, "status": echo})] * 3
                client.enqueue("q", "sms", {"mail": SMS, **HANDLERS})
                await drain(app)
            assert "top-secret" not in repr(app.channels.__dict__)
    rows: list[Any] = []
    for table in ("error", "delivery", "attempt", "dead", "job", "worker"):
        rows += shop.execute(f"select t::text from dibs.{table} as t").fetchall()
    rows += shop.execute("select t::text from shop.told as t").fetchall()
    shown = " ".join(row[0] for row in rows) + caplog.text
    assert "***" in shown
    for secret in ("top-secret-token", proof):
        assert secret not in shown


def test_a_secret_is_struck_out_in_every_form() -> None:
    secret = 'tök"en/+&<%1'
    environment = channels.Environment({"KEY": secret, "OTHER": "tök"})
    assert (environment.secret("KEY"), environment.secret("OTHER")) == (secret, "tök")
    raw = secret.encode()
    texts = [
        secret, secret.upper(), json.dumps(secret), json.dumps(secret, ensure_ascii=False).replace("/", r"\/"),
        quote(secret), quote(secret, safe=""), quote(secret, safe="").lower(), quote_plus(secret), html.escape(secret),
        *(b64encode(b"\0" * before + raw + b"tail" * after).decode() for before in range(6) for after in range(2)),
        urlsafe_b64encode(b"user:" + raw).decode(),
    ]  # fmt: skip
    for text in texts:
        assert channels.environment.STRUCK in environment.scrub({"a": [text]})["a"][0], text
    assert environment.scrub("nothing \0 \ud800 here") == "nothing \ufffd ? here"
    with pytest.raises(dibs.InvalidArgument, match="line break") as refused:
        channels.Environment({"KEY": "hush-hush\n"}).secret("KEY")
    assert "hush" not in str(refused.value)


async def test_a_secret_at_the_cut_is_struck_out(dsn: str, shop: psycopg.Connection[Any], client: dibs.Client) -> None:
    """Cut first, and most of a secret that lies across the cut would be left."""
    with WebServer() as server:
        async with channel_app(dsn, **sms_environment(server)) as app:
            server.answers = [(400, {}, "x" * n + "top-secret-token") for n in range(475, 500)]
            made = [client.enqueue("q", "sms", {"message": SMS}) for _ in server.answers]
            await drain(app)
    said = [client.why(m.id) for m in made]
    assert all("xxx" in text for text in said)
    assert not [text for text in said if "top-secret" in text]


def test_credentials_are_encrypted_unless_they_stay_here(dsn: str) -> None:
    def sms(url: str) -> dict[str, str]:
        return {"DIBS_SMS_URL": url, "DIBS_SMS_ACCOUNT": "AC1", "DIBS_SMS_TOKEN": "top-secret-token"}

    def webhook(url: str, **headers: str) -> dict[str, str]:
        template = json.dumps({"url": url, "headers": headers})
        return {"DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": template, "KEY": "hush-hush"}

    for environment, words in [
        (sms("http://sms.example.org"), "as plain text"),
        (sms("http://localhost.example.org"), "as plain text"),
        (webhook("http://sms.example.org", Authorization="Bearer x"), "as plain text"),
        (webhook("http://sms.example.org/${KEY}"), "as plain text"),
        (webhook("https://u:${KEY}@sms.example.org"), "has a login in it"),
        (webhook("ftp://sms.example.org/${KEY}"), "not an address of HTTP"),
        (webhook("https://sms.example.org:port/${KEY}"), "not an address of HTTP"),
        (webhook("https://sms.example.org/a path/${KEY}"), "not an address of HTTP"),
        (webhook("https://sms..example.org/${KEY}"), "not an address of HTTP"),
        (webhook("https://" + "a" * 64 + ".example.org"), "not an address of HTTP"),
        (webhook("https://sms example.org"), "not an address of HTTP"),
    ]:
        with pytest.raises(dibs.InvalidArgument, match=words) as refused:
            channels.app(dsn, environment=environment)
        assert "hush" not in str(refused.value)
    for environment in (
        sms("https://sms.example.org"), sms("http://localhost:8080"), sms("http://127.0.0.2"), sms("http://[::1]:80"),
        sms("https://bücher.example.org."), sms("http://[::1]"),
        webhook("http://sms.example.org"), webhook("https://sms.example.org/${KEY}", Authorization="Bearer x"),
    ):  # fmt: skip
        channels.app(dsn, environment=environment)


async def test_an_ipv6_address_without_a_port_has_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(address: tuple[str, int], *_: Any) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    for url in ("http://[::1]/x", "https://[::1]/x", "http://[::1]:8080/x", "http://example.org/x"):
        with contextlib.closing(Http(url, 5, called="the server", carries_secret=False)) as http:
            with pytest.raises(channels.NotSent):
                await http.send("POST", {}, b"hello")
    assert asked == [("::1", 80), ("::1", 443), ("::1", 8080), ("example.org", 80)]


DRIPS = {
    "the status": (b"", b"H"),
    "the headers": (b"HTTP/1.1 200 OK\r\nX-Drip: ", b"x"),
    "the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
}


@pytest.mark.parametrize("part", DRIPS)
async def test_a_server_that_drips_holds_no_thread(part: str) -> None:
    """A socket's timeout begins again with every byte."""
    begin, drop = DRIPS[part]
    hung_up = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        hung_up.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        http = Http(f"http://127.0.0.1:{port}", 0.3, called="the server", carries_secret=False)
        async with asyncio.timeout(10):
            with pytest.raises(Unanswered, match="Timeout"):
                await http.send("POST", {}, b"hello")
            await hung_up.wait()
        http.close()


async def test_a_header_that_http_cannot_send_is_no_send(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client
) -> None:
    with WebServer() as server:
        template = json.dumps({"url": server.url, "headers": {"X-Snow": "\u2603", "X-A": "${KEY}"}})
        environment = {"DIBS_SMS_PROVIDER": "webhook", "DIBS_SMS_WEBHOOK": template, "KEY": "hush-hush"}
        made = client.enqueue("q", "sms", {"message": SMS})
        async with channel_app(dsn, **environment) as app:
            await drain(app)
    assert (server.requests, totals(shop)) == ([], (3, 0))
    assert "not one that HTTP can send" in client.why(made.id)


# Others' channels, and the command


class Pigeon:
    name = "pigeon"
    sent: list[tuple[Any, str]]

    def __init__(self) -> None:
        self.sent = []

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        self.sent.append((message, key))
        return {"id": len(self.sent)}

    async def close(self) -> None: ...


async def test_others_can_register_a_channel(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pigeon = Pigeon()
    monkeypatch.setattr("dibs.channels.registry._registered", {})
    channels.register("pigeon", lambda environment: pigeon if environment.get("LOFT") else None)
    with pytest.raises(dibs.InvalidArgument):
        channels.register("db_function", lambda _: None)
    assert "pigeon" not in channels.app(dsn, environment={}).tasks
    made = client.enqueue("q", "pigeon", {"mail": {"to": "tower"}, **HANDLERS})
    async with channel_app(dsn, LOFT="attic") as app:
        await drain(app)
    assert pigeon.sent == [({"to": "tower"}, str(made.id))]
    assert told(shop)[-1][1]["worker_payload"] == {"provider": "pigeon", "id": 1}


def test_a_package_offers_its_channel_by_an_entry_point(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoint("pigeon", "tests.integration.test_channels:make_pigeon", "dibs.channels")
    monkeypatch.setattr("dibs.channels.registry.entry_points", lambda **_: [offered])
    monkeypatch.setattr("dibs.channels.registry._registered", {})
    assert sorted(channels.app(dsn, environment={}).tasks) == ["db_function", "pigeon"]


def test_no_package_replaces_db_function_by_an_entry_point(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoint("db_function", "tests.integration.test_channels:make_pigeon", "dibs.channels")
    monkeypatch.setattr("dibs.channels.registry.entry_points", lambda **_: [offered])
    monkeypatch.setattr("dibs.channels.registry._registered", {})
    with pytest.raises(dibs.InvalidArgument, match="there is a task db_function already"):
        channels.app(dsn, environment={})


@pytest.mark.parametrize(
    "receipt", [{"id": 2**80}, {"id": Decimal("nan")}, {"id": float("inf")}, {"id": "\ud800"}, [1]]
)
async def test_a_receipt_that_cannot_be_stored_sends_nothing_again(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, monkeypatch: pytest.MonkeyPatch, receipt: Any
) -> None:
    class Strange(Pigeon):
        async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
            await super().send(message, key)
            answered: dict[str, Any] = receipt
            return answered

    pigeon = Strange()
    monkeypatch.setattr("dibs.channels.registry._registered", {"pigeon": lambda _: pigeon})
    made = client.enqueue("q", "pigeon", {"message": {"to": "tower"}})
    async with channel_app(dsn) as app:
        await drain(app)
    assert client.status(made.id).state is dibs.State.SUCCEEDED
    assert len(pigeon.sent) == 1


def make_pigeon(environment: channels.Environment) -> Pigeon:
    return Pigeon()


async def test_channels_beside_an_apps_own_tasks(
    dsn: str, shop: psycopg.Connection[Any], client: dibs.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    app = dibs.App(dsn, queue="q")

    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    channels.add(app, {"DIBS_EMAIL_PROVIDER": "console"})
    job = double.enqueue(4)
    mail = client.enqueue("q", "email", {"mail": MAIL, **HANDLERS})
    await drain(app)
    assert (job.result(), client.status(mail.id).state) == (8, "succeeded")
    assert f"email {mail.id}: " in capsys.readouterr().err
    await app.aclose()
    app.close()


def test_the_worker_command_needs_no_python(dsn: str, shop: psycopg.Connection[Any], client: dibs.Client) -> None:
    made = [
        client.enqueue("q", "db_function", {"db_function": "shop.work"}),
        client.enqueue("q", "email", {"mail": MAIL, **HANDLERS}),
    ]
    with MailServer() as server:
        command = [sys.executable, "-m", "dibs", "worker", "--channels", "--queue", "q", "--dsn", dsn, "--drain"]
        done = subprocess.run(
            command, env={**os.environ, **server.environment}, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert {client.status(m.id).state for m in made} == {dibs.State.SUCCEEDED}
    wait_until(lambda: len(server.mailbox.messages) == 1, what="the mail is there")
    nothing = subprocess.run([*command[:4]], capture_output=True, text=True, timeout=60, check=False)
    assert "give --channels" in nothing.stderr
