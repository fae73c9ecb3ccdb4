"""The dashboard in a real browser, under a prefix: what only a browser can tell."""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from tools.chromium import find

import dibs
from dibs.db import calls
from dibs.web import Access, app
from dibs.web.access import ACTIONS
from dibs.web.pages import ROUTES
from tests.waiting import wait_until

try:
    from playwright.sync_api import sync_playwright
except ImportError as error:
    raise RuntimeError("these tests need Playwright and Chromium: run `make test` once, which installs both") from error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.once

PREFIX = "/ops/queues"
PAGES = (
    "/", "/?range=week", "/jobs", "/jobs?state=dead", "/jobs/{failed}", "/jobs/{running}", "/jobs/{succeeded}",
    "/errors", "/schedules", "/schedule?name=nightly", "/workers", "/deliveries", "/doctor", "/audit",
    "/queue?name=work", "/queue?name=mail", "/queue/policy?name=work", "/queue?name=nowhere",
)  # fmt: skip
LOOKS = {"wide and light": ("light", 2000), "narrow and dark": ("dark", 400)}
COUNT_VIOLATIONS = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")
def address(web_dsn: str) -> Iterator[str]:
    """Where the dashboard is served, mounted in another app."""
    dashboard = app(web_dsn, authorize=lambda _: Access("tester", ACTIONS), poll=0.3)
    config = uvicorn.Config(Starlette(routes=[Mount(PREFIX, app=dashboard)]), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run)
    serving.start()
    wait_until(lambda: server.started, what="the dashboard is served")
    yield f"http://localhost:{server.servers[0].sockets[0].getsockname()[1]}{PREFIX}"
    server.should_exit = True
    serving.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find()
    assert program, "there is no Chromium: run `make test` once, which installs Debian's; or set DIBS_CHROMIUM"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=program, args=arguments)


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page of a fresh browser window; what a browser complains of fails the test."""
    complaints: list[str] = []
    context = browser.new_context(**options)
    context.add_init_script(COUNT_VIOLATIONS)
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield page
    if options.get("java_script_enabled", True):
        assert page.evaluate("window.violations") == []
    context.close()
    assert [said for said in complaints if "404" not in said] == []


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_fits_at_both_sizes_and_in_both_themes(
    look: str, browser: Browser, address: str, made: dict[str, UUID]
) -> None:
    theme, width = LOOKS[look]
    with opened(browser, color_scheme=theme, viewport={"width": width, "height": 900}) as page:
        for path in PAGES:
            page.goto(address + path.format(**made))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate("window.violations") == [], path
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(18, 23, 26)") is (theme == "dark"), path


def test_without_javascript_everything_can_be_read(browser: Browser, address: str, made: dict[str, UUID]) -> None:
    with opened(browser, java_script_enabled=False) as page:
        page.goto(address)
        page.click("text=2 jobs of queue work died")
        page.click(f"#job-{made['failed']} a.id")
        assert "It ended as failed" in page.inner_text(".why")
        assert "line 7" in page.inner_text("#reason")
        page.click("nav >> text=Jobs")
        page.select_option("#f-state", "running")
        page.click("text=Filter")
        assert page.locator("tbody tr").count() == 1
        assert page.is_hidden("#theme")


def test_a_page_looks_again_and_leaves_alone_what_somebody_does(
    browser: Browser, address: str, crew: dibs.Client
) -> None:
    crew.enqueue("live", "first")
    with opened(browser, viewport={"width": 900, "height": 500}) as page:
        page.goto(f"{address}/jobs?queue=live")
        page.select_option("#f-state", "ready")
        page.fill("#f-kind", "half a wo")
        page.evaluate("document.querySelector('#f-kind').setSelectionRange(2, 4)")
        crew.enqueue_many(dibs.NewJob(queue="live", kind="later") for _ in range(30))
        page.wait_for_selector("tbody tr:nth-child(31)")
        assert page.evaluate("document.activeElement.id") == "f-kind"
        assert page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]") == [2, 4]
        assert page.input_value("#f-kind") == "half a wo"
        assert page.input_value("#f-state") == "ready"
        page.evaluate("scrollTo(0, 300)")
        row = page.locator(f"#{page.locator('tbody tr').nth(12).get_attribute('id')}")
        before = row.evaluate("row => row.getBoundingClientRect().top")
        crew.enqueue("live", "last")
        page.wait_for_selector("tbody tr:nth-child(32)")
        # What is being read stays where it is.
        assert row.evaluate("row => row.getBoundingClientRect().top") == pytest.approx(before, abs=2)


def test_what_is_open_stays_open(browser: Browser, address: str, crew: dibs.Client, made: dict[str, UUID]) -> None:
    with opened(browser) as page:
        page.goto(f"{address}/jobs/{made['failed']}")
        page.click("#error-1 summary")
        with page.expect_response(lambda answer: answer.request.headers.get("dibs-fragment") == "live"):
            pass
        assert page.locator("#error-1").get_attribute("open") is not None


def test_a_page_out_of_sight_asks_for_nothing(browser: Browser, address: str) -> None:
    with opened(browser) as page:
        page.add_init_script(
            "window.away = false; Object.defineProperty(document, 'hidden', { get: () => window.away })"
        )
        page.goto(address)
        with page.expect_response(lambda answer: "dibs-fragment" in answer.request.headers):
            pass
        page.evaluate("window.away = true")
        with page.expect_response(lambda answer: answer.url.endswith("probe")):
            page.evaluate("fetch('static/dibs.css?probe')")  # by now, a look that was on its way has come back
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.evaluate("fetch('static/dibs.css?again')")
        assert [url for url in asked if not url.endswith("again")] == []
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
        with page.expect_response(lambda answer: "dibs-fragment" in answer.request.headers):
            pass


def test_a_failed_job_is_found_read_retried_and_seen_to_succeed(
    browser: Browser, address: str, crew: dibs.Client
) -> None:
    """Three clicks from the overview."""
    crew.enqueue("shop", "charge", {"order": 7})
    crew.fail(crew.claim("shop")[0], "ConnectionError: the bank is away", final=True)
    with opened(browser) as page:
        page.goto(address)
        page.click("text=a job of queue shop died")
        page.click("tbody a.id")
        assert "the bank is away" in page.inner_text(".why")
        page.click("text=Retry now")
        page.wait_for_selector("text=The job is due again.")
        crew.complete(crew.claim("shop")[0], {"charged": True})
        page.wait_for_selector("h1 .state.succeeded")
        assert '"charged": true' in page.inner_text("#result")


@pytest.mark.usefixtures("made")
def test_a_question_is_asked_before_a_job_is_cancelled_or_a_worker_stopped(
    browser: Browser, address: str, crew: dibs.Client
) -> None:
    made = crew.enqueue("shop", "wait", delay=3600)
    with opened(browser) as page:
        page.goto(f"{address}/jobs/{made.id}")
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.click("text=Cancel")
        assert crew.status(made.id).state is dibs.State.SCHEDULED
        page.once("dialog", lambda dialog: dialog.accept())
        page.click("text=Cancel")
        page.wait_for_selector("text=The job is cancelled.")
        assert crew.status(made.id).state is dibs.State.CANCELLED
        page.goto(f"{address}/workers")
        page.once("dialog", lambda dialog: dialog.accept())
        page.click("text=Ask to stop")
        page.wait_for_selector(".card .state:has-text('asked to stop')")
    assert crew.workers.list()[0].stop_asked_at is not None


def test_what_is_marked_is_counted_and_downloaded(
    browser: Browser, address: str, crew: dibs.Client, made: dict[str, UUID]
) -> None:
    with opened(browser) as page:
        page.goto(f"{address}/jobs?queue=work")
        page.check(f"input[value='{made['failed']}']")
        page.click("text=Export …")
        assert "Export 1 job?" in page.inner_text("h1")
        with page.expect_download() as download:
            page.click("text=JSON lines")
        [line] = download.value.path().read_text().splitlines()
        assert json.loads(line)["id"] == str(made["failed"])
        page.goto(f"{address}/errors")
        alike = page.locator(".card", has_text="of exhausted, failed")
        alike.locator("input[name=rate]").fill("50/m")
        alike.locator("button").click()
        assert "At 50/m the last of them is due in" in page.inner_text("#rate-note")
        page.click("a.button")
    assert crew.status(made["failed"]).state is dibs.State.FAILED


def test_the_theme_is_chosen_and_kept_and_text_is_copied(browser: Browser, address: str, made: dict[str, UUID]) -> None:
    with opened(browser, color_scheme="light", permissions=["clipboard-read"]) as page:
        page.goto(f"{address}/jobs/{made['succeeded']}")
        page.click("#theme")
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.click("button[data-copy=the-id]")
        page.wait_for_selector("text=copied")
        assert page.evaluate("navigator.clipboard.readText()") == str(made["succeeded"])


def test_every_control_can_be_reached_by_keyboard(browser: Browser, address: str, made: dict[str, UUID]) -> None:
    with opened(browser) as page:
        page.goto(f"{address}/jobs/{made['scheduled']}")
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
        assert {"Skip to the page", "Overview", "Jobs", "Cancel", "copy", "mail"} <= reached


JOB = "/jobs/{waiting}"
MARKED = "/jobs?queue=hands&kind="
CLICKS: tuple[tuple[str, list[str | tuple[str, str]], str], ...] = (
    # Where one is, what one clicks on, writes or chooses, and what is said then. "Yes" is the answer to every question.
    ("/jobs/{dead}", ["text=Retry now"], "The job is due again."),
    (JOB, ["a:text('Edit')", ("[name=payload]", '{"n": 2}'), "text=Save"], "Saved."),
    (JOB, ["text=Clone"], "This is the clone, due now."),
    (JOB, ["text=Cancel"], "The job is cancelled."),
    (JOB, ["text=Delete"], "The job is deleted."),
    (MARKED + "some", ["text=Cancel …", "text=Yes, cancel"], "2 jobs cancelled, or asked to stop."),
    ("", ["button:text('Undo')"], "2 jobs put back as they were."),
    (MARKED + "some", [("select[name=to]", "work"), "text=Move to …", "text=Yes, move"], "2 jobs moved."),
    (MARKED + "bad", ["text=Retry …", "text=Yes, retry"], "1 job brought back."),
    (MARKED + "done", ["text=Delete …", "text=Yes, delete"], "1 job deleted."),
    ("/queue?name=hands", ["button:text('Pause')"], "Paused: nothing more is handed out."),
    ("/queue?name=hands", ["button:text('Resume')"], "Resumed."),
    (
        "/queue?name=hands",
        ["text=Change it", ("[name=max_attempts]", "7"), "text=Show the difference", "text=Yes, change it"],
        "The policy is changed",
    ),
    ("/schedule?name=nightly", ["text=Run now"], "A job was made, due now."),
    ("/schedule?name=nightly", ["button:text('Pause')"], "Paused: nothing more is handed out."),
    ("/schedule?name=nightly", ["button:text('Resume')"], "Resumed."),
    ("/workers", ["text=Ask to stop"], "is asked to stop"),
)  # fmt: skip


def act_on(page: Page, step: str | tuple[str, str]) -> None:
    if isinstance(step, str):
        page.click(step)
    elif step[0].startswith("select"):
        page.select_option(*step)
    else:
        page.fill(*step)


@pytest.mark.usefixtures("made")
def test_every_change_can_be_made_by_clicking(browser: Browser, address: str, crew: dibs.Client) -> None:
    for kind in ("dead", "bad", "done"):
        crew.enqueue("hands", kind)
    held = {job.kind: job for job in crew.claim("hands", 3)}
    for kind in ("dead", "bad"):
        crew.fail(held[kind], "no", final=True)
    crew.complete(held["done"])
    crew.enqueue_many([dibs.NewJob(queue="hands", kind="some", delay=3600)] * 2)
    jobs = {"dead": held["dead"].id, "waiting": crew.enqueue("hands", "waiting", {"n": 1}, delay=3600).id}
    crew._run(calls.workers.register_worker("hands:app", {"host": "web-2", "queues": ["hands"]}))
    sent: set[str] = set()
    with opened(browser) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        page.on("request", lambda request: sent.add(request.url) if request.method == "POST" else None)
        for where, clicks, told in CLICKS:
            if where:
                page.goto(address + where.format(**jobs))
            for step in clicks:
                act_on(page, step)
            page.wait_for_selector(f"text={told}")
    paths = {re.sub(r"[0-9a-f-]{36}", "{id}", url.removeprefix(address)) for url in sent}
    assert paths == {route.path for route in ROUTES if "POST" in (route.methods or ())}
