"""The checks before every page: the user, the origin of a change, and the content a browser may load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from dibs.web.access import resolved
from dibs.web.guesses import TooManyGuesses, seconds

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dibs.web.access import Authorize

SAFE = frozenset({"GET", "HEAD"})
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CHALLENGE = {"WWW-Authenticate": 'Basic realm="dibs", charset="UTF-8"'}
NOBODY = "Who are you? Log in; or, on the machine itself, open it as localhost.\n"
SLOWER = "Too many wrong passwords or tokens. Wait a while.\n"
NO_ACCESS = "You may not see this.\n"
FOREIGN = "A change has to come from a page of this dashboard: Sec-Fetch-Site or Origin says otherwise, or nothing.\n"


class Guard:
    """Middleware that lets in users who may read, and changes that come from our own pages."""

    def __init__(self, app: ASGIApp, authorize: Authorize) -> None:
        self._app = app
        self._authorize = authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        if scope["type"] == "websocket":  # There are none here, and nobody was asked to log in.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope)
        refusal = await self._refusal(request)
        await (refusal or self._app)(scope, receive, send_guarded)

    async def _refusal(self, request: Request) -> PlainTextResponse | None:
        try:
            access = await resolved(self._authorize(request))
        except TooManyGuesses as error:
            return PlainTextResponse(SLOWER, 429, {"Retry-After": seconds(error.wait)})
        if access is None:
            return PlainTextResponse(NOBODY, 401, CHALLENGE)
        if not access.may("read"):
            return PlainTextResponse(NO_ACCESS, 403)
        if request.method not in SAFE and not is_same_origin(request):
            return PlainTextResponse(FOREIGN, 403)
        request.state.access = access
        return None


def is_same_origin(request: Request) -> bool:
    """True if a page of this dashboard sent the request, as far as the browser says."""
    if site := request.headers.get("sec-fetch-site"):
        return site == "same-origin"
    scheme, _, place = request.headers.get("origin", "").partition("://")
    return scheme in {"http", "https"} and place == request.headers.get("host")
