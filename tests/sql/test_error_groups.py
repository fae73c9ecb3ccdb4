"""Failures by what they have in common, and what an error says in one line."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from dibs import traces
from tests.sql.test_operate import bury, one
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    import dibs
    from dibs.testing import Clock
    from tests.conftest import Connect

__all__ = ["later"]


def test_failures_are_grouped_by_what_they_have_in_common(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    bury(client, 3)
    clock.move(7200)
    bury(client, 1, queue="other")
    client.enqueue("q", "plain")
    client.fail(client.claim("q")[0], "plain words 42", final=True)
    client.upkeep.roll_up()
    last, first = sorted(client.failures.list(), key=lambda g: g.failures)
    assert (first.error, first.message) == ("ValueError", "user N has no card N")
    assert first.frame == "billing/tasks.py in charge"
    assert (first.failures, first.kinds, first.queues) == (4, ["k"], ["other", "q"])
    assert first.last_at - first.first_at == timedelta(hours=2)
    assert (last.error, last.message, last.frame) == ("", "plain words N", None)
    assert [g.fingerprint for g in client.failures.list(queue="other")] == [first.fingerprint]
    assert client.failures.list(since=clock.now() + timedelta(seconds=1)) == []
    assert client.retry({"failure": first.fingerprint}).done == 4


def test_failures_are_counted_once_and_forgotten_in_time(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    bury(client, 2)
    client.upkeep.roll_up()
    client.upkeep.roll_up()
    assert [g.failures for g in client.failures.list()] == [2]
    clock.move(40 * 86400)
    client.upkeep.forget()
    assert client.failures.list() == []
    assert one(db, "select count(*) from dibs.failure_group") == 0


@pytest.mark.parametrize("first", ["roll_up", "forget"])
def test_a_failure_that_is_counted_while_its_group_is_forgotten_has_a_group(
    first: str, connect: Connect, client: dibs.Client, clock: Clock, later: Later
) -> None:
    clock.freeze()
    bury(client, 1)
    client.upkeep.roll_up()
    clock.move(40 * 86400)
    bury(client, 1)
    one, other = connect(), connect()
    one.execute("begin")
    one.execute(f"select dibs.{first}()")
    second = later.start(other, "select dibs.forget()" if first == "roll_up" else "select dibs.roll_up()")
    one.execute("commit")
    second.result()
    client.upkeep.forget()
    [group] = client.failures.list()
    assert group.failures == 1


@pytest.mark.parametrize(
    ("error", "message", "frame"),
    [
        ("KeyError: 'user_17'", "'user_N'", None),
        ("E: id 0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871, hash deadbeef01, at 0x7f3a", "id N, hash N, at N", None),
        ("E: 3.5 of 1,000 at 12:30:01", "N of N at N", None),
        ("E: accede facade", "accede facade", None),
        ("no class here 7", "no class here N", None),
        ('E: x\n  File "/usr/lib/python3.11/json/decoder.py", line 3, in decode\n', "x", "json/decoder.py in decode"),
        ("", "", None),
    ],
)
def test_a_message_loses_numbers_and_ids(
    shared_db: psycopg.Connection[Any], error: str, message: str, frame: str | None
) -> None:
    found = shared_db.execute("select k.message, k.frame from dibs._failure_key(%s) as k", (error,)).fetchone()
    assert found == (message, frame)


def trace(raising: Callable[[], object]) -> str:
    """What ``format_exc`` says, which some clients send as it is."""
    try:
        raising()
    except Exception:
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


def in_turn() -> None:
    try:
        int("x")
    except ValueError as error:
        raise KeyError("first line\nsecond line") from error


def in_group() -> None:
    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])


TRACE_OF_LONG_MESSAGE = f'{traces.TRACE}\n  File "/srv/shop/tasks.py", line 3, in charge\nValueError: {"x" * 20_000}'


def test_a_long_message_keeps_its_class_and_frame(shared_db: psycopg.Connection[Any]) -> None:
    key = shared_db.execute("select k.error, k.frame from dibs._failure_key(%s) as k", (TRACE_OF_LONG_MESSAGE,))
    assert key.fetchone() == ("ValueError", "shop/tasks.py in charge")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError: x\n\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\n    y", "ValueError: x"),
        (trace(lambda: int("seven")), "ValueError: invalid literal for int() with base 10: 'seven'"),
        (trace(in_turn), "KeyError: 'first line\\nsecond line'"),
        (trace(lambda: exec("raise OSError('one\\ntwo')")), "OSError: one"),
        (traces.TRACE, traces.TRACE),
        (traces.TRACE + '\n  File "a.py", line 1, in f\n    y', traces.TRACE),
        (traces.TRACE + "\n" + '  File "a.py", line 1, in f\n' * 5000 + "E: end", "E: end"),
        (TRACE_OF_LONG_MESSAGE, TRACE_OF_LONG_MESSAGE[:8000].split("\n")[-1]),
        (trace(in_group), "ExceptionGroup: two (2 sub-exceptions)"),
        (traces.GROUP_TRACE, traces.GROUP_TRACE),
        ("", ""),
        ("\n", ""),
    ],
)  # fmt: skip
def test_an_error_is_told_by_what_it_says_wherever_its_trace_is(
    shared_db: psycopg.Connection[Any], error: str, said: str
) -> None:
    assert one(shared_db, "select dibs._error_line(%s)", error) == said
    assert traces.said(error) == said


def test_traces_are_grouped_by_their_error(client: dibs.Client) -> None:
    for text in ("seven", "eight"):
        client.enqueue("q", "k")
        [job] = client.claim("q")
        client.fail(job, trace(lambda: int(text)), final=True)  # noqa: B023
    client.upkeep.roll_up()
    assert {(g.error, g.message) for g in client.failures.list()} == {
        ("ValueError", "invalid literal for int() with base N: 'seven'"),
        ("ValueError", "invalid literal for int() with base N: 'eight'"),
    }


def test_an_exception_group_and_a_local_class_have_their_parts(shared_db: psycopg.Connection[Any]) -> None:
    frame = '  |   File "/srv/shop/tasks.py", line 3, in charge\n  |     pay()\n'
    for error, expected in [
        (f"ExceptionGroup: two (2 sub-exceptions)\n{frame}", ("ExceptionGroup", "shop/tasks.py in charge")),
        ("shop.tasks.charge.<locals>.Refused: no", ("shop.tasks.charge.<locals>.Refused", None)),
    ]:
        found = shared_db.execute("select k.error, k.frame from dibs._failure_key(%s) as k", (error,)).fetchone()
        assert found == expected


def test_a_count_is_kept_until_its_last_failure_is_past_the_retention(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    db.execute("select dibs.set_error_retention('1 hour')")
    clock.freeze(datetime(2026, 1, 1, 10, 59, tzinfo=UTC))
    bury(client, 1)
    client.upkeep.roll_up()
    clock.move(120)
    client.upkeep.forget()
    assert [g.failures for g in client.failures.list()] == [1]
    clock.move(3600)
    client.upkeep.forget()
    assert client.failures.list() == []
