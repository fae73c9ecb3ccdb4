"""Doctor: what is wrong now, why it matters, and what fixes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.web.findings import page_of
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

LOOKS = {"error": "failed", "warning": "running", "note": "ready"}
"""The state whose colour stands for each severity."""


async def doctor(request: Request) -> Response:
    """Everything the doctor finds in the database."""
    look = Look(request)
    findings = await look.at("what is wrong", request.app.state.findings.now(), None)
    return await look.page("doctor.html", findings=findings, looks=LOOKS, page_of=page_of)
