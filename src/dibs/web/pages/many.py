"""Actions on many jobs: first their number, then the change, and its undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from dibs.errors import InvalidArgument
from dibs.units import rate as read_rate
from dibs.web.filters import JobSearch, id_of
from dibs.web.pages.acts import allowed, needs, redirect, with_form
from dibs.web.pages.errors import number_of
from dibs.web.render import Page

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import ActingClient
    from dibs.operation import Action, Changed, JobFilter, Steps

MOST = 10_000
"""The most jobs that one request changes; the next request goes on."""
SECONDS = 10.0
"""Seconds after which a request stops; the next request goes on."""


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action on many jobs: the permission it needs, and the words of its question and button."""

    name: str
    action: Action
    question: str
    style: str = "main"


ACTS = {
    act.name: act
    for act in (
        BulkAction("retry", "retry", "Bring back"),
        BulkAction("cancel", "cancel", "Cancel", "danger"),
        BulkAction("delete", "delete", "Delete for good", "danger"),
        BulkAction("move", "edit", "Move"),
        BulkAction("export", "read", "Export"),
    )
}


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """The other fields of a form: the target queue and the rate; when a change goes on, its cursor and count so far."""

    to: str = ""
    rate: str = ""
    after: UUID | None = None
    so_far: int = 0

    @classmethod
    def read(cls, form: FormData) -> BulkOptions:
        """Read the other fields of a form."""
        to, rate, after, so_far = (str(form.get(name, "")).strip() for name in ("to", "rate", "after", "so_far"))
        return cls(to, rate, id_of(after) if after else None, number_of(so_far) or 0)

    @property
    def per_second(self) -> float | None:
        """The rate in jobs per second."""
        try:
            return read_rate(self.rate) if self.rate else None
        except ValueError as error:
            raise InvalidArgument(str(error)) from None


@with_form
async def many(request: Request, form: FormData) -> Response:
    """Count the jobs that match; change them if the user has confirmed it."""
    act = ACTS.get(str(form.get("act", "")))
    if act is None:
        raise HTTPException(400, "There is no such action.")
    search, options, sure = JobSearch.read(form), BulkOptions.read(form), form.get("sure") == "yes"
    with allowed(request, act.action) as client:
        filter = search.filter(await client.now(), request.app.state.settings)
        if not filter and act.name != "export":
            raise InvalidArgument(
                "every job would be meant", hint="choose a queue, a state or a kind, or mark some jobs"
            )
        changed = await _change(client, act.name, filter, options, dry_run=not sure)
    if not sure or act.name == "export":
        return await Page(request).render(
            "many.html", act=act, search=search, options=options, changed=changed, most=MOST
        )
    return _done(request, act, search, options, changed)


def _done(request: Request, act: BulkAction, search: JobSearch, options: BulkOptions, changed: Changed) -> Response:
    shown = {name: value for name, value in search.given.items() if name != "id"}
    if changed.more:
        shown |= {"after": changed.next, "so_far": options.so_far + changed.matched, "to": options.to}
    return redirect(
        request, "jobs", f"{act.name}-many", n=changed.done, more="yes" if changed.more else "",
        operation=changed.operation if act.name in {"retry", "cancel"} else "", rate=options.rate, **shown,
    )  # fmt: skip


async def _change(
    client: ActingClient, name: str, filter: JobFilter, options: BulkOptions, *, dry_run: bool
) -> Changed:
    # Marked jobs are few, so change them all now: the address of the next page has no room for those that are left.
    within = None if "ids" in filter else SECONDS
    steps: Steps = {"max": MOST, "within": within, "after": options.after, "dry_run": dry_run}
    match name:
        case "retry":
            # The jobs of earlier requests are due first.
            rate = options.per_second
            return await client.retry(filter, rate=rate, delay=options.so_far / rate if rate else 0, **steps)
        case "cancel":
            return await client.cancel_where(filter, **steps)
        case "delete":
            return await client.delete(filter, **steps)
        case "move":
            return await client.move(filter, options.to, **steps)
        case _:
            return await client.count_jobs(filter, **steps)


@needs("retry")
async def undo(request: Request, client: ActingClient, form: FormData) -> Response:
    """Undo a cancel or a retry of many jobs; jobs that ran since stay."""
    if not request.state.access.may("cancel"):
        raise HTTPException(403, "You may not do this: it needs 'cancel', too.")
    number = str(form.get("operation", ""))
    if not number.isdecimal() or len(number) > 18:
        raise HTTPException(400, "There is no such operation.")
    changed = await client.undo(int(number), within=SECONDS)
    again = {"operation": number, "more": "yes"} if changed.more else {}
    return redirect(request, "jobs", "undone", n=changed.done, **again)
