"""Logs, Prometheus, OpenTelemetry and collectors, driven by the events of real jobs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import os
import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import prometheus_client
import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

import dibs
from dibs import events as facts
from dibs.metrics import MetricsCollector, Prometheus, collect, log_events, reading
from dibs.metrics.exposition import CONTENT_TYPE, Counter, Gauge, Histogram, merge, render
from dibs.metrics.formats import JsonFormat, TextFormat
from dibs.metrics.lines import LEVELS, line_of
from dibs.metrics.sharing import gather
from dibs.metrics.tracing import Tracing
from dibs.runtime.http import Pages
from dibs.states import Outcome, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from dibs.job import Claimed
    from dibs.testing import Clock

NOW = dibs.constant(0)
EVENTS = [
    e for e in vars(facts).values() if isinstance(e, type) and issubclass(e, facts.Event) and e is not facts.Event
]


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="mail")
    yield app
    app.close()


@asynccontextmanager
async def client_of(app: dibs.App) -> AsyncIterator[dibs.AsyncClient]:
    """The app's async client, closed when the block ends."""
    try:
        yield app.async_client()
    finally:
        await app.aclose()


async def work(app: dibs.App, end: Callable[[Claimed], str] = lambda _: "complete", max: int = 100) -> list[Claimed]:
    """Claim once, and tell of each job what a worker would tell; ``end`` says how it ends."""
    events, client = app.events, app.async_client()
    jobs = await client.claim("mail", max)
    events.tell(facts.JobsClaimed(("mail",), len(jobs), 0.002))
    for job in jobs:
        events.tell(facts.JobStarted(job, (job.claimed_at - job.due_at).total_seconds()))
        verb = end(job)
        if verb == "complete":
            await client.complete(job)
            events.tell(facts.RunEnded(job, Outcome.SUCCEEDED, State.SUCCEEDED, 0.02))
        elif verb == "fail":
            went = await client.fail(job, "ValueError: no such user\n  in welcome")
            events.tell(
                facts.RunEnded(
                    job, Outcome.FAILED, went.state or State.UNKNOWN, 0.3, "ValueError: no such user\n  in welcome"
                )
            )
        elif verb == "lose":
            events.tell(facts.RunLost(job))
    events.tell(facts.OutcomesSent("complete", len(jobs), 0.004))
    return jobs


def parse(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, by its name and labels, as the official parser reads them."""
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    read = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
    assert len(read) == len(samples), "a sample is there twice"
    return read


class Samples:
    """The samples of a text, to be asked for by name and labels."""

    def __init__(self, text: str) -> None:
        self._read = parse(text)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._read.get((name, frozenset(labels.items())))


# Prometheus


async def test_prometheus_counts_what_real_jobs_did(app: dibs.App, clock: Clock) -> None:
    async with client_of(app) as client:
        metrics = Prometheus(app.events, client)

        @app.task(name="welcome", max_attempts=2, backoff=NOW)
        async def welcome(n: int) -> None: ...

        await welcome.using(dedup_key="once").aenqueue(1)
        await welcome.using(dedup_key="once").aenqueue(1)
        await welcome.using(delay=3600).aenqueue(2)
        clock.move(20)
        await work(app, lambda _: "fail")
        first = Samples(metrics.text())
        await work(app)
        await work(app)
        await welcome.aenqueue(3)
        await welcome.using(priority=1).aenqueue(4)
        await work(app, lambda _: "lose", max=1)
        clock.move(31)
        app.events.tell(facts.UpkeepDone("rescue", len(await client.upkeep.rescue())))
        read = Samples((await metrics.page()).body)
    job = {"queue": "mail", "kind": "welcome"}
    assert read("dibs_enqueued_total", **job, outcome="enqueued") == 4
    assert read("dibs_enqueued_total", **job, outcome="duplicate") == 1
    assert read("dibs_dedup_hits_total", **job) == 1
    assert (read("dibs_claims_total", found="jobs"), read("dibs_claims_total", found="none")) == (3, 1)
    assert (read("dibs_claimed_jobs_total"), read("dibs_claim_seconds_count")) == (3, 4)
    assert read("dibs_runs_total", **job, outcome="failed", state="ready") == 1
    assert read("dibs_runs_total", **job, outcome="succeeded", state="succeeded") == 1
    assert (read("dibs_retries_total", **job), read("dibs_lost_leases_total", **job)) == (1, 1)
    assert (read("dibs_rescued_total"), read("dibs_upkeep_total", chore="rescue")) == (1, 1)
    assert (read("dibs_expired_total"), read("dibs_busy", **job)) == (0, 0)
    assert read("dibs_batches_sent_total", verb="complete") == 4
    for outcome, seconds in (("succeeded", 0.02), ("failed", 0.3)):
        assert read("dibs_run_seconds_count", **job, outcome=outcome) == 1
        assert read("dibs_run_seconds_sum", **job, outcome=outcome) == seconds
    assert read("dibs_run_seconds_bucket", **job, outcome="failed", le="0.25") == 0
    assert read("dibs_run_seconds_bucket", **job, outcome="failed", le="0.5") == 1
    assert read("dibs_run_seconds_count", **job, outcome="lost") == 1
    assert read("dibs_wait_seconds_count", **job) == 3
    assert read("dibs_first_attempt_age_seconds_count", **job) == 2, "a second attempt is not a first one"
    age = first("dibs_first_attempt_age_seconds_sum", **job)
    assert age is not None
    assert 20 <= age < 35
    assert (read("dibs_jobs", queue="mail", state="ready"), read("dibs_jobs", queue="mail", state="scheduled")) == (
        2,
        1,
    )
    assert (read("dibs_jobs", queue="mail", state="running"), read("dibs_queue_paused", queue="mail")) == (0, 0)
    oldest = read("dibs_oldest_ready_seconds", queue="mail")
    assert oldest is not None
    assert 31 <= oldest < 60


async def test_what_handlers_count_with_the_official_library_is_on_the_same_page(dsn: str) -> None:
    own = prometheus_client.Counter("shop_letters", "Letters sent.", registry=prometheus_client.REGISTRY)
    own.inc(7)
    try:
        read = Samples(Prometheus(facts.Events()).text())
    finally:
        prometheus_client.REGISTRY.unregister(own)
    assert (read("shop_letters_total"), read("dibs_claimed_jobs_total")) == (7, 0)


async def test_a_scraper_gets_the_page_over_http(app: dibs.App) -> None:
    async with client_of(app) as client:
        await client.queues.set("mail")
        pages = Pages({"/metrics": Prometheus(app.events, client).page})
        app.events.tell(facts.JobEnqueued(UUID(int=1), "mail", 'say "hi" \\', dibs.Answer.ENQUEUED))
        await pages.open(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        await pages.close()
    assert f"Content-Type: {CONTENT_TYPE}" in head
    assert body.endswith("\n")
    assert Samples(body)("dibs_jobs", queue="mail", state="ready") == 0
    assert Samples(body)("dibs_enqueued_total", queue="mail", kind='say "hi" \\', outcome="enqueued") == 1


class Queues:
    """Has the depths that a test gives it, where a client has ``queues``."""

    @property
    def queues(self) -> Self:
        return self

    async def depths(self) -> list[dibs.types.Depth]:
        raise NotImplementedError


async def test_depths_are_read_at_most_once_a_second_however_many_ask(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(app) as client:
        asked: list[str] = []

        class Counting(Queues):
            async def depths(self) -> list[dibs.types.Depth]:
                asked.append("depths")
                return await client.queues.depths()

        metrics = Prometheus(app.events, Counting())
        await client.enqueue("mail", "x")
        texts = [page.body for page in await asyncio.gather(*(metrics.page() for _ in range(20)))]
        await client.enqueue("mail", "x")
        texts.append((await metrics.page()).body)
        assert {Samples(text)("dibs_jobs", queue="mail", state="ready") for text in texts} == {1}
        assert len(asked) == 1
        monkeypatch.setattr(reading, "PERIOD", 0.0)
        assert Samples((await metrics.page()).body)("dibs_jobs", queue="mail", state="ready") == 2
        assert len(asked) == 2


async def test_a_slow_database_does_not_hold_up_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 0.01)
    monkeypatch.setattr(reading, "PERIOD", 0.0)
    answer: asyncio.Future[list[dibs.types.Depth]] = asyncio.get_running_loop().create_future()

    class Slow(Queues):
        async def depths(self) -> list[dibs.types.Depth]:
            return await answer

    metrics = Prometheus(facts.Events(), Slow())
    read = Samples((await metrics.page()).body)
    assert (read("dibs_depth_age_seconds"), read("dibs_claimed_jobs_total")) == (None, 0)
    answer.set_result([dibs.types.Depth("mail", ready=3)])
    monkeypatch.setattr(reading, "PATIENCE", 30.0)
    read = Samples((await metrics.page()).body)
    assert read("dibs_jobs", queue="mail", state="ready") == 3
    assert read("dibs_depth_age_seconds") is not None


async def test_what_is_an_estimate_says_so(app: dibs.App) -> None:
    class Large(Queues):
        async def depths(self) -> list[dibs.types.Depth]:
            return [dibs.types.Depth("mail", ready=1_230_000, estimated=["ready"])]

    read = Samples((await Prometheus(app.events, Large()).page()).body)
    assert read("dibs_jobs", queue="mail", state="ready") == 1_230_000
    assert read("dibs_jobs_estimated", queue="mail", state="ready") == 1
    assert read("dibs_jobs_estimated", queue="mail", state="failed") == 0


async def test_without_its_database_the_page_has_everything_but_depths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PERIOD", 0.0)
    down = [False]

    class Database(Queues):
        async def depths(self) -> list[dibs.types.Depth]:
            if down[0]:
                raise dibs.ConnectionLost("it went away")
            return [dibs.types.Depth("mail", ready=3)]

    metrics = Prometheus(facts.Events(), Database())
    assert Samples((await metrics.page()).body)("dibs_jobs", queue="mail", state="ready") == 3
    down[0] = True
    read = Samples((await metrics.page()).body)
    assert (read("dibs_jobs", queue="mail", state="ready"), read("dibs_claimed_jobs_total")) == (None, 0)


def test_the_text_is_what_the_official_parser_reads() -> None:
    counter, gauge = Counter("a_total", "Has a \\ and\na line.", "of"), Gauge("b", "B.")
    sizes = Histogram("c", "C.", buckets=(1, 0.1))
    counter.add(2, 'x"y\\\nz')
    gauge.set(1.5)
    for size in (0.1, 0.5, 7):
        sizes.observe(size)
    families = {f.name: f for f in text_string_to_metric_families(render([counter, gauge, sizes]))}
    assert [(s.name, s.labels, s.value) for f in families.values() for s in f.samples] == [
        ("a_total", {"of": 'x"y\\\nz'}, 2),
        ("b", {}, 1.5),
        ("c_bucket", {"le": "0.1"}, 1),
        ("c_bucket", {"le": "1"}, 2),
        ("c_bucket", {"le": "+Inf"}, 3),
        ("c_sum", {}, 7.6),
        ("c_count", {}, 3),
    ]
    assert {name: f.type for name, f in families.items()} == {"a": "counter", "b": "gauge", "c": "histogram"}
    assert families["a"].documentation == "Has a \\ and\na line."


CHILD = """
import asyncio, pathlib, sys
from dibs.events import Events, JobsClaimed
from dibs.metrics import Prometheus

async def main():
    events = Events()
    shared = Prometheus(events).share(pathlib.Path(sys.argv[1]))
    events.tell(JobsClaimed(("mail",), 5, 0.01))
    await shared.open()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await shared.close()

asyncio.run(main())
"""


def sockets(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_the_processes_of_a_fleet_are_on_one_page(tmp_path: Path) -> None:
    events = facts.Events()
    metrics = Prometheus(events, children=tmp_path)
    events.tell(facts.ChildStarted(1))
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout
        assert await child.stdout.readline() == b"open\n"
    first, killed, stopped = children
    read = Samples((await metrics.page()).body)
    claimed = [read("dibs_claimed_jobs_total", process=str(child.pid)) for child in children]
    assert (claimed, read("dibs_claimed_jobs_total"), read("dibs_children_started_total")) == ([5, 5, 5], 0, 1)
    assert read("dibs_claims_total", process=str(first.pid), found="jobs") == 1
    killed.kill()
    await stopped.communicate(b"")
    await killed.wait()
    read = Samples((await metrics.page()).body)
    assert [read("dibs_claimed_jobs_total", process=str(child.pid)) for child in children] == [5, None, None]
    await first.communicate(b"")
    assert not sockets(tmp_path)


def test_trouble_with_numbers_is_one_series() -> None:
    events = facts.Events()
    metrics = Prometheus(events)
    for n in range(9):
        events.tell(facts.Trouble(f"sending {n} outcomes (fail)", ValueError()))
    assert Samples(metrics.text())("dibs_trouble_total", where="sending outcomes (fail)") == 9


# Your own collector


class Collected:
    """A collector that writes down what it is told."""

    def __init__(self) -> None:
        self.busy: dict[tuple[str, str], int] = {}
        self.measured: list[tuple[str, str, str]] = []

    def inc_busy_workers(self, queue: str, kind: str) -> None:
        self.busy[queue, kind] = self.busy.get((queue, kind), 0) + 1

    def dec_busy_workers(self, queue: str, kind: str) -> None:
        self.busy[queue, kind] -= 1

    def measure_task_duration(self, queue: str, kind: str, outcome: Outcome, seconds: float) -> None:
        assert seconds >= 0
        self.measured.append((queue, kind, outcome.value))


async def test_what_a_collector_is_told_goes_up_and_down(app: dibs.App) -> None:
    collected = Collected()
    told: MetricsCollector = collected
    collect(app.events, told)
    async with client_of(app) as client:
        for kind in ("complete", "fail", "lose"):
            await client.enqueue("mail", kind)
        jobs = await work(app, lambda job: job.kind)
    idle = {("mail", kind): 0 for kind in ("complete", "fail", "lose")}
    assert collected.busy == idle
    assert collected.measured == [
        ("mail", "complete", "succeeded"),
        ("mail", "fail", "failed"),
        ("mail", "lose", "lost"),
    ]
    # A run that never began here, or is over already, is not counted down.
    app.events.tell(facts.RunLost(jobs[0]))
    assert (collected.busy, len(collected.measured)) == (idle, 3)


# Logs


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_json_lines_tell_how_each_run_ended(app: dibs.App, stream: io.StringIO) -> None:
    log = log_events(app.events, "json", stream=stream)
    async with client_of(app) as client:
        app.events.tell(facts.WorkerStarted(12, ("mail",)))
        made = await client.enqueue("mail", "welcome", max_attempts=2, backoff=NOW)
        for _ in range(3):
            await client.enqueue("mail", "digest")
        await work(app, lambda job: "fail" if job.kind == "welcome" else "complete")
        await work(app, lambda _: "fail")
        app.events.tell(facts.WorkerStopping(0))
    log.close()
    read = lines(stream)
    assert [line["event"] for line in read] == ["WorkerStarted", *["RunEnded"] * 5, "WorkerStopping"]
    failed, *succeeded, dead = read[1:6]
    assert failed == {
        "ts": failed["ts"], "level": "warning", "event": "RunEnded", "worker": 12, "job_id": str(made.id),
        "queue": "mail", "kind": "welcome", "attempt": 1, "outcome": "failed", "state": "ready", "ran": 0.3,
        "error": "ValueError: no such user", "message": failed["message"],
    }  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", failed["ts"])
    assert {(line["level"], line["kind"], line["outcome"]) for line in succeeded} == {("info", "digest", "succeeded")}
    assert (dead["level"], dead["state"], dead["attempt"]) == ("error", "exhausted", 2)


async def test_text_lines_are_for_people(app: dibs.App, stream: io.StringIO) -> None:
    log = log_events(app.events, "text", level="debug", stream=stream)

    @app.task(name="welcome")
    async def welcome() -> None: ...

    async with client_of(app):
        await welcome.aenqueue()
        (job,) = await work(app)
    app.events.tell(facts.RunEnded(job, Outcome.FAILED, State.EXHAUSTED, 1.5, "Odd: a\r\x1b[31mline\nand another"))
    app.events.tell(facts.Trouble("claim", dibs.ConnectionLost("it went\naway")))
    log.close()
    read = stream.getvalue().splitlines()
    named = rf"job {job.id} \(welcome on mail"
    for line, expected in zip(
        read,
        [
            rf"DEBUG {named}\): enqueued",
            r"DEBUG claimed 1 job in 0\.002 s",
            rf"DEBUG {named}, attempt 1 of \d+\) begins after \d\.\d{{3}} s",
            rf"INFO {named}, attempt 1 of \d+\) succeeded after 0\.020 s",
            r"DEBUG sent 1 outcome \(complete\) in 0\.004 s",
            rf"ERROR {named}, attempt 1 of \d+\) failed after 1\.500 s and is exhausted: Odd: a\\x0d\\x1b\[31mline",
            r"WARNING claim failed and is tried again: ConnectionLost: it went",
        ],
        strict=False,
    ):
        assert re.fullmatch(rf"\S+Z {expected}", line)
    assert "    dibs.errors.ConnectionLost: it went" in read[-2:]


def test_what_is_not_read_is_not_subscribed_to() -> None:
    hot = {facts.JobEnqueued, facts.JobsClaimed, facts.JobStarted, facts.LeasesRenewed, facts.OutcomesSent}
    for level, wanted in (
        ("debug", set(EVENTS)),
        ("info", set(EVENTS) - hot),
        ("error", {facts.RunEnded, facts.NotInForce, facts.OutageBegan, facts.ChildDied}),
    ):
        events = facts.Events()
        log = log_events(events, "text", level=level, stream=io.StringIO())
        assert {event for event in EVENTS if events.wants(event)} == wanted
        log.close()
        assert not any(events.wants(event) for event in EVENTS)


async def test_a_hundred_unknown_kinds_are_one_line(app: dibs.App, stream: io.StringIO) -> None:
    log = log_events(app.events, "json", stream=stream)
    async with client_of(app) as client:
        await client.enqueue("mail", "odd")
        (job,) = await client.claim("mail")
    for _ in range(100):
        app.events.tell(facts.KindUnknown(job))
    log.close()
    (line,) = lines(stream)
    assert (line["event"], line["kind"], line["level"]) == ("KindUnknown", "odd", "warning")


def test_other_records_of_dibs_are_json_as_well(stream: io.StringIO) -> None:
    log = log_events(facts.Events(), "json", stream=stream)
    try:
        raise ValueError("\ud800 is no text")
    except ValueError:
        logging.getLogger("dibs.events").exception("a subscriber failed")
    log.close()
    (line,) = lines(stream)
    assert (line["logger"], line["message"], line["level"]) == ("dibs.events", "a subscriber failed", "error")
    assert "ValueError" in line["traceback"]


def test_your_own_set_up_of_logging_gets_the_facts(caplog: pytest.LogCaptureFixture) -> None:
    events = facts.Events()
    before = logging.getLogger("dibs").handlers[:]
    log = log_events(events, "none")
    with caplog.at_level(logging.INFO, "dibs"):
        events.tell(facts.ChildDied(42, -9))
    log.close()
    assert logging.getLogger("dibs").handlers == before
    assert caplog.records[-1].__dict__["dibs"] == {"event": "ChildDied", "pid": 42, "status": -9}


def test_every_event_has_a_line_and_a_level() -> None:
    assert list(LEVELS) == EVENTS
    assert line_of(facts.ChildStarted(7)).text == "process 7 started"
    assert line_of(facts.OutageBegan(1.15)).text.endswith(": no answer for 1.1 s")
    assert line_of(facts.OutageBegan(1.15, dibs.ConnectionLost("it went\naway"))).text.endswith(
        ": ConnectionLost: it went"
    )
    assert line_of(facts.OutageEnded(12.34)).text == "the database answers again, after 12.3 s"
    assert line_of(facts.UpkeepDone("rescue", 3, {"ready": 2, "exhausted": 1})).text == (
        "upkeep: rescue: 2 ready, 1 exhausted"
    )


def test_a_line_of_the_log_has_a_bound() -> None:
    trouble = facts.Trouble("claiming", ValueError("x" * 5_000_000))
    assert 2000 < len(line_of(trouble).text) < 2100


@pytest.mark.parametrize("wrong", [{"format": "xml"}, {"level": "loud"}])
def test_a_log_says_what_it_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(dibs.InvalidArgument, match=next(iter(wrong.values()))):
        log_events(facts.Events(), **wrong)


def test_a_subscriber_that_is_a_method_can_leave() -> None:
    events, collected = facts.Events(), SimpleNamespace(seen=[])
    events.on(facts.ChildStarted, collected.seen.append)
    events.tell(facts.ChildStarted(1))
    events.off(facts.ChildStarted, collected.seen.append)
    assert not events.wants(facts.ChildStarted)
    assert collected.seen == [facts.ChildStarted(1)]


# OpenTelemetry


class Traces:
    """A provider that keeps its spans in memory."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer = self.provider.get_tracer("test")

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._memory.get_finished_spans()}


@pytest.fixture
def traces(app: dibs.App) -> Traces:
    traces = Traces()
    app.add_middleware(Tracing(traces.provider))
    return traces


def run(app: dibs.App, jobs: Sequence[Claimed], handler: Callable[[], Any]) -> Any:
    """Call a handler through the app's middleware, as a worker does."""
    batch = tuple(dibs.Context(job) for job in jobs)
    batch[0]._batch = batch
    return app.middleware[0].run(batch[0], handler)


def test_a_run_continues_the_trace_of_its_producer(app: dibs.App, traces: Traces) -> None:
    @app.task(name="welcome")
    def welcome() -> str:
        return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)

    with traces.tracer.start_as_current_span("request"):
        contexts.attach(baggage.set_baggage("tenant", "acme"))
        job = welcome.using(headers={"mine": 1}).enqueue()
    contexts.attach(contexts.Context())
    (claimed,) = app.client.claim("mail")
    assert claimed.headers
    assert (claimed.headers["mine"], claimed.headers["baggage"]) == (1, "tenant=acme")
    inside = run(app, [claimed], welcome)
    spans = traces.spans()
    request, sent, ran = spans["request"], spans["enqueue mail"], spans["run mail"]
    assert sent.parent
    assert ran.parent
    assert (sent.parent.span_id, ran.parent.span_id) == (request.context.span_id, sent.context.span_id)
    assert inside == trace.format_trace_id(request.context.trace_id)
    assert claimed.headers["traceparent"].split("-")[2] == trace.format_span_id(sent.context.span_id)
    assert (sent.kind, ran.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert dict(sent.attributes or {}) == {
        "messaging.system": "dibs",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "messaging.dibs.message.kind": "welcome",
        "messaging.dibs.enqueue.outcome": "enqueued",
    }
    assert dict(ran.attributes or {}) == {
        "messaging.system": "dibs",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "messaging.dibs.message.kind": "welcome",
        "messaging.dibs.message.attempt": 1,
    }


async def test_async_code_is_traced_as_well(app: dibs.App, traces: Traces) -> None:
    @app.task(name="welcome")
    async def welcome() -> None:
        await asyncio.sleep(0)

    async with client_of(app) as client:
        await welcome.aenqueue()
        (claimed,) = await client.claim("mail")
    await app.middleware[0].arun(dibs.Context(claimed), welcome)
    spans = traces.spans()
    assert spans["run mail"].parent
    assert spans["run mail"].parent.span_id == spans["enqueue mail"].context.span_id
    assert spans["run mail"].status.is_unset


def test_a_batch_links_to_every_producer(app: dibs.App, traces: Traces) -> None:
    @app.batch(max=10, name="index")
    def index(items: list[int]) -> None: ...

    index.enqueue(1)
    index.enqueue_many([index.call(2), index.call(3)])
    claimed = app.client.claim("mail", 10)
    run(app, claimed, lambda: None)
    single, many = (s for s in traces._memory.get_finished_spans() if s.name == "enqueue mail")
    ran = traces.spans()["run mail"]
    assert (many.attributes or {})["messaging.batch.message_count"] == 2
    assert ran.parent is None
    assert (ran.attributes or {})["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in (ran.attributes or {})
    linked = [(link.context.span_id, (link.attributes or {})["messaging.message.id"]) for link in ran.links]
    producers = [single.context.span_id, many.context.span_id, many.context.span_id]
    assert sorted(linked) == sorted(zip(producers, [str(job.id) for job in claimed], strict=True))


def test_a_run_inside_another_span_is_its_child_and_links(app: dibs.App, traces: Traces) -> None:
    app.enqueue_many([dibs.NewJob(queue="mail")])
    (claimed,) = app.client.claim("mail")
    with traces.tracer.start_as_current_span("loop"):
        run(app, [claimed], lambda: None)
    spans = traces.spans()
    ran = spans["run mail"]
    assert ran.parent
    assert ran.parent.span_id == spans["loop"].context.span_id
    assert [link.context.span_id for link in ran.links] == [spans["enqueue mail"].context.span_id]


def test_a_run_may_begin_a_trace_of_its_own(app: dibs.App) -> None:
    traces = Traces()
    app.add_middleware(Tracing(traces.provider, continue_trace=False))

    @app.task(name="welcome")
    def welcome() -> None: ...

    welcome.enqueue()
    run(app, app.client.claim("mail"), welcome)
    spans = traces.spans()
    assert spans["run mail"].parent is None
    assert [link.context.span_id for link in spans["run mail"].links] == [spans["enqueue mail"].context.span_id]


def test_a_producers_own_context_is_left_alone(app: dibs.App, traces: Traces) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @app.task(name="welcome", headers={"traceparent": own})
    def welcome() -> None: ...

    welcome.enqueue()
    (claimed,) = app.client.claim("mail")
    assert claimed.headers == {"traceparent": own}
    run(app, [claimed], welcome)
    spans = traces.spans()
    assert trace.format_span_id(spans["enqueue mail"].links[0].context.span_id) == "b7ad6b7169203331"
    assert spans["run mail"].parent
    assert trace.format_trace_id(spans["run mail"].context.trace_id) == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    "headers", [{}, {"traceparent": 7}, {"traceparent": ["x"], "baggage": {}}, {"traceparent": "?"}]
)
def test_headers_that_hold_no_trace_harm_nothing(
    client: dibs.Client, app: dibs.App, traces: Traces, headers: dict[str, Any]
) -> None:
    client.enqueue("mail", "welcome", headers=headers)
    assert run(app, client.claim("mail"), lambda: "ran") == "ran"
    assert traces.spans()["run mail"].parent is None


def test_how_a_run_ended_is_on_its_span(client: dibs.Client, app: dibs.App, traces: Traces) -> None:
    def ends_by(error: BaseException) -> ReadableSpan:
        def handler() -> None:
            raise error

        client.enqueue("mail", "welcome")
        with pytest.raises(type(error)):
            run(app, client.claim("mail"), handler)
        return traces._memory.get_finished_spans()[-1]

    failed = ends_by(ValueError("no such user"))
    assert (failed.status.status_code, failed.status.description) == (trace.StatusCode.ERROR, "no such user")
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]
    assert (ends_by(asyncio.CancelledError()).attributes or {})["error.type"] == "CancelledError"
    snoozed = ends_by(dibs.Snooze(60))
    assert snoozed.status.is_unset
    assert [(event.name, dict(event.attributes or {})) for event in snoozed.events] == [("snoozed", {"delay": 60.0})]


def test_follow_ups_carry_the_trace_of_the_run(client: dibs.Client, app: dibs.App, traces: Traces) -> None:
    client.enqueue("mail", "first")
    (claimed,) = client.claim("mail")
    context = dibs.Context(claimed)
    app.middleware[0].run(context, lambda: context.enqueue(dibs.NewJob(queue="mail", kind="second")))
    client.complete(claimed, follow_ups=context.follow_ups)
    (second,) = client.claim("mail")
    assert second.headers
    assert trace.format_span_id(traces.spans()["run mail"].context.span_id) in second.headers["traceparent"]


def test_without_an_sdk_jobs_are_left_as_they_are(app: dibs.App) -> None:
    app.add_middleware(Tracing())

    @app.task(name="welcome")
    def welcome() -> str:
        return "ran"

    welcome.enqueue()
    (claimed,) = app.client.claim("mail")
    assert claimed.headers is None
    assert run(app, [claimed], welcome) == "ran"


def test_a_producers_own_baggage_goes_along_with_the_trace(app: dibs.App, traces: Traces) -> None:
    @app.task(name="welcome", headers={"baggage": "mine=1"})
    def welcome() -> None: ...

    with traces.tracer.start_as_current_span("request"):
        token = contexts.attach(baggage.set_baggage("tenant", "acme"))
        welcome.enqueue()
        contexts.detach(token)
    (claimed,) = app.client.claim("mail")
    assert claimed.headers
    assert claimed.headers["baggage"] == "mine=1"
    sent = traces.spans()["enqueue mail"]
    assert claimed.headers["traceparent"].split("-")[2] == trace.format_span_id(sent.context.span_id)


def test_a_handler_sees_the_baggage_of_its_producer(app: dibs.App, traces: Traces) -> None:
    @app.task(name="welcome")
    def welcome() -> object:
        return baggage.get_baggage("tenant")

    token = contexts.attach(baggage.set_baggage("tenant", "acme"))
    welcome.enqueue()
    contexts.detach(token)
    (claimed,) = app.client.claim("mail")
    assert run(app, [claimed], welcome) == "acme"
    assert baggage.get_baggage("tenant") is None


def test_a_run_begins_a_trace_of_its_own_inside_another_span(app: dibs.App) -> None:
    traces = Traces()
    app.add_middleware(Tracing(traces.provider, continue_trace=False))
    app.client.enqueue("mail", "welcome")
    with traces.tracer.start_as_current_span("loop"):
        run(app, app.client.claim("mail"), lambda: None)
    assert traces.spans()["run mail"].parent is None


def test_bounds_of_a_histogram_are_exact_and_each_is_there_once() -> None:
    sizes = Histogram("c", "C.", buckets=(1, 104.8576, 104.85761, math.inf))
    sizes.observe(2)
    [family] = text_string_to_metric_families(render([sizes]))
    bounds = [s.labels["le"] for s in family.samples if s.name == "c_bucket"]
    assert bounds == ["1", "104.8576", "104.85761", "+Inf"]


@pytest.mark.parametrize("odd", ["a\u2028b", "a\x0bb", "a\x85b", "a\rb"])
def test_a_label_may_hold_what_python_takes_for_a_line_end(odd: str) -> None:
    counter = Counter("a_total", "A.", "of")
    counter.add(2, odd)
    merged = merge("", {"7": render([counter])}, "process")
    assert merged.split("\n")[2] == f'a_total{{process="7",of="{odd}"}} 2'


async def test_a_collector_of_the_official_library_may_enqueue(app: dibs.App) -> None:
    """It is asked without the lock that the events of an enqueue take."""

    class Collector:
        def collect(self) -> list[Any]:
            if not metrics._lock.acquire(blocking=False):
                asked.append("locked")
            else:
                metrics._lock.release()
                asked.append("free")
            return []

    asked: list[str] = []
    metrics = Prometheus(app.events)
    collector: Any = Collector()
    prometheus_client.REGISTRY.register(collector)
    try:
        asked.clear()
        metrics.text()
    finally:
        prometheus_client.REGISTRY.unregister(collector)
    assert asked == ["free"]


async def test_a_child_that_cannot_be_asked_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(path: Path) -> Any:
        raise PermissionError(13, "no", str(path))

    (tmp_path / "7.sock").touch()
    monkeypatch.setattr(asyncio, "open_unix_connection", refuse)
    assert await gather(tmp_path) == {}


async def test_a_child_that_does_not_listen_yet_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / f"{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        assert await gather(tmp_path) == {}
        assert path.exists()


@pytest.mark.parametrize("form", [TextFormat, JsonFormat])
def test_the_stack_of_a_record_is_shown(form: type[logging.Formatter]) -> None:
    record = logging.LogRecord("shop", logging.INFO, "", 0, "hello", (), None, sinfo="Stack (most recent call last):")
    assert "Stack (most recent call last)" in form().format(record)


@pytest.mark.parametrize("odd", ["\ud800", "\u202e", "\u2066"])
def test_a_line_of_text_has_no_character_that_turns_or_breaks_it(odd: str) -> None:
    record = logging.LogRecord("shop", logging.INFO, "", 0, f"hello {odd} there", (), None)
    line = TextFormat().format(record)
    assert odd not in line
    assert f"hello \\u{ord(odd):04x} there" in line
    line.encode()


def test_facts_that_are_nested_too_deeply_do_not_lose_the_line() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    record = logging.LogRecord("shop", logging.INFO, "", 0, "hello", (), None)
    record.__dict__["dibs"] = {"event": "Odd", "deep": deep, "kind": "k"}
    told = json.loads(JsonFormat().format(record))
    assert (told["message"], told["kind"]) == ("hello", "k")
    assert "deep" not in told


def test_one_lease_is_one_lease() -> None:
    assert line_of(facts.LeasesRenewed(1, 0.1)).text.startswith("renewed 1 lease in")
    assert line_of(facts.OutcomesSent("fail", 1, 0.1)).text.startswith("sent 1 outcome (fail)")
