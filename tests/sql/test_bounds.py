"""Nothing that a caller may give is without a bound, and no single job stops a queue."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect

HUGE = "1e131071"
"""A JSON number of 16 bytes in binary and 131,072 digits as text."""


def claimed(db: psycopg.Connection[Any], count: int, queues: str = "{q}") -> list[Any]:
    rows = db.execute("select id, token, octet_length(body), kind from dibs.claim(%s, %s)", (queues, count))
    return rows.fetchall()


def fill(db: psycopg.Connection[Any], count: int, megabytes: int, queue: str = "q", **options: Any) -> None:
    """Jobs that are as large as that by what was noted of them; their bodies are only a little."""
    for _ in range(count):
        [(id,)] = db.execute(
            "select id from dibs.enqueue_many(%s, array[decode(repeat('00', 70000), 'hex')])",
            (json.dumps([{"queue": queue, "kind": "k", **options}]),),
        ).fetchall()
        db.execute("update dibs.job set size = %s where id = %s", (megabytes * 1_000_000, id))


@pytest.mark.parametrize("units", ["1.0", "1e0", "1.00", "10e-1"])
def test_units_of_a_resource_are_stored_as_integers(db: psycopg.Connection[Any], units: str) -> None:
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 5)")
    db.execute("select dibs.enqueue('q', 'k', resources => %s)", (f'{{"gpu": {units}}}',))
    assert db.execute("select resources::text from dibs.job").fetchall() == [('{"gpu": 1}',)]
    [(id, *_)] = claimed(db, 10)
    db.execute("select dibs.drop_limit(resource => 'gpu')")
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 5)")
    assert db.execute("select used, holders from dibs.limits").fetchall() == [(1, [id])]


def test_a_payload_is_measured_as_the_text_it_is_sent_as(db: psycopg.Connection[Any]) -> None:
    db.execute("""select dibs.set_queue('q', '{"payload_limit": 200000}')""")
    enqueue = "select dibs.enqueue('q', 'k', %s::jsonb)"
    db.execute(enqueue, (HUGE,))
    db.execute(enqueue, (json.dumps("x" * 199_998),))
    for payload in (f"[{HUGE}, {HUGE}]", json.dumps("\x01" * 40_000), json.dumps("x" * 200_000)):
        with pytest.raises(psycopg.DatabaseError, match="queue 'q' takes at most 200000") as raised:
            db.execute(enqueue, (payload,))
        assert raised.value.sqlstate == "DI012"
    assert len(claimed(db, 10)) == 2


def test_a_payload_that_postgresql_cannot_write_is_refused_in_words(db: psycopg.Connection[Any]) -> None:
    """The binary form of 130 kB would be more than 1 GB of text."""
    with pytest.raises(psycopg.DatabaseError, match="takes at most 256000000"):
        db.execute(f"select dibs.enqueue('q', 'k', ('[' || repeat('{HUGE},', 8400) || '1]')::jsonb)")
    assert claimed(db, 10) == []


def test_a_claim_hands_out_64_megabytes_and_the_rest_at_once_after_it(db: psycopg.Connection[Any]) -> None:
    for megabytes in (20, 20, 20, 20):
        db.execute("select dibs.enqueue('q', 'k', body => decode(repeat('00', %s), 'hex'))", (megabytes * 1_000_000,))
    db.execute("select dibs.enqueue('q', 'small')")
    counts = [len(claimed(db, 100)) for _ in range(3)]
    assert counts == [3, 2, 0]
    assert db.execute("select distinct run, charged from dibs.lease").fetchall() == [(1, 1)]


@pytest.mark.parametrize("policy", ["{}", '{"newest_first": true}'])
def test_one_job_above_the_bound_of_a_claim_comes_alone(db: psycopg.Connection[Any], policy: str) -> None:
    db.execute("select dibs.set_queue('q', %s)", (policy,))
    fill(db, 2, 65)
    db.execute("select dibs.enqueue('q', 'small')")
    got = [[row[3] for row in claimed(db, 100)] for _ in range(4)]
    assert sorted(map(len, got)) == [0, 1, 1, 1] or sorted(map(len, got)) == [0, 0, 1, 2]
    assert sum(map(len, got)) == 3


def test_what_does_not_fit_gives_back_what_it_held(db: psycopg.Connection[Any], clock: Clock) -> None:
    """Units of limits, turns of groups and the rate: as if it had not been taken."""
    clock.freeze()
    db.execute("select dibs.set_limit(queue => 'q', concurrency => 10, rate => 0.1, burst => 4)")
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 10)")
    db.execute("select dibs.set_group('q', null, '{\"concurrency\": 1}')")
    for group in "abcd":
        fill(db, 1, 40, group=group)
    held = []
    for _ in range(4):
        [row] = claimed(db, 100)
        held.append(row)
    assert claimed(db, 100) == []
    used = db.execute("select name, used, free from dibs.limits where scope <> 'group' order by name").fetchall()
    assert used == [("k", 4, 6), ("q", 4, 6)]
    for id, token, *_ in held:
        assert db.execute("select dibs.complete(%s, %s)", (id, token)).fetchone() == ("ok",)
    fill(db, 1, 1, group="a")
    clock.move(11)
    assert len(claimed(db, 100)) == 1


def test_a_large_job_does_not_starve_beside_small_ones(db: psycopg.Connection[Any]) -> None:
    fill(db, 1, 70, "large")
    [(large,)] = db.execute("select id from dibs.job").fetchall()

    def large_came() -> bool:
        fill(db, 1, 1, "small")
        return any(row[0] == large for row in claimed(db, 10, "{small,large}"))

    wait_until(large_came, what="the large job is handed out")


def test_what_does_not_fit_returns_to_no_place_below_the_floor(db: psycopg.Connection[Any]) -> None:
    """Also in a queue that has had no large job, if another queue of the claim has."""
    fill(db, 1, 64, "large")
    [(large,)] = db.execute("select id from dibs.job").fetchall()

    def large_came() -> bool:
        db.execute("select dibs.enqueue('small', 'k')")
        db.execute("""update dibs.ready set due_at = dibs.now() - interval '1 hour' where queue_id =
          (select id from dibs.queue where name = 'small')""")
        db.execute("""select dibs._remember('floor', q.id, row(array[q.priority],
          array[dibs._micros(dibs.now()) - 1000000], array[dibs._nil_id()], '{0}', 0, 0, 0, 0, 0, 0)::dibs.floor::text)
          from dibs.queue as q where q.name = 'small'""")
        return large in [row[0] for row in claimed(db, 10, "{small,large}")]

    wait_until(large_came, what="the large job is handed out, and the small one is put back")
    assert db.execute(
        """select dibs._micros(r.due_at) >= (dibs._recall('floor', r.queue_id)::dibs.floor).due_us[1]
        from dibs.ready as r"""
    ).fetchall() == [(True,)]


def test_the_higher_priority_of_a_queue_fits_first(db: psycopg.Connection[Any]) -> None:
    fill(db, 1, 40, priority=0)
    for _ in range(8):
        fill(db, 1, 40, priority=10)
        [(id, *_)] = claimed(db, 10)
        assert db.execute("select priority from dibs.lease where id = %s", (id,)).fetchone() == (10,)


def test_a_result_has_a_bound_and_spoils_no_other(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue_many([dibs.NewJob(queue="q")] * 2)
    first, second = client.claim("q", 2)
    with pytest.raises(dibs.errors.PayloadTooLarge, match="at most 16000000 are taken"):
        client.complete(first, ["x" * 16_000_000])
    with pytest.raises(psycopg.DatabaseError, match="a result has 16646398 bytes"):
        db.execute(
            f"select dibs.complete(%s, %s, ('[' || repeat('{HUGE},', 126) || '{HUGE}]')::jsonb)",
            (first.id, first.token),
        )
    assert client.complete(first, ["x" * 15_000_000]) is dibs.Answer.OK
    assert client.complete(second, "y") is dibs.Answer.OK


BIG = "repeat('x', 3000000)"
JSON = f"jsonb_build_object('x', {BIG})"
ID = "'{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}'"
IDS = "(select array_agg(gen_random_uuid()) from generate_series(1, 100001))"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (f"dibs.enqueue('q', 'k', headers => {JSON})", "headers that are a JSON object of at most 65536 bytes"),
        (f"dibs.enqueue('q', 'k', dedup_key => {BIG})", "a key of at most 2000 characters"),
        (f"dibs.enqueue('q', 'k', shard_key => {BIG})", "a key of at most 2000 characters"),
        (f"dibs.enqueue('q', {BIG})", "a kind of 1 to 200"),
        (f"dibs.enqueue('q', 'k', content_type => {BIG})", "a content type of 1 to 200"),
        (
            "dibs.enqueue('q', 'k', resources => (select jsonb_object_agg(n, 1) from generate_series(1, 101) as n))",
            "at most 100 resources",
        ),
        (
            "dibs.enqueue_many((select jsonb_agg('{}'::jsonb) from generate_series(1, 100001)))",
            "at most 100000 jobs at once",
        ),
        (f"dibs.register_worker('w', {JSON})", "facts has .* at most 16384"),
        (f"dibs.register_worker({BIG})", "a worker's name has 1 to 200"),
        (f'dibs.set_tasks(jsonb_build_array({JSON} || \'{{"kind": "k", "queue": "q"}}\'))', "task 'k' has .* at most"),
        (f"dibs.append_error('x', null, {BIG})", "a source has 1 to 200"),
        (
            f'dibs.set_schedule(\'s\', \'{{"interval": 60}}\', {JSON} || \'{{"queue": "q", "kind": "k"}}\')',
            "at most 250000",
        ),
        (f"dibs.declare_schedules({BIG}, '[]')", "an app's name has 1 to 200"),
        (
            f"dibs.record_delivery(gen_random_uuid(), gen_random_uuid(), 'failed', {JSON})",
            "delivery has .* at most 65536",
        ),
        (f"dibs.complete_many({IDS}, {IDS})", "complete takes at most 100000 at once, not 100001"),
        (f"dibs.extend_many({IDS}, {IDS})", "extend takes at most 100000"),
        (f"dibs.cancel_many({IDS})", "cancel takes at most 100000"),
        (f"dibs.status_many({IDS})", "status_many takes at most 100000"),
        (f"dibs.retry(jsonb_build_object('ids', {IDS}))", "retry takes at most 100000"),
        (
            "dibs.claim((select array_agg('q' || n) from generate_series(1, 10001) as n))",
            "claim takes the names of 1 to 10000 queues, not 10001",
        ),
        (f"dibs.complete_many({ID}, {ID})", "arrays of one dimension"),
        (f"dibs.cancel_many({ID})", "arrays of one dimension"),
        ("dibs.enqueue_many('[null]')", "each job of a batch is a JSON object, not a JSON null"),
        ("dibs.enqueue_many('[1]')", "not a JSON number"),
        ("dibs.enqueue_many('[[]]')", "not a JSON array"),
        ("""dibs.set_tasks('[{"kind": "k", "queue": "q"}, {"kind": "k", "queue": "q"}]')""", "the task 'k' twice"),
        ("dibs.set_tasks('[null]')", "a JSON array of tasks"),
        ("dibs.declare_limits('[null]')", "a JSON array of limits"),
        ("dibs.declare_limits('[{}]')", "the kind of a limit has 1 to 200"),
        ("""dibs.declare_limits('[{"kind": "k", "concurrency": "2"}]')""", "a number from 0 to 1000000, or null"),
        ("""dibs.declare_limits('[{"kind": "k", "concurrency": -1}]')""", "a number from 0 to 1000000, or null"),
    ],
)
def test_what_is_too_much_or_no_job_is_refused_in_words(
    shared_db: psycopg.Connection[Any], call: str, words: str
) -> None:
    with pytest.raises(psycopg.DatabaseError, match=words) as raised:
        shared_db.execute(f"select * from {call}")
    assert raised.value.sqlstate in {"DI010", "DI012", "23514"}


def test_a_reason_is_cut(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    waiting, running = (client.enqueue(queue, "k") for queue in "ab")
    client.claim("b")
    client.cancel_many([waiting.id, running.id], "x" * 3_000_000)
    assert db.execute("select length(reason) from dibs.dead").fetchall() == [(65536,)]
    assert db.execute("select length(cancel) from dibs.lease").fetchall() == [(65536,)]


def test_queues_have_a_bound(db: psycopg.Connection[Any]) -> None:
    [(most,)] = db.execute("select pg_get_functiondef('dibs._constant'::regproc)").fetchall()
    db.execute(re.sub(r"('queues_bound'.* THEN) \(100000\)", r"\1 (2)", most))
    for queue in ("first", "last", "last"):
        db.execute("select dibs.enqueue(%s, 'k')", (queue,))
    with pytest.raises(psycopg.DatabaseError, match="at most 2 queues"):
        db.execute("select dibs.enqueue('more', 'k')")


def test_the_page_of_bounds_says_what_the_database_does(shared_db: psycopg.Connection[Any]) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/bounds.md").read_text(encoding="utf-8")
    told = {
        name: int(most.replace(",", ""))
        for name, most in re.findall(r"^\| `(\w+)` \|[^|]*\| ([\d,]+) ", page, re.MULTILINE)
    }
    [(source,)] = shared_db.execute("select pg_get_functiondef('dibs._constant'::regproc)").fetchall()
    names = re.findall(r"WHEN '(\w+)_bound'", source)
    rows = shared_db.execute(
        "select n, dibs._constant(n || '_bound') from unnest(%s::text[]) as n", (names,)
    ).fetchall()
    assert told == dict(rows)


@pytest.mark.parametrize("name", ["'payload'", "'unheard' || random()"])
def test_an_unknown_constant_raises(shared_db: psycopg.Connection[Any], name: str) -> None:
    with pytest.raises(psycopg.DataError, match="unknown constant"):
        shared_db.execute(f"select dibs._constant({name})")


@pytest.mark.parametrize("payload", ["\ud800", {"\udfff": 1}, ["x", {"a": "\ud800"}]])
def test_a_lone_surrogate_is_refused(shared_client: dibs.Client, payload: Any) -> None:
    with pytest.raises(dibs.InvalidArgument, match="cannot be sent as JSON"):
        shared_client.enqueue("q", "k", payload)


def test_a_payload_that_is_nested_too_deeply_is_refused(shared_client: dibs.Client) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(dibs.InvalidArgument, match="nested too deeply"):
        shared_client.enqueue("q", "k", deep)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(dibs.InvalidArgument, match="nested too deeply"):
        shared_client.enqueue("q", "k", loop)


SECRET = "hunter2-in-payload"
JOB = {"queue": "q", "kind": "k", "payload": {"password": SECRET}}


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101}, {"kind": None}, {"kind": "x" * 201}, {"ttl": 0}, {"lease": 0}, {"lease_growth": 0},
        {"lease_cap": 0}, {"max_attempts": 0}, {"history": "x"}, {"group": ""}, {"cost": 0}, {"resources": {}},
        {"headers": []}, {"content_type": ""}, {"body": "eA=="}, {"backoff": {"kind": "x", "delays": [1]}},
        {"dedup_key": "x", "dedup_scope": "y"}, {"deadline": "infinity"}, {"delay": -1}, {"dedup_key": "x" * 2001},
    ],
)  # fmt: skip
def test_no_payload_reaches_the_servers_log(shared_db: psycopg.Connection[Any], options: dict[str, Any]) -> None:
    with pytest.raises(psycopg.DatabaseError) as raised:
        shared_db.execute("select dibs.enqueue_many(%s)", (json.dumps([JOB | options]),))
    assert SECRET not in str(raised.value)
    assert "Failing row" not in (raised.value.diag.message_detail or "")


def test_nothing_else_prints_what_it_was_given(shared_db: psycopg.Connection[Any]) -> None:
    secret = json.dumps({"password": SECRET})
    job = json.dumps(JOB)
    for call in (
        f"dibs.set_schedule('s', '{{\"interval\": 0.5}}', '{job}')",
        f"dibs.set_schedule('s', '{{\"interval\": 60, \"catch_up\": 1001}}', '{job}')",
        f"dibs.set_schedule('', '{{\"interval\": 60}}', '{job}')",
        f"dibs.set_schedule(null, '{{\"interval\": 60}}', '{job}')",
        f"""dibs.declare_schedules('a', '[{{"name": "s", "rule": {{"interval": 60, "grace": 0}}, "job": {job}}}]')""",
        f"dibs.register_worker('', '{secret}')",
        f"dibs.register_worker('w', '[{secret}]')",
        f"""dibs.set_tasks('[{{"queue": "q", "options": {secret}}}]')""",
        f"""dibs.set_tasks('[{{"kind": "k", "queue": "q", "arguments": {secret}}}]')""",
        f"dibs.append_error('{SECRET}', null, '')",
    ):
        with pytest.raises(psycopg.DatabaseError) as raised:
            shared_db.execute(f"select * from {call}")
        assert SECRET not in str(raised.value), call


def test_a_rate_too_low_to_be_kept_is_refused(db: psycopg.Connection[Any], connect: Connect, clock: Clock) -> None:
    clock.freeze()
    for call in (
        "set_limit(queue => 'q', rate => 1e-300)",
        "set_limit(queue => 'q', rate => 1e-6, burst => 10001)",
        "set_group('q', 'g', '{\"rate\": 1e-300}')",
        "set_group('q', 'g', '{\"rate\": 1e-6, \"burst\": 10001}')",
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            db.execute(f"select dibs.{call}")
    db.execute("select dibs.set_limit(queue => 'q', rate => 0.000001, burst => 10000)")
    db.execute("select dibs.set_group('q', 'g', '{\"rate\": 0.000001}')")
    fill(db, 3, 0)
    fill(db, 2, 0, group="g")
    assert len(claimed(db, 10)) == 4
    assert claimed(connect(), 10) == []
    db.execute("select dibs.repair_limits()")
    db.execute("select * from dibs.maintain()")
    assert db.execute("select dibs.next_due('{q}') - dibs.now()").fetchall()


def test_numbers_on_the_shortest_path_are_the_constants(shared_db: psycopg.Connection[Any]) -> None:
    """There a call of `_constant` would cost a tenth of an enqueue."""
    [(source, small, length)] = shared_db.execute(
        "select prosrc, dibs._constant('small_job_bytes'), dibs._constant('name_bound') from pg_proc"
        " where oid = 'dibs.enqueue'::regproc"
    ).fetchall()
    assert re.findall(r"pg_column_size\(payload\) > (\d+)|least\(v_limit, (\d+)\)", source) == [
        (str(small), ""),
        ("", str(small)),
    ]
    [valid] = shared_db.execute(
        "select dibs._is_valid_kind(repeat('k', %s)), dibs._is_valid_kind(repeat('k', %s))", (length, length + 1)
    ).fetchall()
    assert valid == (True, False)
