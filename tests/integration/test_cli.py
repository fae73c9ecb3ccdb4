"""The commands, in this process, against a real database."""

from __future__ import annotations

import json
import re
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from rich.console import Console

import dibs
from dibs.__main__ import main
from dibs.cli.app import dibs as app
from dibs.cli.commands.demo.display import picture
from dibs.cli.commands.demo.shop import FEWEST, KINDS, MOST, make_jobs
from dibs.cli.commands.demo.tally import Tally
from dibs.cli.help import COMMANDS
from dibs.db import calls
from dibs.db.admin import at_database
from dibs.db.schema import migrate
from dibs.queue_settings import backoff
from dibs.states import State
from dibs.units import duration, spoken

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
UNKNOWN = "0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Dibs:
    """Runs commands against one database."""

    def __init__(self, dsn: str) -> None:
        self._env = {"DIBS_DSN": dsn}

    def __call__(self, *args: object, stdin: str | bytes | None = None, code: int = 0) -> Ran:
        done = CliRunner(env=self._env).invoke(app, [str(arg) for arg in args], input=stdin)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return Ran(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def run(dsn: str) -> Dibs:
    return Dibs(dsn)


def ids(client: dibs.Client, **filters: Any) -> list[UUID]:
    return [job.id for job in client.find_jobs(**filters).jobs]


# --- install ---------------------------------------------------------------------------------------------------------


def test_init_installs_and_says_what(empty_dsn: str) -> None:
    run = Dibs(empty_dsn)
    assert "would apply migration 0001" in run("migrate", "--dry-run").out
    planned = run("migrate", "--dry-run", "--json").json
    assert planned["before"] is None
    installed = run("migrate", "--lock-timeout", "5s")
    assert "applied migration 0001" in installed.out
    assert "dibs is installed" in installed.out
    assert "nothing to do" in run("migrate").out
    assert run("migrate", "--json").json["applied"] == []


def test_without_the_schema_it_says_to_run_init(empty_dsn: str) -> None:
    refused = Dibs(empty_dsn)("queues", code=1)
    assert "dibs migrate" in refused.err
    assert "Traceback" not in refused.err


def test_sql_prints_the_install_script(run: Dibs) -> None:
    assert run("sql").out.strip() == dibs.sql.install_script().strip()
    assert run("sql", "--json").json["version"] == dibs.sql.latest_version()


# --- errors ----------------------------------------------------------------------------------------------------------


def test_an_unreachable_database_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.cli.session.PATIENCE", 0.5)
    run = Dibs(NOWHERE)
    assert "cannot be reached" in run("jobs", code=3).err
    told = json.loads(run("jobs", "--json", code=3).err)
    assert (told["error"], told["exit_code"]) == ("ConnectionLost", 3)
    assert "Traceback" in run("jobs", "--debug", code=3).err


UNREADABLE = [
    "postgres//app:hunter2@db/x",
    "postgresql://app:hunter2%zz@db/x",
    "postgresql://app:hun@ter2@db/x",
    "postgresql://app:hun/ter2@db/x",
    "postgresql://app:hunter2@db:port/x",
    "postgresql://app:hunter2@db/x?nonsense=1",
    "host=db password=hunter2 hunter2",
    "host=db password='hunter2",
    "mysql://app:hunter2@db/x",
]


@pytest.mark.parametrize("dsn", UNREADABLE)
def test_a_dsn_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    """libpq's own words repeat what it could not read, and so the password."""
    shown = [
        Dibs(dsn)("jobs", code=1).err,
        Dibs(dsn)("migrate", code=1).err,
        Dibs("")("--dsn", dsn, "grants", code=1).err,
    ]
    for use in (lambda: dibs.Client(dsn).enqueue("q", "k"), lambda: migrate(dsn), lambda: at_database(dsn, "other")):
        with pytest.raises(dibs.InvalidArgument, match="the DSN cannot be read") as refused:
            use()
        shown.append("".join(traceback.format_exception(refused.value)))
        assert refused.value.__context__ is None, "libpq's error is not carried along"
    assert all("the DSN cannot be read" in text for text in shown)
    assert not [text for text in shown if "hun" in text.replace(dsn, "") or "ter2" in text.replace(dsn, "")]


def test_a_dsn_of_sqlalchemy_is_understood(dsn: str) -> None:
    for driver in ("asyncpg", "psycopg", "psycopg2"):
        with dibs.Client(dsn.replace("postgresql:", f"postgresql+{driver}:")) as client:
            assert client.claim("q") == []
            assert client.dsn == dsn


def test_a_password_on_the_command_line_is_warned_of(dsn: str) -> None:
    run = Dibs(f"{dsn}&password=hunter2")
    warning = "every user of this machine can see the password"
    assert warning not in run("jobs").err
    assert warning not in run("jobs", "--dsn", dsn).err
    warned = run("jobs", "--dsn", f"{dsn}&password=hunter2")
    assert warning in warned.err
    assert "hunter2" not in warned.err + warned.out


def test_a_dsn_that_makes_no_sense_is_refused() -> None:
    assert "postgresql://user@host/database" in Dibs("not a dsn")("jobs", code=1).err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["enqeue", "q", "k"], "did you mean 'enqueue'?"),
        (["queues", "shw", "q"], "did you mean 'show'?"),
        (["pause", "q"], "did you mean 'queues pause' or 'schedules pause'?"),
        (["shard", "q"], "did you mean 'queues shards'?"),
        (["queues", "list"], "dibs queues alone lists them"),
        (["workers", "--all", "stop", "3"], "--all is for the list, not for stop"),
        (["jobs", "--state", "readyy"], "did you mean 'ready'?"),
        (["retry", "--state", "redy"], "did you mean 'ready'"),
        (["show", "17"], "is not a job's id"),
        (["enqueue", "q", "k", "{nope"], "not JSON"),
        (["enqueue", "q", "k", "--delay", "soon"], "is not a duration"),
        (["enqueue", "q", "k", "--due-at", "tomorrow"], "is not a time"),
        (["enqueue", "q", "k", "--header", "x"], "name=value"),
        (["enqueue", "q", "k", "1", "--many"], "give the payload once"),
        (["enqueue", "q", "k", "--content-type", "a/b"], "is for --bytes"),
        (["queues", "set", "q", "--backoff", "sometimes"], "is not a backoff"),
        (["queues", "set", "q", "--backoff", "constant:1s,cap=5s"], "a constant backoff has no 'cap'"),
    ],
)
def test_a_mistake_is_explained_with_exit_code_2(args: list[str], said: str) -> None:
    run = Dibs(NOWHERE)
    assert said in run(*args, code=2).err
    told = json.loads(run(*args, "--json", code=2).err)
    assert (told["error"], told["exit_code"]) == ("UsageError", 2)
    assert said in told["message"]


def test_without_click_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    assert main() == 2
    assert "pip install 'dibs[cli]'" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_the_shared_options(command: str) -> None:
    told = Dibs(NOWHERE)(command, "--help").out
    assert all(option in told for option in ("--json", "--dsn", "--debug"))


def test_alone_it_says_what_it_can_do(run: Dibs) -> None:
    assert all(command in run().out for command in COMMANDS)
    assert "status" in run("embedded").out


def test_the_shared_options_may_come_first(dsn: str) -> None:
    assert Dibs(NOWHERE)("--json", "--dsn", dsn, "jobs").json == []


# --- enqueue ---------------------------------------------------------------------------------------------------------


def test_enqueue_takes_every_option(run: Dibs, client: dibs.Client) -> None:
    due = datetime.now(UTC) + timedelta(hours=2)
    made = run(
        "enqueue", "mail", "welcome", '{"user": 42}', "--priority", 9, "--due-at", due.isoformat(), "--ttl", "2h",
        "--deadline", "2100-01-01T00:00Z", "--dedup-key", "u42", "--header", "trace=1", "--header", "lang=de",
        "--max-attempts", 7, "--lease", "90s", "--json",
    ).json  # fmt: skip
    known = client.show(UUID(made["id"]))
    assert known is not None
    assert known["payload"] == {"user": 42}
    assert known["headers"] == {"trace": "1", "lang": "de"}
    assert (known["priority"], known["max_attempts"], known["state"]) == (9, 7, "scheduled")
    assert datetime.fromisoformat(known["due_at"]) == due
    assert known["policy"]["lease"] == "00:01:30"
    again = run("enqueue", "mail", "welcome", "--dedup-key", "u42")
    assert again.out.strip() == f"duplicate of {made['id']}"


def test_enqueue_and_cancel_by_key(run: Dibs, client: dibs.Client) -> None:
    old = run("enqueue", "q", "k", "1", "--dedup-key", "a", "--dedup-scope", "waiting", "--json").json
    new = run("enqueue", "q", "k", "2", "--dedup-key", "a", "--on-duplicate", "replace", "--dedup-for", "1h")
    assert new.out.startswith("replaced ")
    assert client.status(UUID(old["id"])).state is State.CANCELLED
    refused = run("enqueue", "q", "k", "--dedup-key", "a", "--on-duplicate", "refuse", "--json", code=1)
    assert json.loads(refused.err)["error"] == "DuplicateJob"
    made = run("enqueue", "q", "k", "--many", "--dedup", "--json", stdin="1\n2\n1\n").out.splitlines()
    assert [json.loads(line)["outcome"] for line in made] == ["enqueued", "enqueued", "duplicate"]
    [held] = run("cancel", "--queue", "q", "--dedup-key", "a", "--json").json
    assert (held["id"], held["answer"]) == (new.out.split()[1], "cancelled")
    assert "no job" in run("cancel", "--queue", "q", "--dedup-key", "a", code=4).err
    assert "name jobs" in run("cancel", code=2).err


def test_a_bounded_queue(run: Dibs) -> None:
    shown = run("queues", "set", "q", "--max-depth", 1, "--max-age", "1h", "--newest-first", "--json").json
    assert (shown["max_depth"], shown["max_age"], shown["when_full"], shown["newest_first"]) == (
        1,
        3600,
        "refuse",
        True,
    )
    run("enqueue", "q", "k")
    assert "is full" in run("enqueue", "q", "k", code=1).err
    run("queues", "set", "q", "--when-full", "sideline", "--oldest-first")
    assert run("enqueue", "q", "k").out.startswith("sidelined ")
    shown = run("queues", "set", "q", "--max-depth", "none", "--max-age", "none", "--json").json
    assert (shown["max_depth"], shown["max_age"], shown["newest_first"]) == (None, None, False)
    assert "is not a number" in run("queues", "set", "q", "--max-depth", "many", code=2).err
    estimate = run("queues", "drain-estimate", "q", "--span", "1m", "--json").json
    assert (estimate["waiting"], estimate["drained_in"]) == (2, None)
    wanted = run("workers", "wanted", "q", "--target", "1s", "--run-time", "1m", "--slots", "7", "--json").json
    assert (wanted["workers"], wanted["ready"], wanted["run_mean"]) == (18, 2, 60)
    assert run("workers", "wanted").out.split()[:2] == ["queue", "wanted"]
    assert "waiting" in run("queues", "drain-estimate", "q").out


def test_enqueue_reads_standard_input_files_and_bytes(run: Dibs, client: dibs.Client, tmp_path: Any) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(b"\x89PNG\xff")
    run("enqueue", "a", "k", "-", stdin='{"from": "stdin"}')
    run("enqueue", "b", "k", "--file", file, "--bytes", "--content-type", "image/png")
    run("enqueue", "c", "k")
    assert client.claim("a")[0].payload == {"from": "stdin"}
    [image] = client.claim("b")
    assert (image.body, image.content_type) == (b"\x89PNG\xff", "image/png")
    assert client.claim("c")[0].content is None
    assert "send it with --bytes" in run("enqueue", "d", "k", "--file", file, code=2).err


def test_enqueue_many_takes_a_line_for_each_job(run: Dibs, client: dibs.Client) -> None:
    lines = "\n".join(str(n) for n in range(2500))
    assert run("enqueue", "bulk", "n", "--many", "--priority", 3, stdin=lines).out == "enqueued 2500 jobs\n"
    assert [job.payload for job in client.claim("bulk", 2500)] == list(range(2500))
    made = run("enqueue", "bulk", "n", "--many", "--json", stdin="1\n\n2\n").out.splitlines()
    assert [json.loads(line)["outcome"] for line in made] == ["enqueued"] * 2
    broken = "\n".join([*map(str, range(1200)), "x"])
    refused = run("enqueue", "bulk", "n", "--many", stdin=broken, code=1).err
    assert "1000 jobs were enqueued before this" in refused
    assert "line 1201 is not JSON" in refused


def test_ttl_none_never_expires(run: Dibs, client: dibs.Client) -> None:
    run("enqueue", "q", "k", "--ttl", "none")
    [id] = ids(client)
    known = client.show(id)
    assert known is not None
    assert known["expire_at"] is None


def test_a_refused_job_says_why(run: Dibs) -> None:
    assert "priority from -100 to 100" in run("enqueue", "q", "k", "--priority", 999, code=1).err
    assert "hour" in run("enqueue", "q", "k", "--id", "ffffffff-ffff-7fff-bfff-ffffffffffff", code=1).err


# --- queues ----------------------------------------------------------------------------------------------------------


def test_queues_are_listed_with_their_depths(run: Dibs, client: dibs.Client) -> None:
    assert run("queues").out == ""
    client.enqueue("mail", "k")
    client.enqueue("mail", "k", delay=60)
    assert run("queues").out.splitlines()[1].split()[:4] == ["mail", "no", "1", "1"]
    [mail] = run("queues", "--json").json
    assert (mail["queue"], mail["ready"], mail["scheduled"], mail["waiting"], mail["dead"]) == ("mail", 1, 1, 2, 0)


def test_a_depth_that_is_an_estimate_says_so(run: Dibs, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k")
    # Larger than an estimate reads, and more than are counted.
    db.execute(
        "insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)"
        " select gen_random_uuid(), now(), 'infinity', queue_id, 0, 0, 0, 5, false from dibs.ready,"
        " generate_series(1, 39999)"
    )
    [mail] = run("queues", "--json").json
    assert mail["estimated"] == ["ready"]
    assert mail["ready"] == pytest.approx(40_000, rel=0.05)
    assert f"≈ {mail['ready']:,}" in run("queues").out
    assert f"≈ {mail['ready']:,}" in run("queues", "show", "mail").out


def test_limits_are_set_listed_and_taken_away(run: Dibs, client: dibs.Client) -> None:
    assert run("limits").out == ""
    run("queues", "set", "mail")
    run("limits", "set", "--kind", "render", "--concurrency", 2)
    run("limits", "set", "--queue", "mail", "--rate", 10, "--burst", 3)
    run("groups", "set", "mail", "acme", "--concurrency", 1, "--weight", 4)
    run("groups", "set", "mail", "*", "--concurrency", 5)
    run("enqueue", "mail", "render", "--group", "acme", "--cost", 2, "--resource", "gpu=1")
    [job] = client.claim("mail", 10)
    told = {(limit["scope"], limit["name"]): limit for limit in run("limits", "--json").json}
    assert set(told) == {("kind", "render"), ("queue", "mail"), ("group", "acme"), ("group", None)}
    assert told["kind", "render"]["holders"] == [str(job.id)]
    assert (told["group", "acme"]["concurrency"], told["group", "acme"]["weight"]) == (1, 4)
    assert "every group" in run("limits").out
    run("limits", "drop", "--kind", "render")
    run("groups", "drop", "mail", "acme")
    assert len(client.limits.list()) == 2
    assert run("limits", "drop", "--kind", "rendr", code=1).err
    assert "had no settings" in run("groups", "drop", "mail", "acme", code=1).out
    assert "give --weight" in run("groups", "set", "mail", "acme", code=2).err
    assert "did you mean 'mail'" in run("groups", "set", "maill", "acme", "--weight", 2, code=4).err


def test_a_policy_is_set_and_shown(run: Dibs, client: dibs.Client) -> None:
    run(
        "queues", "set", "mail", "--lease", "60s", "--max-attempts", 3, "--ttl", "none", "--priority", 7,
        "--backoff", "exponential:1s,cap=10m,jitter=0.1", "--history", "failures", "--retention", "7d", "--no-ring",
        "--payload-limit", 1000,
    )  # fmt: skip
    policy = run("queues", "show", "mail", "--json").json
    assert (policy["lease"], policy["max_attempts"], policy["ttl"], policy["ring"]) == (60, 3, None, False)
    assert (policy["backoff"]["kind"], policy["backoff"]["cap"]) == ("exponential", "00:10:00")
    assert policy["retention"] == 7 * 86400
    run("queues", "set", "mail", "--ring", "--ttl", "1d", "--noisy-share", 0.3)
    policy = run("queues", "show", "mail", "--json").json
    assert policy["noisy_share"] == 0.3
    assert run("queues", "set", "mail", "--noisy-share", "none", "--json").json["noisy_share"] is None
    assert "a number, or none" in run("queues", "set", "mail", "--noisy-share", "some", code=2).err
    assert (policy["lease"], policy["ttl"], policy["ring"]) == (60, 86400, True)
    assert policy["sources"]["lease"]["source"] == "set"
    assert policy["sources"]["lease_cap"] == {"source": "default", "by": None, "at": None, "tasks": {}}
    shown = run("queues", "show", "mail").out
    assert "exponential:1s,factor=2,cap=10m,jitter=0.1  set by " in shown
    assert re.search(r"lease_cap +12h +default", shown)
    assert "no job of a group" in run("groups", "-q", "mail").err
    client.enqueue("mail", "k", group="acme")
    [group] = run("groups", "--json").json
    assert (group["queue"], group["group"], group["waiting"]) == ("mail", "acme", 1)
    assert re.search(r"mail +0 +1 +\S+ +no +1 +- +- +acme", run("groups", "-q", "mail").out)
    assert "did you mean 'mail'?" in run("queues", "show", "maill", code=4).err
    assert "a lease from 0.1 s to 7 days" in run("queues", "set", "mail", "--lease", "10ms", code=1).err


def test_strict_mode(run: Dibs) -> None:
    run("queues", "strict", "on")
    assert "there is no queue 'new'" in run("enqueue", "new", "k", code=4).err
    assert run("queues", "strict", "off", "--json").json == {"strict": False}
    run("enqueue", "new", "k")


def test_pause_and_resume(run: Dibs, client: dibs.Client, clock: Clock) -> None:
    client.enqueue("mail", "k", ttl=10)
    assert run("queues", "pause", "mail").out == "queue mail is paused\n"
    assert run("queues", "pause", "mail", "--json").json["changed"] is False
    clock.move(60)
    assert "1 jobs are past their time: 1 of them live on" in run("queues", "resume", "mail", "--extend", "1h").out
    assert run("queues", "resume", "mail").out == "queue mail was not paused\n"
    assert "did you mean 'mail'?" in run("queues", "pause", "maill", code=4).err


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_by_filter_and_page_by_page(run: Dibs, client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="a", kind=kind) for kind in ("x", "y", "x"))
    client.enqueue("b", "x", delay=60)
    assert [j["queue"] for j in run("jobs", "--json").json] == ["b", "a", "a", "a"]
    assert len(run("jobs", "--queue", "a", "--kind", "x", "--state", "ready", "--json").json) == 2
    page = run("jobs", "--limit", 3, "--json").json
    [last] = run("jobs", "--before", page[-1]["id"], "--json").json
    assert last["kind"] == "x"
    shown = run("jobs", "--limit", 3)
    assert f"--before {page[-1]['id']}" in shown.err
    assert len(shown.out.splitlines()) == 4


def test_a_list_says_when_what_waits_expires_if_that_is_soon(run: Dibs, client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue("mail", "k", ttl=dibs.policy.FOREVER)
    client.enqueue("mail", "k", ttl=86400 * 5)
    assert "expires" not in run("jobs").out
    client.enqueue("mail", "k")
    assert [line.count(" in ") for line in run("jobs").out.splitlines()] == [0, 1, 1, 0]
    clock.move(3600)
    assert "in 23h" in run("jobs").out
    told = [job["expire_at"] for job in run("jobs", "--json").json]
    assert (len(told), told.count(None)) == (3, 1)
    clock.move(86400)
    assert " now " in run("jobs").out
    client.upkeep.expire()
    assert "expires" not in run("jobs").out.splitlines()[0]


def test_a_list_on_a_terminal_leaves_out_what_was_asked_for(
    run: Dibs, client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the reason has room; a pipe gets every column."""
    client.enqueue("mail", "shop.tasks.welcome")
    client.fail(client.claim("mail")[0], "ValueError: there is no such user", final=True)
    asked = ["--queue", "mail", "--kind", "shop.tasks.welcome", "--state", "failed"]
    assert run("jobs", *asked).out.split()[:4] == ["id", "queue", "kind", "state"]

    def narrow(terminal: bool, *, stderr: bool) -> Console:
        return Console(stderr=stderr, force_terminal=True, width=80, color_system=None, highlight=False)

    monkeypatch.setattr("dibs.cli.output._console", narrow)
    heading, line = run("jobs", *asked).out.splitlines()
    assert heading.split() == ["id", "attempts", "reason"]
    assert "ValueError: there is no such" in line
    assert run("jobs", "--dead").out.split()[:4] == ["id", "queue", "kind", "state"], "there are several dead states"


def test_a_job_is_shown_with_its_attempts(run: Dibs, client: dibs.Client) -> None:
    made = client.enqueue("mail", "welcome", {"user": 42})
    client.fail(client.claim("mail")[0], "ValueError: no\nmore", delay=0)
    client.complete(client.claim("mail")[0], {"sent": True})
    shown = run("show", made.id).out
    assert '{"user":42}' in shown
    assert "ValueError: no" in shown
    assert "more" not in shown
    assert run("show", made.id, "--json").json["attempts"][1]["result"] == {"sent": True}
    assert "there is no job" in run("show", UNKNOWN, code=4).err


def test_what_lies_in_a_queue_does_not_steer_the_terminal(run: Dibs, client: dibs.Client) -> None:
    client.enqueue("q", "\x1b[2Jevil")
    assert "\x1b" not in run("jobs").out
    assert "\\x1b[2Jevil" in run("jobs").out


def test_why_explains(run: Dibs, client: dibs.Client) -> None:
    made = client.enqueue("mail", "welcome")
    assert "waits for a worker" in run("why", made.id).out
    assert run("why", made.id, "--json").json["state"] == "ready"
    run("why", UNKNOWN, code=4)


def test_cancel_answers_for_each_job(run: Dibs, client: dibs.Client) -> None:
    first, second = client.enqueue("q", "k"), client.enqueue("q", "k")
    [held] = client.claim("q")
    answers = run("cancel", first.id, second.id, "--because", "no need", "--json").json
    assert [a["answer"] for a in answers] == ["requested", "cancelled"]
    assert held.id == first.id
    assert "had already ended" in run("cancel", second.id, code=1).out
    assert "no such job" in run("cancel", UNKNOWN, code=4).out
    assert "no need" in run("why", second.id).out


def test_a_limit_keeps_what_is_not_named(run: Dibs, client: dibs.Client) -> None:
    def limit() -> tuple[Any, ...]:
        [found] = client.limits.list()
        return found.concurrency, found.rate, found.burst

    client.queues.set("mail")
    assert "did you mean 'mail'" in run("limits", "set", "--queue", "maill", "--concurrency", 1, code=4).err
    assert [queue.name for queue in client.queues.list()] == ["mail"]
    run("limits", "set", "--queue", "mail", "--concurrency", 20, "--rate", 100)
    run("limits", "set", "--queue", "mail", "--rate", 50)
    assert limit() == (20, 50, 50)
    run("limits", "set", "--queue", "mail", "--burst", 7)
    run("limits", "set", "--queue", "mail", "--rate", 10)
    assert limit() == (20, 10, 7)
    run("limits", "set", "--queue", "mail", "--rate", "none")
    assert limit() == (20, None, None)
    run("groups", "set", "mail", "acme", "--concurrency", 3, "--weight", 4)
    run("groups", "set", "mail", "acme", "--concurrency", "none")
    assert [(found.concurrency, found.weight) for found in client.limits.list() if found.scope == "group"] == [
        (None, 4)
    ]


def test_states_add_up_and_an_option_given_twice_is_refused(run: Dibs, client: dibs.Client) -> None:
    failed, cancelled, ready = (client.enqueue("q", "k", priority=n).id for n in (3, 2, 1))
    client.fail(client.claim("q")[0], "no", final=True)
    client.cancel(cancelled)

    def listed(*options: str) -> set[str]:
        return {job["id"] for job in run("jobs", "--json", *options).json}

    assert listed("--state", "dead") == {str(failed), str(cancelled)}
    assert listed("--state", "ready", "--state", "failed") == {str(ready), str(failed)}
    assert "did you mean 'ready'" in run("jobs", "--state", "readyy", code=2).err
    assert "--queue is given twice" in run("jobs", "--queue", "q", "--queue", "r", code=2).err
    assert "--reason is given twice" in run("retry", "--reason", "a", "--reason", "b", code=2).err


def test_workers_that_are_gone_are_not_listed_as_alive(run: Dibs, client: dibs.Client, clock: Clock) -> None:
    client._run(calls.workers.register_worker("gone", {}))
    clock.move(60)
    client._run(calls.workers.register_worker("here", {}))
    assert [worker["name"] for worker in run("workers", "--json").json] == ["here"]
    assert "1 more have not been seen for 30s" in run("workers").err
    assert {worker["name"] for worker in run("workers", "--all", "--json").json} == {"gone", "here"}


def test_times_have_one_zone_and_say_so(
    run: Dibs, client: dibs.Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zone of a terminal and the zone of a session say nothing about who reads it."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("PGTZ", "America/New_York")
    clock.freeze(datetime(2030, 1, 1, tzinfo=UTC))
    made = client.enqueue("q", "k", due_at=datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC))
    for command in (["jobs"], ["show", made.id], ["why", made.id]):
        told = run(*command).out
        assert "2030-01-02 03:04:05Z" in told, command
    assert "(in 1 day 03:04:05)" in run("why", made.id).out
    refused = run("enqueue", "q", "k", "--due-at", "2030-01-02T03:04", code=2)
    assert "has no time zone; write 2030-01-02T03:04Z for UTC" in refused.err
    assert "has no time zone" in run("retry", "--ended-after", "2030-01-02", code=2).err


# --- retry -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(client: dibs.Client) -> list[UUID]:
    """Five dead jobs: three of kind a that failed, two of kind b that were cancelled."""
    client.enqueue_many(dibs.NewJob(queue="q", kind="a") for _ in range(3))
    for job in client.claim("q", 3):
        client.fail(job, "KeyError: 'name'", final=True)
    made = client.enqueue_many(dibs.NewJob(queue="q", kind="b") for _ in range(2))
    client.cancel_many([m.id for m in made])
    return ids(client)


def test_retry_is_a_dry_run_until_told_otherwise(run: Dibs, client: dibs.Client, dead: list[UUID]) -> None:
    for wrong in ((), ("--all", "--queue", "q")):
        assert "or --all and no filter" in run("retry", *wrong, code=2).err
    assert "3 would be brought back" in run("retry", "--kind", "a").out
    assert client.queues.depth("q").dead == 5
    done = run("retry", "--reason", "KeyError%", "--yes", "--json").json
    assert (done["dry_run"], done["matched"], done["done"], done["refused"]) == (False, 3, 3, [])
    assert client.queues.depth("q").dead == 2
    refused = run("retry", "--all", "--yes")
    assert refused.out == "no job matches\n"
    assert "--state cancelled" in refused.err
    assert "2 brought back" in run("retry", "--state", "cancelled", "--yes").out


def test_retry_by_id_state_and_time(run: Dibs, client: dibs.Client, dead: list[UUID], clock: Clock) -> None:
    assert run("retry", dead[0], "--json").json["matched"] == 1
    assert run("retry", "--state", "cancelled", "--json").json["matched"] == 2
    clock.move(7200)
    assert run("retry", "--ended-after", "1h", "--json").json["matched"] == 0
    assert run("retry", "--ended-before", "1h", "--max", 2, "--json").json["matched"] == 2
    assert run("retry", "--ended-before", "2020-01-01T00:00Z", "--json").json["matched"] == 0
    assert "did you mean 'q'" not in run("retry", "--queue", "nowhere", code=4).err
    run("retry", UNKNOWN, "--yes", code=1)


def test_a_rate_spreads_a_retry_over_its_steps(
    run: Dibs, client: dibs.Client, monkeypatch: pytest.MonkeyPatch, dead: list[UUID]
) -> None:
    monkeypatch.setattr("dibs.client.steps.STEP", 2)
    run("retry", "--all", "--rate", "0.1", "--yes")
    due = sorted(
        job.due_at
        for job in client.find_jobs({"queue": "q", "states": ["ready"]}).jobs
        + client.find_jobs({"queue": "q", "states": ["scheduled"]}).jobs
    )
    gaps = [round((later - due[0]).total_seconds(), -1) for later in due]
    assert gaps == [0, 10, 20]


def test_retry_says_which_jobs_stay_dead_and_why(run: Dibs, client: dibs.Client) -> None:
    ids = [client.enqueue("q", "k", dedup_key=f"d{n}").id for n in range(21)]
    client.cancel_many(ids)
    holders = [client.enqueue("q", "k", dedup_key=f"d{n}").id for n in range(21)]
    done = run("retry", ids[0], "--yes", code=1)
    assert f"{ids[0]} stays dead: another job has its dedup key now" in done.out
    assert "left as they are" not in done.out
    told = run("retry", "-q", "q", "--state", "cancelled", "--yes", "--json").json
    assert told["refused"] == [{"id": str(id), "reason": "duplicate"} for id in ids]
    assert "… and 1 more stay dead" in run("retry", "-q", "q", "--state", "cancelled", "--yes").out
    client.cancel(holders[0])
    assert run("retry", ids[0], "--yes").out == "1 brought back\n"


def test_retry_keeps_a_due_time_that_is_ahead_unless_now(run: Dibs, client: dibs.Client) -> None:
    id = client.enqueue("q", "k", delay=3600).id
    client.cancel(id)
    run("retry", id, "--yes")
    assert client.status(id).state == "scheduled"
    client.cancel(id)
    run("retry", id, "--now", "--delay", "30s", "--yes")
    [job] = client.find_jobs().jobs
    assert 0 < (job.due_at - client.now()).total_seconds() <= 30


# --- maintain, version, demo's parts ---------------------------------------------------------------------------------


def test_maintain_once_says_what_it_did(run: Dibs, client: dibs.Client, clock: Clock) -> None:
    client.enqueue("q", "k", ttl=10)
    clock.move(60)
    assert "1 expired" in run("maintain", "--once").out
    assert run("maintain", "--once", "--json").json["expire"] == {"expired": 0}


def test_maintain_once_says_what_was_skipped_and_what_failed(run: Dibs, connect: Connect) -> None:
    other = connect()
    with other.transaction():
        other.execute("select dibs.do_chore('roll_up')")
        assert "skipped: another process is doing it" in run("maintain", "--once").out
        assert run("maintain", "--once", "--json").json["roll_up"] == {"skipped": "another process is doing it"}
    other.execute("alter table dibs.floor_hint rename to elsewhere")
    assert "failed: relation" in run("maintain", "--once", code=1).out
    assert "elsewhere" not in run("maintain", "--once", "--json", code=1).json["forget"]["failed"]


def test_progress_is_listed_and_watched(run: Dibs, client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    [job] = client.claim("q")
    client.progress(job, 3, 10, message="resizing")
    assert "3/10 resizing" in run("jobs").out
    assert run("jobs", "--json").json[0]["progress"]["of"] == 10
    assert '"message":"resizing"' in run("show", made.id).out
    client.complete(job)
    assert "succeeded  3/10 resizing" in run("show", made.id, "--watch").out
    assert run("show", made.id, "--watch", "--json").json["state"] == "succeeded"
    run("show", UNKNOWN, "--watch", code=4)


def test_shards_are_set_and_shown(run: Dibs, client: dibs.Client) -> None:
    assert "no queue is exclusive" in run("queues", "shards").err
    run("queues", "set", "q", "--shards", "2", "--shard-lease", "10s")
    run("queues", "set", "p", "--exclusive")
    run("queues", "set", "p", "--shards", "none")
    run("enqueue", "q", "k", "--shard-key", "a")
    secret, worker = client._run(calls.workers.register_worker("me", {}))
    client.upkeep.hold_shards(secret, "q")
    shown = run("queues", "shards", "q").out.splitlines()
    assert [line.split()[:5] for line in shown[1:]] == [
        ["q", "0", "q", str(worker), "me"], ["q", "1", "q#1", str(worker), "me"],
    ]  # fmt: skip
    assert [s["claimable"] for s in run("queues", "shards", "--json").json] == [True, True]
    assert "not a number" in run("queues", "set", "q", "--shards", "many", code=2).err


def test_stats_tell_what_happened(run: Dibs, client: dibs.Client) -> None:
    assert "nothing was counted" in run("stats").err
    client.enqueue("q", "k")
    client.complete(client.claim("q")[0])
    run("maintain", "--once")
    assert run("stats").out.split()[:3] == ["queue", "kind", "succeeded"]
    assert run("stats", "--every", "5m").out.split()[0] == "at"
    assert run("stats", "--by", "kind").out.split()[:2] == ["kind", "succeeded"]
    [whole] = run("stats", "--by", "none", "--json").json
    assert (whole["queue"], whole["kind"]) == (None, None)
    assert "last run" in run("stats", "--totals").out
    [told] = run("stats", "--queue", "q", "--kind", "k", "--json").json
    assert (told["succeeded"], told["runs"]) == (1, 1)
    assert run("stats", "--totals", "--json").json[0]["last_run"] == told["run_max"]
    run("stats", "--queue", "nowhere", code=4)


def test_version(run: Dibs) -> None:
    assert run("--version", "--json").json["dibs"] == dibs.__version__
    assert run("--version").out.startswith(f"dibs {dibs.__version__} (schema version ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400), ("500ms", 0.5), ("1h30m", 5400), ("1.5s", 1.5)],
)
@pytest.mark.once
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.once
@pytest.mark.parametrize("text", ["", "s", "5x", "-5s", "1h 30", "5 m", "nan", "9" * 30 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|too long"):
        duration(text)


def test_durations_are_said() -> None:
    told = [spoken(timedelta(seconds=s)) for s in (0, 0.25, 2.5, 90, 5400, 86400, 90061)]
    assert told == ["0s", "250ms", "2.5s", "1m 30s", "1h 30m", "1d", "1d 1h"]


def test_backoffs_are_read() -> None:
    assert backoff("constant:5s") == dibs.constant(5)
    assert backoff("list:1s,5s,30s,jitter=0.2") == dibs.progressive([1, 5, 30], jitter=0.2)
    assert backoff("exponential:1s,cap=10m,jitter=0.1,factor=3") == dibs.exponential(1, factor=3, cap=600, jitter=0.1)


@pytest.mark.parametrize("count", [FEWEST, 300, MOST])
def test_the_demo_has_every_kind_in_any_size(count: int) -> None:
    jobs = make_jobs(count, datetime.now(UTC))
    assert len(jobs) == count
    assert {job.kind for job in jobs} == {kind.name for kind in KINDS}


def test_the_demo_admits_what_went_wrong() -> None:
    tally, good, bad = Tally(total=2), UUID(int=1), UUID(int=2)
    tally.completions[good] = 1
    ended = {good: ("send_mail", State.SUCCEEDED), bad: ("send_mail", State.READY)}
    assert tally.errors(ended) == [f"send_mail {bad} is ready, not succeeded"]
    ended[bad] = ("send_mail", State.SUCCEEDED)
    tally.completions[bad] = 2
    assert "completed 2 times" in tally.errors(ended)[0]


def test_the_demos_picture_fits_a_small_terminal() -> None:
    tally, paper = Tally(300), StringIO()
    tally.note("phase", "a phase with a name")
    for n in range(20):
        tally.note("retried", f"job {n} failed because of something rather long, and will be tried again in a while")
        tally.note("succeeded", "job succeeded")
    Console(file=paper, width=80, height=24).print(picture(tally))
    lines = paper.getvalue().splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert "(20)" in paper.getvalue()


def test_doctor_says_what_is_wrong_and_how_to_mend_it(
    run: Dibs, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    assert run("doctor", "--fail-on", "error", code=1).out, "this server is unsafe and fast"
    client.limits.set(kind="export", concurrency=0)
    db.execute("grant select on dibs.job to public")
    db.execute("update dibs.code set digest = 'another'")
    told = run("doctor", code=1).out
    assert "warning: the limit of kind export is 0, so none of its jobs run (closed-limit)" in told
    assert "→ dibs limits set --kind export --concurrency N" in told
    found = run("doctor", "--quiet", "--fail-on", "never", "--json").json
    assert {"grants", "code", "closed-limit"} <= {finding["name"] for finding in found}
    assert "note" not in {finding["level"] for finding in found}
    assert [f["level"] for f in found] == sorted(f["level"] for f in found), "errors first"
