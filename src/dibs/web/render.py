"""Pages from templates: whole, or only the live part, which an open page fetches again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, PlainTextResponse

from dibs.errors import ConnectionLost, DibsError, LoginRefused, ServerError
from dibs.progress import spoken
from dibs.units import size
from dibs.web import charts, words

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.client.bounded import ActingClient
    from dibs.web.settings import Settings

R = TypeVar("R")

log = logging.getLogger("dibs.web")

FRAGMENT = "dibs-fragment"
"""The header with which the script asks for the live part of a page alone."""
TIMEOUT = "57014"
"""The SQLSTATE of a statement that took too long."""

_templates = Environment(loader=PackageLoader("dibs.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
_templates.filters |= {
    "number": words.number,
    "span": words.span,
    "interval": words.interval,
    "size": size,
    "pretty": words.pretty,
    "pretty_json": words.pretty_json,
    "clipped": words.clipped,
    "first_line": words.first_line,
    "state": words.state,
    "bar": words.bar,
}
_templates.globals |= {"charts": charts, "moment": words.moment, "time_of": words.time_of, "spoken": spoken}


class Page:
    """The page of one request. A read that takes too long is left out, and the page names it in ``left_out``."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.client: ActingClient = request.app.state.reads
        self.settings: Settings = request.app.state.settings
        self.left_out: list[str] = []

    async def read(self, name: str, reading: Awaitable[R], otherwise: R) -> R:
        """Return the answer, or ``otherwise`` if it takes too long."""
        try:
            return await reading
        except ServerError as error:
            if error.sqlstate != TIMEOUT:
                raise
            self.left_out.append(name)
            return otherwise

    async def render(self, template: str, **context: Any) -> HTMLResponse:
        """Render the page, or its live part."""
        now = context.pop("now", None) or await self.client.now()
        return render(self.request, template, now=now, left_out=self.left_out, **context)


def link(request: Request, path: str, **query: Any) -> str:
    """Return a link to a page, with the prefix of the dashboard. Parameters that are None or empty are left out."""
    given = [(name, value) for name, value in query.items() if value not in (None, "", (), [])]
    root = quote(request.scope.get("root_path", "").rstrip("/"), safe="/")
    return f"{root}/{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def render(request: Request, template: str, *, http_status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template."""
    known = {
        "left_out": [],
        "did": request.query_params.get("did"),
        "outcome": _outcome(request),
        "access": request.state.access,
        "settings": request.app.state.settings,
        # A form, or the answer to one, is not fetched again.
        "poll": 0 if request.method == "POST" or template.endswith("edit.html") else request.app.state.settings.poll,
        "theme": request.cookies.get("dibs-theme", ""),
        "link": lambda path, **query: link(request, path, **query),
        "path": request.scope["path"].removeprefix(request.scope.get("root_path", "")).strip("/"),
        **context,
    }
    if now := known.get("now"):
        known["when"] = lambda value: words.when(value, now)
    layout = "fragment.html" if request.headers.get(FRAGMENT) else "base.html"
    text = _templates.get_template(template).render(known, layout=layout)
    return HTMLResponse(text, http_status, {"Cache-Control": "no-store", "Vary": FRAGMENT})


def _outcome(request: Request) -> dict[str, Any]:
    """The facts in the answer to an action: numbers, and the cursor to go on from."""
    query = request.query_params
    numbers = {name: int(n) for name in ("n", "operation") if (n := query.get(name, "")).isdecimal() and len(n) < 19}
    rest = {name: query.get(name, "") for name in ("after", "so_far", "rate", "to")}
    return {"n": 0, "operation": None, **numbers, "more": query.get("more") == "yes", **rest}


def for_machines(request: Request) -> None:
    """Answer this request in plain text if it fails: a program reads it."""
    request.state.for_machines = True


def render_error(request: Request, error: DibsError, status: int) -> Response:
    """Render the page of an error. It fetches itself again, and so recovers."""
    if getattr(request.state, "for_machines", False):
        return PlainTextResponse(f"{error}\n", status)
    return render(request, "error.html", http_status=status, error=error)


def public(request: Request, error: DibsError) -> DibsError:
    """Return the public part of an error, and log the rest: the server may name hosts, logins and statements."""
    if isinstance(error, ConnectionLost):
        message = "The database cannot be reached."
    elif isinstance(error, LoginRefused):
        message = "The database does not let the dashboard in."
    elif isinstance(error, ServerError):
        late = error.sqlstate == TIMEOUT
        message = "This took longer than a page may." if late else "The database could not do this."
    else:
        return error
    log.warning("%r: %s", request.scope["path"], error)
    return DibsError(message)
