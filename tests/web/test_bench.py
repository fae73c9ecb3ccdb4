"""``bench web`` at a tiny size: every page answers, whatever it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import web
from bench.__main__ import add_rows
from bench.stage import Stage
from rich.table import Table

from dibs.web.pages import ROUTES

if TYPE_CHECKING:
    import pytest


def test_every_page_is_asked_and_answers(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FIRST", 0)
    monkeypatch.setattr(web, "LOOKS", 1)
    measured = web.run(Stage(dsn, None, scale=0.0002))
    asked = {page.partition("?")[0] for name in ("slowest", "not_pages") for _, page in measured[name]}
    shown = {route.path for route in ROUTES if "GET" in (route.methods or ())}
    assert {path for path in shown if "{" not in path} - web.STREAMED <= asked
    assert sum(page.startswith("/jobs/") for page in asked) == 3 * sum("{id}" in path for path in shown)
    assert [round(measured["slowest_page_ms"], 1), measured["slowest_page"]] == [*measured["slowest"][0]]
    table = Table()
    assert add_rows(table, "web", web, {**measured, "slowest_page_ms": 100}) is False
    assert add_rows(table, "web", web, {**measured, "slowest_page_ms": 101}) is True
