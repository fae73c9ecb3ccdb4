"""The examples run: a real server, real requests, a commit, a rollback, and a real worker."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import dibs
from tests.docs.pages import ROOT
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


PYTHON = [sys.executable, "-W", "error::ResourceWarning"]


def environment(dsn: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "DIBS_DSN": dsn, "PYTHONPATH": path}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def ask(port: int, new: dict[str, int] | None = None, path: str = "sales") -> tuple[int, Any]:
    """What the server says to GET, or to POST of something new; the status 0 if it does not listen yet."""
    body = None if new is None else json.dumps(new).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, None


@contextlib.contextmanager
def serving(command: str, dsn: str, path: str = "sales") -> Iterator[int]:
    """The port of a web server, which ends with the block."""
    port = free_port()
    words = [*PYTHON, "-m", *command.format(port=port).split()]
    with subprocess.Popen(words, cwd=ROOT, env=environment(dsn), stderr=subprocess.PIPE) as server:
        try:
            wait_until(
                lambda: ask(port, path=path)[0] == 200 or server.poll() is not None,
                timeout=60,
                what=f"{command} serves",
            )
            yield port
        finally:
            server.terminate()
            server.communicate(timeout=20)


def drain(module: str, dsn: str) -> None:
    command = [sys.executable, "-m", "dibs", "worker", f"{module}:app", "--drain"]
    done = subprocess.run(command, cwd=ROOT, env=environment(dsn), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("examples.fastapi_app", "uvicorn examples.fastapi_app:web --port {port}"),
        ("examples.flask_app", "flask --app examples.flask_app run --port {port}"),
        ("examples.django_app", "examples.django_app runserver {port} --noreload"),
    ],
    ids=["fastapi", "flask", "django"],
)
def test_a_web_application(module: str, command: str, dsn: str, client: dibs.Client) -> None:
    with serving(command, dsn) as port:
        status, sold = ask(port, {"item": 1, "count": 7})
        assert status == 201
        assert client.show(UUID(sold["job"])) is not None
        assert ask(port, {"item": 1, "count": 7}) == (409, {"detail": "not enough in stock"})
        assert client.queues.depth("shop").waiting == 1  # the other one was rolled back, and its job with it
        assert ask(port) == (200, {str(sold["sale"]): 0})
        drain(module, dsn)
        assert ask(port) == (200, {str(sold["sale"]): 1})
    assert client.status(UUID(sold["job"])).state is dibs.State.SUCCEEDED


@pytest.mark.parametrize("option", [(), ("--async",)], ids=["sync", "async"])
def test_sqlalchemy(option: tuple[str, ...], dsn: str, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    def sell(count: int) -> subprocess.CompletedProcess[str]:
        command = [*PYTHON, "-m", "examples.sqlalchemy_app", "1", str(count), *option]
        return subprocess.run(command, cwd=ROOT, env=environment(dsn), capture_output=True, text=True, timeout=60)

    sold, refused = sell(7), sell(7)
    assert (sold.stdout, sold.stderr) == ("sold as 1\n", "")
    assert (refused.returncode, refused.stderr) == (1, "not enough in stock\n")
    assert client.queues.depth("shop").waiting == 1
    drain("examples.sqlalchemy_app", dsn)
    assert db.execute("select id, confirmed from sale").fetchall() == [(1, 1)]
    assert client.queues.depth("shop").waiting == 0


@pytest.mark.parametrize("name", ["fastapi_app", "django_app"])
def test_the_dashboard_inside_another_app(name: str, dsn: str, client: dibs.Client) -> None:
    client.enqueue("shop", "k")
    with serving(f"uvicorn examples.dashboards:{name} --port {{port}}", dsn, "") as port:

        def get(path: str, who: str | None = "ana") -> tuple[int, str]:
            sent = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"X-Who": who} if who else {})
            try:
                with urllib.request.urlopen(sent, timeout=10) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, ""

        status, page = get("/dibs/")
        assert status == 200
        assert 'href="/dibs/queue?name=shop"' in page
        assert get("/dibs/queue?name=shop")[0] == 200
        assert get("/dibs/", who=None)[0] == 401
