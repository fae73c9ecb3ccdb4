"""Job: its life as a timeline, the reason for its state, its payload and its result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from dibs.errors import NotPermitted, UnknownJob
from dibs.mask import cover_secrets
from dibs.states import DEAD, WAITING, State
from dibs.web.filters import id_of
from dibs.web.render import Page
from dibs.web.words import moment

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.info import Limit

FACTS = ("shard", "priority", "max_attempts", "losses", "cost", "content_type")
"""Facts of a job besides its life, shown if they are set."""
MOMENTS = ("deadline", "expire_at")
"""Times of a job besides its life, shown if they are set."""


@dataclass(frozen=True, slots=True)
class Step:
    """A point of a job's life."""

    name: str
    at: datetime | None
    style: str = ""
    outcome: str = ""
    took: timedelta | None = None
    worker: int | None = None


async def job(request: Request) -> Response:
    """Show one job."""
    page = Page(request)
    id = id_in(request)
    now, shown, why, status, limits = await asyncio.gather(
        page.client.now(),
        shown_job(page, id),
        page.client.why(id),
        page.client.status(id),
        page.read("limits", page.client.limits.list(), []),
    )
    if status.state is State.UNKNOWN:
        raise UnknownJob(f"there is no job {id}", hint="it was never committed, or it was pruned")
    return await page.render(
        "job.html",
        now=now,
        id=id,
        job=shown,
        why=why,
        status=status,
        steps=steps(shown, status.state, status.run) if shown else [],
        facts=[(name, shown[name]) for name in FACTS if shown and shown.get(name) is not None],
        limits=applying(limits, shown) if shown else [],
        moments=[(name, shown[name]) for name in MOMENTS if shown and shown.get(name) is not None],
        can_cancel=status.state in WAITING or status.state is State.RUNNING,
        can_retry=status.state in DEAD,
        can_edit=shown is not None and status.state in WAITING | DEAD,
    )


async def raw_job(request: Request) -> Response:
    """Return everything known of a job, as JSON."""
    found = await shown_job(Page(request), id_in(request))
    if found is None:
        raise UnknownJob("there is no such job, or this role may not see it whole")
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


async def shown_job(page: Page, id: UUID) -> dict[str, Any] | None:
    """Return everything known of a job, masked; None if the role may not read payloads."""
    try:
        found = await page.client.show(id)
    except NotPermitted:
        return None
    return found and masked(page, found)


def masked(page: Page, found: dict[str, Any]) -> dict[str, Any]:
    """Cover the hidden parts of a job."""
    cover = page.settings.cover
    attempts = [cover_secrets(attempt, cover) for attempt in found["attempts"]]
    changes = [{**change, "before": cover(change["before"])} for change in found["changes"]]
    return {**cover_secrets(found, cover), "attempts": attempts, "changes": changes}


def applying(limits: list[Limit], job: dict[str, Any]) -> list[Limit]:
    """Return the limits that apply to this job."""
    queue, group = job["queue"], job["group"]
    subjects = {
        "queue": [(queue, queue)],
        "kind": [(None, job["kind"])],
        "group": [] if group is None else [(queue, group)],
        "resource": [(None, name) for name in job["resources"] or ()],
    }
    if group is not None and not any(limit.scope == "group" and limit.name == group for limit in limits):
        subjects["group"] = [(queue, None)]  # The default of groups without their own policy.
    return [
        limit
        for limit in limits
        if (limit.queue, limit.name) in subjects[limit.scope] and (limit.concurrency, limit.rate) != (None, None)
    ]


def steps(job: dict[str, Any], state: State, run: int | None) -> list[Step]:
    """Return the life of a job, step by step; ``run`` is the number of the present run."""
    made = moment(job["enqueued_at"])
    life = [Step("enqueued", made)]
    due = moment(job["due_at"])
    if due and made and abs((due - made).total_seconds()) > 1 and not job["attempts"]:
        life.append(Step("due", due))
    life += [_run(a) for a in job["attempts"]]
    if state is State.RUNNING:
        life.append(Step(f"run {run}", moment(job["claimed_at"]), "running", worker=job["worker"]))
    elif state in WAITING and job["attempts"]:
        life.append(Step("next attempt", due, state.value))
    elif state in DEAD:
        life.append(Step(state.value, moment(job["ended_at"]), state.value))
    return life


def _run(attempt: dict[str, Any]) -> Step:
    began, ended = moment(attempt["claimed_at"]), moment(attempt["ended_at"])
    took = ended - began if began and ended else None
    return Step(f"run {attempt['run']}", began, attempt["outcome"], attempt["outcome"], took, attempt["worker"])


def id_in(request: Request) -> UUID:
    """The id of the job that a request is about."""
    return id_of(request.path_params["id"])
