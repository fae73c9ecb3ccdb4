"""What people read first: errors that name the task and the argument, reprs, and the warning about event loops."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import dibs
from dibs import errors
from dibs.client import on_loop

if TYPE_CHECKING:
    from collections.abc import Callable

ID = "0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871"


@dataclass
class Line:
    sku: str
    count: Any


@pytest.fixture
def app(dsn: str) -> dibs.App:
    return dibs.App(dsn, queue="payments", name="shop")


@pytest.fixture
def charge(app: dibs.App) -> dibs.Task[..., Any]:
    @app.task(name="shop.tasks.charge")
    def charge(order_id: int, amount: Decimal = Decimal(1), lines: list[Line] | None = None) -> str:
        return ""

    return charge


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1, lambda: 1), {}, "argument 'amount' is a function, which cannot be kept as JSON - at `$.amount`"),
        ((1,), {"lines": [Line("a", 1), Line("b", object())]}, "argument 'lines' holds an object, which cannot be kept"
         " as JSON - at `$.lines[1].count`"),
        (("one",), {}, "Expected `int`, got `str` - at `$.order_id`"),
        ((1,), {"lines": [Line(2, 1)]}, "Expected `str`, got `int` - at `$.lines[0].sku`"),  # type: ignore[arg-type]
        ((), {}, "missing a required argument: 'order_id'"),
        ((1, 2, [], 4), {}, "too many positional arguments"),
        ((1,), {"amont": 2}, "unexpected keyword argument 'amont'; did you mean 'amount'?"),
    ],
)  # fmt: skip
def test_wrong_arguments_name_the_task_and_the_argument(
    charge: dibs.Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    with pytest.raises(dibs.InvalidArgument) as raised:
        charge.enqueue(*args, **kwargs)
    assert raised.value.message.startswith("task shop.tasks.charge: ")
    assert words in raised.value.message
    assert raised.value.hint == (
        "it takes (order_id: int, amount: Decimal = Decimal('1'), lines: list[Line] | None = None) -> str"
    )


def test_what_holds_itself_is_refused(app: dibs.App) -> None:
    @app.task
    def deep(items: list[Any]) -> None: ...

    items: list[Any] = []
    items.append(items)
    with pytest.raises(dibs.InvalidArgument, match="argument 'items' is nested too deeply to be kept as JSON"):
        deep.enqueue(items)


def test_a_raw_task_names_the_place_in_its_payload(app: dibs.App) -> None:
    @app.task(raw=True, name="hook")
    def hook(payload: Any) -> None: ...

    with pytest.raises(dibs.InvalidArgument, match=r"task hook: .* holds an object, .* at `\$.payload.a\[0\]`"):
        hook.enqueue({"a": [object()]})


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"a": object()}, "object cannot be sent as JSON - at `$.payload.a`"),
        ({"a": [1, {"b-c": {1, object()}}]}, "object cannot be sent as JSON - at `$.payload.a[1]['b-c']"),
        ([0, float("inf")], "JSON has no NaN and no infinity; send null, a string, or bytes - at `$.payload[1]`"),
        ({"t": ["\ud800"]}, "surrogates not allowed - at `$.payload.t[0]`"),
    ],
)
def test_a_payload_that_is_no_json_is_refused_with_its_place(client: dibs.Client, payload: Any, words: str) -> None:
    refused: list[Callable[[], object]] = [
        lambda: client.enqueue("mail", "welcome", payload),
        lambda: client.enqueue("mail", "welcome", payload, dedup_key="a"),
        lambda: client.enqueue_many([dibs.NewJob(queue="mail", kind="welcome", payload=payload)] * 2),
    ]
    for enqueue in refused:
        with pytest.raises(dibs.InvalidArgument) as raised:
            enqueue()
        assert raised.value.message.startswith("job of kind 'welcome' for queue 'mail': ")
        assert words in raised.value.message
    assert client.queues.depth("mail").waiting == 0


def test_headers_that_are_no_json_are_refused(client: dibs.Client) -> None:
    with pytest.raises(dibs.InvalidArgument, match=r"for queue 'q': object .* at `\$.headers.trace`"):
        client.enqueue("q", "k", headers={"trace": object()})


def test_reprs_are_for_people(app: dibs.App, charge: dibs.Task[..., Any]) -> None:
    assert repr(charge.using(queue="fast")) == (
        "<Task shop.tasks.charge on queue fast:"
        " (order_id: int, amount: Decimal = Decimal('1'), lines: list[Line] | None = None) -> str>"
    )
    assert repr(app).endswith(": 1 task>")
    assert repr(app.remote("a.b", queue="q")) == "<RemoteTask a.b on queue q>"
    assert repr(app.job(ID)) == f"<Job {ID}>"
    keyed = charge.using(dedup_key="a")
    keyed.enqueue(1)
    again = keyed.enqueue(1)
    assert repr(again) == f"<Job {again.id} duplicate>"


@pytest.mark.parametrize("dsn", ["postgresql://me:hush@db.example.org/shop", "host=h user=me password='hush"])
def test_no_repr_shows_a_password(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = (dibs.Client(dsn), dibs.AsyncClient(dsn))
    shown = [repr(thing) for thing in (*clients, dibs.App(dsn), clients[0].job(ID), clients[1].job(ID))]
    assert not [text for text in shown if "hush" in text]
    monkeypatch.setenv("DIBS_DSN", "postgresql://me:hush@db.example.org/shop")
    assert repr(dibs.Client()) == "<Client at shop@db.example.org>"


def test_wrong_options_are_refused_when_the_decorator_is_called(app: dibs.App) -> None:
    refused: list[Callable[[], object]] = [
        lambda: app.task(queu="x"),  # type: ignore[call-overload]
        lambda: app.batch(queu="x"),  # type: ignore[call-arg]
        lambda: app.schedule("0 3 * * *", queu="x"),  # type: ignore[call-arg]
        lambda: app.schedule("0 3 * * *", zon="UTC"),  # type: ignore[call-arg]
        lambda: app.task("x"),  # type: ignore[call-overload]
        lambda: app.task(timeout=-1),
        lambda: app.batch(max=0),
    ]
    for decorate in refused:
        with pytest.raises(dibs.InvalidArgument):
            decorate()
    with pytest.raises(dibs.InvalidArgument, match="no option 'queu'\nhint: did you mean 'queue'"):
        refused[0]()
    assert not app.tasks


async def test_no_result_is_not_an_unknown_job(client: dibs.Client, dsn: str) -> None:
    unknown = client.job(ID)
    assert unknown.status().state is dibs.State.UNKNOWN
    with pytest.raises(dibs.UnknownJob, match=ID):
        unknown.result()
    assert client.job(client.enqueue("q", "k").id).result() is None
    async with dibs.AsyncClient(dsn) as other:
        with pytest.raises(dibs.UnknownJob, match=ID):
            await other.job(UUID(ID)).result()


def test_the_result_of_a_batch_is_that_of_one_outcome(app: dibs.App) -> None:
    @app.batch(max=10, retry=dibs.Retry(max_attempts=1))
    def index(pages: list[str]) -> list[int | ValueError]:
        return [len(page) if page else ValueError("empty") for page in pages]

    job = index.enqueue("page")
    app.run_worker(drain=True)
    assert job.wait() == 4
    assert index("pages")[0] == 5


def test_the_result_of_a_raw_task_has_its_type(app: dibs.App) -> None:
    @app.task(raw=True)
    def count(payload: Any) -> Decimal:
        return Decimal(len(payload))

    job = count.enqueue([1, 2])
    app.run_worker(drain=True)
    assert job.wait() == Decimal(2)
    assert isinstance(job.result(), Decimal)


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_loop, "_told", set())


@pytest.mark.usefixtures("untold")
async def test_a_blocking_enqueue_on_an_event_loop_is_said_once(app: dibs.App, charge: dibs.Task[..., Any]) -> None:
    ways: list[tuple[Callable[[], object], str]] = [
        (lambda: charge.enqueue(1), "Task.enqueue .* `await aenqueue"),
        (lambda: charge.enqueue_many([charge.call(1)]), "Task.enqueue_many .* `await aenqueue_many"),
        (lambda: app.enqueue_many([charge.call(1)]), "App.enqueue_many .* `await aenqueue_many"),
        (lambda: app.client.enqueue("q", "k"), "Client.enqueue .*AsyncClient"),
        (lambda: app.client.enqueue_many([charge.call(1)] * 2), "Client.enqueue_many .*AsyncClient"),
        (lambda: app.client.message_queue("m").send("hello"), "MessageQueue.send .*AsyncClient"),
    ]
    for way, words in ways:
        with pytest.warns(errors.BlocksLoop, match=words) as told:
            way()
        assert [w.filename for w in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for way, _ in ways:
            way()


@pytest.mark.usefixtures("untold")
async def test_nothing_is_said_where_no_event_loop_is_kept_waiting(app: dibs.App, charge: dibs.Task[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await charge.aenqueue(1)
        await app.aenqueue_many([charge.call(1)] * 2)
        await asyncio.to_thread(charge.enqueue, 1)

        @app.task
        def outer() -> None:
            charge.enqueue(2)

        await outer.aenqueue()
        await app.arun_worker(drain=True)
    assert not on_loop._told
    await app.aclose()
