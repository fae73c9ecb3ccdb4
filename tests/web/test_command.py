"""``dibs web``: where it listens, whom it lets in, and when it does not start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from dibs import Client, State
from dibs.cli.app import dibs
from dibs.db.admin import execute
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

DIBS = [sys.executable, "-m", "dibs", "web", "--port", "0"]


def test_it_serves_on_this_machine_until_it_is_stopped(dsn: str) -> None:
    env = {**os.environ, "DIBS_DSN": dsn}
    with subprocess.Popen([*DIBS, "--json", "--prefix", "ops"], env=env, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout
        told = json.loads(served.stdout.readline())
        assert told["url"].startswith("http://127.0.0.1:")
        assert told["write"] is False
        with urllib.request.urlopen(told["url"], timeout=20) as answer:
            assert b"<h1>Overview</h1>" in answer.read()
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "anyone who reaches 0.0.0.0 would see your jobs"),
        (["--user-header", "X-User"], "needs the address of the proxy"),
        (["--host", "192.0.2.1", "--user-header", "X-User", "--trusted-proxy", "::1"], "cannot be opened"),
        (["--password-file", "EMPTY"], "has no secret in it"),
    ],
)
def test_it_does_not_start_where_it_would_be_open_or_cannot_work(
    options: list[str],
    told: str,
    dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "EMPTY").write_text("\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        dibs.main(["--dsn", dsn, "web", "--port", "0", *options])
    assert done.value.code == 1
    assert told in capsys.readouterr().err


def test_it_says_at_once_which_roles_its_login_lacks(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dibs.cli.commands.web.serve", lambda *_: None)
    login = f"board_{os.getpid()}"
    for roles, told in {
        "": f"grant dibs_read to {login}",
        "in role dibs_read, dibs_retry": "grant dibs_cancel, dibs_delete, dibs_edit, dibs_pause, dibs_schedules to ",
        "in role dibs_admin": "changes are allowed",
    }.items():
        execute(dsn, f"create role {login} login {roles}")
        with pytest.raises(SystemExit) as done:
            dibs.main(["--dsn", dsn.replace("user=dibs", f"user={login}"), "web", "--port", "0", "--write"])
        execute(dsn, f"drop role {login}")
        assert told in (said := capsys.readouterr()).err
        assert (done.value.code == 0) == bool(roles), said.err


def test_it_says_so_if_others_can_read_its_secrets(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dibs.cli.commands.web.serve", lambda *_: None)
    (file := tmp_path / "tokens").write_text("t0ken\n")
    for mode, told in ((0o600, False), (0o640, True)):
        file.chmod(mode)
        with pytest.raises(SystemExit):
            dibs.main(["--dsn", dsn, "web", "--port", "0", "--token-file", str(file)])
        assert ("others on this machine can read" in capsys.readouterr().err) is told


@pytest.mark.once
def test_the_demo_shows_a_task_that_fails_and_succeeds_when_it_is_retried(dsn: str, client: Client) -> None:
    command = [sys.executable, "-m", "dibs", "--dsn", dsn, "demo", "--web", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout
        url = json.loads(served.stdout.readline())["url"]
        wait_until(
            lambda: client.find_jobs({"kind": "call_partner", "states": ["exhausted"]}).jobs,
            timeout=60,
            what="the partner is down",
        )
        [job, *_] = client.find_jobs({"kind": "call_partner", "states": ["exhausted"]}).jobs
        with urllib.request.urlopen(f"{url}jobs/{job.id}", timeout=20) as answer:
            assert b"PartnerDown: no route to partner.example" in answer.read()
        sent = urllib.request.Request(f"{url}jobs/{job.id}/retry", b"", {"Origin": url.rstrip("/")})
        with urllib.request.urlopen(sent, timeout=20) as answer:
            assert b"The job is due again." in answer.read()
        wait_until(
            lambda: client.status(job.id).state is State.SUCCEEDED, timeout=60, what="it succeeds when it is retried"
        )
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 0
