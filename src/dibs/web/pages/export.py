"""Export: the jobs that match, as lines of CSV or JSON, a part at a time."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from dibs.db.calls.operate import CARRIED, EXPORTED
from dibs.errors import DibsError, NotPermitted
from dibs.export import csv_lines, lines
from dibs.mask import cover_secrets
from dibs.web.filters import JobSearch, id_of
from dibs.web.render import Page, public

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from uuid import UUID

    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.export import Form
    from dibs.operation import Exported, JobFilter

FORMS: dict[Form, str] = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
MOST = 100_000
"""The number of jobs after which an export stops and says so."""
SECONDS = 60.0
"""The seconds after which an export stops and says so."""


async def export(request: Request) -> Response:
    """Return the jobs that match, as a file."""
    page = Page(request)
    form: Form | None = next((form for form in FORMS if form == request.query_params.get("as", "csv")), None)
    if form is None:
        raise HTTPException(400, f"There is no such form: there are {' and '.join(FORMS)}.")
    search = JobSearch.read(request.query_params)
    before = id_of(start) if (start := request.query_params.get("before")) else None
    first, parts, names = await _begin(page, search.filter(await page.client.now(), page.settings), before)
    return StreamingResponse(
        _written(page, form, names, first, parts),
        media_type=FORMS[form],
        headers={"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="dibs-jobs.{form}"'},
    )


async def _begin(
    page: Page, filter: JobFilter, before: UUID | None
) -> tuple[Exported | None, AsyncGenerator[Exported], Sequence[str]]:
    """Read the first part before anything is sent, so that an error can be shown. Leave out hidden payloads."""
    for payloads in [False] if page.settings.hide_payloads else [True, False]:
        parts: Any = page.client.export(filter, payloads=payloads, before=before)
        try:
            return await anext(parts, None), parts, (*EXPORTED, *CARRIED) if payloads else EXPORTED
        except NotPermitted:
            if not payloads:
                raise
    raise AssertionError


async def _written(
    page: Page, form: Form, names: Sequence[str], part: Exported | None, parts: AsyncGenerator[Exported]
) -> AsyncIterator[str]:
    """Yield the lines of all parts. If the export stops or fails, the last line says where another can go on."""
    count, until, cursor = 0, time.monotonic() + SECONDS, None
    if form == "csv":
        yield csv_lines([names])
    async with aclosing(parts):
        try:
            while part is not None:
                yield lines(form, (cover_secrets(job, page.settings.cover) for job in part.jobs), names)
                count, cursor = count + len(part.jobs), part.next
                if cursor is not None and (count >= MOST or time.monotonic() >= until):
                    yield _stopped(form, f"stopped after {count}, and there may be more", cursor)
                    return
                part = await anext(parts, None)
        except DibsError as error:
            yield _stopped(form, f"stopped after {count}: {public(page.request, error).message}", cursor)
        except RecursionError:
            yield _stopped(form, f"stopped after {count}: JSON is nested too deeply to be read", cursor)


def _stopped(form: Form, why: str, cursor: UUID | None) -> str:
    """Return the last line of an incomplete export."""
    if form == "csv":
        return csv_lines([[f"# {why}; go on with before={cursor}"]])
    return lines(form, [{"stopped": why, "before": cursor}], ())
