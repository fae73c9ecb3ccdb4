"""Many jobs at once: first how many there are, then the change itself, and a way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from dibs.errors import InvalidArgument
from dibs.web.filters import Asked
from dibs.web.pages.acts import allowed, needs, redirect, with_form
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import ActingClient
    from dibs.operation import Action, Changed, JobFilter

MOST = 10_000
"""How many jobs one request changes; the rest, the next."""


@dataclass(frozen=True, slots=True)
class Act:
    """What can be done with many jobs: its access, and words for the question and the button."""

    name: str
    action: Action
    question: str
    style: str = "main"


ACTS = {
    act.name: act
    for act in (
        Act("retry", "retry", "Bring back, due now,"),
        Act("cancel", "cancel", "Cancel", "danger"),
        Act("delete", "delete", "Delete for good", "danger"),
        Act("move", "edit", "Move"),
    )
}


@with_form
async def many(request: Request, form: FormData) -> Response:
    """Say how many match; change them if that was confirmed."""
    act = ACTS.get(str(form.get("act", "")))
    if act is None:
        raise HTTPException(400, "There is no such action.")
    asked, to, sure = Asked.read(form), str(form.get("to", "")), form.get("sure") == "yes"
    with allowed(request, act.action) as client:
        filter = asked.filter(await client.now())
        if not filter:
            raise InvalidArgument(
                "every job would be meant", hint="choose a queue, a state or a kind, or mark some jobs"
            )
        changed = await _change(client, act.name, filter, to, dry_run=not sure)
    if not sure:
        return await Look(request).page("many.html", act=act, asked=asked, to=to, changed=changed, most=MOST)
    shown = {name: value for name, value in asked.given.items() if name != "id"}
    return redirect(
        request, "jobs", f"{act.name}-many", n=changed.done, more="yes" if changed.more else "",
        operation=changed.operation if act.name in {"retry", "cancel"} else "", **shown,
    )  # fmt: skip


async def _change(client: ActingClient, name: str, filter: JobFilter, to: str, *, dry_run: bool) -> Changed:
    match name:
        case "retry":
            return await client.retry(filter, max=MOST, dry_run=dry_run)
        case "cancel":
            return await client.cancel_where(filter, max=MOST, dry_run=dry_run)
        case "delete":
            return await client.delete(filter, max=MOST, dry_run=dry_run)
        case _:
            return await client.move(filter, to, max=MOST, dry_run=dry_run)


@needs("retry")
async def undo(request: Request, client: ActingClient, form: FormData) -> Response:
    """Take back a cancel or a retry of many jobs, where nothing ran since."""
    if not request.state.access.may("cancel"):
        raise HTTPException(403, "You may not do this: it needs 'cancel', too.")
    number = str(form.get("operation", ""))
    if not number.isdecimal() or len(number) > 18:
        raise HTTPException(400, "There is no such operation.")
    changed = await client.undo(int(number))
    return redirect(request, "jobs", "undone", n=changed.done)
