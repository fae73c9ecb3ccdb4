"""A real PostgreSQL for every test: one server for each test process, one database for each test, from a template."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

import dibs
from dibs.db.admin import create_database, execute, fetch
from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server, paths
from dibs.embedded.account import account_for
from dibs.embedded.temporary import guarded_folder
from dibs.testing import Clock
from tests.servers import SMALL, Databases, copied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Connect = Callable[[], psycopg.Connection[Any]]

# Otherwise each of the many processes that tests start would compile dibs again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests make thousands of files, data folders of servers above all: in memory that costs half as much.
if "TMPDIR" not in os.environ:
    tempfile.tempdir = os.environ["TMPDIR"] = str(paths.memory_base(account_for()))

settings.register_profile("dibs", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.load_profile("dibs")

SETTINGS = {
    **UNSAFE_FAST,
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "max_connections": "120",
    "max_prepared_transactions": "10",
    "checkpoint_timeout": "30min",
    "shared_preload_libraries": "",  # pg_stat_statements would keep the statements of thousands of databases.
}

GROWN = ["pg_attribute", "pg_class", "pg_constraint", "pg_depend", "pg_description", "pg_proc"]
"""Catalogs that are half empty after an install: every copy of it would copy that, too."""


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector need not walk it again and again."""
    gc.freeze()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of this test process."""
    with Server.temporary(settings=SETTINGS, in_memory=True) as server:
        yield server


@pytest.fixture(scope="session")
def databases(server: Server) -> Iterator[Databases]:
    """Makes databases in that server."""
    databases = Databases(server)
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def admin_dsn(server: Server) -> str:
    """A database from which others are made."""
    return server.dsn("postgres")


@pytest.fixture(scope="session")
def installed(server: Server, admin_dsn: str) -> str:
    """A database with dibs as it is installed, to be copied."""
    create_database(admin_dsn, "dibs_installed")
    migrate(server.dsn("dibs_installed"))
    execute(server.dsn("dibs_installed"), f"vacuum full {', '.join(GROWN)}")
    return "dibs_installed"


@pytest.fixture(scope="session")
def template(server: Server, admin_dsn: str, installed: str) -> str:
    """The same with its clock replaced."""
    create_database(admin_dsn, "dibs_template", template=installed, by_files=True)
    Clock(server.dsn("dibs_template")).install()
    return "dibs_template"


@pytest.fixture(scope="session")
def new_folder() -> Iterator[Path]:
    """The data folder of a stopped server that has nothing of ours, to be copied."""
    with guarded_folder(in_memory=True) as folder:
        Server(folder / "data", settings=SMALL).start().stop()
        yield folder / "data"


@pytest.fixture(scope="session")
def installed_folder(new_folder: Path) -> Iterator[Path]:
    """The same with dibs installed in its database."""
    with copied(new_folder) as server:
        migrate(server.dsn())
        server.stop()
        yield server.data_dir


@pytest.fixture
def new_server(new_folder: Path) -> Iterator[Server]:
    """A server of this test alone, without the roles of dibs."""
    with copied(new_folder) as server:
        yield server


@pytest.fixture
def own_server(installed_folder: Path) -> Iterator[Server]:
    """A server of this test alone, with dibs in its database, which the test may stop and start."""
    with copied(installed_folder) as server:
        yield server


@pytest.fixture
def empty_dsn(databases: Databases) -> Iterator[str]:
    """A database without dibs."""
    with databases.copy() as dsn:
        yield dsn


@pytest.fixture
def installed_dsn(databases: Databases, installed: str) -> Iterator[str]:
    """A database with dibs as it is installed, of this test alone."""
    with databases.copy(installed) as dsn:
        yield dsn


@pytest.fixture
def dsn(databases: Databases, template: str) -> Iterator[str]:
    """A database with dibs and a clock that can be moved, of this test alone."""
    with databases.copy(template) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def shared_dsn(databases: Databases, template: str) -> Iterator[str]:
    """The same for all tests that leave nothing behind: what they ask is refused, or is only computed."""
    with databases.copy(template) as dsn:
        yield dsn
        for table in ("queue", "job", "limit_rule", "worker", "schedule", "error"):
            assert fetch(dsn, f"select count(*) from dibs.{table}") == 0, f"a test left something in {table}"


@pytest.fixture(scope="session")
def shared_db(shared_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """One connection to that database, in autocommit."""
    with psycopg.connect(shared_dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture(scope="session")
def shared_client(shared_dsn: str) -> Iterator[dibs.Client]:
    """One client of that database."""
    with dibs.Client(shared_dsn, patience=20) as client:
        yield client


@pytest.fixture
def clock(dsn: str) -> Clock:
    """The clock of the test's database."""
    return Clock(dsn)


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Makes connections to the test's database, in autocommit, closed when the test ends."""
    made: list[psycopg.Connection[Any]] = []

    def open_one() -> psycopg.Connection[Any]:
        made.append(psycopg.connect(dsn, autocommit=True))
        return made[-1]

    yield open_one
    for conn in made:
        conn.close()


@pytest.fixture
def db(connect: Connect) -> psycopg.Connection[Any]:
    """One connection to the test's database, in autocommit."""
    return connect()


@pytest.fixture
def client(dsn: str) -> Iterator[dibs.Client]:
    """A client of the test's database."""
    with dibs.Client(dsn, patience=20) as client:
        yield client
