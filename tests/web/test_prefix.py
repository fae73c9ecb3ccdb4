"""The dashboard under a prefix: mounted in another app, and behind a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dibs.web import app
from dibs.web.app import under
from tests.web.conftest import asking, who
from tests.web.crawl import crawl, links

if TYPE_CHECKING:
    from uuid import UUID


def test_every_link_works_under_a_prefix(web_dsn: str, made: dict[str, UUID]) -> None:
    inner = app(web_dsn, authorize=who)
    with asking(Starlette(routes=[Mount("/ops/queues", app=inner)])) as client:

        def get(address: str) -> tuple[int, str, str]:
            answer = client.get(address, headers={"X-Actions": "read"})
            return answer.status_code, answer.headers.get("content-type", ""), answer.text

        seen = crawl("/ops/queues/", get)
        assert all(address.startswith("/ops/queues/") for address in seen)
        assert {f"/ops/queues/jobs/{id}" for id in made.values()} <= seen
        assert "/ops/queues/static/dibs.js" in seen
        assert client.post("/ops/queues/queue/pause", data={"queue": "x"}).status_code == 404
        assert client.portal
        client.portal.call(inner.aclose)


@pytest.mark.parametrize("start", ["/ops/queues/", "/"], ids=["passed on", "stripped"])
def test_a_proxy_may_pass_its_prefix_on_or_strip_it(start: str, web_dsn: str) -> None:
    with asking(under("ops/queues/", app(web_dsn, authorize=who))) as client:
        found = links(client.get(start).text)
        assert {link for link in found if not link.startswith("/ops/queues/")} == set()
        assert client.get(start + "jobs").status_code == 200
        assert client.post(start + "queue/pause", data={"queue": "nowhere"}).status_code == 404
