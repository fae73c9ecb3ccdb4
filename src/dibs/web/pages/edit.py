"""Edit: the payload and the priority of a job that waits or is dead."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from dibs.errors import InvalidArgument, UnknownJob
from dibs.web.pages.job import id_in
from dibs.web.render import Page

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.requests import Request
    from starlette.responses import Response


async def edit_page(request: Request) -> Response:
    """Show the form."""
    if not request.state.access.may("edit"):
        raise HTTPException(403, "You may not do this: it needs 'edit'.")
    page = Page(request)
    id = id_in(request)
    found = await existing_job(page, id)
    hidden = is_hidden(page, found)
    payload = None if hidden else found["payload"]
    return await page.render("edit.html", id=id, job=found, payload=payload, was=digest(payload), hidden=hidden)


async def existing_job(page: Page, id: UUID) -> dict[str, Any]:
    """Return everything known of a job; raise if there is no such job."""
    found = await page.client.show(id)
    if found is None:
        raise UnknownJob(f"there is no job {id}", hint="it was never committed, or it was pruned")
    return found


def is_hidden(page: Page, job: dict[str, Any]) -> bool:
    """True if a part of the payload is masked: saving would overwrite it."""
    return bool(page.settings.cover(job["payload"]) != job["payload"]) or job["body"] is not None


def digest(payload: Any) -> str:
    """Return a hash of a payload. The form carries it, so that a save knows if the user changed the payload."""
    return sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def read_whole(name: str, text: str) -> int:
    """Parse a whole number that a user typed."""
    try:
        if len(text) >= 12:
            raise ValueError("too many digits")
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{name} is a whole number, not {text[:40]!r}") from None
