"""One job, and a batch without options, go by short paths, which do and say the same as any batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    import dibs
    from dibs.testing import Clock

NOW = datetime(2031, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
LONG = timedelta(days=3700)
QUEUES = {
    "plain": {},
    "ruled": {"priority": 7, "ttl": "1 hour", "ring": False, "payload_limit": 3000, "history": "none"},
    "endless": {"ttl": None},
    "sharded": {"shards": 3},
    "bounded": {"max_depth": 1, "when_full": "sideline"},
}


def id_at(ahead: timedelta) -> UUID:
    return UUID(int=(int((NOW + ahead).timestamp() * 1000) << 80) | 0x70008000000000000001)


KNOWN = id_at(timedelta(minutes=-5))
GIVEN = [
    *(KNOWN, UUID(int=1), UUID(int=2**128 - 1)),
    *(id_at(timedelta(hours=h, seconds=s)) for h in (-24 * 40, -24 * 29, -24, 0, 1) for s in (-1, 0, 1)),
]
ORDINARY: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["k", "", "x" * 200, "x" * 201, "two\nlines", "tab\t", None]),
    "payload": st.sampled_from([None, 0, "x", [], {}, {"a": None}, {"user_id": 1}, "long" * 1700, "longer" * 12_000]),
    "body": st.sampled_from([b"", b"\x00\xff", b"x" * 5000]),
    "content_type": st.sampled_from(["text/plain", "", "a\nb", "x" * 201]),
    "headers": st.sampled_from([{}, {"a": {"b": None}}, None, [], "x", {"long": "x" * 70_000}, {"some": "x" * 7000}]),
    "id": st.sampled_from(GIVEN),
    "fresh": st.booleans(),
    "priority": st.sampled_from([-40_000, -101, -100, 0, 5, 7, 100, 101, 40_000]),
    "delay": st.sampled_from(["-1 second", "0", "1.5 seconds", "3700 days"]),
    "due_at": st.sampled_from([NOW - LONG, NOW, NOW + timedelta(hours=1), NOW + LONG]),
    "ttl": st.sampled_from(["-1 second", "0", "90 seconds", "10 years", "3700 days"]),
    "deadline": st.sampled_from([NOW - LONG, NOW, NOW + timedelta(minutes=2), datetime(9500, 1, 1, tzinfo=UTC)]),
    "max_attempts": st.sampled_from([0, 1, 10_000, 10_001]),
    "history": st.sampled_from(["all", "failures", "none", "some"]),
}
EXPENSIVE: dict[str, st.SearchStrategy[Any]] = {
    "lease": st.sampled_from(["5 seconds", "0"]),
    "lease_growth": st.sampled_from([2.0, 0.5]),
    "lease_cap": st.sampled_from(["5 minutes", "0"]),
    "backoff": st.sampled_from([{"kind": "constant", "delays": [1]}, {"kind": "none"}, {"kind": "list", "delays": []}]),
    "dedup_key": st.sampled_from(["taken", "free", "x" * 2001]),
    "dedup": st.booleans(),
    "dedup_scope": st.sampled_from(["waiting", "never"]),
    "dedup_for": st.just("1 minute"),
    "on_duplicate": st.sampled_from(["keep", "refuse", "replace"]),
    "shard_key": st.sampled_from(["s", "x" * 2001]),
    "group": st.sampled_from(["g", ""]),
    "cost": st.sampled_from([1, 0]),
    "resources": st.sampled_from([{"gpu": 1}, {}, []]),
}
CASTS = {
    **dict.fromkeys(("priority", "max_attempts", "cost"), "::integer"),
    **dict.fromkeys(("delay", "ttl", "lease", "lease_cap", "dedup_for"), "::interval"),
    "lease_growth": "::float8",
}
TRIED = {**ORDINARY, **EXPENSIVE}


def some(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"kind": st.just("k")} | {name: TRIED[name] for name in names})


REQUESTS = st.tuples(
    st.sampled_from(
        ["plain", "plain", "plain", "ruled", "endless", "sharded", "bounded", "new", "not a queue", "", None]
    ),
    st.one_of(
        st.lists(st.sampled_from(list(ORDINARY)), max_size=4, unique=True),
        st.lists(st.sampled_from(list(TRIED)), max_size=3, unique=True),
    ).flatmap(some),
)
WRITTEN = """
select to_jsonb(array(select to_jsonb(j) - 'id' from dibs.job as j where j.id <> %(known)s order by j.id)),
  to_jsonb(array(select to_jsonb(r) - 'id' from dibs.ready as r where r.id <> %(known)s order by r.id)),
  to_jsonb(array(select to_jsonb(f) - 'id' - 'job_id' from dibs.fingerprint as f order by f.hash)),
  to_jsonb(array(select to_jsonb(p) from dibs.queue_priority as p order by 1)),
  to_jsonb(array(select to_jsonb(q) - 'id' from dibs.queue as q order by q.name)),
  array(select j.id from dibs.job as j where j.id <> %(known)s)
"""
MANY = "select id, outcome from dibs.enqueue_many(%(jobs)s::jsonb, %(bodies)s::bytea[], %(fresh)s)"


def as_argument(value: Any) -> Any:
    return Jsonb(value) if isinstance(value, dict | list) else value


def one(queue: str | None, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    given = {"queue": queue, **{k: as_argument(v) for k, v in options.items()}}
    for name in ("payload", "headers"):
        if name in options:
            given[name] = Jsonb(options[name])
    names = ", ".join(f'"{name}" => %({name})s{CASTS.get(name, "")}' for name in given)
    return f"select job_id, outcome from dibs.enqueue({names})", given


def batch(queue: str | None, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    job = {"queue": queue, **{k: v for k, v in options.items() if k not in {"body", "fresh"}}}
    text = json.dumps({k: v for k, v in job.items() if v is not None}, default=str)
    bodies = [options["body"]] if "body" in options else None
    given = {"jobs": f"[{text}]", "bodies": bodies, "fresh": options.get("fresh", False)}
    return MANY, given


def tried(db: psycopg.Connection[Any], statement: str, given: dict[str, Any]) -> Any:
    """Run a statement, return its answer and the rows it wrote, or its error, and roll it back."""
    try:
        with db.transaction(force_rollback=True):
            db.execute(
                "select setval(pg_get_serial_sequence('dibs.queue', 'id'), 1000)"
            )  # A new queue has the same number.
            answers = db.execute(statement, given).fetchall()
            [(*written, made)] = db.execute(WRITTEN, {"known": KNOWN}).fetchall()
            assert {id for id, outcome in answers if outcome == "enqueued"} <= set(made)
            return [(outcome, id if id in GIVEN else None) for id, outcome in answers], written
    except psycopg.errors.UndefinedFunction:
        raise
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_hint


@pytest.fixture
def asked(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A connection to a database with queues of all sorts, in which time stands still."""
    clock.freeze(NOW)
    for name, policy in QUEUES.items():
        db.execute("select dibs.set_queue(%s, %s)", (name, Jsonb(policy)))
    client.enqueue("plain", "k", id=KNOWN, dedup_key="taken")
    client.enqueue("bounded", "k")
    return db


def test_an_ordinary_queue_is_found_by_what_makes_it_ordinary(db: psycopg.Connection[Any]) -> None:
    db.execute("select dibs.set_queue('q')")
    looks = "select pg_stat_get_xact_numscans('dibs.queue_ordinary_idx'::regclass)"
    with db.transaction(force_rollback=True):
        before = db.execute(looks).fetchone()
        assert before is not None
        db.execute("select dibs.enqueue('q', 'k')")
        assert db.execute(looks).fetchone() == (before[0] + 1,)


@given(request=REQUESTS)
@example(request=("plain", {"kind": "k", "id": KNOWN, "fresh": True}))
@example(request=("plain", {"kind": "k", "id": id_at(timedelta(seconds=1)), "fresh": True}))
@settings(max_examples=200)
def test_one_job_goes_in_as_a_batch_of_one_does(asked: psycopg.Connection[Any], request: Any) -> None:
    queue, options = request
    if queue == "sharded" and not options.keys() & {"shard_key", "group", "dedup_key", "id"}:
        options = {**options, "shard_key": "s"}  # Otherwise chance decides about its shard.
    assert tried(asked, *one(queue, options)) == tried(asked, *batch(queue, options))


PLAIN = st.fixed_dictionaries(
    {"queue": st.sampled_from(["plain", "plain", "ruled", "endless", "bounded", "new", ""])},
    optional={name: st.none() | TRIED[name] for name in ("kind", "payload", "id")},
)


@given(
    jobs=st.lists(PLAIN | st.fixed_dictionaries({"queue": st.just("plain"), "kind": st.just("k")}), max_size=6),
    fresh=st.booleans(),
)
@settings(max_examples=100)
def test_a_batch_without_options_goes_in_as_any_other_does(
    asked: psycopg.Connection[Any], jobs: list[dict[str, Any]], fresh: bool
) -> None:
    def many(more: dict[str, Any]) -> Any:
        given = {"jobs": json.dumps([job | more for job in jobs], default=str), "bodies": None, "fresh": fresh}
        return tried(asked, MANY, given)

    assert many({}) == many({"cost": None}), "an option that says nothing"


def test_every_option_is_tried(db: psycopg.Connection[Any]) -> None:
    [[names]] = db.execute("select proargnames[:pronargs] from pg_proc where oid = 'dibs.enqueue'::regproc").fetchall()
    assert set(names) == {"queue", *TRIED}


@pytest.mark.parametrize(
    ("option", "is_short"), [({}, True), ({"id": str(id_at(timedelta(0)))}, True), ({"cost": None}, False)]
)
def test_a_batch_without_options_takes_the_short_path(
    asked: psycopg.Connection[Any], option: dict[str, Any], is_short: bool
) -> None:
    with asked.transaction():
        asked.execute("set local track_functions = 'pl'")
        asked.execute("select dibs.enqueue_many(%s, null, true)", (Jsonb([{"queue": "plain", "kind": "k"} | option]),))
        called = asked.execute("select funcname from pg_stat_xact_user_functions where schemaname = 'dibs'").fetchall()
    assert (("_insert_batch",) not in called) is is_short


@pytest.mark.parametrize(
    ("options", "is_short"),
    [
        ("", True),
        (", priority => 9, delay => '1 s', ttl => '1 h', max_attempts => 3, headers => '{}'", True),
        (", id => dibs.make_id()", True),
        (", dedup_key => 'x'", False),
        (", id => dibs.make_id(dibs.now() - interval '2 days')", False),
    ],
)
def test_an_ordinary_job_takes_the_short_path(db: psycopg.Connection[Any], options: str, is_short: bool) -> None:
    db.execute("select dibs.set_queue('q')")
    with db.transaction():
        db.execute("set local track_functions = 'pl'")
        db.execute(f"select from dibs.enqueue('q', 'k', '{{}}'{options})")
        called = db.execute("select funcname from pg_stat_xact_user_functions where schemaname = 'dibs'").fetchall()
    assert (("_enqueue_batch",) not in called) is is_short
