"""What handlers log, and what a worker logs of them: lines, tracebacks, your own set-up, Sentry."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import dibs
from dibs import events as facts
from dibs.cli.app import dibs as command
from dibs.metrics import JobFilter, JsonFormat, log_events
from dibs.metrics.lines import LONGEST_TRACE, line_of
from dibs.metrics.log_setup import LogSetup, inherit
from dibs.states import Outcome, State
from dibs.worker import Worker, WorkerSettings
from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.once

SHOP = """
import logging
import dibs

app = dibs.App(queue="mail")
log = logging.getLogger("shop")


@app.task(name="on_the_loop")
async def on_the_loop() -> None:
    log.info("hello\\n2026-01-01T00:00:00.000Z ERROR forged")


@app.task(name="in_a_thread")
def in_a_thread() -> None:
    log.info("hello")
    log.debug("not shown")


@app.task(name="in_a_process", process=True)
def in_a_process() -> None:
    log.info("hello")


@app.task(name="fails")
async def fails() -> None:
    raise ValueError("no such user\\nreally")
"""


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="mail")
    yield app
    app.close()


def dibs_worker(folder: Path, dsn: str, *options: str, app: str = "shop:app") -> str:
    """What ``dibs worker`` writes to standard error until nothing is left."""
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "worker", app, "--drain", "--no-upkeep", *options],
        env=os.environ | {"DIBS_DSN": dsn},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_what_handlers_log_appears_with_their_job(dsn: str, client: dibs.Client, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    ids = {
        kind: client.enqueue("mail", kind, {}, max_attempts=1).id
        for kind in ("on_the_loop", "in_a_thread", "in_a_process")
    }
    failing = client.enqueue("mail", "fails", {}, max_attempts=1).id
    written = [json.loads(line) for line in dibs_worker(tmp_path, dsn, "--log-format", "json").splitlines()]
    own = [line for line in written if line.get("logger") == "shop"]
    assert {line["kind"]: line["job_id"] for line in own} == {kind: str(id) for kind, id in ids.items()}
    assert {(line["queue"], line["attempt"], line["level"]) for line in own} == {("mail", 1, "info")}
    ended = {line["kind"]: line for line in written if line.get("event") == "RunEnded"}
    assert {kind: line["level"] for kind, line in ended.items()} == {**dict.fromkeys(ids, "info"), "fails": "error"}
    failed = ended["fails"]
    assert (failed["job_id"], failed["error"]) == (str(failing), "ValueError: no such user")
    assert failed["traceback"].startswith("really\n")
    assert 'raise ValueError("no such user' in failed["traceback"]
    assert "executor.py" not in failed["traceback"], "the worker's own frames say nothing about the failure"


def test_a_text_log_cannot_be_forged_and_has_the_traceback(dsn: str, client: dibs.Client, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    hello, failing = (client.enqueue("mail", kind, {}, max_attempts=1).id for kind in ("on_the_loop", "fails"))
    written = dibs_worker(tmp_path, dsn).splitlines()
    told = [line for line in written if not line.startswith(" ")]
    assert all(line[:2] == "20" and line[23:25] == "Z " for line in told)
    assert not any("forged" in line for line in told)
    assert any(line.endswith(f"ERROR forged [job {hello} on_the_loop]") for line in written)
    (failed,) = (n for n, line in enumerate(written) if f"job {failing} (fails on mail" in line)
    assert written[failed].endswith("and is exhausted: ValueError: no such user")
    assert written[failed + 1] == "    really"
    assert 'shop.py", line 27, in fails' in written[failed + 2]


CONFIG = """
version = 1

[filters.job]
"()" = "dibs.metrics.JobFilter"

[formatters.plain]
format = "%(levelname)s %(name)s %(job_kind)s/%(job_id)s: %(message)s"

[handlers.file]
class = "logging.FileHandler"
filename = "shop.log"
formatter = "plain"
filters = ["job"]

[root]
level = "INFO"
handlers = ["file"]
"""


def test_logging_is_set_up_from_a_file(dsn: str, client: dibs.Client, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "log.toml").write_text(CONFIG)
    ids = {
        kind: client.enqueue("mail", kind, {}, max_attempts=1).id for kind in ("in_a_thread", "in_a_process", "fails")
    }
    assert dibs_worker(tmp_path, dsn, "--log-config", "log.toml") == ""
    written = (tmp_path / "shop.log").read_text()
    for kind in ("in_a_thread", "in_a_process"):
        assert f"INFO shop {kind}/{ids[kind]}: hello\n" in written
        assert f"INFO dibs {kind}/{ids[kind]}: job {ids[kind]} ({kind} on mail, attempt 1 of" in written
    assert f"ERROR dibs fails/{ids['fails']}: job {ids['fails']}" in written
    assert 'raise ValueError("no such user' in written, "formats of others show the traceback, too"
    assert "INFO dibs /: worker" in written, "outside of a run there is no job"


INI = """
[loggers]
keys = root
[handlers]
keys = out
[formatters]
keys = plain
[logger_root]
level = WARNING
handlers = out
[handler_out]
class = StreamHandler
args = (sys.stdout,)
formatter = plain
[formatter_plain]
format = %(name)s: %(message)s
"""


def test_the_ini_of_old_works_and_loggers_that_exist_stay_enabled(tmp_path: Path) -> None:
    (tmp_path / "log.ini").write_text(INI)
    script = (
        "import logging; from pathlib import Path; from dibs.metrics.log_setup import configure\n"
        "mine = logging.getLogger('shop'); configure(Path('log.ini')); mine.info('no'); mine.warning('yes')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "shop: yes\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("log.yaml", "", "its name must end in .json, .toml, .ini, .cfg or .conf"),
        ("log.json", "{", "Expecting property name"),
        ("log.json", "[]", "logging cannot be set up"),
        ("log.json", '{"version": 1, "handlers": {"h": {"class": "no.such"}}}', "Unable to configure handler 'h'"),
        ("log.toml", "x", "logging cannot be set up"),
        ("log.ini", "", "logging cannot be set up"),
        ("missing.json", None, "No such file"),
    ],
)
def test_a_file_that_is_no_set_up_is_explained(
    shared_dsn: str, tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    done = CliRunner().invoke(
        command, ["worker", "--channels", "--drain", "--dsn", shared_dsn, "--log-config", str(tmp_path / name)]
    )
    assert (done.exit_code, said in done.stderr, "dictConfig" in done.stderr) == (1, True, True), done.stderr


def test_two_set_ups_are_refused(dsn: str) -> None:
    args = ["worker", "--channels", "--dsn", dsn, "--log-config", "x.json"]
    for option in (["--log-level", "info"], ["--log-format", "json"]):
        done = CliRunner().invoke(command, [*args, *option])
        assert (done.exit_code, f"{option[0]} and --log-config" in done.stderr) == (1, True), done.stderr


def test_a_file_that_vanished_fails_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inherit(LogSetup(config=str(tmp_path / "gone.json")))
    assert "gone.json" in caplog.text


async def test_an_app_that_has_set_up_logging_keeps_it(dsn: str, client: dibs.Client, tmp_path: Path) -> None:
    own = 'import logging\nlogging.basicConfig(level="INFO", format="mine: %(message)s")\n'
    (tmp_path / "shop.py").write_text(own + SHOP)
    client.enqueue("mail", "in_a_thread", {})
    client.enqueue("mail", "in_a_process", {})
    written = dibs_worker(tmp_path, dsn)
    assert written.count("hello") == written.count("mine: hello") == 2
    assert "mine: job" not in written


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_batch_says_how_many_it_is_about(app: dibs.App) -> None:
    stream = io.StringIO()
    log = log_events(app.events, "json", stream=stream, everything=True)

    @app.batch(max=10, name="together")
    async def together(items: list[int]) -> None:
        logging.getLogger("shop").info("all of %s", len(items))

    together.enqueue_many(together.call(n) for n in range(3))
    async with asyncio.timeout(60):
        await Worker(app, WorkerSettings(("mail",), drain=True, upkeep=False)).run()
    log.close()
    (own,) = (line for line in read(stream) if line.get("logger") == "shop")
    assert (own["message"], own["kind"], own["batch"]) == ("all of 3", "together", 3)
    assert Counter(line.get("event") for line in read(stream))["RunEnded"] == 3


async def test_every_run_is_a_line_at_info_and_none_below(app: dibs.App) -> None:
    @app.task(name="welcome")
    async def welcome(n: int) -> None:
        if n == 1 and dibs.context().job.run == 1:
            raise dibs.Snooze(0)

    for level, expected in (("info", {"succeeded": 3, "snoozed": 1}), ("warning", {})):
        stream = io.StringIO()
        log = log_events(app.events, "json", level=level, stream=stream)
        welcome.enqueue_many(welcome.call(n) for n in range(3))
        async with asyncio.timeout(60):
            await Worker(app, WorkerSettings(("mail",), drain=True, upkeep=False)).run()
        log.close()
        ended = Counter(line["outcome"] for line in read(stream) if line.get("event") == "RunEnded")
        assert ended == expected


def test_a_success_costs_nothing_where_nobody_reads_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[facts.Event] = []
    monkeypatch.setattr("dibs.metrics.logs.line_of", made.append)
    events = facts.Events()
    log = log_events(events, "none", level="info")
    with caplog.at_level(logging.WARNING, "dibs"):
        events.tell(facts.RunEnded(None, Outcome.SUCCEEDED, State.SUCCEEDED, 0.1))  # type: ignore[arg-type]
    log.close()
    assert made == []


def test_a_traceback_in_the_log_has_a_bound(client: dibs.Client) -> None:
    client.enqueue("mail", "welcome")
    (job,) = client.claim("mail")
    trace = "beginning" + "x" * 5_000_000 + "end"
    line = line_of(facts.RunEnded(job, Outcome.FAILED, State.READY, 0.1, "ValueError", trace))
    assert line.traceback is not None
    assert len(line.traceback) < LONGEST_TRACE + 10
    assert (line.traceback[:9], line.traceback[-3:]) == ("beginning", "end")


@pytest.mark.parametrize(
    ("said", "more"),
    [("half \ud800 of it", {}), ("odd", {(1, 2): 3, "of": object}), ("endless", {"n": float("nan")})],
)
def test_what_json_cannot_hold_is_still_one_line(said: str, more: dict[Any, Any]) -> None:
    record = logging.LogRecord("shop", logging.INFO, "", 0, said, (), None)
    record.__dict__["dibs"] = more
    (line,) = JsonFormat().format(record).splitlines()
    told = json.loads(line, parse_constant=pytest.fail)
    assert (told["message"] == said, told["logger"]) == (True, "shop")


def test_a_filter_gives_records_their_job() -> None:
    record = logging.LogRecord("shop", logging.INFO, "", 0, "hello", (), None)
    assert JobFilter().filter(record)
    assert [record.__dict__[f"job_{name}"] for name in ("id", "kind", "queue", "attempt")] == [""] * 4


CATCHING = """
import json
import sentry_sdk
from sentry_sdk.transport import Transport
import shop_sentry


class Caught(Transport):
    def capture_envelope(self, envelope):
        with open("caught.jsonl", "a") as file:
            for item in envelope.items:
                file.write(json.dumps({"type": item.type, **(item.payload.json or {})}, default=str) + "\\n")


sentry_sdk.init("https://key@sentry.example/1", transport=Caught)
app = shop_sentry.app


@app.task(name="plain")
def plain(n: int) -> None:
    raise LookupError(n)


@app.task(name="later")
def later() -> None:
    if shop_sentry.dibs.context().job.run == 1:
        raise shop_sentry.dibs.Snooze(0)
"""


def test_the_recipe_for_sentry_sends_each_failure_once(dsn: str, client: dibs.Client, tmp_path: Path) -> None:
    (recipe,) = (block for block in blocks(ROOT / "docs/run/logs.md") if block.file == "shop_sentry.py")
    (tmp_path / "shop_sentry.py").write_text(recipe.text)
    (tmp_path / "caught.py").write_text(CATCHING)
    made = [
        client.enqueue("mail", kind, payload, max_attempts=1).id
        for kind, payload in (("shop_sentry.welcome", {"user_id": 0}), ("plain", {"n": 1}), ("later", {}))
    ]
    dibs_worker(tmp_path, dsn, app="caught:app")
    caught = [json.loads(line) for line in (tmp_path / "caught.jsonl").read_text().splitlines()]
    sent = [event for event in caught if event["type"] == "event"]
    assert {event["exception"]["values"][-1]["type"] for event in sent} == {"ValueError", "LookupError"}
    assert len(sent) == 2, "the log's own lines about failures are not sent again"
    assert {(event["tags"]["job_id"], event["tags"]["kind"]) for event in sent} == {
        (str(made[0]), "shop_sentry.welcome"),
        (str(made[1]), "plain"),
    }


@pytest.mark.parametrize("first", [0, 1])
def test_logs_are_closed_in_any_order(first: int) -> None:
    logger = logging.getLogger("dibs")
    before = (logger.level, logger.propagate)
    logs = [log_events(facts.Events(), stream=io.StringIO(), level=level) for level in ("warning", "info")]
    levels = [logging.WARNING, logging.INFO]
    logs[first].close()
    logs.pop(first).close()  # Once more does nothing.
    levels.pop(first)
    assert (logger.level, logger.propagate) == (*levels, False)
    logs[0].close()
    assert (logger.level, logger.propagate) == before
