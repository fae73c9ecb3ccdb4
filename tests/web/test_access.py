"""Who is let in, who may change what, and where a change has to come from."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from starlette.testclient import TestClient

import dibs
from dibs.client.bounded import ActingClient
from dibs.web import Access, app
from dibs.web.access import ACTIONS
from dibs.web.pages import ROUTES

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.operation import Action
    from tests.web.conftest import Browse

ACTS: dict[str, tuple[Action, str, dict[str, str]]] = {
    # What each address of a change needs, how it is asked, and with what; a new one fails below until it is here.
    "cancel": ("cancel", "jobs/{ready}/cancel", {}),
    "retry": ("retry", "jobs/{failed}/retry", {}),
    "delete": ("delete", "jobs/{succeeded}/delete", {}),
    "edit": ("edit", "jobs/{retried}/edit", {"payload": '{"n": 7}', "priority": "9"}),
    "clone": ("edit", "jobs/{running}/clone", {}),
    "retry many": ("retry", "jobs/many", {"act": "retry", "id": "{exhausted}", "sure": "yes"}),
    "cancel many": ("cancel", "jobs/many", {"act": "cancel", "id": "{scheduled}", "sure": "yes"}),
    "delete many": ("delete", "jobs/many", {"act": "delete", "id": "{cancelled}", "sure": "yes"}),
    "move many": ("edit", "jobs/many", {"act": "move", "id": "{retried}", "to": "mail", "sure": "yes"}),
    "undo": ("retry", "undo", {"operation": "{operation}"}),
    "pause": ("pause", "queue/pause", {"queue": "work"}),
    "resume": ("pause", "queue/resume", {"queue": "mail"}),
    "stop worker": ("pause", "workers/stop", {"number": "1"}),
    "policy": ("edit", "queue/policy", {"name": "work", "max_attempts": "7", "sure": "yes"}),
    "run": ("schedules", "schedule/run", {"name": "nightly"}),
    "pause_schedule": ("schedules", "schedule/pause", {"name": "nightly"}),
    "resume_schedule": ("schedules", "schedule/resume", {"name": "nightly"}),
}


def facts(client: dibs.Client) -> object:
    """Everything that an action could have changed."""
    schedules = [(s.paused_at, s.last_job) for s in client.schedules.list()]
    asked = [worker.stop_asked_at for worker in client.workers.list()]
    return client.find_jobs().jobs, client.queues.list(), schedules, asked


ALSO: dict[str, Action] = {"undo": "cancel"}
"""What some need besides."""


@pytest.fixture(scope="module")
def things(crew: dibs.Client, made: dict[str, UUID]) -> dict[str, Any]:
    """What can be done something to: jobs by their states, and an operation that can be undone."""
    crew.enqueue("undone", "k")
    return {**made, "operation": crew.cancel_where({"queue": "undone"}).operation}


def asked(act: str, things: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The address and the form of an act."""
    _, path, form = ACTS[act]
    whole = {name: value.format(**things) if value.startswith("{") and '"' not in value else value
             for name, value in form.items()}  # fmt: skip
    return "/" + path.format(**things), whole


def test_every_address_of_a_change_is_tried_here() -> None:
    changing = {route.path for route in ROUTES if not route.methods <= {"GET", "HEAD"}}  # type: ignore[operator]
    tried = {"/" + re.sub(r"\{\w+\}", "{id}", path) for _, path, _ in ACTS.values()}
    assert tried == changing
    assert {action for action, *_ in ACTS.values()} == ACTIONS - {"read"}


@pytest.mark.parametrize("act", ACTS)
def test_every_action_needs_its_access_and_is_audited(
    act: str, web: TestClient, crew: dibs.Client, things: dict[str, Any]
) -> None:
    action = ACTS[act][0]
    address, form = asked(act, things)
    needed = {"read", action, ALSO.get(act, action)}
    before = facts(crew)
    for missing in needed:
        for given in (needed - {missing}, ACTIONS - {missing}):
            refused = web.post(address, data=form, headers={"X-Actions": ",".join(given)})
            assert refused.status_code == 403
    looked = web.get(address, params=form)  # the form of an edit is a page, and `many` is no job's id
    assert looked.status_code == (200 if act in {"edit", "policy"} else 400 if "many" in address else 405)
    assert facts(crew) == before
    allowed = web.post(address, data=form, headers={"X-Actions": ",".join(needed)})
    assert allowed.status_code == 303
    assert web.get(allowed.headers["location"]).status_code == 200
    if act != "resume_schedule":  # it may not have been paused
        assert facts(crew) != before
        assert crew.audit(limit=1)[0].actor == "tester"


@pytest.mark.parametrize("act", ACTS)
def test_the_database_refuses_what_a_handler_should_have(
    act: str, web: TestClient, crew: dibs.Client, things: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a handler asked for another access than its own: the role of that one is not enough."""
    action = ACTS[act][0]
    address, form = asked(act, things)
    real = ActingClient.limited_to
    before = facts(crew)
    for other in ACTIONS - {action}:
        monkeypatch.setattr(ActingClient, "limited_to", lambda client, _, other=other: real(client, other))
        refused = web.post(address, data=form)
        assert refused.status_code == 403, f"{act} as {other}"
        assert "permission denied for function" in refused.text
    assert facts(crew) == before


def test_no_page_that_is_only_looked_at_can_change_anything(
    web: TestClient, crew: dibs.Client, things: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for no action, and reads as a role that may only read, in a transaction that can change nothing."""
    monkeypatch.setattr(ActingClient, "limited_to", lambda *_: pytest.fail("a page asks for an action"))
    before = facts(crew), len(crew.audit())
    for route in ROUTES:
        if "GET" in (route.methods or ()):
            address = route.path.replace("{id}", str(things["ready"]))
            query = {"queue": "mail", "name": "nightly" if "schedule" in address else "mail", "sure": "yes"}
            assert web.get(address, params=query).status_code == 200, address
    assert (facts(crew), len(crew.audit())) == before


async def test_a_client_that_was_allowed_nothing_changes_nothing(web_dsn: str, crew: dibs.Client) -> None:
    crew.queues.set("still")
    async with ActingClient(web_dsn, timeout=5, write=False) as reads:
        with pytest.raises(dibs.NotPermitted, match="permission denied for function pause"):
            await reads.queues.pause("still")
    writes = ActingClient(web_dsn, timeout=5, write=True)
    for change in (writes.queues.pause("still"), writes.enqueue("still", "k"), writes.upkeep.prune()):
        with pytest.raises(dibs.NotPermitted, match="no action was allowed"):
            await change
    with writes.limited_to("pause"):
        with pytest.raises(dibs.NotPermitted, match="permission denied for function enqueue"):
            await writes.enqueue("still", "k")
        assert await writes.queues.pause("still")
    await writes.close()


LOGINS = {
    "login inherit in role dibs_read, dibs_retry": {"read", "retry"},
    "login noinherit in role dibs_read, dibs_retry": {"read", "retry"},
    "login in role dibs_admin": ACTIONS,
    "login noinherit in role dibs_admin": ACTIONS,
    "login in role dibs_observer": {"read"},
    "login": set(),
}


@pytest.mark.parametrize("options", LOGINS)
def test_a_login_can_do_what_its_roles_can(
    options: str, browse: Browse, web_dsn: str, crew: dibs.Client, made: dict[str, UUID]
) -> None:
    can, name = LOGINS[options], f"web_{os.getpid()}"
    with psycopg.connect(web_dsn, autocommit=True) as db:
        db.execute(f"create role {name} {options}")
        try:
            web = browse(dsn=web_dsn.replace("user=dibs", f"user={name}"))
            page = web.get(f"/jobs/{made['ready']}")
            assert page.status_code == (200 if "read" in can else 403)
            assert ("s3cret" in page.text) == bool(can - {"read"})
            assert web.get('/jobs?payload={"token":"s3cret"}').status_code == (200 if can - {"read"} else 403)
            assert web.post(f"/jobs/{made['ready']}/retry").status_code == (303 if "retry" in can else 403)
            crew.queues.set("logins")
            paused = web.post("/queue/pause", data={"queue": "logins"})
            assert paused.status_code == (303 if "pause" in can else 403)
            assert "pause" in can or "grant dibs_pause to the login" in paused.text
            if "pause" in can:
                web.post("/queue/resume", data={"queue": "logins"})
                assert (crew.audit(limit=1)[0].role, crew.audit(limit=1)[0].actor) == (name, "tester")
        finally:
            db.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (name,))
            db.execute(f"drop role {name}")


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "", "Origin": "http://localhost"}, True),
        ({"Sec-Fetch-Site": "", "Origin": "http://evil.example"}, False),
        ({"Sec-Fetch-Site": "", "Origin": "null"}, False),
        ({"Sec-Fetch-Site": "", "Origin": "http://[::1"}, False),
        ({"Sec-Fetch-Site": "", "Origin": "localhost"}, False),
        ({"Sec-Fetch-Site": ""}, False),
    ],
)
def test_a_change_has_to_come_from_our_own_page(
    headers: dict[str, str], passes: bool, web: TestClient, crew: dibs.Client
) -> None:
    crew.queues.set("ours")
    crew.queues.resume("ours")
    answer = web.post("/queue/pause", data={"queue": "ours"}, headers=headers)
    assert answer.status_code == (303 if passes else 403)
    assert crew.queues.depth("ours").paused is passes


def test_by_default_only_this_machine_is_let_in_and_only_to_read(web_dsn: str, crew: dibs.Client) -> None:
    crew.queues.set("q")

    def ask(peer: str, host: str, **headers: str) -> int:
        with TestClient(app(web_dsn), f"http://{host}", client=(peer, 1)) as asking:
            return int(asking.get("/", headers=headers).status_code)

    assert ask("127.0.0.1", "localhost:8321") == 200
    assert ask("::1", "[::1]") == 200
    assert ask("10.0.0.7", "localhost") == 401
    assert ask("127.0.0.1", "evil.example") == 401  # a name that was pointed here
    assert ask("127.0.0.1", "localhost", Host="[::1") == 401
    assert ask("127.0.0.1", "localhost", Host="") == 401
    assert ask("127.0.0.1", "localhost", **{"X-Forwarded-For": "10.0.0.7"}) == 401
    with TestClient(app(web_dsn), "http://localhost", client=("127.0.0.1", 1)) as asking:
        assert "read-only" in asking.get("/").text
        assert 'method="post"' not in asking.get("/queue?name=q").text
        refused = asking.post("/queue/pause", data={"queue": "q"}, headers={"Sec-Fetch-Site": "same-origin"})
        assert refused.status_code == 403


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(dibs.InvalidArgument, match="no action"):
        Access("x", frozenset({"read", "destroy"}))  # type: ignore[arg-type]


def test_every_answer_is_guarded(web: TestClient) -> None:
    for answer in (
        web.get("/"),
        web.get("/nothing"),
        web.get("/static/dibs.js"),
        web.post("/", headers={"Sec-Fetch-Site": "x"}),
    ):
        assert "script-src 'self';" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_form_that_is_too_large_or_odd_is_refused(web: TestClient) -> None:
    assert web.post("/queue/pause", content=b"queue=" + b"x" * 2_000_000).status_code == 413
    assert web.post("/queue/pause", content=b"queue=\xff\xfe").status_code == 400
    assert web.post("/queue/pause", content=b"&a=1" * 5000).status_code == 400
    assert web.post("/queue/pause", data={"queue": "nowhere"}).status_code == 404
