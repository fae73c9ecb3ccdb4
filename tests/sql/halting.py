"""Halting a verb between two of its statements, so that a test can change something there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

LOCK = 20  # The key of an advisory lock that dibs, which takes none, never meets.

FACTS = """
select pg_get_function_arguments(oid), pg_get_function_result(oid), pronargs, proretset
from pg_proc where pronamespace = 'dibs'::regnamespace and proname = %s
"""


@contextmanager
def halted(db: psycopg.Connection[Any], function: str) -> Iterator[None]:
    """Every call of an internal function waits, before it does anything, until the block ends.

    The function is put behind one of the same name that first takes a lock which the test holds.
    """
    row = db.execute(FACTS, (function,)).fetchone()
    assert row is not None, f"there is no function dibs.{function}"
    arguments, result, count, many = row
    given = ", ".join(f"${n}" for n in range(1, count + 1))
    call = f"dibs.{function}_unhalted({given})"
    answer = (
        f"perform {call}" if result == "void" else f"return query select * from {call}" if many else f"return {call}"
    )
    if "out " in arguments.lower() and not many:
        answer = f"return (select r from {call} as r)"
    db.execute(
        sql.SQL("alter function dibs.{} rename to {}").format(*map(sql.Identifier, (function, f"{function}_unhalted")))
    )
    db.execute(
        f"create function dibs.{function}({arguments}) returns {result} language plpgsql volatile as $$ begin"
        f" perform pg_advisory_lock({LOCK}), pg_advisory_unlock({LOCK}); {answer}; end $$"
    )
    db.execute(f"select pg_advisory_lock({LOCK})")
    try:
        yield
    finally:
        db.execute(f"select pg_advisory_unlock({LOCK})")
