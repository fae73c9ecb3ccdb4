"""Policy: a form for the settings of a queue, and a question that shows the difference before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from dibs.db import calls
from dibs.errors import DibsError, Refused
from dibs.queue_settings import SETTINGS
from dibs.web.pages.acts import needs, redirect
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import ActingClient
    from dibs.info import SettingInfo

NAMED = {setting.name: setting for setting in SETTINGS}
CAUTIONS = {
    "retention": "Jobs that are older are deleted by the upkeep, with their results.",
    "history_retention": "Attempts that are older are deleted by the upkeep.",
    "history": "What is not kept is missing in the statistics and on the pages of jobs.",
}
"""Warnings about settings whose effect cannot be undone."""


async def policy_page(request: Request) -> Response:
    """Show the form."""
    if not request.state.access.may("edit"):
        raise HTTPException(403, "You may not do this: it needs 'edit'.")
    page = Page(request)
    name = request.query_params.get("name", "")
    return await show_form(page, as_texts(await page.client.queues.settings(name)), name)


@needs("edit")
async def change_policy(request: Request, client: ActingClient, form: FormData) -> Response:
    """Show the difference; make the change if the user has confirmed it.

    The form has each setting as it was when the form was opened, in ``was-…``, so only those that the user changed are
    set. If somebody has changed one of them since, the user is asked once more.
    """
    name, page = str(form.get("name", "")), Page(request)
    was = as_texts(await page.client.queues.settings(name))
    typed = {key: str(form[key]).strip() for key in was if key in form}
    changed = {key: text for key, text in typed.items() if text != form.get(f"was-{key}")}
    values, wrong = read(changed)
    if wrong or not changed or form.get("again"):
        error = None if wrong or changed else DibsError("Nothing is different.")
        return await show_form(page, {**was, **typed}, name, was=was, wrong=wrong, error=error)
    try:
        preview = await client.preview(calls.queues.set_queue(name, values), calls.queues.queue_settings(name))
    except Refused as refused:
        return await show_form(page, {**was, **typed}, name, was=was, error=refused)
    changed_meanwhile = any(form.get(f"was-{key}", was[key]) != was[key] for key in changed)
    if form.get("sure") == "yes" and not changed_meanwhile:
        await client.queues.set(name, **values)
        return redirect(request, "queue", "policy", name=name)
    becomes = as_texts(preview)
    differences = [(NAMED[key], was[key], becomes[key]) for key in was if was[key] != becomes[key]]
    return await page.render(
        "policy.html",
        name=name,
        differences=differences,
        changed=changed,
        was=was,
        changed_meanwhile=changed_meanwhile,
        cautions=CAUTIONS,
    )


async def show_form(
    page: Page,
    texts: dict[str, str],
    name: str,
    *,
    was: dict[str, str] | None = None,
    wrong: dict[str, str] | None = None,
    error: DibsError | None = None,
) -> Response:
    """Show the form with the typed texts and their errors."""
    bad = bool(wrong) or isinstance(error, Refused)
    return await page.render(
        "policy_edit.html",
        name=name,
        settings=[setting for setting in SETTINGS if setting.name in texts],
        texts=texts,
        was=was or texts,
        wrong=wrong or {},
        error=error,
        http_status=400 if bad else 200,
    )


def as_texts(settings: list[SettingInfo]) -> dict[str, str]:
    """Return the policy of a queue as the texts of the form, without settings of a newer schema."""
    return {one.setting: NAMED[one.setting].write(one.value) for one in settings if one.setting in NAMED}


def read(texts: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """Parse typed texts. Return the values, and the errors of the others."""
    values, wrong = {}, {}
    for name, text in texts.items():
        try:
            values[name] = NAMED[name].read(text)
        except ValueError as error:
            wrong[name] = str(error)
    return values, wrong
