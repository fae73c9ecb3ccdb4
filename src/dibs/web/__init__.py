"""The dashboard: an ASGI app of Starlette's, to serve alone (``dibs web``) or to mount in another app."""

from __future__ import annotations

from dibs.errors import DibsError
from dibs.operation import Action

try:
    from dibs.web.access import Access, Authorize
    from dibs.web.app import Dashboard, app
except ImportError as error:
    raise DibsError("the dashboard needs an extra that is not installed", hint="pip install 'dibs[web]'") from error

__all__ = ["Access", "Action", "Authorize", "Dashboard", "app"]
