"""The pytest plugin, in runs of a user's project: separate processes, a real database."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import dibs
from dibs.db.admin import fetch
from dibs.testing.plugin import find_app
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.once

pytest_plugins = ["pytester"]

SHOP = """
import dibs

app = dibs.App("postgresql://production.invalid/shop", queue="shop")
sent = []

@app.task(name="welcome", retry=dibs.Retry(max_attempts=3, backoff=dibs.constant(60)))
async def welcome(user_id: int, lang: str = "en") -> str:
    sent.append(user_id)
    if user_id < 0:
        raise ValueError("there is no such user")
    return f"welcomed {user_id}"

def sign_up(user_id):
    welcome.enqueue(user_id)
"""

INI = """
[pytest]
dibs_app = shop:app
pythonpath = .
filterwarnings = error
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with dibs installed: whatever is installed here, with the entry points of our pyproject."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = pytester.mkdir("installed") / "dibs_here-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dibs-here\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()))
    monkeypatch.setenv("PYTHONPATH", f"{Path(dibs.__file__).parents[1]}:{metadata.parent}")
    for name in ("DIBS_DSN", "DIBS_TEST_DSN", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(shop=SHOP)
    pytester.makeini(INI)
    return pytester


@pytest.fixture
def shared(admin_dsn: str, monkeypatch: pytest.MonkeyPatch, project: pytest.Pytester) -> str:
    """The server of our own tests, given to the project's."""
    monkeypatch.setenv("DIBS_TEST_DSN", admin_dsn)
    return admin_dsn


def left_behind(dsn: str) -> int:
    found: int = fetch(dsn, "select count(*) from pg_database where datname like 'dibs\\_test\\_%'")
    return found


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    without = ("randomly", "cacheprovider", "hypothesispytest")
    return project.runpytest_subprocess(*(f"-pno:{name}" for name in without), *args, timeout=120)


def test_each_test_has_a_database_of_its_own(project: pytest.Pytester) -> None:
    """With no server given: an embedded PostgreSQL, and the app at a fresh copy for each test."""
    project.makepyfile(
        test_shop="""
        import pytest, shop
        from dibs.testing import assert_enqueued, drain, inline, refute_enqueued

        @pytest.mark.parametrize("n", range(2))
        def test_enqueued(dibs_app, n):
            refute_enqueued(shop.welcome)
            shop.sign_up(n)
            assert_enqueued(shop.welcome, n, count=1)
            assert dibs_app is shop.app

        def test_drained(dibs_app, dibs_client, dibs_clock):
            shop.sign_up(-1)
            shop.sign_up(7)
            assert drain(dibs_app).by_state == {"succeeded": 1}
            dibs_clock.move(60)
            assert drain(dibs_app).by_state == {}
            assert drain(dibs_app, include_scheduled=True).by_state == {"exhausted": 1}
            assert shop.sent.count(-1) == 3
            assert dibs_client.queues.depth("shop").exhausted == 1

        def test_inline(dibs_app):
            with inline(dibs_app):
                assert shop.welcome.enqueue(1).result() == "welcomed 1"

        async def aenqueues():
            await shop.welcome.aenqueue(5)

        def test_an_async_client_left_open(dibs_app):
            import asyncio
            asyncio.run(aenqueues())
            assert_enqueued(shop.welcome, 5)

        def test_put_back():
            assert shop.app.dsn == "postgresql://production.invalid/shop"
            assert "client" not in vars(shop.app)
        """
    )
    run(project).assert_outcomes(passed=6)


def test_a_given_server_is_left_as_it_was_and_what_is_wrong_is_said(project: pytest.Pytester, shared: str) -> None:
    """Several processes, tables of the project's, workers that crash where they are told, and tests that fail."""
    before = left_behind(shared)
    project.makeconftest(
        """
        import psycopg, pytest

        @pytest.fixture(scope="session")
        def dibs_prepare():
            def prepare(dsn):
                with psycopg.connect(dsn) as conn:
                    conn.execute("create table customer (id int)")
            return prepare
        """
    )
    project.makepyfile(
        test_tables="""
        import psycopg, pytest

        @pytest.mark.parametrize("n", range(6))
        def test_own_tables(dibs_dsn, dibs_client, n):
            with psycopg.connect(dibs_dsn) as conn:
                conn.execute("insert into customer values (1)")
                dibs_client.enqueue("q", "k", conn=conn)
                assert conn.execute("select count(*) from customer").fetchone() == (1,)
            assert dibs_client.queues.depth("q").ready == 1
        """
    )
    project.makepyfile(
        test_crash="""
        import pytest, shop
        from dibs.testing import drain

        @pytest.mark.parametrize("point", ["worker.claimed", "completer.before_send", "completer.after_send"])
        def test_nothing_is_lost(dibs_app, dibs_worker, dibs_clock, point):
            jobs = [shop.welcome.enqueue(n) for n in range(3)]
            ended = dibs_worker("shop:app", crash=point)
            assert ended.crashed, ended.output
            dibs_clock.move(31)  # past the lease
            drain(dibs_app, include_scheduled=True)
            assert [job.wait(0) for job in jobs] == ["welcomed 0", "welcomed 1", "welcomed 2"]

        def test_without_a_crash(dibs_app, dibs_worker):
            job = shop.welcome.enqueue(5)
            ended = dibs_worker("shop:app")
            assert (ended.status, ended.crashed) == (0, False), ended.output
            assert job.result() == "welcomed 5"
        """
    )
    project.makepyfile(
        test_wrong="""
        import shop
        from dibs.testing import assert_enqueued, drain

        def test_not_enqueued(dibs_app):
            shop.sign_up(41)
            assert_enqueued(shop.welcome, 42)

        def test_failing(dibs_app):
            shop.sign_up(-1)
            drain(dibs_app, raise_errors=True)
        """
    )
    done = run(project, "-n", "2")
    done.assert_outcomes(passed=10, failed=2)
    assert left_behind(shared) == before
    done.stdout.fnmatch_lines_random(
        [
            "E*AssertionError: welcome(user_id=42) was not enqueued.",
            "E*but user_id is 41, not 42.",
            '>*raise ValueError("there is no such user")',
            "E*HandlerFailed: welcome failed: ValueError: there is no such user",
        ]
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "set dibs_app = module:name in pytest's configuration"),
        ("dibs:nothing", "dibs_app is dibs:nothing, and there is no such app: .*nothing"),
        ("no_such_module:app", "there is no such app: No module named 'no_such_module'"),
        ("dibs:__version__", "that is a str, not a dibs.App"),
    ],
)
def test_an_app_that_is_not_there(path: str, words: str) -> None:
    with pytest.raises(pytest.UsageError, match=words):
        find_app(path)


def test_the_tests_in_the_docs_pass(project: pytest.Pytester, shared: str) -> None:
    """docs/use/testing.md is a project."""
    files: dict[str, str] = {}
    for block in blocks(ROOT / "docs" / "use" / "testing.md"):
        if block.file is not None:
            files[block.file] = files.get(block.file, "") + block.text
    for name, text in files.items():
        (project.path / name).write_text(text)
    project.makeini(INI.replace("shop:app", "tasks:app") + "asyncio_mode = auto")
    written = len(re.findall(r"^(?:async )?def test_", "".join(files.values()), re.MULTILINE))
    assert written > 5
    run(project).assert_outcomes(passed=written)


def test_a_failed_assertion_shows_the_line_of_the_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_shop="""
        import dibs, pytest, shop
        from dibs.testing import assert_enqueued, refute_enqueued

        def test_missing(dibs_app):
            assert_enqueued(shop.welcome, 42)

        def test_too_much(dibs_app):
            shop.sign_up(1)
            refute_enqueued(shop.welcome)

        def test_no_such_argument(dibs_app):
            assert_enqueued(shop.welcome, languag="de")
        """
    )
    done = project.runpytest_subprocess("--tb=short")
    done.assert_outcomes(failed=3)
    shown = [line for line in done.outlines if re.match(r"\S+\.py:\d+: in ", line)]
    assert len(shown) == 3
    assert all(line.startswith("test_shop.py:") for line in shown), shown
