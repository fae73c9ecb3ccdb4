"""A dump restored elsewhere works on: jobs in every state, the allow-list, deliveries, supervisors and grants."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from examples.comms.story import as_worker, install
from psycopg.types.json import Jsonb

import dibs
from dibs.db.schema import migrate

if TYPE_CHECKING:
    from dibs.embedded import Server
    from dibs.testing import Clock


def restore(server: Server, source: str, target: str, file: Path) -> None:
    """Dump one database with pg_dump and load it into another with psql."""
    programs = Path(server.binaries["psql"]).parent
    dumped = subprocess.run(
        [str(programs / "pg_dump"), "-f", str(file), source], capture_output=True, text=True, check=False
    )
    assert dumped.returncode == 0, dumped.stderr
    loaded = subprocess.run(
        [str(programs / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), target],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr


def jobs_in_every_state(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> dict[str, dibs.types.Enqueued]:
    made = {}
    for state in ("succeeded", "failed", "exhausted", "cancelled", "expired", "running"):
        lives = 60 if state == "expired" else 3600
        made[state] = client.enqueue("q", state, {"state": state}, max_attempts=1, ttl=lives)
    client.cancel(made["cancelled"].id)
    held = {job.kind: job for job in client.claim("q", 10)}
    client.complete(held["succeeded"], {"done": True})
    client.fail(held["failed"], "never", final=True)
    client.fail(held["exhausted"], "no more")
    client.release(held["expired"])
    clock.move(61)
    db.execute("select dibs.expire()")
    client.extend(held["running"], lease=3600)
    made["scheduled"] = client.enqueue("q", "scheduled", delay=3600)
    made["ready"] = client.enqueue("q", "ready", dedup_key="one")
    return made


def test_a_restored_database_works_on(
    server: Server,
    dsn: str,
    db: psycopg.Connection[Any],
    client: dibs.Client,
    empty_dsn: str,
    tmp_path: Path,
    clock: Clock,
) -> None:
    install(dsn)
    made = jobs_in_every_state(client, db, clock)
    assert {name: str(client.status(job.id).state) for name, job in made.items()} == {name: name for name in made}
    mail = Jsonb({"to": "ann@example.org", "text": "Hello", "request_key": "k"})
    db.execute("select comms.kickoff_send_email(%s)", (mail,))
    db.execute("select dibs.append_error('before the dump')")
    listed = "select name, timeout, owner, flaw from dibs.functions order by name"
    before = db.execute(listed).fetchall()
    token = db.execute("select token from dibs.lease").fetchone()

    restore(server, dsn, empty_dsn, tmp_path / "dump.sql")

    assert not migrate(empty_dsn).changed
    with psycopg.connect(empty_dsn, autocommit=True) as there, dibs.Client(empty_dsn) as restored:
        assert {name: str(restored.status(job.id).state) for name, job in made.items()} == {name: name for name in made}
        assert there.execute(listed).fetchall() == before
        assert token
        assert there.execute("select dibs.complete(%s, %s)", (made["running"].id, token[0])).fetchone() == ("ok",)
        assert restored.enqueue("q", "again", dedup_key="one").id == made["ready"].id
        assert [job.id for job in restored.claim("q", 10)] == [made["ready"].id]
        restored.retry({"ids": [made["failed"].id]})
        assert there.execute("select message from dibs.error_log").fetchall() == [("before the dump",)]
        # The same request, the same process; its supervisor still waits, and runs as a worker that may not enqueue.
        again = there.execute("select comms.kickoff_send_email(%s) #>> '{payload,send_email_task_id}'", (mail,))
        assert again.fetchone() == ("1",)
        [look] = restored.claim("comms", 10)
        with psycopg.connect(as_worker(empty_dsn), autocommit=True) as worker:
            ran = worker.execute("select dibs.run_function(%s, %s)", (look.payload["db_function"], Jsonb(look.payload)))
            row = ran.fetchone()
            assert row
            assert row[0]["payload"] == {"status": "waiting"}
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute("select dibs.enqueue('comms', 'email')")
        assert sorted(j.kind for j in restored.find_jobs({"queue": "comms"}).jobs) == [
            "db_function",
            "db_function",
            "email",
        ]


def use_up(conn: psycopg.Connection[Any], numbers: int) -> None:
    """Use up the numbers of so many transactions."""
    conn.execute("create temporary table used (n integer)")
    conn.execute(
        f"do $$ begin for n in 1 .. {numbers} loop"
        " begin insert into used values (n); exception when others then raise; end; end loop; end $$"
    )


@pytest.mark.parametrize("ahead", [0, 5000], ids=["same server", "from a server that is ahead"])
def test_statistics_go_on_in_a_restored_database(
    server: Server,
    dsn: str,
    db: psycopg.Connection[Any],
    client: dibs.Client,
    empty_dsn: str,
    tmp_path: Path,
    ahead: int,
) -> None:
    """A dump has numbers of transactions that may be in the new server's future."""
    work(client, 20)
    assert client.upkeep.roll_up() == 20
    work(client, 3)
    db.execute("update dibs.attempt set xact = xact + %s", (ahead,))
    db.execute("update dibs.stat_mark set next = next + %s", (ahead,))
    restore(server, dsn, empty_dsn, tmp_path / "dump.sql")
    with psycopg.connect(empty_dsn, autocommit=True) as there, dibs.Client(empty_dsn) as restored:
        work(restored, 5)
        assert restored.upkeep.roll_up() == (5 if ahead else 8)
        work(restored, 4)
        assert restored.upkeep.roll_up() == 4
        use_up(there, 2 * ahead)
        assert restored.upkeep.roll_up() == (3 if ahead else 0), "those not counted before the dump, and no others"
        assert restored.upkeep.roll_up() == 0
        assert restored.stats.totals()[0].succeeded == 32


def work(client: dibs.Client, count: int) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(count))
    client.complete_many(client.claim("q", count))
