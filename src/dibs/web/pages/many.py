"""Many jobs at once: first how many there are, then the change itself, and a way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from dibs.errors import InvalidArgument
from dibs.units import rate as read_rate
from dibs.web.filters import Asked, id_of
from dibs.web.pages.acts import allowed, needs, redirect, with_form
from dibs.web.pages.errors import number_of
from dibs.web.render import Look

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import ActingClient
    from dibs.operation import Action, Changed, JobFilter, Steps

MOST, SECONDS = 10_000, 10.0
"""The number of jobs that one request changes, and its seconds at most; the next request goes on."""


@dataclass(frozen=True, slots=True)
class Act:
    """An action on many jobs: the permission it needs, and the words of its question and button."""

    name: str
    action: Action
    question: str
    style: str = "main"


ACTS = {
    act.name: act
    for act in (
        Act("retry", "retry", "Bring back"),
        Act("cancel", "cancel", "Cancel", "danger"),
        Act("delete", "delete", "Delete for good", "danger"),
        Act("move", "edit", "Move"),
        Act("export", "read", "Export"),
    )
}


@dataclass(frozen=True, slots=True)
class Wish:
    """The other fields of a form: the target queue, the rate, and the cursor and count of a change that goes on."""

    to: str = ""
    rate: str = ""
    after: UUID | None = None
    so_far: int = 0

    @classmethod
    def read(cls, form: FormData) -> Wish:
        """Read the other fields of a form."""
        to, rate, after, so_far = (str(form.get(name, "")).strip() for name in ("to", "rate", "after", "so_far"))
        return cls(to, rate, id_of(after) if after else None, number_of(so_far) or 0)

    @property
    def per_second(self) -> float | None:
        """The rate as a number."""
        try:
            return read_rate(self.rate) if self.rate else None
        except ValueError as error:
            raise InvalidArgument(str(error)) from None


@with_form
async def many(request: Request, form: FormData) -> Response:
    """Say how many match; change them if that was confirmed."""
    act = ACTS.get(str(form.get("act", "")))
    if act is None:
        raise HTTPException(400, "There is no such action.")
    asked, wish, sure = Asked.read(form), Wish.read(form), form.get("sure") == "yes"
    with allowed(request, act.action) as client:
        filter = asked.filter(await client.now(), request.app.state.settings)
        if not filter and act.name != "export":
            raise InvalidArgument(
                "every job would be meant", hint="choose a queue, a state or a kind, or mark some jobs"
            )
        changed = await _change(client, act.name, filter, wish, dry_run=not sure)
    if not sure or act.name == "export":
        return await Look(request).page("many.html", act=act, asked=asked, wish=wish, changed=changed, most=MOST)
    return _done(request, act, asked, wish, changed)


def _done(request: Request, act: Act, asked: Asked, wish: Wish, changed: Changed) -> Response:
    shown = {name: value for name, value in asked.given.items() if name != "id"}
    if changed.more:
        shown |= {"after": changed.next, "so_far": wish.so_far + changed.matched, "to": wish.to}
    return redirect(
        request, "jobs", f"{act.name}-many", n=changed.done, more="yes" if changed.more else "",
        operation=changed.operation if act.name in {"retry", "cancel"} else "", rate=wish.rate, **shown,
    )  # fmt: skip


async def _change(client: ActingClient, name: str, filter: JobFilter, wish: Wish, *, dry_run: bool) -> Changed:
    steps: Steps = {"max": MOST, "within": SECONDS, "after": wish.after, "dry_run": dry_run}
    match name:
        case "retry":
            # Jobs of the steps before are due first.
            rate = wish.per_second
            return await client.retry(filter, rate=rate, delay=wish.so_far / rate if rate else 0, **steps)
        case "cancel":
            return await client.cancel_where(filter, **steps)
        case "delete":
            return await client.delete(filter, **steps)
        case "move":
            return await client.move(filter, wish.to, **steps)
        case _:
            return await client.count_jobs(filter, **steps)


@needs("retry")
async def undo(request: Request, client: ActingClient, form: FormData) -> Response:
    """Take back a cancel or a retry of many jobs, where nothing ran since."""
    if not request.state.access.may("cancel"):
        raise HTTPException(403, "You may not do this: it needs 'cancel', too.")
    number = str(form.get("operation", ""))
    if not number.isdecimal() or len(number) > 18:
        raise HTTPException(400, "There is no such operation.")
    changed = await client.undo(int(number), within=SECONDS)
    again = {"operation": number, "more": "yes"} if changed.more else {}
    return redirect(request, "jobs", "undone", n=changed.done, **again)
