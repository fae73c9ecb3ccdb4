"""No single job stops a queue: whatever an enqueue accepts, its neighbours run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.worker import Worker, WorkerSettings
from tests.waiting import wait_until

if TYPE_CHECKING:
    from uuid import UUID

SABOTAGE = {
    "resources": 'update dibs.job set resources = \'{"gpu": "many"}\' where id = %s',
    "lease": "update dibs.ready set own_lease = '178000000 years' where id = %s",
}
"""Ways to make a job that cannot be claimed, past all checks."""


def spoil(db: psycopg.Connection[Any], client: dibs.Client, way: str, **options: Any) -> UUID:
    """A job that makes each claim of its queue fail, between good ones."""
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 1)")
    good = [dibs.NewJob(queue="q", kind="good", payload=n, **options) for n in range(20)]
    bad = dibs.NewJob(queue="q", kind="bad", resources={"gpu": 1}, **options)
    made = client.enqueue_many([*good[:7], bad, *good[7:]])
    db.execute(SABOTAGE[way], (made[7].id,))
    with pytest.raises(psycopg.DataError):
        db.execute("select * from dibs.claim('{q}', 100)")
    return made[7].id


@pytest.mark.parametrize("way", SABOTAGE)
@pytest.mark.parametrize("options", [{}, {"group": "g"}])
def test_a_client_claims_past_a_job_that_cannot_be_read(
    db: psycopg.Connection[Any], client: dibs.Client, way: str, options: dict[str, Any]
) -> None:
    bad = spoil(db, client, way, **options)
    found: list[Any] = []

    def all_came() -> bool:
        found.extend(job.payload for job in client.claim("q", 100))
        return len(found) == 20

    wait_until(all_came, what="the good ones are claimed")
    assert sorted(found) == list(range(20))
    status = client.status(bad)
    assert status.state is dibs.State.FAILED
    assert status.reason is not None
    assert status.reason.startswith("cannot be handed out: ")
    assert db.execute("select * from dibs.bury_unreadable('{q}')").fetchall() == []


def test_so_does_a_worker(dsn: str, db: psycopg.Connection[Any], client: dibs.Client) -> None:
    bad = spoil(db, client, "lease")
    app = dibs.App(dsn, queue="q")
    ran = []

    @app.task(name="good")
    async def good(n: int) -> None:
        ran.append(n)

    db.execute("update dibs.job set payload = jsonb_build_object('n', payload) where kind = 'good'")

    async def drain() -> None:
        async with asyncio.timeout(60):
            await Worker(app, WorkerSettings(("q",), drain=True, upkeep=False)).run()

    asyncio.run(drain())
    app.close()
    assert sorted(ran) == list(range(20))
    assert client.status(bad).state is dibs.State.FAILED


def test_a_blocked_job_that_cannot_be_read_is_buried_too(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.limits.set(resource="gpu", concurrency=1)
    first, second = (client.enqueue("q", "k", resources={"gpu": 1}) for _ in range(2))
    [held] = client.claim("q", 10)
    assert (held.id, client.status(second.id).state) == (first.id, dibs.State.BLOCKED)
    db.execute(SABOTAGE["resources"], (second.id,))
    third = client.enqueue("q", "k")
    client.complete(held)
    assert [job.id for job in client.claim("q", 10)] == [third.id]
    assert client.status(second.id).state is dibs.State.FAILED


def test_an_error_that_is_no_jobs_fault_is_passed_on(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    db.execute("alter table dibs.queue drop constraint queue_lease_range, drop constraint queue_lease_cap_range")
    db.execute("update dibs.queue set lease = '178000000 years', lease_cap = '178000000 years'")
    with pytest.raises(dibs.InvalidArgument, match="out of range"):
        client.claim("q")
    assert client.status(made.id).state is dibs.State.READY


def text() -> st.SearchStrategy[str]:
    odd = st.sampled_from(
        ["", "\x01" * 50, "x" * 3000, "\n", "ü" * 200, "é" * 201, "dibs", "'", "\\", "#", "%", "g" * 200]
    )
    return (st.text(max_size=20) | odd).map(json.dumps)


NUMBERS = st.sampled_from(
    ["0", "1", "-1", "1.0", "1e0", "1.00", "100", "101", "-101", "0.1", "1e131071", "1e-16383", "-1e131071", "1e308",
     "1e309", "9223372036854775808", "2147483648", "32768", "0.000001", "1e-300", "0." + "0" * 16000 + "1"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["infinity", "-infinity", "10 years", "-1 day", "1 second", "178000000 years", "0", "epoch", "4713-01-01 BC",
     "294276-12-31", "9000-01-01", "2000-01-01", "0001-01-01", "all", "none", "waiting", "window", "unfinished", "keep",
     "replace", "refuse", "NaN", "true", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "eA==", "="]
).map(json.dumps)  # fmt: skip
SIMPLE = st.sampled_from(["null", "true", "false"]) | NUMBERS | WORDS | text()


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]")
    members = st.tuples(text() | st.sampled_from(['"gpu"', '"kind"', '"delays"']), inner).map(": ".join)
    return lists | st.lists(members, max_size=4).map(lambda items: f"{{{', '.join(items)}}}")


VALUES = st.recursive(SIMPLE, nested, max_leaves=8) | st.sampled_from(
    ["[" * 500 + "]" * 500, '{"gpu": 1.0}', '{"gpu": 3}', '{"kind": "list", "delays": [0, 1e0]}',
     '{"kind": "exponential", "delays": ["1 year"], "factor": 100, "cap": null}', '{"a": "' + "\\u0001" * 60000 + '"}']
)  # fmt: skip
LIKELY = {
    "payload": VALUES,
    "group": st.sampled_from(["g", "h"]).map(json.dumps),
    "resources": st.sampled_from(['{"gpu": 1.0}', '{"gpu": 2e0}', '{"disk": 1}']),
    "priority": st.sampled_from(["-100", "100", "7"]),
    "lease": st.sampled_from(["0.1", '"7 days"']),
    "lease_growth": st.sampled_from(["100", "1.5"]),
    "cost": st.sampled_from(["1", "1000000"]),
    "max_attempts": st.sampled_from(["1", "10000"]),
}
"""What is accepted, so that it is not all refused at once."""

_numbers = itertools.count()


@st.composite
def odd_jobs(draw: st.DrawFn, names: list[str]) -> str:
    """The JSON of a job with a few options, most of them strange; the later of two of one name counts."""
    picked = draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
    likely = draw(st.lists(st.sampled_from(sorted(LIKELY)), max_size=3, unique=True))
    options = [(name, draw(LIKELY[name])) for name in likely] + [(name, draw(VALUES)) for name in picked]
    return ", ".join(f'"{name}": {value}' for name, value in options)


def test_whatever_is_accepted_its_neighbours_run(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 2)")
    db.execute("select dibs.set_limit(kind => 'limited', concurrency => 1)")
    [(names,)] = db.execute("select dibs._field_names('dibs.job_request')").fetchall()
    policies = st.sampled_from(["{}", '{"newest_first": true}', '{"payload_limit": 100000}'])

    @settings(max_examples=60)
    @given(st.lists(odd_jobs(names), min_size=1, max_size=4), policies, st.booleans())
    def all_neighbours_run(jobs: list[str], policy: str, strict: bool) -> None:
        queue = f"q{next(_numbers)}"
        db.execute("select dibs.set_queue(%s, %s)", (queue, policy))
        if strict:
            db.execute("select dibs.set_group(%s, null, '{\"concurrency\": 1}')", (queue,))
        neighbours = set()
        for job in jobs:
            neighbours.add(client.enqueue(queue, "neighbour").id)
            enqueue_odd(db, queue, job)
        neighbours.add(client.enqueue(queue, "neighbour").id)
        wait_until(lambda: not run_some(client, queue, neighbours), what=f"all beside {jobs} run")

    all_neighbours_run()


def enqueue_odd(db: psycopg.Connection[Any], queue: str, job: str) -> None:
    whole = f'[{{"kind": "limited", {job}{", " if job else ""}"queue": "{queue}"}}]'
    refused: psycopg.Error | None = None
    try:
        [(id,)] = db.execute("select id from dibs.enqueue_many(%s)", (whole,)).fetchall()
        for look in ("dibs.why", "dibs.status"):
            db.execute(f"select {look}(%s)", (id,)).fetchall()
    except psycopg.Error as error:
        refused = error
    if refused is not None:
        state = refused.sqlstate or ""
        assert state[:2] in {"DI", "22", "54"} or state == "23514", (refused, whole)
        assert "Failing row" not in str(refused)


def run_some(client: dibs.Client, queue: str, neighbours: set[UUID]) -> set[UUID]:
    """Claim and complete; the neighbours that are left to run."""
    claimed = client.claim(queue, 5)
    for job in claimed:
        with contextlib.suppress(dibs.InvalidArgument):  # What Python cannot read fails alone.
            assert job.content is not job
        assert job.deadline is None or job.deadline.year > 0
        assert job.lease > 0
    client.complete_many(claimed)
    neighbours -= {job.id for job in claimed}
    return neighbours
