"""The commands around functions, deliveries, errors and grants, in this process, against a real database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_cli import Dibs

if TYPE_CHECKING:
    import psycopg

    import dibs

FUNCTION = """
create schema shop;
create function shop.work(payload jsonb) returns jsonb language sql return dibs.result_ok();
"""


@pytest.fixture
def run(dsn: str) -> Dibs:
    return Dibs(dsn)


def test_functions_are_listed_allowed_and_disallowed(run: Dibs, db: psycopg.Connection[Any]) -> None:
    db.execute(FUNCTION)
    assert "no function is allowed yet" in run("functions").err
    assert run("functions", "allow", "shop.work", "--timeout", "5s", "--json").json == {"name": "shop.work"}
    [listed] = run("functions", "--json").json
    assert (listed["name"], listed["timeout"], listed["flaw"]) == ("shop.work", 5, None)
    assert "may be run" in run("functions").out
    assert "DI071" not in run("functions", "allow", "dibs.result_error(text)", code=1).out
    assert "may no longer be run" in run("functions", "disallow", "shop.work").out
    assert run("functions", "disallow", "shop.work", "--json", code=1).json["was_allowed"] is False


def test_errors_are_listed_filtered_and_kept(run: Dibs, db: psycopg.Connection[Any], client: dibs.Client) -> None:
    assert "no errors" in run("errors").err
    made = client.enqueue("mail", "email")
    for n in range(3):
        db.execute("select dibs.append_error(%s, %s, %s)", (f"error {n}\nmore", made.id, f"source {n % 2}"))
    shown = run("errors", "--limit", 2)
    assert "error 2" in shown.out
    assert "more" not in shown.out
    assert "--before" in shown.err
    found = run("errors", "--source", "source 0", "--job", made.id, "--since", "1h", "--json").json
    assert [e["message"] for e in found] == ["error 2\nmore", "error 0\nmore"]
    assert [e["message"][:7] for e in run("errors", "--before", found[0]["id"], "--json").json] == [
        "error 1",
        "error 0",
    ]
    run("errors", "--keep", "14d")
    assert db.execute("select error_retention::text from dibs.setting").fetchone() == ("14 days",)
    run("errors", "--keep", "1s", code=1)


def test_deliveries_are_listed_and_counted(run: Dibs, db: psycopg.Connection[Any], client: dibs.Client) -> None:
    assert "0 messages" in run("deliveries").err
    client.enqueue("mail", "email")
    for _ in range(2):
        [job] = client.claim("mail")
        db.execute("select dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token))
        client.release(job)
    assert str(job.id) in run("deliveries", "--interrupted").out
    found = run("deliveries", "--json").json
    assert found["totals"] == {
        "messages": 1, "sends": 2, "accepted": 0, "refused": 0, "interrupted": 2, "unrecorded": 0
    }  # fmt: skip
