"""The ASGI app: its routes, its clients, and its answers to errors."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from dibs.client.bounded import ActingClient
from dibs.errors import (
    ConnectionLost,
    DibsError,
    JobError,
    LoginRefused,
    NotPermitted,
    QueueInUse,
    Refused,
    SchemaError,
    ServerError,
    UnknownJob,
    UnknownQueue,
    UnknownSchedule,
    UnknownWorker,
)
from dibs.metrics import Fleet
from dibs.web.access import from_this_machine
from dibs.web.findings import Findings
from dibs.web.guard import Guard
from dibs.web.pages import ROUTES
from dibs.web.render import TIMEOUT, public, render_error
from dibs.web.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from dibs.web.access import Authorize

STATIC = {"dibs.css": "text/css", "dibs.js": "text/javascript", "dibs.svg": "image/svg+xml"}
UNKNOWN = (UnknownJob, UnknownQueue, UnknownSchedule, UnknownWorker)


class Dashboard(Starlette):
    """The dashboard of one database.

    Served alone, it closes its connections when the server stops. Mounted in another app, it is not told of the stop:
    call :meth:`aclose`.
    """

    def __init__(self, dsn: str | None, authorize: Authorize, settings: Settings) -> None:
        super().__init__(
            routes=[*ROUTES, Route("/static/{name}", _static, name="static")],
            middleware=[Middleware(Guard, authorize=authorize)],
            exception_handlers={
                DibsError: _answer_dibs_error,
                HTTPException: _answer_http_error,
                RecursionError: _answer_too_deep,
            },
            lifespan=_lifespan,
        )
        # A redirect would repeat the host name of the request, which a stranger may have chosen.
        self.router.redirect_slashes = False
        self.state.settings = settings
        self.state.reads = ActingClient(dsn, timeout=settings.timeout, write=False)
        self.state.writes = ActingClient(dsn, timeout=settings.timeout, write=True)
        self.state.fleet = Fleet(self.state.reads, target=settings.target)
        self.state.findings = Findings(self.state.reads, settings.poll)

    async def aclose(self) -> None:
        """Close all connections."""
        async with AsyncExitStack() as stack:  # It closes the others after an error of one.
            stack.push_async_callback(self.state.writes.close)
            stack.push_async_callback(self.state.reads.close)
            stack.callback(self.state.fleet.close)


def app(
    dsn: str | None = None,
    *,
    authorize: Authorize | None = None,
    mask: Iterable[str] = (),
    hide_payloads: bool = False,
    timeout: float = 5.0,
    poll: float = 3.0,
    target: float = 300.0,
) -> Dashboard:
    """Return a dashboard: an ASGI app to serve, or to mount under any prefix.

    ``authorize`` takes a request and returns (or awaits) its :class:`Access`, or None for an unknown user. Without
    it only requests from this machine are answered, and they may only read. ``mask`` names the keys whose values are
    covered in payloads, results and headers; ``hide_payloads`` covers all of them. ``timeout`` is the number of
    seconds that a statement may take, and ``poll`` the seconds between two updates of an open page. ``target`` is the
    number of seconds within which due jobs should be done, for the metric of workers wanted.
    """
    keys = [mask] if isinstance(mask, str) else mask
    settings = Settings(frozenset(key.casefold() for key in keys), hide_payloads, timeout, poll, target)
    return Dashboard(dsn, authorize or from_this_machine(write=False), settings)


def under(prefix: str, dashboard: ASGIApp) -> ASGIApp:
    """Wrap the app so that it runs under a prefix. A proxy in front of it may strip the prefix, or leave it."""
    root = "/" + prefix.strip("/")

    async def prefixed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and root != "/":
            path = scope["path"]
            has_prefix = path == root or path.startswith(root + "/")
            page = path.removeprefix(root) if has_prefix else path
            scope = {**scope, "root_path": root, "path": root + (page or "/")}
        await dashboard(scope, receive, send)

    return prefixed


@asynccontextmanager
async def _lifespan(dashboard: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await dashboard.aclose()


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    body = (files("dibs.web") / "static" / name).read_bytes()
    return Response(body, media_type=STATIC[name], headers={"Cache-Control": "no-cache"})


async def _answer_dibs_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DibsError)
    return render_error(request, public(request, error), _status(error))


def _status(error: DibsError) -> int:
    if isinstance(error, UNKNOWN):
        return 404
    if isinstance(error, NotPermitted):
        return 403
    if isinstance(error, JobError | QueueInUse):
        return 409
    if isinstance(error, Refused):
        return 400
    if isinstance(error, ConnectionLost | LoginRefused | SchemaError):
        return 503
    return 503 if isinstance(error, ServerError) and error.sqlstate == TIMEOUT else 500


async def _answer_too_deep(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return render_error(request, DibsError("This has JSON in it that is nested too deeply to be read."), 422)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: "There is no such page.", 405: "This page does not take that method."}
    message = messages.get(error.status_code, error.detail)
    return render_error(request, DibsError(message), error.status_code)
