"""A private PostgreSQL for development, tests and demos. It knows no jobs.

>>> from dibs.embedded import Server, ensure_running
>>> ensure_running().dsn()                         # doctest: +SKIP
'postgresql:///dibs?host=%2Fhome%2Fme%2F.local%2Fshare%2Fdibs%2Fpg18&port=5432&user=dibs'
>>> with Server.temporary(settings=UNSAFE_FAST) as server:   # doctest: +SKIP
...     server.psql("-c", "select 1")

A server outlives the process that started it and is shared by all processes of its user, except a
temporary one, which goes away with its owner, however the owner ends.
"""

from dibs.embedded.binaries import Binaries, find_binaries
from dibs.embedded.server import Server, ensure_running
from dibs.embedded.settings import UNSAFE_FAST
from dibs.embedded.status import ServerStatus

__all__ = ["UNSAFE_FAST", "Binaries", "Server", "ServerStatus", "ensure_running", "find_binaries"]
