"""What a real worker tells: logs, metrics and traces of jobs it ran."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

import dibs
from dibs import events
from dibs.metrics import Prometheus, collect, log_events
from dibs.metrics.tracing import Tracing
from dibs.worker import Worker, WorkerSettings
from tests.docs.pages import ROOT
from tests.integration import traced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs.states import Outcome


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="mail")
    yield app
    app.close()


async def drain(app: dibs.App) -> None:
    """Run what there is, to its end."""
    async with asyncio.timeout(60):
        await Worker(app, WorkerSettings(("mail",), drain=True, upkeep=False)).run()


class Busy:
    """A collector that adds up."""

    def __init__(self) -> None:
        self.now = 0
        self.measured: Counter[tuple[str, str]] = Counter()

    def inc_busy_workers(self, queue: str, kind: str) -> None:
        assert (queue, kind) == ("mail", "welcome")
        self.now += 1

    def dec_busy_workers(self, queue: str, kind: str) -> None:
        assert (queue, kind) == ("mail", "welcome")
        self.now -= 1

    def measure_task_duration(self, queue: str, kind: str, outcome: Outcome, seconds: float) -> None:
        assert queue == "mail"
        assert 0 <= seconds < 60
        self.measured[kind, outcome.value] += 1


def samples(text: str) -> dict[tuple[Any, ...], float]:
    """Every sample, by its name and the values of its labels but the bucket's bound."""
    return {
        (s.name, *(value for name, value in sorted(s.labels.items()) if name != "le")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


async def test_a_worker_tells_what_it_did(app: dibs.App) -> None:
    stream, busy = io.StringIO(), Busy()
    metrics = Prometheus(app.events)
    collect(app.events, busy)
    log = log_events(app.events, "json", stream=stream)

    @app.task(name="welcome", retry=dibs.Retry(max_attempts=2, backoff=dibs.constant(0)))
    async def welcome(n: int) -> None:
        if n == 0:
            raise ValueError("no such user\nand more")

    welcome.enqueue_many(welcome.call(n) for n in range(100))
    await drain(app)
    log.close()
    read = samples(metrics.text())
    # The labels are sorted by name: kind, outcome, queue, state.
    assert read["dibs_runs_total", "welcome", "succeeded", "mail", "succeeded"] == 99
    assert read["dibs_runs_total", "welcome", "failed", "mail", "exhausted"] == 1
    assert read["dibs_retries_total", "welcome", "mail"] == 1
    assert read["dibs_claimed_jobs_total",] == 101
    assert read["dibs_wait_seconds_count", "welcome", "mail"] == 101
    assert read["dibs_first_attempt_age_seconds_count", "welcome", "mail"] == 100
    assert read["dibs_run_seconds_count", "welcome", "failed", "mail"] == 2
    assert read["dibs_busy", "welcome", "mail"] == 0
    assert read["dibs_outcomes_sent_total", "complete"] == 99
    assert read["dibs_outcomes_sent_total", "fail"] == 2
    assert (busy.now, busy.measured) == (0, {("welcome", "succeeded"): 99, ("welcome", "failed"): 2})
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = Counter((line["event"], line["level"]) for line in lines)
    assert told["RunEnded", "warning"] == told["RunEnded", "error"] == 1
    assert told["RunEnded", "info"] == 99
    assert told["WorkerStarted", "info"] == told["WorkerStopped", "info"] == 1
    assert {line["error"] for line in lines if line["event"] == "RunEnded" and line["level"] != "info"} == {
        "ValueError: no such user"
    }
    numbers = {line["worker"] for line in lines}
    assert len(numbers) == 1


async def test_an_outcome_is_told_when_it_is_recorded(app: dibs.App) -> None:
    states: list[tuple[str, str]] = []

    @app.on(events.RunEnded)
    def ended(event: events.RunEnded) -> None:
        states.append((event.state, app.client.status(event.job.id).state.value))

    @app.task(name="welcome", retry=dibs.Retry(max_attempts=1))
    async def welcome(n: int) -> None:
        if n == 1:
            raise ValueError
        if n == 2:
            raise dibs.GiveUp("never")
        if n == 3 and dibs.context().job.run == 1:
            raise dibs.Snooze(0)

    for n in range(4):
        welcome.using(priority=9 - n).enqueue(n)
    await drain(app)
    ends = [state for state in states if state[0] in {"succeeded", "failed", "exhausted"}]
    assert sorted(ends) == [(s, s) for s in ("exhausted", "failed", "succeeded", "succeeded")]


async def test_nothing_is_told_to_nobody(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[events.Event] = []
    monkeypatch.setattr(events.Events, "tell", lambda _, event: told.append(event))

    @app.task(name="welcome")
    async def welcome() -> None: ...

    welcome.enqueue()
    await drain(app)
    hot = (events.JobStarted, events.RunEnded, events.JobsClaimed, events.OutcomesSent)
    assert not [event for event in told if isinstance(event, hot)]


async def test_handlers_run_in_the_trace_of_their_producer(app: dibs.App) -> None:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    app.add_middleware(Tracing(provider))
    tracer = provider.get_tracer("test")

    @app.task(name="on_the_loop")
    async def on_the_loop() -> None:
        with tracer.start_as_current_span("inside on_the_loop"):
            dibs.context().enqueue(in_a_thread.call())

    @app.task(name="in_a_thread")
    def in_a_thread() -> None:
        with tracer.start_as_current_span("inside in_a_thread"):
            pass

    @app.batch(max=10, name="together")
    async def together(items: list[int]) -> None: ...

    with tracer.start_as_current_span("request"):
        on_the_loop.enqueue()
    with tracer.start_as_current_span("import"):
        together.enqueue_many(together.call(n) for n in range(3))
    await drain(app)
    spans = memory.get_finished_spans()
    by_name = {span.name: span for span in spans}
    trace_ids = {name: span.context.trace_id for name, span in by_name.items()}
    assert trace_ids["inside on_the_loop"] == trace_ids["inside in_a_thread"] == trace_ids["request"]
    (ran,) = (s for s in spans if (s.attributes or {}).get("messaging.dibs.message.kind") == "together" and s.links)
    assert (ran.attributes or {})["messaging.batch.message_count"] == 3
    assert {link.context.trace_id for link in ran.links} == {trace_ids["import"]}


def parents(spans: Sequence[ReadableSpan]) -> list[tuple[str, str, str | None]]:
    """Every span, in the order in which they began: its name, its kind of job, and the name of its parent."""
    names = {span.context.span_id: span.name for span in spans}
    return [
        (
            s.name,
            str((s.attributes or {}).get("messaging.dibs.message.kind", "")),
            names[s.parent.span_id] if s.parent else None,
        )
        for s in sorted(spans, key=lambda s: s.start_time or 0)
    ]


async def test_a_trace_goes_from_the_enqueue_through_the_run_to_its_follow_ups(app: dibs.App) -> None:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    app.add_middleware(Tracing(provider))
    tracer = provider.get_tracer("shop")
    headers: list[dict[str, Any] | None] = []

    @app.task(name="welcome")
    async def welcome() -> None:
        with tracer.start_as_current_span("render"):
            dibs.context().enqueue(receipt.call())

    @app.task(name="receipt", retry=dibs.Retry(max_attempts=2, backoff=dibs.constant(0)))
    def receipt() -> None:
        headers.append(dibs.context().job.headers)
        if dibs.context().attempt == 1:
            raise ValueError
        with dibs.context().transaction():
            dibs.context().enqueue(archive.call())

    @app.task(name="archive")
    async def archive() -> None: ...

    with tracer.start_as_current_span("sign up"):
        await asyncio.to_thread(welcome.enqueue)
    await drain(app)
    spans = memory.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) == 1
    assert parents(spans) == [
        ("sign up", "", None),
        ("enqueue mail", "welcome", "sign up"),
        ("run mail", "welcome", "enqueue mail"),
        ("render", "", "run mail"),
        ("run mail", "receipt", "render"),
        ("run mail", "receipt", "render"),
        ("run mail", "archive", "run mail"),
    ]
    attempts = [
        s.attributes["messaging.dibs.message.attempt"] for s in spans if s.attributes and "error.type" in s.attributes
    ]
    assert attempts == [1]
    assert headers[0] == headers[1], "a retry belongs where the first attempt did"
    picture = (ROOT / "docs" / "run" / "trace.svg").read_text()
    drawn = re.findall(r'<text class="name"[^>]*>([^<]*)<', picture)
    assert drawn == ["sign up", "enqueue mail", "run mail", "render", "run mail"] == [s[0] for s in parents(spans)[:5]]
    assert set(re.findall(r"kind (\w+), attempt 1", picture)) == {"welcome", "receipt"}


async def test_a_run_in_another_process_passes_its_trace_on(app: dibs.App, dsn: str) -> None:
    del app
    memory = InMemorySpanExporter()
    traced.provider.add_span_processor(SimpleSpanProcessor(memory))
    traced.app.dsn = dsn
    with traced.provider.get_tracer("shop").start_as_current_span("sign up"):
        await asyncio.to_thread(traced.elsewhere.enqueue)
    await drain(traced.app)
    sent, ran, request = (
        next(s for s in memory.get_finished_spans() if s.name == n) for n in ("enqueue mail", "run mail", "sign up")
    )
    assert (ran.attributes or {})["messaging.dibs.message.kind"] == "here"
    assert ran.context.trace_id == sent.context.trace_id == request.context.trace_id
    assert ran.parent
    assert ran.parent.span_id != sent.context.span_id, "its parent is the run in the other process"
    traced.app.close()
