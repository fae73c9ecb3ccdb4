"""What somebody could try who means harm, or just has a great deal."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from dibs.client.bounded import ActingClient
from dibs.web import app
from dibs.web.app import under
from tests.web.conftest import asking, who

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    import dibs
    from tests.web.conftest import Browse


def test_no_answer_sends_a_browser_elsewhere(web: TestClient, web_dsn: str, crew: dibs.Client) -> None:
    """A redirect that adds or takes a slash would repeat the name that the request has for us."""
    for address in ("/jobs/", "http://localhost//evil.example/", "/queue/?name=mail", "/%2f/evil.example"):
        answer = web.get(address, headers={"Host": "evil.example"})
        assert (answer.status_code, "location" in answer.headers) == (404, False), address
    crew.queues.set("stays")
    done = web.post("/queue/pause", data={"queue": "stays"}, headers={"Host": "evil.example"})
    assert done.headers["location"].startswith("/queue?")
    with asking(under("ops", app(web_dsn, authorize=who))) as prefixed:
        for address in ("/ops", "/ops/"):
            assert prefixed.get(address).status_code == 200, address
        for address in ("/opsother", "/ops//evil.example"):
            assert prefixed.get(address).status_code == 404, address


def test_nothing_is_kept_by_caches_but_what_is_the_same_for_all(web: TestClient, made: dict[str, UUID]) -> None:
    for address in ("/", f"/jobs/{made['ready']}/raw", "/nothing", "/metrics"):
        assert web.get(address).headers["cache-control"] == "no-store", address
    refused = web.get("/", headers={"X-Actions": "retry"})
    assert (refused.status_code, refused.headers["cache-control"]) == (403, "no-store")
    assert web.get("/static/dibs.css").headers["cache-control"] == "no-cache"


def test_a_websocket_gets_nowhere(web: TestClient) -> None:
    for address in ("/", "/jobs"):
        with pytest.raises(WebSocketDisconnect), web.websocket_connect(address):
            pass


def test_an_error_page_names_no_host_and_no_login(caplog: pytest.LogCaptureFixture) -> None:
    lost = app("postgresql://hush:s3cret@127.0.0.1:1/nothing", authorize=who)
    lost.state.reads = ActingClient(lost.state.reads.dsn, timeout=5, write=False, patience=0.1)
    with asking(lost) as client, caplog.at_level(logging.WARNING, "dibs.web"):
        page = client.get("/jobs").text
    assert "The database cannot be reached." in page
    for told in ("127.0.0.1", "hush", "s3cret"):
        assert told not in page
    assert "s3cret" not in caplog.text
    assert "127.0.0.1" in caplog.text


def test_an_error_of_the_server_is_for_the_log(web: TestClient, web_dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    with psycopg.connect(web_dsn, autocommit=True) as db, caplog.at_level(logging.WARNING, "dibs.web"):
        definition: Any = db.execute("select pg_get_functiondef('dibs.pause(text)'::regprocedure)").fetchone()
        db.execute(
            "create or replace function dibs.pause(queue text) returns boolean language plpgsql security definer"
            " as $$ begin raise exception 'the inside' using errcode = 'XX000'; end $$"
        )
        answer = web.post("/queue/pause", data={"queue": "mail"})
        db.execute(definition[0])
    assert (answer.status_code, "the inside" in answer.text) == (500, False)
    assert "the inside" in caplog.text


def test_a_form_that_drips_is_given_up(web_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.web.pages.acts.SLOWEST", 0.05)
    with TestClient(app(web_dsn, authorize=who)) as client:
        assert client.portal

        async def send() -> int:
            scope = {
                "type": "http", "method": "POST", "path": "/queue/pause", "query_string": b"", "root_path": "",
                "headers": [(b"sec-fetch-site", b"same-origin")], "client": ("10.0.0.1", 1), "state": {},
            }  # fmt: skip
            sent: list[Any] = []
            parts = dripping()

            async def note(message: Any) -> None:
                sent.append(message)

            await client.app(scope, parts.__anext__, note)
            return int(sent[0]["status"])

        assert client.portal.call(send) == 408


async def dripping() -> AsyncIterator[dict[str, Any]]:
    """A body that never ends."""
    while True:
        yield {"type": "http.request", "body": b"a", "more_body": True}
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("options", [{"mask": ["token"]}, {"hide_payloads": True}])
def test_what_is_covered_cannot_be_looked_for(options: dict[str, Any], browse: Browse, made: dict[str, UUID]) -> None:
    """Who may not see a value could find it by guessing, if a search would say which jobs have it."""
    covering = browse(**options)
    for asked in ({"payload": "token=s3cret"}, {"payload": '{"TOKEN": 1}'}, {"header": "a.token=1"}):
        for page in ("/jobs", "/jobs/export"):
            assert covering.get(page, params=asked).status_code == 403, page
        assert covering.post("/jobs/many", data={"act": "retry", **asked}).status_code == 403
    assert covering.get("/jobs", params={"payload": "to=x"}).status_code == (200 if "mask" in options else 403)


def test_json_that_is_nested_too_deeply_breaks_no_page(web: TestClient, web_dsn: str, crew: dibs.Client) -> None:
    with psycopg.connect(web_dsn, autocommit=True) as db:
        for depth, status in ((800, 200), (3000, 422)):
            deep = '{"a":' * depth + "1" + "}" * depth
            row: Any = db.execute("select job_id from dibs.enqueue('deep', 'k', %s::jsonb)", (deep,)).fetchone()
            for address in ("", "/raw", "/edit"):
                assert web.get(f"/jobs/{row[0]}{address}").status_code == status, address
            assert web.post(f"/jobs/{row[0]}/cancel").status_code == 303
    assert web.get("/jobs?queue=deep").status_code == 200
    assert web.get("/jobs", params={"payload": '{"a":' * 800 + "1" + "}" * 800}).status_code == 403
