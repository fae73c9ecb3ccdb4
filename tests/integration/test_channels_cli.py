"""The commands around functions, deliveries, errors and grants, in this process, against a real database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from examples.comms.story import install
from psycopg import sql

from tests.integration.test_cli import Dibs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dibs

FUNCTION = """
create schema shop;
create function shop.work(payload jsonb) returns jsonb language sql return dibs.envelope_ok();
"""


@pytest.fixture
def run(dsn: str) -> Dibs:
    return Dibs(dsn)


@pytest.fixture
def name(db: psycopg.Connection[Any]) -> Iterator[str]:
    """The name of a login that does not exist yet, and will not exist after."""
    made = f"Cli login {db.info.backend_pid}"
    yield made
    if db.execute("select from pg_roles where rolname = %s", (made,)).fetchone() is not None:
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(made)))


def test_functions_are_listed_allowed_and_disallowed(run: Dibs, db: psycopg.Connection[Any]) -> None:
    db.execute(FUNCTION)
    assert "no function is allowed yet" in run("functions").err
    assert run("functions", "allow", "shop.work", "--timeout", "5s", "--json").json == {"name": "shop.work"}
    [listed] = run("functions", "--json").json
    assert (listed["name"], listed["timeout"], listed["flaw"]) == ("shop.work", 5, None)
    assert "may be run" in run("functions").out
    assert "DI071" not in run("functions", "allow", "dibs.envelope_error(text)", code=1).out
    assert "may no longer be run" in run("functions", "disallow", "shop.work").out
    run("functions", "allow", "shop.work(jsonb)")
    assert "shop.work may no longer be run" in run("functions", "disallow", "shop.work(jsonb)").out
    assert run("functions", "disallow", "shop.work", "--json", code=1).json["was_allowed"] is False


def test_errors_are_listed_filtered_and_kept(run: Dibs, db: psycopg.Connection[Any], client: dibs.Client) -> None:
    assert "no errors" in run("channels", "error-log").err
    made = client.enqueue("mail", "email")
    for n in range(3):
        db.execute("select dibs.append_error(%s, %s, %s)", (f"error {n}\nmore", made.id, f"source {n % 2}"))
    shown = run("channels", "error-log", "--limit", 2)
    assert "error 2" in shown.out
    assert "more" not in shown.out
    assert "--before" in shown.err
    found = run("channels", "error-log", "--source", "source 0", "--job", made.id, "--since", "1h", "--json").json
    assert [e["message"] for e in found] == ["error 2\nmore", "error 0\nmore"]
    assert [e["message"][:7] for e in run("channels", "error-log", "--before", found[0]["id"], "--json").json] == [
        "error 1",
        "error 0",
    ]
    run("channels", "error-log", "--keep", "14d")
    assert db.execute("select error_retention::text from dibs.setting").fetchone() == ("14 days",)
    run("channels", "error-log", "--keep", "1s", code=1)


def test_deliveries_are_listed_and_counted(run: Dibs, db: psycopg.Connection[Any], client: dibs.Client) -> None:
    assert "0 messages" in run("channels", "deliveries").err
    assert run("channels").err == run("channels", "deliveries").err
    client.enqueue("mail", "email")
    for _ in range(2):
        [job] = client.claim("mail")
        db.execute("select dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token))
        client.release(job)
    assert str(job.id) in run("channels", "deliveries", "--interrupted").out
    found = run("channels", "deliveries", "--json").json
    assert found["totals"] == {
        "messages": 1, "sends": 2, "accepted": 0, "refused": 0, "interrupted": 2, "unrecorded": 0
    }  # fmt: skip


def test_supervised_processes_are_listed(run: Dibs, db: psycopg.Connection[Any]) -> None:
    assert "no process is under a supervisor" in run("channels", "supervised").err
    db.execute(FUNCTION)
    db.execute("select dibs.allow_function('shop.work(jsonb)')")
    db.execute("""select dibs.supervise('refund/7', '{"db_function": "shop.work"}', queue => 'refunds')""")
    assert run("channels", "supervised").out.splitlines()[1].split()[:3] == ["refund/7", "refunds", "ready"]
    [found] = run("channels", "supervised", "--json").json
    assert (found["name"], found["queue"]) == ("refund/7", "refunds")


def test_a_login_gets_its_role_its_queues_and_its_functions(
    run: Dibs, dsn: str, db: psycopg.Connection[Any], name: str
) -> None:
    install(dsn)
    planned = run("grants", "give", "worker", name, "--create", "--queue", "comms", "--dry-run", "--json").json
    assert planned["statements"][0] == f'create role "{name}" login'
    assert name not in [h["role"] for h in run("grants", "--json").json]
    assert "dibs.confine" in run("grants", "give", "worker", name, "--create", "--queue", "comms").out
    [given] = [h for h in run("grants", "--json").json if h["role"] == name]
    assert (given["login"], given["roles"], given["queues"]) == (True, ["dibs_worker"], ["comms"])
    assert len(given["functions"]) == 8
    assert name in run("grants").out
    assert "not on the allow-list" in run("grants", "give", "worker", name, "--function", "comms.nothing", code=1).err
    assert "Invalid value" in run("grants", "give", "boss", name, code=2).err


def test_what_is_wrong_with_grants_is_found(run: Dibs, dsn: str, db: psycopg.Connection[Any], name: str) -> None:
    install(dsn)
    assert "nothing is wrong" in run("grants", "--check").out
    run("grants", "give", "worker", name, "--create")
    login = sql.Identifier(name)
    wrongs = {
        "PUBLIC may execute a function of dibs": "grant execute on function dibs.claim to public",
        "pins no search_path": "alter function dibs.depth(text) reset search_path",
        "a table of dibs is open": "grant select on dibs.job to dibs_observer",
        "may create things in the schema dibs": "grant create on schema dibs to dibs_worker",
        "would not be run": "grant execute on function comms.get_email_payload to public",
        "executed by no worker": "revoke execute on function comms.record_sms_success from dibs_worker, {}",
        "in a schema of allowed functions": "grant create on schema comms to dibs_observer",
        "a worker has a table": "grant select on comms.send_email_task to {}",
    }
    for statement in wrongs.values():
        db.execute(sql.SQL(statement).format(login))
    found = run("grants", "--check", "--json", code=1).json
    for words in wrongs:
        assert [f for f in found if words in f["what"]], words
    assert len(found) == len(wrongs)
    assert "what is wrong" in run("grants", "--check", code=1).out
