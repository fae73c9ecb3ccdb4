"""The pages over HTTP: what they show, what they hide, and what they do when something is wrong."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime
from html import unescape
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from psycopg import sql

import dibs
from dibs.client.bounded import ActingClient
from dibs.db import calls
from dibs.queue_settings import SETTINGS
from dibs.web import app
from dibs.web.cron_words import cron_in_words
from dibs.web.findings import Findings
from dibs.web.pages.schedules import local_time
from tests.waiting import wait_until
from tests.web.conftest import NASTY, asking, who

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from starlette.testclient import TestClient

    from dibs.info import Finding
    from tests.servers import Databases
    from tests.web.conftest import Browse

PAGES = (
    "", "jobs", "errors", "schedules", "workers", "deliveries", "doctor", "audit", "queue?name=work",
    "schedule?name=nightly",
)  # fmt: skip


@pytest.fixture(scope="module")
def empty(databases: Databases, template: str, browse: Browse) -> Iterator[TestClient]:
    """A dashboard of a database in which nothing has happened."""
    with databases.copy(template) as dsn:
        yield browse(dsn=dsn)


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_database_has_every_page(page: str, empty: TestClient) -> None:
    answer = empty.get(f"/{page}")
    assert answer.status_code == (404 if "name=" in page else 200)
    assert "<h1>" in answer.text


def test_the_overview_tells_how_everything_is(web: TestClient, made: dict[str, UUID]) -> None:
    page = web.get("/").text
    assert "What is wrong now" in page
    dead = re.search(
        r'<a href="([^"]+)">(?:(?!</a>).)*2 jobs of queue work died in the last hour, and 1 succeeded', page
    )
    assert dead
    assert str(made["failed"]) in web.get(unescape(dead[1])).text
    assert '<span class="state paused">paused</span>' in page
    assert page.count("<svg") >= 3 + 2  # the charts, and a line for each queue
    assert re.search(r'Succeeded</span>\s*<a class="value" [^>]*>1</a>', page)
    for name in ("day", "week"):
        assert f"in the last {name}" in web.get(f"/?range={name}").text


def test_jobs_are_listed_by_filters_that_are_in_the_address(web: TestClient, made: dict[str, UUID]) -> None:
    def listed(query: str) -> set[str]:
        page = web.get(f"/jobs?{query}").text
        return {kind for kind, id in made.items() if str(id) in page}

    assert listed("queue=work") | listed("queue=mail") == set(made)
    assert listed("state=dead") == {"failed", "exhausted", "cancelled"}
    assert listed("state=dead&queue=work") == {"failed", "exhausted"}
    assert listed("state=waiting&queue=mail") == {"ready", "scheduled"}
    assert listed("state=running&state=failed&queue=work") == {"running", "failed"}
    assert listed("kind=retried") == {"retried"}
    assert listed("queue=nowhere") == set()
    assert "<option selected>dead</option>" in web.get("/jobs?state=dead").text


def test_jobs_are_found_by_what_they_carry_and_said(web: TestClient, crew: dibs.Client) -> None:
    ids = {
        "ana": crew.enqueue("found", "k", {"user": {"name": "ana", "id": 42}}, headers={"trace": "abc"}).id,
        "bob": crew.enqueue("found", "k", {"user": {"name": "bob", "id": 43}}, group="bobs", dedup_key="b-1").id,
        "bad": crew.enqueue("found", "bad", {"user": {"name": "100%_x"}}, priority=9).id,
    }
    for job in crew.claim("found", 3):
        crew.fail(job, "ValueError: 50% of a_b is no number", final=True) if job.kind == "bad" else crew.release(job)

    def listed(**query: str) -> set[str]:
        page = web.get("/jobs", params={"queue": "found", **query})
        assert page.status_code == 200
        return {name for name, id in ids.items() if f'id="job-{id}"' in page.text}

    assert listed() == {"ana", "bob", "bad"}
    assert listed(payload="user.id=42") == {"ana"}
    assert listed(payload='{"user": {"name": "bob"}}') == {"bob"}
    assert listed(payload="user.name=ana") == {"ana"}
    assert listed(payload="user.id=7") == set()
    assert listed(header="trace=abc") == {"ana"}
    assert listed(group="bobs") == {"bob"}
    assert listed(key="b-1") == {"bob"}
    assert listed(error="50% of a_b") == {"bad"}
    assert listed(error="50_ of a%b") == set()
    assert listed(within="1h") == {"ana", "bob", "bad"}
    for wrong in ({"payload": "no sign"}, {"payload": "{"}, {"within": "soon"}, {"before": "x"}):
        assert web.get("/jobs", params=wrong).status_code == 400


def test_a_search_says_how_far_it_has_looked(browse: Browse, dsn: str, client: dibs.Client) -> None:
    web = browse(dsn=dsn)
    oldest = client.enqueue("far", "needle", {"n": -1}).id
    client.enqueue_many(dibs.NewJob(queue="far", kind="hay", payload={"n": n}) for n in range(12_000))
    page = web.get("/jobs?queue=far&payload=n%3D-1").text
    assert "No job matches so far" in page
    seen = 0
    while str(oldest) not in page:
        seen += 1
        assert seen < 20
        further = re.search(r'rel="next" href="([^"]+)"', page)
        assert further
        page = web.get(unescape(further[1])).text


def test_pages_of_jobs_are_by_key(web: TestClient, crew: dibs.Client) -> None:
    ids = [str(e.id) for e in crew.enqueue_many(dibs.NewJob(queue="many", kind="k") for _ in range(120))]
    found: list[str] = []
    address: str | None = "/jobs?queue=many"
    while address:
        page = web.get(address).text
        found += re.findall(r'id="job-([0-9a-f-]+)"', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        address = older and older[1].replace("&amp;", "&")
    assert found == sorted(ids, reverse=True)


def test_a_job_tells_its_life(web: TestClient, made: dict[str, UUID]) -> None:
    dead = web.get(f"/jobs/{made['failed']}").text
    assert "It ended as failed" in dead
    assert "<b>run 1</b>" in dead
    assert "File &#34;shop.py&#34;, line 7" in dead
    running = web.get(f"/jobs/{made['running']}").text
    assert '<progress value="3" max="10">' in running
    assert "under way" in running
    succeeded = web.get(f"/jobs/{made['succeeded']}").text
    assert "&#34;done&#34;: true" in succeeded
    assert str(2**60) in succeeded
    assert "for attempt 2 of 5" in web.get(f"/jobs/{made['retried']}").text
    assert re.search(r"limit of its queue</dt><dd>\d of 3 run", running)
    raw = web.get(f"/jobs/{made['failed']}/raw").json()
    assert (raw["kind"], raw["payload"]) == ("failed", {"n": 2**60})


@pytest.mark.usefixtures("made")  # The overview counts what succeeded before this.
def test_a_job_tells_where_it_comes_from_and_what_came_of_it(web: TestClient, crew: dibs.Client) -> None:
    crew.schedules.set("hourly", dibs.NewJob(queue="kin", kind="first", group="g", dedup_key="k"), interval=3600)
    crew.schedules.trigger("hourly")
    [job] = crew.claim("kin")
    crew.complete(job, follow_ups=[dibs.NewJob(queue="kin", kind="second")])
    page = web.get(f"/jobs/{job.id}").text
    assert '<a href="/schedule?name=hourly">hourly</a>' in page
    assert '<a href="/jobs?queue=kin&amp;group=g">g</a>' in page
    assert "<dt>dedup key</dt>" in page
    [follow_up] = re.findall(r'<a href="(/jobs/[0-9a-f-]+)">second</a> <span class="state ready">', page)
    assert f'<a href="/jobs/{job.id}">first</a> <span class="state succeeded">' in web.get(follow_up).text


def test_what_jobs_say_is_shown_as_text(web: TestClient, made: dict[str, UUID]) -> None:
    for address in ("/jobs", f"/jobs/{made['ready']}", f"/jobs/{made['failed']}", "/errors", "/"):
        page = web.get(address).text
        assert NASTY not in page
        assert " style=" not in page
        assert not re.search(r"<script(?! type=\"module\" src=)", page)
    assert "&lt;script&gt;" in web.get(f"/jobs/{made['ready']}").text


def test_what_is_masked_is_nowhere(browse: Browse, made: dict[str, UUID]) -> None:
    masking = browse(mask=["Token", "card"])
    for job in ("ready", "succeeded"):
        for address in (f"/jobs/{made[job]}", f"/jobs/{made[job]}/raw"):
            text = masking.get(address).text
            assert "s3cret" not in text
            assert "4711" not in text
            assert "•••" in text
    hiding = browse(hide_payloads=True)
    assert "alert" not in hiding.get(f"/jobs/{made['ready']}").text
    assert hiding.get(f"/jobs/{made['succeeded']}/raw").json()["attempts"][0]["result"] == "•••"


def test_long_errors_are_shown_in_part_and_whole_as_json(web: TestClient, crew: dibs.Client) -> None:
    crew.enqueue("long", "k", {"text": "y" * 1_000_000})
    [job] = crew.claim("long")
    crew.fail(job, "ValueError: no\n" + "x" * 1_000_000, final=True)
    page = web.get(f"/jobs/{job.id}").text
    assert page.count("characters are left out here") == 3  # the payload, the reason, and the run's error
    assert len(page) < 100_000
    assert len(web.get(f"/jobs/{job.id}/raw").text) > 1_000_000


def setting(page: str, name: str) -> str:
    """What a queue's page says of a setting."""
    row = re.search(rf'id="setting-{name}"[^>]*>(.*?)(?:</tr>|</div>)', page, re.DOTALL)
    assert row, name
    return " ".join(re.sub(r"<[^>]+>", " ", row[1]).split())


def test_a_queue_tells_its_policy_and_limits(web: TestClient, crew: dibs.Client, made: dict[str, UUID]) -> None:
    page = web.get("/queue?name=work").text
    assert "lease 30s default" in setting(page, "lease")
    assert re.search(r'data-label="in use">1 of 3<', page)
    assert f'/jobs/{made["running"]}" title="{made["running"]}">running</a>' in page
    assert "a client" in page
    assert re.search(r'id="priority-5">.*?data-label="running">1<', page, re.DOTALL)
    mail = web.get("/queue?name=mail").text
    assert re.search(
        r"max attempts How often a job is tried before it is exhausted. 2 set by \w+ .* ago default: 5",
        setting(mail, "max_attempts"),
    )
    assert web.get("/queue?name=nowhere").status_code == 404


def test_a_queue_tells_its_groups(web: TestClient, crew: dibs.Client) -> None:
    assert 'id="groups"' not in web.get("/queue?name=mail").text
    crew.enqueue("tenants", "k", group=NASTY)
    crew.enqueue_many(dibs.NewJob(queue="tenants", kind="k", group="ann") for _ in range(3))
    crew.groups.set("tenants", "ann", weight=2, rate=0.5)

    def listed(order: str) -> list[str]:
        page = web.get("/queue", params={"name": "tenants", "groups": order}).text
        assert NASTY not in page
        return re.findall(r'id="group-\d+"><th scope="row"><a href="[^"]*group=([^"&]+)"', page)

    assert [len(listed(order)) for order in ("busiest", "longest waiting", "noisy", "odd")] == [2, 2, 0, 2]
    assert listed("busiest")[0] == "ann"
    assert listed("longest waiting")[-1] == "ann"
    assert "0.5 per second" in web.get("/queue?name=tenants").text


def test_schedules_tell_their_rule_in_words_and_what_is_next(web: TestClient, made: dict[str, UUID]) -> None:
    page = web.get("/schedules").text
    assert "at 02:30, Monday to Friday" in page
    assert "every 5m" in page
    nightly = web.get("/schedule?name=nightly").text
    assert len(re.findall(r"<b>\w{3} \d\d \w{3} 02:30:00</b>", nightly)) == 5
    assert web.get("/schedule?name=nowhere").status_code == 404


def test_workers_tell_what_they_run(web: TestClient, made: dict[str, UUID]) -> None:
    page = web.get("/workers").text
    assert "shop:app" in page
    assert "host web-1" in page
    assert f"/jobs/{made['running']}" in page
    assert "<dd>42 %</dd>" in page
    assert "<dd>123 MB</dd>" in page
    assert "Ask to stop" in page
    for number, status in (("4711", 404), ("x", 400), ("", 400)):
        assert web.post("/workers/stop", data={"number": number}).status_code == status


def test_the_doctor_says_what_is_wrong(browse: Browse, crew: dibs.Client, made: dict[str, UUID]) -> None:
    crew.limits.set(kind="<b>export</b>", concurrency=0)
    page = browse().get("/doctor").text  # Another dashboard, which has not asked before.
    assert "the limit of kind &lt;b&gt;export&lt;/b&gt; is 0, so none of its jobs run" in page
    assert "dibs limits set --kind" in page
    assert 'href="/jobs?queue=work&amp;state=dead"' in page  # what it is about


def test_the_audit_says_who_changed_what(browse: Browse, crew: dibs.Client, web_dsn: str) -> None:
    crew.queues.set("audited")
    with dibs.acting_as("ann<i>"):
        crew.queues.pause("audited")
    crew.enqueue("audited", "k", {"card": "4711"})
    crew.cancel_where({"queue": "audited", "payload": {"card": "4711"}}, reason="ordered twice")
    page = browse(dsn=web_dsn, mask=["card"]).get("/audit").text
    assert "ann&lt;i&gt;" in page
    assert "queue?name=audited" in page
    assert "&#34;card&#34;" in page
    assert "4711" not in page
    assert browse(dsn=web_dsn).get("/audit?before=x").status_code == 400


def test_errors_are_listed_by_source(web: TestClient, made: dict[str, UUID]) -> None:
    assert "smtp: 451 later" in web.get("/errors").text
    assert "smtp: 451 later" not in web.get("/errors?source=other").text


def test_deliveries_and_processes(web: TestClient, crew: dibs.Client) -> None:
    crew.enqueue("sent", "email.send")
    [job] = crew.claim("sent")
    crew._run(calls.channels.begin_delivery(job, "smtp", []))
    with psycopg.connect(crew.dsn, autocommit=True) as conn:
        conn.execute("select dibs.supervise('orders/7', '{}', queue => 'sent')")
    page = web.get("/deliveries").text
    assert "email.send" in page
    assert "orders/7" in page
    assert "None may have gone out twice" in web.get("/deliveries?interrupted=yes").text


def test_a_fragment_is_the_live_part_alone(web: TestClient, made: dict[str, UUID]) -> None:
    for page in PAGES:
        part = web.get(f"/{page}", headers={"Dibs-Fragment": "live"}).text
        assert "<h1>" in part
        assert "<html" not in part


def test_what_takes_too_long_is_left_out_with_a_banner(browse: Browse, web_dsn: str, made: dict[str, UUID]) -> None:
    hasty = browse(timeout=0.5)
    with psycopg.connect(web_dsn) as db:
        db.execute("lock table dibs.ready")
        answer = hasty.get("/")
        assert answer.status_code == 200
        told = re.search(r"Took longer than 500ms and was left out: ([^.]+)", answer.text)
        assert told
        assert {"what is in the queues", "what is wrong"} == set(told[1].split(", "))
        assert "<h2>Queues</h2>" in answer.text
        assert hasty.get(f"/jobs/{made['ready']}").status_code == 503  # nothing is left of that page
    wait_until(lambda: "was left out" not in hasty.get("/").text, what="the page is whole again")


def test_without_its_database_a_page_says_so() -> None:
    lost = app("postgresql://nobody@127.0.0.1:1/nothing", authorize=who)
    lost.state.reads = ActingClient(lost.state.reads.dsn, timeout=5, write=False, patience=0.1)
    with asking(lost) as client:
        answer = client.get("/")
    assert answer.status_code == 503
    assert "cannot be reached" in answer.text


def test_an_observer_sees_no_payloads(browse: Browse, web_dsn: str, made: dict[str, UUID]) -> None:
    role = f"watcher_{os.getpid()}"
    with psycopg.connect(web_dsn, autocommit=True) as db:
        db.execute(sql.SQL("create role {} login in role dibs_observer").format(sql.Identifier(role)))
        watching = browse(dsn=re.sub(r"user=\w+", f"user={role}", web_dsn))
        page = watching.get(f"/jobs/{made['ready']}").text
        assert "may not read payloads" in page
        assert "s3cret" not in page
        for address in (
            "/",
            "/jobs",
            "/errors",
            "/schedules",
            "/schedule?name=nightly",
            "/workers",
            "/deliveries",
            "/doctor",
            "/audit",
            "/queue?name=work",
        ):
            assert watching.get(address).status_code == 200, address
        refused = watching.post(f"/jobs/{made['failed']}/retry")
        assert refused.status_code == 403
        assert "permission denied" in refused.text
        db.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


WORDS = st.text(max_size=20) | st.sampled_from(
    ["dead", "work", "0", "-1", "99999999999999999999", "null", "' or 1=1 --"]
)
NAMED = (
    "state", "queue", "kind", "before", "range", "name", "source", "interrupted", "did", "n", "operation", "error",
    "payload", "header", "group", "key", "within", "alike", "id", "groups", "x", "as", "more", "after",
    "so_far", "rate", "to",
)  # fmt: skip
NAMES = st.sampled_from(NAMED)


def test_no_filter_breaks_a_page(web: TestClient, made: dict[str, UUID]) -> None:
    @settings(max_examples=60)
    @given(
        st.sampled_from(["", "jobs", "jobs/export", "errors", "schedule", "queue", "deliveries"]),
        st.lists(st.tuples(NAMES, WORDS)),
    )
    def fuzz(page: str, query: list[tuple[str, str]]) -> None:
        answer = web.get(f"/{page}?{urlencode(query)}")
        assert answer.status_code in {200, 400, 404}, answer.text

    fuzz()


def test_what_is_not_there_is_said(web: TestClient) -> None:
    assert web.get("/nothing").status_code == 404
    assert web.get("/static/../app.py").status_code == 404
    assert web.get(f"/jobs/{uuid4()}").status_code == 404
    assert web.get("/jobs/xyz").status_code == 400
    assert web.get("/jobs?state=odd").status_code == 400
    assert web.post("/jobs").status_code == 405


def test_a_mask_of_one_key_covers_that_key(browse: Browse, crew: dibs.Client) -> None:
    made = crew.enqueue("one-mask", "k", {"password": "s3cret", "p": "open"})
    page = browse(mask="password").get(f"/jobs/{made.id}/raw").text
    assert "s3cret" not in page
    assert "open" in page


def test_a_time_too_long_ago_is_refused(web: TestClient) -> None:
    assert web.get("/jobs?within=800000d").status_code == 400


def test_the_settings_of_a_newer_schema_are_skipped(
    web: TestClient, crew: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.queues.set("newer", lease=33)
    known = {setting.name for setting in SETTINGS}
    for module in ("queue", "policy"):
        fewer = tuple(setting for setting in SETTINGS if setting.name != "ttl")
        monkeypatch.setattr(import_module(f"dibs.web.pages.{module}"), "SETTINGS", fewer)
    monkeypatch.delitem(import_module("dibs.web.pages.policy").NAMED, "ttl")
    assert "ttl" in known
    assert web.get("/queue?name=newer").status_code == 200
    assert 'name="lease"' in web.get("/queue/policy?name=newer").text
    changed = web.post("/queue/policy", data={"name": "newer", "was-lease": "33s", "lease": "44s"})
    assert "<ins>44s</ins>" in changed.text


def test_the_settings_of_an_older_schema_are_all_there_are(
    web: TestClient, crew: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.queues.set("older", lease=33)
    later = replace(SETTINGS[0], name="later")
    monkeypatch.setattr(import_module("dibs.web.pages.policy"), "SETTINGS", (*SETTINGS, later))
    monkeypatch.setitem(import_module("dibs.web.pages.policy").NAMED, "later", later)
    assert 'name="lease"' in web.get("/queue/policy?name=older").text
    changed = web.post("/queue/policy", data={"name": "older", "was-lease": "33s", "lease": "44s", "later": "1"})
    assert "<ins>44s</ins>" in changed.text


async def test_users_do_not_wait_for_a_slow_doctor_one_after_the_other() -> None:
    visits = 0

    class Client:
        async def doctor(self) -> list[Finding]:
            nonlocal visits
            visits += 1
            raise dibs.errors.ServerError("took too long")

    findings = Findings(cast("Any", Client()), poll=60)
    answers = await asyncio.gather(*(findings.now() for _ in range(10)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {dibs.errors.ServerError}
    assert visits == 1


def test_the_present_run_has_its_number_without_a_history(web: TestClient, crew: dibs.Client) -> None:
    crew.queues.set("no-history", history="none")
    made = crew.enqueue("no-history", "k")
    [first] = crew.claim("no-history")
    crew.snooze(first, 0)
    crew.claim("no-history")
    page = web.get(f"/jobs/{made.id}").text
    assert "run 2" in page
    assert "run 1" not in page


def test_a_group_with_its_own_limit_does_not_meet_the_one_of_other_groups(web: TestClient, crew: dibs.Client) -> None:
    crew.groups.set("grouped", concurrency=71)
    crew.groups.set("grouped", "own", concurrency=72)
    own, other = (crew.enqueue("grouped", "k", group=group) for group in ("own", "other"))
    assert (" 71" in web.get(f"/jobs/{own.id}").text, " 72" in web.get(f"/jobs/{own.id}").text) == (False, True)
    assert (" 71" in web.get(f"/jobs/{other.id}").text, " 72" in web.get(f"/jobs/{other.id}").text) == (True, False)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 1 * 1", "at 03:00, on day 1 of the month or on Mondays"),
        ("*/40 * * * *", "*/40 * * * *"),
        ("0 */5 * * *", "0 */5 * * *"),
        ("0 */6 * * *", "every 6 hours at :00"),
        ("*/0 * * * *", "*/0 * * * *"),
    ],
)
def test_cron_is_put_into_words_only_where_they_are_true(cron: str, words: str) -> None:
    assert cron_in_words(cron) == words


def test_a_zone_that_this_machine_does_not_know_is_shown_in_utc() -> None:
    at = datetime(2031, 5, 1, 12, tzinfo=UTC)
    assert local_time(at, "Mars/Olympus").hour == 12
    assert local_time(at, "Europe/Berlin").hour == 14


def test_the_hint_of_a_server_error_is_not_shown(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> Any:
        raise dibs.errors.ServerError("statement", hint="s3cret host")

    web = browse()
    monkeypatch.setattr(ActingClient, "now", fail)
    answer = web.get("/jobs")
    assert answer.status_code == 500
    assert "s3cret" not in answer.text


async def test_an_error_in_one_close_leaves_no_connection_open(web_dsn: str) -> None:
    dashboard = app(web_dsn, authorize=who)
    writes = dashboard.state.writes
    with writes.limited_to("pause"):
        await writes.now()

    async def fail() -> None:
        raise RuntimeError("no")

    dashboard.state.reads.close = fail
    with pytest.raises(RuntimeError, match="no"):
        await dashboard.aclose()
    with writes.limited_to("pause"), pytest.raises(dibs.errors.ClientClosed):
        await writes.now()
