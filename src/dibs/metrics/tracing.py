"""OpenTelemetry: the producer's trace goes along with a job, and its run continues it.

Follows the semantic conventions for messaging. The span of a run is a child of the span that enqueued the job. Inside
another span it is a child of that one, and the run of a batch, whose jobs have many producers, is a child of none of
them: in both cases it has a link to each span that enqueued one of its jobs. Needs the extra ``otel``. Only its API is
used, so the application chooses the SDK that records the spans.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dibs.client.middleware import Middleware
from dibs.errors import DibsError
from dibs.job import NewJob
from dibs.retry import Snooze

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
except ImportError as error:
    raise ImportError("tracing needs OpenTelemetry: pip install 'dibs[otel]'") from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from dibs.client.context import Context
    from dibs.job import Claimed, Enqueued

Attributes = dict[str, str | int]

_KIND = "messaging.dibs.message.kind"
_ATTEMPT = "messaging.dibs.message.attempt"
_ID = "messaging.message.id"
_COUNT = "messaging.batch.message_count"


class Tracing(Middleware):
    """Spans around enqueue and run: ``app.add_middleware(Tracing())``.

    With ``continue_trace=False`` every run starts its own trace, with a link to the one that enqueued it. Use it for
    jobs that run hours later, and for many jobs of one request.
    """

    def __init__(self, provider: trace.TracerProvider | None = None, *, continue_trace: bool = True) -> None:
        self._tracer = trace.get_tracer("dibs", tracer_provider=provider)
        self._continue = continue_trace

    def enqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    ) -> Sequence[Enqueued]:
        """Trace an enqueue from sync code."""
        with self._sending(jobs) as span:
            return _note_answer(span, proceed(_with_trace(jobs)))

    async def aenqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Awaitable[Sequence[Enqueued]]]
    ) -> Sequence[Enqueued]:
        """Trace an enqueue from async code."""
        with self._sending(jobs) as span:
            return _note_answer(span, await proceed(_with_trace(jobs)))

    def run(self, context: Context, proceed: Callable[[], Any]) -> Any:
        """Trace a run of a ``def`` handler."""
        with self._processing(context):
            return proceed()

    async def arun(self, context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        """Trace a run of an ``async def`` handler."""
        with self._processing(context):
            return await proceed()

    @contextmanager
    def _sending(self, jobs: Sequence[NewJob]) -> Iterator[trace.Span]:
        own = (_origin(job.headers) for job in jobs)
        with self._tracer.start_as_current_span(
            _name("enqueue", jobs),
            kind=trace.SpanKind.PRODUCER,
            attributes=_attributes("enqueue", "send", jobs),
            links=[trace.Link(origin) for origin in own if origin.is_valid],
        ) as span:
            yield span

    @contextmanager
    def _processing(self, context: Context) -> Iterator[None]:
        jobs = [here.job for here in context.batch]
        attributes = _attributes("run", "process", jobs)
        if len(jobs) == 1:
            attributes |= {_ID: str(context.id), _ATTEMPT: context.attempt}
        parent, links = self._parent_and_links(jobs)
        with (
            _attached(parent),
            self._tracer.start_as_current_span(
                _name("run", jobs),
                None,  # The parent is attached, and with it the producer's baggage.
                trace.SpanKind.CONSUMER,
                attributes,
                links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
        ):
            for here in context.batch:
                here.follow_ups = _TracedJobs(here.follow_ups)
            with _outcome_on(span):
                yield

    def _parent_and_links(self, jobs: Sequence[Claimed]) -> tuple[contexts.Context, list[trace.Link]]:
        """Return the context in which a run begins, and its links."""
        current = contexts.get_current()
        is_in_span = trace.get_current_span().get_span_context().is_valid
        if self._continue and not is_in_span and len(jobs) == 1:
            return propagate.extract(_carrier(_headers(jobs[0])), current), []
        origins = [(job, _origin(_headers(job))) for job in jobs]
        links = [trace.Link(origin, {_ID: str(job.id)}) for job, origin in origins if origin.is_valid]
        if self._continue:
            return current, links
        return trace.set_span_in_context(trace.INVALID_SPAN, current), links  # Without a parent it begins a trace.


class _TracedJobs(list[NewJob]):
    """Follow-up jobs, each with the trace in which it was made."""

    def append(self, job: NewJob) -> None:
        super().append(_with_trace([job])[0])


@contextmanager
def _attached(context: contexts.Context) -> Iterator[None]:
    token = contexts.attach(context)
    try:
        yield
    finally:
        contexts.detach(token)


def _with_trace(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Put the current trace into the headers of jobs, except where the producer has set one. Its own headers stay."""
    carrier: dict[str, Any] = {}
    propagate.inject(carrier)
    if not carrier:
        return jobs
    return [
        job if _origin(job.headers).is_valid else replace(job, headers={**carrier, **(job.headers or {})})
        for job in jobs
    ]


def _note_answer(span: trace.Span, made: Sequence[Enqueued]) -> Sequence[Enqueued]:
    if len(made) == 1:
        span.set_attribute(_ID, str(made[0].id))
        span.set_attribute("messaging.dibs.enqueue.outcome", made[0].outcome)
    return made


@contextmanager
def _outcome_on(span: trace.Span) -> Iterator[None]:
    """Record the outcome of a run on its span; a snooze is no error."""
    try:
        yield
    except Snooze as snooze:
        span.add_event("snoozed", {"delay": snooze.delay})
        raise
    except BaseException as error:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(trace.StatusCode.ERROR, str(error))
        raise


def _name(operation: str, jobs: Sequence[NewJob] | Sequence[Claimed]) -> str:
    queue = _common(job.queue for job in jobs)
    return operation if queue is None else f"{operation} {queue}"


def _attributes(operation: str, operation_type: str, jobs: Sequence[NewJob] | Sequence[Claimed]) -> Attributes:
    found: Attributes = {
        "messaging.system": "dibs",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
    }
    queue, kind = _common(job.queue for job in jobs), _common(job.kind for job in jobs)
    if queue is not None:
        found["messaging.destination.name"] = queue
    if kind is not None:
        found[_KIND] = kind
    if len(jobs) != 1:
        found[_COUNT] = len(jobs)
    return found


def _common(values: Iterator[str]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _headers(job: Claimed) -> dict[str, Any] | None:
    """Return the headers of a job. They are decoded here; if they cannot be, the run goes on without its trace."""
    try:
        return job.headers
    except DibsError:
        return None


def _carrier(headers: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: value for name, value in (headers or {}).items() if isinstance(value, str)}


def _origin(headers: Mapping[str, Any] | None) -> trace.SpanContext:
    found = propagate.extract(_carrier(headers), contexts.Context())
    return trace.get_current_span(found).get_span_context()
