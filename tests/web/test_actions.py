"""What can be done to jobs: to one, and to many at once, which is first only counted."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg
import pytest

import dibs
from dibs.db import calls

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tests.web.conftest import Browse


def dead(crew: dibs.Client, queue: str, count: int = 3, error: str = "ValueError: no") -> list[UUID]:
    made = crew.enqueue_many(dibs.NewJob(queue=queue, kind="k", payload={"n": n}) for n in range(count))
    for job in crew.claim(queue, count):
        crew.fail(job, error, final=True)
    return [one.id for one in made]


def hidden(page: str) -> dict[str, list[str]]:
    """What a page's last form sends."""
    form = re.findall(r"<form method=\"post\".*?</form>", page, flags=re.DOTALL)[-1]
    sent: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([\w-]+)" value="([^"]*)">', form):
        sent.setdefault(name, []).append(unescape(value))
    return sent


@pytest.mark.parametrize(
    ("act", "after"),
    [
        ("retry", dibs.State.READY),
        ("delete", dibs.State.UNKNOWN),
        ("move", dibs.State.FAILED),
    ],
)
def test_many_are_counted_first_and_then_changed(
    act: str, after: dibs.State, web: TestClient, crew: dibs.Client
) -> None:
    crew.queues.set("elsewhere")
    ids = dead(crew, f"bulk-{act}")
    form = {"act": act, "queue": f"bulk-{act}", "state": "dead", "to": "elsewhere"}
    asked = web.post("/jobs/many", data=form)
    assert asked.status_code == 200
    assert "3 jobs" in asked.text
    assert 'data-poll="0"' in asked.text  # there is nothing to look at again
    assert [s.state for s in crew.status_many(ids)] == [dibs.State.FAILED] * 3
    done = web.post("/jobs/many", data=hidden(asked.text))
    assert done.status_code == 303
    assert [s.state for s in crew.status_many(ids)] == [after] * 3
    if act == "move":
        assert {job.queue for job in crew.find_jobs({"queue": "elsewhere"}).jobs} == {"elsewhere"}
    page = web.get(done.headers["location"]).text
    assert "3 jobs" in page


def test_only_those_marked_are_meant(web: TestClient, crew: dibs.Client) -> None:
    one, two, three = dead(crew, "marked")
    form = {"act": "retry", "queue": "marked", "id": [str(one), str(three)]}
    asked = web.post("/jobs/many", data=form)
    assert "2 jobs" in asked.text
    web.post("/jobs/many", data=hidden(asked.text))
    assert [s.state for s in crew.status_many([one, two, three])] == [
        dibs.State.READY,
        dibs.State.FAILED,
        dibs.State.READY,
    ]


def test_a_cancel_of_many_can_be_undone(web: TestClient, crew: dibs.Client) -> None:
    made = [e.id for e in crew.enqueue_many(dibs.NewJob(queue="undo", kind="k") for _ in range(3))]
    done = web.post("/jobs/many", data={"act": "cancel", "queue": "undo", "sure": "yes"})
    assert [s.state for s in crew.status_many(made)] == [dibs.State.CANCELLED] * 3
    page = web.get(done.headers["location"]).text
    assert "3 jobs cancelled" in page
    operation = parse_qs(urlsplit(done.headers["location"]).query)["operation"]
    undone = web.post("/undo", data={"operation": operation[0]})
    assert "3 jobs put back" in web.get(undone.headers["location"]).text
    assert [s.state for s in crew.status_many(made)] == [dibs.State.READY] * 3
    assert web.post("/undo", data={"operation": "x"}).status_code == 400
    for actions in ("read,retry", "read,cancel"):
        assert web.post("/undo", data={"operation": operation[0]}, headers={"X-Actions": actions}).status_code == 403


def test_everything_at_once_is_refused(web: TestClient) -> None:
    assert web.post("/jobs/many", data={"act": "delete", "sure": "yes"}).status_code == 400
    assert web.post("/jobs/many", data={"act": "explode", "queue": "q"}).status_code == 400
    assert web.post("/jobs/many", data={"act": "retry", "id": "x"}).status_code == 400


def test_failures_that_are_alike_are_shown_and_retried_together(web: TestClient, crew: dibs.Client) -> None:
    ids = dead(crew, "alike", 2, 'Traceback\n  File "/srv/shop/bank.py", line 7, in pay\nBankError: no answer to 4711')
    ids += dead(crew, "alike", 1, 'Traceback\n  File "/srv/shop/bank.py", line 7, in pay\nBankError: no answer to 4712')
    crew.upkeep.roll_up()
    page = web.get("/errors?queue=alike").text
    [group] = crew.failures.list(queue="alike")
    assert f'id="group-{group.fingerprint}"' in page
    assert "<b>3</b> failures" in page
    asked = web.post("/jobs/many", data={"act": "retry", "alike": group.fingerprint})
    assert "3 jobs" in asked.text
    web.post("/jobs/many", data=hidden(asked.text))
    assert [s.state for s in crew.status_many(ids)] == [dibs.State.READY] * 3


def test_a_payload_is_edited_and_the_change_is_kept(web: TestClient, crew: dibs.Client) -> None:
    made = crew.enqueue("edit", "k", {"user": 1, "big": 2**60})
    form = web.get(f"/jobs/{made.id}/edit").text
    assert f"&#34;big&#34;: {2**60}" in form
    assert web.post(f"/jobs/{made.id}/edit", data={"payload": '{"user": 2}', "priority": "9"}).status_code == 303
    shown = crew.show(made.id)
    assert shown
    assert (shown["payload"], shown["priority"]) == ({"user": 2}, 9)
    assert "by tester" in web.get(f"/jobs/{made.id}").text
    assert web.post(f"/jobs/{made.id}/edit", data={"payload": "{"}).status_code == 400
    assert web.post(f"/jobs/{made.id}/edit", data={"priority": "high"}).status_code == 400
    [job] = crew.claim("edit")
    assert web.post(f"/jobs/{made.id}/edit", data={"payload": "{}"}).status_code == 409
    crew.complete(job)
    assert web.post(f"/jobs/{made.id}/cancel").status_code == 409


def test_what_is_masked_is_not_overwritten(browse: Browse, crew: dibs.Client) -> None:
    masking = browse(mask=["token"])
    made = crew.enqueue("masked", "k", {"token": "s3cret", "n": 1})
    form = masking.get(f"/jobs/{made.id}/edit").text
    assert "cannot be edited" in form
    assert "s3cret" not in form
    assert masking.post(f"/jobs/{made.id}/edit", data={"payload": '{"token": "•••"}'}).status_code == 403
    crew.edit(made.id, payload={"token": "other"})
    for address in (f"/jobs/{made.id}", f"/jobs/{made.id}/raw"):
        assert "s3cret" not in masking.get(address).text  # not in what it was before, either


def test_a_clone_is_the_same_job_again(web: TestClient, crew: dibs.Client) -> None:
    for payload in ({"n": 1}, b"\x00bytes"):
        made = crew.enqueue("clone", "k", payload, headers={"a": "b"}, priority=8)
        done = web.post(f"/jobs/{made.id}/clone")
        clone = urlsplit(done.headers["location"]).path.removeprefix("/jobs/")
        first, second = crew.show(made.id), crew.show(UUID(clone))
        assert first
        assert second
        for name in ("queue", "kind", "payload", "body", "headers", "priority"):
            assert first[name] == second[name], name
        [audit] = crew.audit(limit=1)
        assert (audit.verb, audit.actor, audit.detail) == ("clone", "tester", {"of": str(made.id), "clone": clone})


def test_failures_come_back_at_a_rate_in_steps_that_go_on(
    web: TestClient, crew: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("dibs.web.pages.many"), "MOST", 2)
    ids = dead(crew, "paced", 3, "PacedError: no")
    crew.upkeep.roll_up()
    [group] = crew.failures.list(queue="paced")
    asked = web.post("/jobs/many", data={"act": "retry", "alike": group.fingerprint, "rate": "2/m"})
    assert "at least 2 jobs" in asked.text
    assert "At 2/m the last of them is due in 1m" in asked.text
    assert [s.state for s in crew.status_many(ids)] == [dibs.State.FAILED] * 3
    done = web.post("/jobs/many", data={**hidden(asked.text), "rate": "2/m"})
    page = web.get(done.headers["location"]).text
    assert "2 jobs brought back, 2/m. There are more." in page
    forms = re.findall(r"<form method=\"post\".*?</form>", page, flags=re.DOTALL)
    [go_on] = [form for form in forms if "Go on" in form]
    further = {n: unescape(v) for n, v in re.findall(r'name="(\w+)" value="([^"]*)"', go_on)}
    done = web.post("/jobs/many", data=further)
    assert "1 job brought back, 2/m." in web.get(done.headers["location"]).text
    due = sorted(job.due_at for job in crew.find_jobs({"queue": "paced"}).jobs)
    # The third is not due before the first two: the rate holds from step to step.
    assert [round((at - due[0]).total_seconds() / 30) for at in due] == [0, 1, 2]
    assert [a.detail for a in crew.audit(limit=2)] == [{"rate": 2 / 60}] * 2
    operation = parse_qs(urlsplit(done.headers["location"]).query)["operation"][0]
    assert web.post("/undo", data={"operation": operation}).status_code == 303
    assert crew.queues.depth("paced").failed == 1
    for rate in ("0", "x", "5/y", "-1"):
        assert web.post("/jobs/many", data={"act": "retry", "queue": "paced", "rate": rate}).status_code == 400


def test_what_matches_is_exported(browse: Browse, crew: dibs.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    web, masking, hiding = browse(), browse(mask=["token"]), browse(hide_payloads=True)
    made = [crew.enqueue("out", "=1+1", {"n": n, "token": "s3cret"}, headers={"token": "s3cret"}).id for n in range(3)]
    asked = web.post("/jobs/many", data={"act": "export", "queue": "out"}, headers={"X-Actions": "read"})
    assert "Export 3 jobs?" in asked.text
    one = web.post("/jobs/many", data={"act": "export", "queue": "out", "id": str(made[0])})
    assert "Export 1 job?" in one.text
    assert web.post("/jobs/many", data={"act": "export"}).status_code == 200  # it is bounded, and changes nothing
    told = web.get("/jobs/export?queue=out&as=jsonl", headers={"X-Actions": "read"})
    assert told.headers["content-disposition"] == 'attachment; filename="dibs-jobs.jsonl"'
    rows = [json.loads(line) for line in told.text.splitlines()]
    assert [row["id"] for row in rows] == [str(id) for id in reversed(made)]
    assert rows[0]["payload"] == {"n": 2, "token": "s3cret"}
    table = list(csv.DictReader(io.StringIO(web.get("/jobs/export?queue=out&as=csv").text)))
    assert [row["kind"] for row in table] == ["'=1+1"] * 3  # no formula
    assert len(web.get(f"/jobs/export?as=jsonl&id={made[0]}&id={made[1]}").text.splitlines()) == 2
    for form in ("csv", "jsonl"):
        covered = masking.get(f"/jobs/export?queue=out&as={form}").text
        assert "s3cret" not in covered
        assert covered.count("•••") == 6
        assert "s3cret" not in (hidden := hiding.get(f"/jobs/export?queue=out&as={form}").text)
        assert "payload" not in hidden
    monkeypatch.setattr(import_module("dibs.web.pages.export"), "MOST", 2)
    monkeypatch.setattr("dibs.client.operate_async.STEP", 1)
    *part, last = web.get("/jobs/export?queue=out&as=jsonl").text.splitlines()
    assert len(part) == 2
    stop = json.loads(last)
    assert stop["stopped"] == "stopped after 2, and there may be more"
    rest = web.get(f"/jobs/export?queue=out&as=jsonl&before={stop['before']}").text.splitlines()
    assert [json.loads(line)["id"] for line in rest] == [str(made[0])]
    assert web.get("/jobs/export?queue=out").text.splitlines()[-1].startswith('"# stopped after 2, ')
    for wrong in ("as=pdf", "before=x", "state=odd", "payload={"):
        assert web.get(f"/jobs/export?{wrong}").status_code == 400


def test_an_export_that_breaks_says_so_in_its_last_line(
    browse: Browse, crew: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(crew.dsn, autocommit=True) as db:
        deep = '{"a":' * 3000 + "1" + "}" * 3000
        for odd in (deep, '{"n": 1e9000}', str(2**70)):
            db.execute("select dibs.enqueue('deep', 'k', %s::jsonb)", (odd,))
    rows = [json.loads(line) for line in browse().get("/jobs/export?queue=deep&as=jsonl").text.splitlines()]
    assert [row["payload"] for row in rows] == [2**70, *["(JSON that cannot be read)"] * 2]
    crew.enqueue_many(dibs.NewJob(queue="broken", kind="k") for _ in range(2))
    monkeypatch.setattr("dibs.client.operate_async.STEP", 1)
    found = calls.operate.export_page

    def break_off(filter: dibs.types.JobFilter, limit: int, before: UUID | None) -> Any:
        if before is not None:
            raise dibs.ConnectionLost("the database went away")
        return found(filter, limit, before)

    monkeypatch.setattr(calls.operate, "export_page", break_off)
    first, last = map(json.loads, browse().get("/jobs/export?queue=broken&as=jsonl").text.splitlines())
    assert last["stopped"] == "stopped after 1: The database cannot be reached."
    assert last["before"] == first["id"]


def test_a_policy_is_changed_after_the_difference_was_seen(web: TestClient, crew: dibs.Client) -> None:
    crew.queues.set("tuned", max_attempts=3)
    form = fields(web.get("/queue/policy?name=tuned").text)
    assert (form["max_attempts"], form["ttl"], form["backoff"]) == (
        "3",
        "1d",
        "exponential:1s,factor=2,cap=1h,jitter=0.1",
    )
    asked = web.post("/queue/policy", data={**form, "max_attempts": "9", "ttl": "none", "backoff": "list:1s,90"})
    assert asked.status_code == 200
    assert 'data-poll="0"' in asked.text
    changes = re.findall(r"<del>(.*?)</del>.*?<ins>(.*?)</ins>", asked.text)
    assert changes == [("3", "9"), ("exponential:1s,factor=2,cap=1h,jitter=0.1", "list:1s,1m30s"), ("1d", "none")]
    [queue] = [q for q in crew.queues.list() if q.name == "tuned"]
    assert (queue.max_attempts, queue.ttl is None) == (3, False)
    done = web.post("/queue/policy", data={**hidden(asked.text), "sure": "yes"})
    assert done.status_code == 303
    page = web.get(done.headers["location"]).text
    assert "The policy is changed" in page
    assert re.search(r"<b>set</b> by tester <time[^>]*>[^<]*</time><span class=\"reason\">default: 5", page)
    [last] = [a for a in crew.audit() if a.verb == "set_queue" and a.queue == "tuned"][:1]
    assert last.detail
    assert (last.actor, last.detail["policy"]["ttl"], last.detail["before"]["max_attempts"]) == ("tester", "none", 3)


def test_a_policy_that_is_wrong_stays_on_the_form(web: TestClient, crew: dibs.Client) -> None:
    crew.queues.set("tuned-2")
    form = fields(web.get("/queue/policy?name=tuned-2").text)
    for wrong, told in (
        ({"lease": "soon"}, "&#39;soon&#39; is not a duration"),
        ({"ttl": ""}, "or write none"),
        ({"max_attempts": "many", "priority": "1.5"}, "2 values are not right"),
        ({"max_attempts": "0"}, "max_attempts"),
        ({"lease": "8h", "lease_cap": "1h"}, "lease"),
        ({"history": "some"}, "is not one of all, failures, none"),
        ({"backoff": "list:"}, "is not a backoff"),
        ({"backoff": "constant:1s,jitter=x"}, "is not a number"),
        ({"noisy_share": "nan"}, "noisy_share"),
        ({"ttl": "\x00"}, "is not a duration"),
    ):
        for sure in ({}, {"sure": "yes"}):
            answer = web.post("/queue/policy", data={**form, **wrong, **sure, "max_depth": "77"})
            assert answer.status_code == 400, wrong
            assert told in answer.text, wrong
            assert fields(answer.text)["max_depth"] == "77"  # What was typed is not lost,
    [queue] = [q for q in crew.queues.list() if q.name == "tuned-2"]
    assert (queue.max_depth, queue.history) == (None, "all")  # and nothing is half done.
    assert "Nothing is different" in web.post("/queue/policy", data=form).text
    assert web.post("/queue/policy", data={**form, "name": "nowhere"}).status_code == 404
    assert web.get("/queue/policy?name=nowhere").status_code == 404
    assert web.get("/queue/policy?name=tuned-2", headers={"X-Actions": "read,pause"}).status_code == 403
    again = web.post("/queue/policy", data={**form, "lease": "44s", "again": "yes"})
    assert fields(again.text)["lease"] == "44s"


def test_two_who_change_one_policy_see_each_other(web: TestClient, crew: dibs.Client) -> None:
    crew.queues.set("tuned-3")
    form = fields(web.get("/queue/policy?name=tuned-3").text)
    crew.queues.set("tuned-3", lease=50, max_attempts=7)
    asked = web.post("/queue/policy", data={**form, "lease": "40s", "sure": "yes"})
    assert "Somebody has changed it" in asked.text
    assert re.findall(r"<del>(.*?)</del>.*?<ins>(.*?)</ins>", asked.text) == [("50s", "40s")]
    assert web.post("/queue/policy", data={**hidden(asked.text), "sure": "yes"}).status_code == 303
    [queue] = [q for q in crew.queues.list() if q.name == "tuned-3"]
    assert (queue.lease.total_seconds(), queue.max_attempts) == (40, 7)  # What was not touched stays as it is.


def fields(page: str) -> dict[str, str]:
    """What a form with one value for each name would send."""
    found = re.findall(r'<input (?:type="hidden" |id="[^"]*" )?name="([^"]+)" value="([^"]*)"', page)
    chosen = re.findall(r'<select [^>]*name="([^"]+)"[^>]*>.*?<option selected>([^<]*)<', page)
    return {name: unescape(value) for name, value in [*found, *chosen]}


def test_marked_jobs_are_changed_at_once_however_slow(
    web: TestClient, crew: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise "Go on" would mean every job of the queue."""
    ids = dead(crew, "slow", 5)
    asked = web.post("/jobs/many", data={"act": "delete", "queue": "slow", "id": [str(id) for id in ids[:3]]})
    monkeypatch.setattr(import_module("dibs.client.steps_async"), "STEP", 1)
    monkeypatch.setattr(import_module("dibs.web.pages.many"), "SECONDS", 0.0)
    done = web.post("/jobs/many", data=hidden(asked.text))
    assert parse_qs(urlsplit(done.headers["location"]).query)["n"] == ["3"]
    assert "Go on" not in web.get(done.headers["location"]).text
    assert [s.state for s in crew.status_many(ids)] == [dibs.State.UNKNOWN] * 3 + [dibs.State.FAILED] * 2


def test_an_edit_saves_only_the_fields_that_were_changed(web: TestClient, crew: dibs.Client) -> None:
    made = crew.enqueue("edit-twice", "k", {"user": 1, "half": 0.5, "text": "ü\n"})
    page = web.get(f"/jobs/{made.id}/edit").text
    opened = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, flags=re.DOTALL)
    assert opened
    form = {**fields(page), "payload": unescape(opened[1])}
    crew.edit(made.id, payload={"user": 2})
    web.post(f"/jobs/{made.id}/edit", data={**form, "priority": "7"})
    crew.edit(made.id, priority=8)
    answer = web.post(f"/jobs/{made.id}/edit", data=form)
    assert answer.headers["location"].endswith("did=unchanged")
    shown = crew.show(made.id)
    assert shown
    assert (shown["payload"], shown["priority"]) == ({"user": 2}, 8)
