"""A reader of a plain call opens few SQL files: the functions that it runs are counted, and the files they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tools.reach import all_defined

if TYPE_CHECKING:
    import psycopg

    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

FILES = 5
"""As many files may have the functions of one plain call."""

ENQUEUE = "select job_id from dibs.enqueue('q', 'k', '{\"n\": 1}')"
CLAIM_ONE = "select id, token from dibs.claim('{q}')"
CLAIM_TEN = "select id, token from dibs.claim('{q}', 10)"
COMPLETE = "select dibs.complete(id, token) from (select id, token from dibs.lease limit 1) as l"


@pytest.fixture
def warm(db: Connection, connect: Connect) -> Connection:
    """A session that has made each of the calls before, as a worker's or a producer's has."""
    conn = connect()
    for statement in (*[ENQUEUE] * 40, CLAIM_TEN, CLAIM_ONE, CLAIM_ONE, COMPLETE):
        conn.execute(statement)
    conn.execute("set track_functions = 'all'")
    return conn


def files(conn: Connection, *statements: str) -> set[str]:
    """The files of the functions that these statements call. The planner inlines others: they do not show up."""
    before = called(conn)
    for statement in statements:
        assert conn.execute(statement).fetchall() != []
    after = called(conn)
    paths = {each.name: each.path for each in all_defined()}
    return {paths[name] for name, calls in after.items() if calls > before.get(name, 0)}


def called(conn: Connection) -> dict[str, int]:
    conn.execute("select pg_stat_force_next_flush()")
    calls = "select funcname::text, calls from pg_stat_user_functions where schemaname = 'dibs'"
    return dict(conn.execute(calls).fetchall())


@pytest.mark.parametrize(
    "statements",
    [[CLAIM_TEN], [CLAIM_ONE, CLAIM_ONE], [ENQUEUE], [COMPLETE]],
    ids=["ten", "one", "enqueue", "complete"],
)
def test_a_plain_call_runs_through_few_files(warm: Connection, statements: list[str]) -> None:
    found = files(warm, *statements)
    assert 1 <= len(found) <= FILES, sorted(found)
