"""Who waited for a limit is brought back below the floor, and claims go there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from dibs.testing import Clock

LIMIT = 5


@pytest.fixture
def db(db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Looks back never, so that nothing is found by chance."""
    [(prepare,)] = db.execute("select pg_get_functiondef('dibs._prepare_floor'::regproc)").fetchall()
    changed = prepare.replace("v_floor.look_back := case", "v_floor.look_back := 0 * case")
    assert changed != prepare
    db.execute(changed)
    db.execute("select dibs.set_limit(kind => 'k', concurrency => %s)", (LIMIT,))
    return db


def fill(db: psycopg.Connection[Any], count: int, **options: Any) -> list[UUID]:
    jobs = json.dumps([{"queue": "q", "kind": "k", **options}] * count)
    return [id for (id,) in db.execute("select id from dibs.enqueue_many(%s)", (jobs,)).fetchall()]


def take(db: psycopg.Connection[Any], count: int, *queues: str) -> list[UUID]:
    return [id for (id,) in db.execute("select id from dibs.claim(%s, %s)", (list(queues or "q"), count)).fetchall()]


def end(db: psycopg.Connection[Any], ids: list[UUID]) -> None:
    tokens = [token for (token,) in db.execute("select token from dibs.lease where id = any (%s) order by id", (ids,))]
    db.execute("select from dibs.complete_many(%s, %s)", (sorted(ids), tokens))


def test_what_a_claim_left_is_found_by_the_next(db: psycopg.Connection[Any], clock: Clock) -> None:
    ids = fill(db, 20)
    end(db, take(db, 50))
    clock.move(60)
    assert take(db, 50) == ids[5:10]
    clock.move(60)
    end(db, ids[5:10])
    assert take(db, 2) == ids[10:12]
    assert take(db, 1) == ids[12:13]
    assert take(db, 50) == ids[13:15]


def test_what_had_to_wait_for_another_queue_is_found_by_the_next(db: psycopg.Connection[Any], clock: Clock) -> None:
    ids = fill(db, 10)
    end(db, take(db, 50, "q", "other"))
    clock.move(60)
    [first] = fill(db, 1, queue="other", kind="x", priority=9)
    assert take(db, 1, "q", "other") == [first]
    assert take(db, 50, "q", "other") == ids[5:]


def test_it_comes_before_what_came_later(db: psycopg.Connection[Any], clock: Clock) -> None:
    ids = fill(db, 20)
    end(db, take(db, 50))
    clock.move(60)
    later = fill(db, 3, kind="x")
    assert take(db, 7) == ids[5:10] + later[:2]
    clock.move(60)
    end(db, ids[5:10])
    assert take(db, 50) == ids[10:15] + later[2:]
