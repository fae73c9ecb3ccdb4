"""A supervisor in Python: the same pattern as examples/comms, as tasks of an app.

    pip install 'dibs[channels]'
    export DIBS_DSN=postgresql:///shop DIBS_SMTP_HOST=localhost DIBS_EMAIL_FROM=shop@example.org
    python -m examples.letters                                  # makes its tables
    dibs worker examples.letters:app

Facts are rows that are inserted and never changed. ``decide`` is the logic: it looks at facts and names what is to be
done, and does nothing itself. ``act`` has the effects, in the transaction in which the facts were read.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

import dibs
from dibs.channels import Environment, NotSent, Refusal
from dibs.channels.providers import email
from dibs.config import configured_dsn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dibs.channels import Provider

app = dibs.App(queue="letters")

TABLES = """
create schema if not exists letters;
create table if not exists letters.letter (
  id bigint generated always as identity primary key, request_key text unique, to_address text, body text);
create table if not exists letters.attempt (
  id bigint generated always as identity primary key, letter_id bigint references letters.letter, job_id uuid);
create table if not exists letters.failed (
  attempt_id bigint primary key references letters.attempt, error text, at timestamptz default dibs.now());
create table if not exists letters.succeeded (
  attempt_id bigint primary key references letters.attempt, receipt jsonb, at timestamptz default dibs.now());
create table if not exists letters.ended (
  letter_id bigint primary key references letters.letter, outcome text, reason text);
"""
MAX_ATTEMPTS = 5
FIRST_PAUSE = timedelta(seconds=30)
RECHECK = timedelta(minutes=1)
Connection = psycopg.AsyncConnection[Any]


@contextlib.asynccontextmanager
async def transaction() -> AsyncIterator[Connection]:
    """A separate transaction."""
    async with await Connection.connect(configured_dsn(app.dsn) or "") as conn:
        yield conn


# Facts


@dataclass(frozen=True)
class Facts:
    """The facts of a letter; an attempt without an outcome has the state of its job."""

    failures: int
    waited: timedelta | None
    error: str | None
    ended: str | None
    outstanding: int | None
    job_state: str | None


FACTS = """
select count(f.attempt_id)::integer as failures, dibs.now() - max(f.at) as waited, max(f.error) as error,
  (select outcome from letters.ended where letter_id = %(id)s) as ended,
  max(a.id) filter (where f.attempt_id is null and s.attempt_id is null) as outstanding,
  max((dibs.status(a.job_id)).state) filter (where f.attempt_id is null and s.attempt_id is null) as job_state
from letters.attempt as a
left join letters.failed as f on f.attempt_id = a.id
left join letters.succeeded as s on s.attempt_id = a.id
where a.letter_id = %(id)s
"""


async def look(conn: Connection, letter_id: int) -> Facts:
    """Lock the root row, and then read the facts: what others did before us is seen."""
    await conn.execute("select from letters.letter where id = %s for update", (letter_id,))
    async with conn.cursor(row_factory=class_row(Facts)) as cursor:
        await cursor.execute(FACTS, {"id": letter_id})
        return (await cursor.fetchall())[0]


# Logic


@dataclass(frozen=True)
class Decision:
    """The next step of a letter."""

    what: Literal["nothing", "wait", "try", "give up", "count as failed"]
    delay: timedelta = timedelta(0)


def decide(facts: Facts) -> Decision:
    """From facts to a decision, and nothing else.

    >>> decide(Facts(2, timedelta(0), "no", None, None, None))
    Decision(what='try', delay=datetime.timedelta(seconds=60))
    """
    if facts.ended:
        return Decision("nothing")
    if facts.outstanding is not None:
        alive = facts.job_state in {"scheduled", "ready", "blocked", "running"}
        return Decision("wait" if alive else "count as failed")
    if facts.failures >= MAX_ATTEMPTS:
        return Decision("give up")
    if facts.failures == 0:
        return Decision("try")
    pause = FIRST_PAUSE * 2 ** (facts.failures - 1) - (facts.waited or timedelta(0))
    return Decision("try", max(pause, timedelta(0)))


# Effects


async def act(conn: Connection, letter_id: int, facts: Facts, decision: Decision) -> None:
    """Do what was decided, and see to the next look; once more after a lost attempt was counted."""
    if decision.what == "count as failed":
        await note_failure(conn, facts.outstanding, f"its job ended as {facts.job_state} and told nobody")
        facts = await look(conn, letter_id)
        decision = decide(facts)
    if decision.what == "give up":
        await end(conn, letter_id, "given up", facts.error)
    if decision.what == "try":
        await schedule(conn, letter_id, decision.delay)
    if decision.what in {"try", "wait"}:
        await look_again(conn, letter_id, RECHECK)


async def schedule(conn: Connection, letter_id: int, delay: timedelta) -> None:
    """Schedule an attempt: its fact, and the job that makes it."""
    made = await conn.execute("insert into letters.attempt (letter_id) values (%s) returning id", (letter_id,))
    [(attempt_id,)] = await made.fetchall()
    job = await send.using(conn=conn, delay=delay).aenqueue(letter_id, attempt_id)
    await conn.execute("update letters.attempt set job_id = %s where id = %s", (job.id, attempt_id))


async def look_again(conn: Connection, letter_id: int, delay: timedelta) -> None:
    """Have the supervisor look after a while; at most one look waits, however often this is called."""
    await conn.execute(
        "select dibs.supervise(%s, %s, %s, %s, %s)",
        (f"letters/{letter_id}", Jsonb({"letter_id": letter_id}), delay, supervise.settings.queue, supervise.name),
    )


async def note_failure(conn: Connection, attempt_id: int | None, error: str) -> None:
    """Note that an attempt failed."""
    await conn.execute(
        "insert into letters.failed (attempt_id, error) values (%s, %s) on conflict do nothing", (attempt_id, error)
    )


async def end(conn: Connection, letter_id: int, outcome: str, reason: str | None) -> None:
    """The one terminal fact."""
    await conn.execute(
        "insert into letters.ended values (%s, %s, %s) on conflict do nothing", (letter_id, outcome, reason)
    )


# Tasks


@app.task(name="letters.supervise", retry=dibs.Retry(max_attempts=1000))
async def supervise(letter_id: int) -> str:
    """Look at a letter and do what is to be done; safe at any time, any number of times."""
    async with transaction() as conn:
        facts = await look(conn, letter_id)
        decision = decide(facts)
        await act(conn, letter_id, facts, decision)
        return decision.what


@app.task(name="letters.send", retry=dibs.Retry(max_attempts=20))
async def send(letter_id: int, attempt_id: int) -> None:
    """Make one attempt, and note what came of it."""
    async with transaction() as conn:
        found = await conn.execute("select to_address, body from letters.letter where id = %s", (letter_id,))
        [(to, body)] = await found.fetchall()
    error, receipt = None, {}
    try:
        receipt = await provider().send({"to": to, "subject": "A letter", "text": body}, str(dibs.context().id))
    except (Refusal, NotSent) as failure:
        error = str(failure)
    async with transaction() as conn:
        await look(conn, letter_id)
        if error is not None:
            await note_failure(conn, attempt_id, error)
        else:
            note = "insert into letters.succeeded (attempt_id, receipt) values (%s, %s) on conflict do nothing"
            await conn.execute(note, (attempt_id, Jsonb(receipt)))
            await end(conn, letter_id, "sent", None)
        await look_again(conn, letter_id, timedelta(0))


@functools.cache
def provider() -> Provider:
    """The provider that the environment names."""
    made = email(Environment())
    if made is None:
        raise dibs.InvalidArgument("no e-mail provider is configured", hint="set DIBS_SMTP_HOST")
    return made


async def write(to: str, body: str, request_key: str) -> int:
    """Have a letter sent; with the same key it is the same letter."""
    async with transaction() as conn:
        await conn.execute(
            "insert into letters.letter (request_key, to_address, body) values (%s, %s, %s) on conflict do nothing",
            (request_key, to, body),
        )
        found = await conn.execute("select id from letters.letter where request_key = %s", (request_key,))
        [(letter_id,)] = await found.fetchall()
        await look_again(conn, letter_id, timedelta(0))
        return int(letter_id)


if __name__ == "__main__":
    with psycopg.connect(configured_dsn(None) or "") as connection:
        connection.execute(TABLES)
