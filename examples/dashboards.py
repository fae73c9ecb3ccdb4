"""The dashboard inside other web apps, below /dibs: for those whom the app lets in.

uvicorn examples.dashboards:fastapi_app
uvicorn examples.dashboards:django_app
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings
from fastapi import FastAPI

import dibs.web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

DSN = os.environ["DIBS_DSN"]


def authorize(request: Request) -> dibs.web.Access | None:
    """Your own way to know who asks goes here; this one believes a header, so it is for an example alone."""
    who = request.headers.get("X-Who")
    if who is None:
        return None
    return dibs.web.Access.to(who, write=who == "admin")


# FastAPI (and Starlette, with Mount): it does not tell what is mounted when it stops.
dashboard = dibs.web.app(DSN, authorize=authorize)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await dashboard.aclose()


fastapi_app = FastAPI(lifespan=lifespan)
fastapi_app.mount("/dibs", dashboard)


@fastapi_app.get("/")
async def hello() -> str:
    return "a shop"


# Django: its ASGI application serves what is not below /dibs. A project has this in its asgi.py.
if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="only for this example")

from django.core.asgi import get_asgi_application  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402


async def shop(request: HttpRequest) -> JsonResponse:
    return JsonResponse("a shop", safe=False)


urlpatterns = [path("", shop)]
django_itself = get_asgi_application()
beside_django = dibs.web.app(DSN, authorize=authorize)


async def django_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await beside_django(scope, receive, send)
    elif scope["path"].startswith("/dibs/"):
        await beside_django({**scope, "root_path": "/dibs"}, receive, send)
    else:
        await django_itself(scope, receive, send)
