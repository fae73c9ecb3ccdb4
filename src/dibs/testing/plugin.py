"""The pytest plugin: a database for each test, and the app at it.

| fixture | is |
|---|---|
| ``dibs_dsn`` | a database of this test alone, with dibs in it and a clock that can be moved |
| ``dibs_client`` | a client of it |
| ``dibs_clock`` | its clock |
| ``dibs_app`` | the app named by ``dibs_app`` in pytest's configuration, at this database |
| ``dibs_point`` | points any app at this database until the test ends |
| ``dibs_worker`` | runs a worker in a separate process, which can be made to crash |
| ``dibs_databases`` | makes more databases, for the whole session |
| ``dibs_prepare`` | override it to put your own tables into every database |

The server is that of ``--dibs-dsn``, ``DIBS_TEST_DSN`` or ``dibs_dsn`` in pytest's configuration, and without them an
embedded one of this test process, started when it is first needed.
"""

from __future__ import annotations

import os
import pkgutil
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest

from dibs.client.app import App
from dibs.client.client import Client
from dibs.testing._crash import Ended, run_worker
from dibs.testing._point import pointed
from dibs.testing.clock import Clock
from dibs.testing.template import databases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dibs.testing.template import Databases

DSN_HELP = "a server on which dibs makes a database for each test; an embedded PostgreSQL without it"
APP_HELP = "the dibs.App that the fixture dibs_app points at the test's database, as module:name"


class RunWorker(Protocol):
    """The class of the fixture ``dibs_worker``."""

    def __call__(
        self, app: str, *, crash: str | None = None, nth: int = 1, queues: Sequence[str] = (), timeout: float = 60.0
    ) -> Ended:
        """Run a worker until nothing is due, or until it crashes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.getgroup("dibs").addoption("--dibs-dsn", metavar="DSN", help=DSN_HELP)
    parser.addini("dibs_dsn", DSN_HELP)
    parser.addini("dibs_app", APP_HELP)


@pytest.fixture(scope="session")
def dibs_prepare() -> Callable[[str], object] | None:
    """Override it to return a function that takes a DSN and adds your own tables to every test's database."""
    return None


@pytest.fixture(scope="session")
def dibs_databases(pytestconfig: pytest.Config, dibs_prepare: Callable[[str], object] | None) -> Iterator[Databases]:
    """Databases for tests, from one template. Each process of xdist has its own template."""
    given = pytestconfig.getoption("--dibs-dsn") or os.environ.get("DIBS_TEST_DSN") or pytestconfig.getini("dibs_dsn")
    with databases(given or None, dibs_prepare) as made:
        yield made


@pytest.fixture
def dibs_dsn(dibs_databases: Databases) -> Iterator[str]:
    """A database of this test alone, with dibs in it."""
    with dibs_databases.fresh() as dsn:
        yield dsn


@pytest.fixture
def dibs_client(dibs_dsn: str) -> Iterator[Client]:
    """A client of the test's database."""
    with Client(dibs_dsn) as client:
        yield client


@pytest.fixture
def dibs_clock(dibs_dsn: str) -> Clock:
    """The clock of the test's database; it runs until it is frozen or moved."""
    return Clock(dibs_dsn)


@pytest.fixture
def dibs_point(dibs_dsn: str) -> Iterator[Callable[[App], App]]:
    """Points an app at the test's database, until the test ends."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(pointed(app, dibs_dsn))


@pytest.fixture
def dibs_app(pytestconfig: pytest.Config, dibs_point: Callable[[App], App]) -> App:
    """The app of your project, at the test's database."""
    return dibs_point(find_app(pytestconfig.getini("dibs_app")))


def find_app(path: str) -> App:
    """Return the app that ``module:name`` stands for."""
    if not path:
        raise pytest.UsageError("dibs_app is not configured: set dibs_app = module:name in pytest's configuration")
    try:
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"dibs_app is {path}, and there is no such app: {error}") from error
    if not isinstance(found, App):
        raise pytest.UsageError(f"dibs_app is {path}, and that is a {type(found).__name__}, not a dibs.App")
    return found


@pytest.fixture
def dibs_worker(dibs_dsn: str) -> RunWorker:
    """Runs a worker on the test's database, in a separate process."""
    return partial(run_worker, dsn=dibs_dsn)
