"""Ten million jobs kept in ten days, a million waiting, a hundred thousand groups: every page of the dashboard.

What is measured is how long a request takes on the server, from the first statement to the last byte. ``--scale 0.01``
takes a hundredth of the jobs and groups. A database given by ``--dsn`` that has jobs already is measured as it is.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.stage import script
from bench.world import build
from dibs.web import Access, app
from dibs.web.access import ACTIONS
from dibs.web.filters import STATES
from dibs.web.pages import ROUTES

if TYPE_CHECKING:
    import psycopg
    from starlette.types import ASGIApp, Message

    from bench.stage import Stage

    Connection = psycopg.Connection[Any]

WANTED = {"slowest_page_ms": ("≤", 100)}
JOBS = 10_000_000
GROUPS = 100_000
FIRST, LOOKS = 1, 5
"""The number of requests of a page before and while it is measured."""
BATCH = 1000

QUERIES: dict[str, tuple[str, ...]] = {
    "/": ("", "?range=day", "?range=week"),
    "/queue": tuple(f"?name={name}" for name in ("bulk", "mail", "small-3", "tenants", "bulk&range=week")),
    "/queue/policy": ("?name=bulk",),
    "/jobs": (
        "", *(f"?state={state}" for state in STATES), *(f"?queue=bulk&state={state}" for state in STATES),
        "?queue=small-3", "?kind=none", "?queue=mail&kind=none", "?group=none", "?queue=tenants&group=tenant-7",
        "?queue=bulk&key=none", "?error=none", "?error=broke", "?payload=user_id%3D1", "?payload=user_id%3D2",
        "?header=a%3Db", "?within=1h", "?within=5d", "?queue=small-3&state=succeeded&within=10d&error=none",
        "?alike=none",
    ),
    "/errors": ("", "?queue=bulk", "?source=smtp"),
    "/schedule": ("?name=schedule-7",),
    "/deliveries": ("", "?interrupted=yes"),
}  # fmt: skip
"""The parameters of a page."""
OTHERS = ("?name=bulk",)
"""The parameters of all other pages."""
STREAMED = {"/jobs/export"}
"""The addresses that return a file, and take as long as there is something to send."""

FURNISH = (
    "select dibs.set_limit(queue => 'bulk', concurrency => 1000)",
    "select dibs.set_limit(kind => 'kind ' || n, concurrency => 50) from generate_series(1, 20) as n",
    "select dibs.set_group('tenants', 'tenant-' || n, '{\"weight\": 2}') from generate_series(1, 100) as n",
    "select dibs.set_queue('bulk', jsonb_build_object('max_attempts', 3 + n % 3)) from generate_series(1, 100) as n",
    'select dibs.set_schedule(\'schedule-\' || n, \'{"interval": 60}\', \'{"queue": "mail", "kind": "k"}\')'
    " from generate_series(1, 20) as n",
    "select dibs.append_error('smtp: 451 later', null, 'smtp') from generate_series(1, 200)",
    "select from generate_series(1, 20) as n, dibs.register_worker('shop:app', '{\"queues\": [\"bulk\"]}')",
)
"""The content of a database in use besides jobs."""

GROUPED = """
select count(*) from dibs.enqueue_many((
  select jsonb_agg(jsonb_build_object('queue', 'tenants', 'kind', 'k', 'group', 'tenant-' || n))
  from generate_series(%s::integer, %s::integer) as n))
"""
RUNS = """
select dibs.fail(h.id, h.token, error => %s || h.id, final => true)
from (select id, token from dibs.claim(%s, 100) offset 80) as h
"""


class Answer(NamedTuple):
    """The answer of an address."""

    page: str
    ms: float
    is_page: bool


def run(stage: Stage) -> dict[str, Any]:
    with stage.connect() as conn:
        if not conn.execute("select from dibs.ready limit 1").fetchall():
            build(conn, int(JOBS * stage.scale))
        if not conn.execute("select from dibs.queue where name = 'tenants'").fetchall():
            _furnish(conn, max(int(GROUPS * stage.scale), 100))
        pages = _pages(conn)
    asked = asyncio.run(_ask(stage.dsn, pages))
    spent = [answer.ms for answer in asked if answer.is_page]
    return {
        "pages": len(spent),
        "slowest_page_ms": max(spent),
        "slowest_page": next(answer.page for answer in asked if answer.is_page and answer.ms == max(spent)),
        "median_page_ms": statistics.median(spent),
        "slowest": sorted(((round(a.ms, 1), a.page) for a in asked if a.is_page), reverse=True),
        "not_pages": sorted(((round(a.ms, 1), a.page) for a in asked if not a.is_page), reverse=True),
    }


def _furnish(conn: Connection, groups: int) -> None:
    """Put in what a database in use has besides jobs."""
    conn.execute("select dibs.set_queue('tenants', '{\"ttl\": null}')")
    for start in range(1, groups + 1, BATCH):
        conn.execute(script(GROUPED), (start, min(start + BATCH - 1, groups)))
    for statement in FURNISH:
        conn.execute(script(statement))
    for queue in ("bulk", "mail", "tenants"):
        conn.execute(script(RUNS), (f'Traceback\n  File "/srv/{queue}.py", line 7\nValueError: no ', [queue]))
    conn.execute("select from dibs.roll_up()")
    conn.execute("vacuum (analyze)")


def _pages(conn: Connection) -> list[str]:
    """The address of every page, with everything it can be asked."""
    rows = conn.execute(
        "(select id from dibs.dead limit 1) union all (select id from dibs.ready limit 1)"
        " union all (select id from dibs.lease limit 1)"
    ).fetchall()
    paths = [route.path for route in ROUTES if "GET" in (route.methods or ()) and route.path not in STREAMED]
    return [
        path.replace("{id}", str(id)) + query
        for path in dict.fromkeys(paths)
        for id in ([row[0] for row in rows] if "{id}" in path else [""])
        for query in QUERIES.get(path, OTHERS)
    ]


async def _ask(dsn: str, pages: list[str]) -> list[Answer]:
    """Measure each page of a dashboard that has shown it before.

    As in use, what the doctor found is shown for a while; but the page of the doctor itself asks it each time.
    """
    usual, forgetful = (app(dsn, authorize=lambda _: Access("bench", ACTIONS), poll=poll) for poll in (3, 0))
    found = []
    for page in pages:
        asked = forgetful if page.startswith("/doctor") else usual
        times = [await _time(asked, page) for _ in range(FIRST + LOOKS)][FIRST:]
        found.append(sorted(times, key=lambda answer: answer.ms)[LOOKS // 2])
    for dashboard in (usual, forgetful):
        await dashboard.aclose()
    return found


async def _time(dashboard: ASGIApp, page: str) -> Answer:
    """One request, without a network."""
    path, _, query = page.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    sent: list[Any] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    began = time.perf_counter()
    await dashboard(scope, receive, send)
    spent = (time.perf_counter() - began) * 1000
    body = b"".join(message.get("body", b"") for message in sent)
    if sent[0]["status"] != 200 or b"was left out" in body:
        raise RuntimeError(f"{page} answers {sent[0]['status']}: {body[-500:]!r}")
    return Answer(page, spent, dict(sent[0]["headers"])[b"content-type"].startswith(b"text/html"))
