"""Actions on one job, queue, worker or schedule: each checks the permission, acts, and goes back to its page."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse

from dibs.operation import acting_as
from dibs.states import Answer
from dibs.web.filters import read_json
from dibs.web.pages.edit import digest, existing_job, is_hidden, read_whole
from dibs.web.pages.errors import number_of
from dibs.web.pages.job import id_in
from dibs.web.render import Page, link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import ActingClient
    from dibs.operation import Action
    from dibs.policy import JobChanges

    Act = Callable[[Request, FormData], Awaitable[Response]]
    ActOf = Callable[[Request, ActingClient, FormData], Awaitable[Response]]

LARGEST = 1_000_000
"""The number of bytes that a form may have."""
SLOWEST = 20.0
"""Seconds that a form may take to arrive."""


def with_form(act: Act) -> Callable[[Request], Awaitable[Response]]:
    """Read the form of a request for an action."""

    @wraps(act)
    async def handler(request: Request) -> Response:
        return await act(request, await _form(request))

    return handler


@contextmanager
def allowed(request: Request, action: Action) -> Iterator[ActingClient]:
    """Yield a client that may do this action and no other: the only way to change anything.

    The database enforces that, and the audit gets the name of the user.
    """
    access = request.state.access
    if not access.may(action):
        raise HTTPException(403, f"You may not do this: it needs {action!r}.")
    with acting_as(access.who), request.app.state.writes.limited_to(action) as client:
        yield client


def needs(action: Action) -> Callable[[ActOf], Callable[[Request], Awaitable[Response]]]:
    """Give an action the client that it needs."""

    def wrap(act: ActOf) -> Callable[[Request], Awaitable[Response]]:
        @wraps(act)
        async def handler(request: Request) -> Response:
            with allowed(request, action) as client:
                return await act(request, client, await _form(request))

        return handler

    return wrap


async def _form(request: Request) -> FormData:
    try:
        async with asyncio.timeout(SLOWEST):
            body = await _body(request)
        return FormData([*parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2000)])
    except TimeoutError:
        raise HTTPException(408, "The form came too slowly.") from None
    except (ValueError, ClientDisconnect):
        raise HTTPException(400, "The form cannot be read.") from None


async def _body(request: Request) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise HTTPException(413, "The form is too large.")
    return body


def redirect(request: Request, path: str, did: str, **query: Any) -> Response:
    """Redirect to a page that says what was done."""
    return RedirectResponse(link(request, path, did=did, **query), 303)


def _text(form: FormData, name: str) -> str:
    return str(form.get(name, ""))


@needs("cancel")
async def cancel(request: Request, client: ActingClient, form: FormData) -> Response:  # noqa: ARG001
    """Cancel a job, or ask its worker to stop."""
    id = id_in(request)
    answer = await client.cancel(id, f"cancelled by {request.state.access.who}")
    return redirect(request, f"jobs/{id}", answer.value)


@needs("retry")
async def retry(request: Request, client: ActingClient, form: FormData) -> Response:  # noqa: ARG001
    """Retry a dead job, due now."""
    id = id_in(request)
    changed = await client.retry({"ids": [id]}, now=True)
    stays = changed.refused[0].reason.value if changed.refused else "nothing"
    return redirect(request, f"jobs/{id}", "retried" if changed.done else stays)


@needs("delete")
async def delete(request: Request, client: ActingClient, form: FormData) -> Response:  # noqa: ARG001
    """Delete a job that has ended."""
    id = id_in(request)
    changed = await client.delete({"ids": [id]})
    return redirect(request, "jobs" if changed.done else f"jobs/{id}", "deleted" if changed.done else "nothing")


@needs("edit")
async def edit(request: Request, client: ActingClient, form: FormData) -> Response:
    """Change the payload and the priority of a job that waits or is dead: only what is not as the form showed it."""
    id = id_in(request)
    changes: JobChanges = {}
    if "payload" in form:
        page = Page(request)
        if is_hidden(page, await existing_job(page, id)):
            raise HTTPException(403, "A part of this payload is hidden, so it cannot be replaced.")
        payload = read_json(_text(form, "payload"))
        if digest(payload) != form.get("was-payload"):
            changes["payload"] = payload
    if form.get("priority"):
        priority = read_whole("priority", _text(form, "priority"))
        if str(priority) != form.get("was-priority"):
            changes["priority"] = priority
    if not changes:
        return redirect(request, f"jobs/{id}", Answer.UNCHANGED.value)
    answer = await client.edit(id, **changes)
    return redirect(request, f"jobs/{id}", answer.value)


@needs("edit")
async def clone(request: Request, client: ActingClient, form: FormData) -> Response:  # noqa: ARG001
    """Enqueue a copy of a job, due now."""
    made = await client.clone(id_in(request))
    return redirect(request, f"jobs/{made}", "cloned")


@needs("pause")
async def pause_queue(request: Request, client: ActingClient, form: FormData) -> Response:
    """Stop handing out a queue's jobs."""
    name = _text(form, "queue")
    await client.queues.pause(name)
    return redirect(request, "queue", "paused", name=name)


@needs("pause")
async def resume_queue(request: Request, client: ActingClient, form: FormData) -> Response:
    """Hand out a queue's jobs again."""
    name = _text(form, "queue")
    await client.queues.resume(name)
    return redirect(request, "queue", "resumed", name=name)


@needs("pause")
async def stop_worker(request: Request, client: ActingClient, form: FormData) -> Response:
    """Ask a worker to stop."""
    number = number_of(_text(form, "number"))
    if number is None:
        raise HTTPException(400, "Which worker? The form has no number.")
    answer = await client.workers.stop(number)
    return redirect(request, "workers", f"worker-{answer.value}", n=number)


@needs("schedules")
async def run_schedule(request: Request, client: ActingClient, form: FormData) -> Response:
    """Enqueue a job of a schedule now."""
    name = _text(form, "name")
    triggered = await client.schedules.trigger(name)
    return redirect(request, "schedule", triggered.answer.value, name=name)


@needs("schedules")
async def pause_schedule(request: Request, client: ActingClient, form: FormData) -> Response:
    """Pause a schedule."""
    name = _text(form, "name")
    await client.schedules.pause(name, f"paused by {request.state.access.who}")
    return redirect(request, "schedule", "paused", name=name)


@needs("schedules")
async def resume_schedule(request: Request, client: ActingClient, form: FormData) -> Response:
    """Resume a schedule."""
    name = _text(form, "name")
    await client.schedules.resume(name)
    return redirect(request, "schedule", "resumed", name=name)
