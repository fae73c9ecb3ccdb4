"""Roles that are confined to some queues: no view and no verb tells them of another queue, or lets them touch it.

What is tried comes from the catalogue: every column of every view, and every function that a role may call. A function
that is not described here fails the test until it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dibs
    from tests.sql.conftest import Login

OURS, THEIRS = "mine", "hush"
"""Two queues, and the beginning of the name of everything that belongs to them."""


class World:
    """A queue with everything that can belong to one, in every table; all names begin with the queue's."""

    def __init__(self, db: psycopg.Connection[Any], client: dibs.Client, name: str) -> None:
        self.name = name
        self.role = f"{name}_team_{db.info.backend_pid}"
        db.execute(sql.SQL("create role {} nologin").format(sql.Identifier(self.role)))
        db.execute(f"create schema {name}_app")
        db.execute(f"create function {name}_app.run(p jsonb) returns jsonb language sql return dibs.result_ok()")
        db.execute(f"revoke execute on function {name}_app.run from public")
        db.execute(f"grant execute on function {name}_app.run to {self.role}")
        db.execute("select dibs.allow_function(%s)", (f"{name}_app.run(jsonb)",))
        db.execute("select dibs.set_queue(%s), dibs.set_queue(%s, '{\"exclusive\": true}')", (name, f"{name}-only"))
        db.execute("select dibs.set_group(%s, %s, '{\"weight\": 2}')", (name, f"{name}-group"))
        for scope in ("queue", "kind", "resource"):
            db.execute(f"select dibs.set_limit({scope} => %s, concurrency => 9)", (name,))
        tasks = [{"kind": f"{name}.kind", "queue": name}]
        db.execute("select dibs.set_tasks(%s)", (json.dumps(tasks),))
        facts = {"queues": [name]}
        self.worker, self.number = db.execute(
            "select worker, number from dibs.register_worker(%s, %s)", (f"{name}-worker", json.dumps(facts))
        ).fetchall()[0]
        db.execute("select from dibs.hold_shards(%s, %s)", (self.worker, [f"{name}-only"]))
        job = {"queue": name, "kind": f"{name}.kind"}
        rule = {"cron": "0 3 * * *"}
        db.execute("select dibs.set_schedule(%s, %s, %s)", (f"{name}-nightly", json.dumps(rule), json.dumps(job)))
        db.execute("select dibs.trigger(%s)", (f"{name}-nightly",))
        db.execute("select dibs.supervise(%s, '{}', queue => %s)", (f"{name}/7", name))
        client.complete(client.claim(name)[0])
        self._run_jobs(db, client)
        self.waiting = client.enqueue(name, f"{name}.kind", dedup_key=f"{name}-key", delay=60).id
        db.execute("select dibs.confine(%s, %s)", (self.role, [name, f"{name}-only"]))
        db.execute("select dibs.roll_up()")
        self.ids = [str(row[0]) for row in db.execute("select id from dibs.jobs where queue = %s", (name,)).fetchall()]

    def _run_jobs(self, db: psycopg.Connection[Any], client: dibs.Client) -> None:
        made = client.enqueue(self.name, f"{self.name}.failed")
        for job in client.claim(self.name, 9):
            if job.id == made.id:
                client.fail(job, f"{self.name} failed", final=True)
            else:
                client.complete(job)
        self.running = client.enqueue(self.name, f"{self.name}.kind", group=f"{self.name}-group").id
        [job] = client.claim(self.name)
        assert job.id == self.running
        client.extend(job, progress={"message": f"{self.name} progress"})
        db.execute("select dibs.begin_delivery(%s, %s, %s)", (job.id, job.token, f"{self.name}-smtp"))
        db.execute("select dibs.append_error(%s, %s)", (f"{self.name} error", job.id))

    def told(self, text: str) -> list[str]:
        """What a text says of this world."""
        return [word for word in [self.name, str(self.worker), *self.ids] if word in text]


@pytest.fixture
def worlds(db: psycopg.Connection[Any], client: dibs.Client) -> Iterator[tuple[World, World]]:
    """Ours and theirs."""
    made = World(db, client, OURS), World(db, client, THEIRS)
    yield made
    for world in made:
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(world.role)))


LEAK = """create function pg_temp.leak(a text) returns boolean language plpgsql cost 0.0000001 as $$ begin
  raise notice '%', a; return true; end $$"""
"""A condition that tells what it is asked about, and that the planner would rather ask first than any other."""


def test_no_view_tells_a_confined_role_of_another_queue(
    db: psycopg.Connection[Any], login: Login, worlds: tuple[World, World]
) -> None:
    """A caller's condition may run before the view's own, and say in a notice or an error what it saw."""
    ours, theirs = worlds
    columns = db.execute(
        "select c.relname, quote_ident(a.attname) from pg_class as c"
        " join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0"
        " where c.relnamespace = 'dibs'::regnamespace and c.relkind = 'v' order by 1, a.attnum"
    ).fetchall()
    everybodys = {"chores"}
    for view in {view for view, _ in columns} - everybodys:
        seen = str(db.execute(f"select to_jsonb(v)::text from dibs.{view} as v").fetchall())
        assert ours.told(seen), f"the world has nothing for {view} to show"
        assert theirs.told(seen), f"the world has nothing for {view} to hide"
    client = login("dibs_observer", ours.role)
    with psycopg.connect(client.dsn, autocommit=True) as conn:
        conn.execute(LEAK)
        heard: list[str] = []
        conn.add_notice_handler(lambda note: heard.append(note.message_primary or ""))
        for view, column in columns:
            heard.clear()
            seen = str(conn.execute(f"select * from dibs.{view} where pg_temp.leak({column}::text)").fetchall())
            assert not theirs.told(seen + str(heard)), f"{view}.{column}"
            if column in {"name", "queue"} and view not in everybodys:
                assert ours.told(seen), f"{view} hides what is ours"
            cast = f"case when {column}::text ~ '{THEIRS}' then {column}::text else '1' end"
            conn.execute(f"select count(*) from dibs.{view} where ({cast})::integer = 1")


def test_every_view_is_a_barrier(db: psycopg.Connection[Any]) -> None:
    assert db.execute(
        "select relname from pg_class where relnamespace = 'dibs'::regnamespace and relkind = 'v'"
        " and not coalesce(reloptions @> '{security_barrier=true}', false)"
    ).fetchall() == []  # fmt: skip
