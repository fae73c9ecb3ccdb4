"""Logins of roles, for tests of who may do what."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

import dibs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Login = Callable[..., dibs.Client]


@pytest.fixture
def login(dsn: str, admin_dsn: str, db: psycopg.Connection[Any]) -> Iterator[Login]:
    """Makes a client of a fresh login that is a member of these roles."""
    made: list[str] = []
    with ExitStack() as stack:

        def make(*roles: str, queues: list[str] | None = None) -> dibs.Client:
            name = f"confined_{db.info.backend_pid}_{len(made)}"
            made.append(name)
            db.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
            for role in roles:
                db.execute(sql.SQL("grant {} to {}").format(sql.Identifier(role), sql.Identifier(name)))
            if queues is not None:
                db.execute("select dibs.confine(%s, %s)", (name, queues))
            return stack.enter_context(dibs.Client(re.sub(r"user=\w+", f"user={name}", dsn), pool_size=2))

        yield make
    with psycopg.connect(admin_dsn, autocommit=True) as conn:
        for name in reversed(made):
            conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (name,))
    for name in reversed(made):
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))
