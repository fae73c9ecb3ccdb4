"""Actions: each checks that it is allowed, does one thing, and goes back to the page it came from."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from dibs.states import Answer
from dibs.web.pages.job import id_in
from dibs.web.render import link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import BoundedClient
    from dibs.web.settings import Action

    Act = Callable[[Request, BoundedClient, dict[str, str]], Awaitable[Response]]

LARGEST = 1_000_000
"""How many bytes a form may have."""


def needs(action: Action) -> Callable[[Act], Callable[[Request], Awaitable[Response]]]:
    """An action for those who may do this; it gets the form that was sent."""

    def wrap(act: Act) -> Callable[[Request], Awaitable[Response]]:
        @wraps(act)
        async def handler(request: Request) -> Response:
            if not request.state.access.may(action):
                raise HTTPException(403, f"You may not do this: it needs {action!r}.")
            return await act(request, request.app.state.writes, await _form(request))

        return handler

    return wrap


async def _form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise HTTPException(413, "The form is too large.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2000))
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None


def _back(request: Request, path: str, did: str, **query: str) -> Response:
    return RedirectResponse(link(request, path, did=did, **query), 303)


@needs("cancel")
async def cancel(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:  # noqa: ARG001
    """Cancel a job, or ask its worker to stop."""
    id = id_in(request)
    answer = await client.cancel(id, f"cancelled by {request.state.access.who}")
    return _back(request, f"jobs/{id}", answer.value)


@needs("retry")
async def retry(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:  # noqa: ARG001
    """Bring a dead job back, due now."""
    id = id_in(request)
    answers = [redriven.answer for redriven in await client.redrive([id])]
    did = {Answer.REDRIVEN: "retried", Answer.DUPLICATE: "duplicate"}
    return _back(request, f"jobs/{id}", did[answers[0]] if answers else "nothing")


@needs("pause")
async def pause_queue(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:
    """Stop handing out a queue's jobs."""
    name = form.get("queue", "")
    await client.pause(name)
    return _back(request, "queue", "paused", name=name)


@needs("pause")
async def resume_queue(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:
    """Hand out a queue's jobs again."""
    name = form.get("queue", "")
    await client.resume(name)
    return _back(request, "queue", "resumed", name=name)


@needs("schedules")
async def run_schedule(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:
    """Make a job of a schedule now."""
    name = form.get("name", "")
    triggered = await client.trigger(name)
    return _back(request, "schedule", triggered.answer.value, name=name)


@needs("schedules")
async def pause_schedule(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:
    """Let a schedule make no jobs."""
    name = form.get("name", "")
    await client.pause_schedule(name, f"paused by {request.state.access.who}")
    return _back(request, "schedule", "paused", name=name)


@needs("schedules")
async def resume_schedule(request: Request, client: BoundedClient, form: dict[str, str]) -> Response:
    """Let a schedule go on."""
    name = form.get("name", "")
    await client.resume_schedule(name)
    return _back(request, "schedule", "resumed", name=name)
