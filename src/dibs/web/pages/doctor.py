"""Doctor: its findings, why each matters, and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.web.findings import page_of
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

SEVERITY_STATES = {"error": "failed", "warning": "running", "note": "ready"}
"""The state whose colour stands for each severity."""


async def doctor(request: Request) -> Response:
    """Show all findings."""
    page = Page(request)
    findings = await page.read("what is wrong", request.app.state.findings.now(), None)
    return await page.render("doctor.html", findings=findings, severity_states=SEVERITY_STATES, page_of=page_of)
