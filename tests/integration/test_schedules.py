"""Schedules as users meet them: cron over a year, schedulers that race and die, apps, the upkeep and the CLI."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import dibs
from dibs.db.calls.call import Call
from dibs.db.calls.schedules import ToRead
from dibs.db.database_async import AsyncDatabase
from dibs.maintenance import ChoreDone, do
from dibs.scheduler import declare, fire_due
from dibs.worker import Worker, WorkerSettings
from tests.integration.test_cli import Dibs
from tests.waiting import wait_until
from tests.walls import expected_slots

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import psycopg

    from dibs.testing import Clock

START = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
JOB = dibs.NewJob(queue="q", kind="k", history="none")


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[AsyncDatabase]:
    database = AsyncDatabase(dsn, pool_size=3)
    yield database
    await database.close()


@pytest.fixture
def run(dsn: str) -> Dibs:
    return Dibs(dsn)


def slots(db: psycopg.Connection[Any], name: str) -> list[datetime]:
    rows = db.execute("select slot from dibs.schedule_runs where schedule = %s order by slot", (name,))
    return [row[0].astimezone(UTC) for row in rows]


async def tick(database: AsyncDatabase) -> ChoreDone:
    """A round of all schedules, due or not."""
    done = await do(database, "schedule", force=True)
    assert isinstance(done, ChoreDone), done
    return done


# --- a year -----------------------------------------------------------------------------------------------------------

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
CRONS = ("30 2 * * *", "15,45 1-2 * * *", "*/30 1,2 * * *")
RIVAL = """
import asyncio, sys
from dibs.db.database_async import AsyncDatabase
from dibs.maintenance import do

async def main():
    database = AsyncDatabase(sys.argv[1], pool_size=1)
    print("here", flush=True)
    while True:
        await do(database, "schedule", force=True)
        await asyncio.sleep(0.03)

asyncio.run(main())
"""


class Rival:
    """A second scheduler, in a separate process, that is killed now and then."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-c", RIVAL, self._dsn]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def die_and_return(self) -> None:
        self.die()
        self._start()

    def die(self) -> None:
        assert self._process.stdout
        assert self._process.stdout.readline() == "here\n"
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def year_of_steps() -> Iterator[tuple[timedelta, bool]]:
    """Weeks, and for two days from each change of a clock short steps; true where one of the schedulers shall die."""
    chance = random.Random(2030)
    changes = [datetime(2030, *day, tzinfo=UTC) for day in ((3, 9), (3, 30), (4, 6), (10, 5), (10, 26), (11, 2))]
    deaths = [change + chance.random() * 2 * DAY for change in changes[::2]]
    now, end = START, START + 366 * DAY
    while now < end:
        near = any(change <= now < change + 2 * DAY for change in changes)
        step = timedelta(minutes=chance.randint(60, 360)) if near else timedelta(hours=chance.randint(100, 500))
        step = min(step, *(change - now for change in [*changes, end] if change > now))
        yield step, any(now < death <= now + step for death in deaths)
        now += step


async def test_each_slot_of_a_year_has_one_job(
    client: dibs.Client, dsn: str, database: AsyncDatabase, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.freeze(START)
    client.queues.set("q", history="none", ttl=None)
    for zone in ZONES:
        for cron in CRONS:
            await asyncio.to_thread(
                client.schedules.set, f"{zone} {cron}", JOB, cron=cron, zone=zone, overlap="allow", catch_up=1000
            )
    rival = await asyncio.to_thread(Rival, dsn)
    deaths, ours = 0, 0
    for step, deadly in year_of_steps():
        clock.move(step)
        if deadly:
            await asyncio.to_thread(rival.die_and_return)
            deaths += 1
        ours += (await tick(database)).counts["fired"]
        client.complete_many(client.claim("q", 1000))
    await asyncio.to_thread(rival.die)
    while db.execute("select from dibs.schedules where next_scheduled <= dibs.now()").fetchall():
        ours += (await tick(database)).counts["fired"]  # until the server has noticed the last death
    assert deaths == 3
    assert 0 < ours < sum(s.fired for s in client.schedules.list())  # both have done their part
    for zone in ZONES:
        for cron in CRONS:
            made = [
                slot for slot in slots(db, f"{zone} {cron}") if START + timedelta(hours=1) <= slot < START + 365 * DAY
            ]
            assert made == expected_slots(cron, zone, START + timedelta(hours=1), START + 365 * DAY), (zone, cron)
    assert {(s.missed, s.skipped, s.fired - s.succeeded - s.open_runs) for s in client.schedules.list()} == {(0, 0, 0)}


@pytest.mark.parametrize(("catch_up", "made"), [("none", 0), ("last", 1), (7, 7)])
async def test_catch_up_of_cron_is_bounded_after_three_days(
    client: dibs.Client, database: AsyncDatabase, clock: Clock, db: psycopg.Connection[Any], catch_up: Any, made: int
) -> None:
    clock.freeze(START)
    client.schedules.set("hourly", JOB, cron="0 * * * *", overlap="allow", catch_up=catch_up)
    client.schedules.set("each second", JOB, cron="* * * * * *", overlap="allow", catch_up=catch_up, grace=5)
    clock.move(3 * DAY - timedelta(minutes=10))
    ticked = await tick(database)
    now = START + 3 * DAY - timedelta(minutes=10)
    assert slots(db, "hourly") == [START + 3 * DAY - timedelta(hours=n) for n in range(made, 0, -1)]
    in_time = max(6, made)
    assert slots(db, "each second") == [now - timedelta(seconds=n) for n in range(in_time - 1, -1, -1)]
    assert ticked.counts["fired"] == made + in_time
    hourly = client.schedules.get("hourly")
    assert (hourly.missed, hourly.next_scheduled) == (71 - made, START + 3 * DAY)


async def race(database: AsyncDatabase) -> Counter[str]:
    """A round beside the rounds of others: by the verb, which nobody has to wait for."""
    call = Call("select fired, cron from dibs.run_schedules()", (), lambda rows: rows[0])
    fired, cron = await database.run(call)
    return Counter(fired=fired) + await fire_due(database, msgspec.convert(cron, list[ToRead]))


async def test_twenty_schedulers_make_one_job_of_a_slot(client: dibs.Client, dsn: str, clock: Clock) -> None:
    clock.freeze(START)
    for name in "abc":
        client.schedules.set(name, JOB, cron="* * * * *", overlap="allow")
        client.schedules.set(f"{name}-sql", JOB, fixed_rate=60, overlap="allow")
    databases = [AsyncDatabase(dsn, pool_size=1) for _ in range(20)]
    fired = Counter[str]()
    for _ in range(3):
        clock.move(60)
        for counts in await asyncio.gather(*(race(database) for database in databases)):
            fired.update(counts)
    for database in databases:
        await database.close()
    assert fired["fired"] == 18
    assert {s.fired for s in client.schedules.list()} == {3}


# --- the loop ---------------------------------------------------------------------------------------------------------


async def test_the_loop_sleeps_until_the_next_slot(client: dibs.Client, database: AsyncDatabase, clock: Clock) -> None:
    clock.freeze(START)
    assert (await tick(database)).again == 5.0, "there is none"
    client.schedules.set("s", JOB, cron="* * * * *")
    assert (await tick(database)).again == 1.0
    clock.move(59.75)
    assert (await tick(database)).again == pytest.approx(0.25)
    clock.move(0.25)
    done = await tick(database)
    assert (done.chore, done.counts["fired"]) == ("schedule", 1)


async def test_a_cron_expression_set_in_sql_that_cannot_be_read_is_shown(
    client: dibs.Client, database: AsyncDatabase, db: psycopg.Connection[Any]
) -> None:
    db.execute("""select dibs.set_schedule('bad', '{"cron": "* 99 * * *"}', '{"queue": "q", "kind": "k"}')""")
    db.execute("""select dibs.set_schedule('good', '{"cron": "0 0 1 1 *"}', '{"queue": "q", "kind": "k"}')""")
    assert (await tick(database)).counts["troubled"] == 1
    bad, good = client.schedules.list()
    assert (bad.status, bad.next_scheduled) == ("failing", None)
    assert "Bad hour" in (bad.status_message or "")
    assert good.next_scheduled is not None


def test_preview_goes_as_far_as_one_asks(client: dibs.Client, clock: Clock) -> None:
    clock.freeze(START)
    client.schedules.set("s", JOB, cron="30 2 * * *", zone="Europe/Berlin", end_at=START + 300 * DAY)
    far = client.schedules.preview("s", 1000)
    assert far == [s for s in far if START < s <= START + 300 * DAY]
    assert len(far) == 300
    assert client.schedules.preview("s", 3) == far[:3]
    client.schedules.set("s", cron="0 0 * * *", end_at=START + timedelta(hours=1))
    assert client.schedules.preview("s") == []
    assert client.schedules.get("s").status == "ended"


def test_what_python_is_given_is_checked_before_it_is_sent(client: dibs.Client) -> None:
    with pytest.raises(dibs.errors.InvalidSchedule, match="Bad hour"):
        client.schedules.set("s", JOB, cron="0 25 * * *")
    with pytest.raises(dibs.errors.InvalidSchedule, match="has no time zone"):
        client.schedules.set("s", JOB, once=datetime(2030, 1, 1))
    with pytest.raises(dibs.errors.InvalidPolicy, match="expected an overlap of skip, queue, allow or cancel"):
        client.schedules.set("s", JOB, interval=60, overlap="both")  # type: ignore[arg-type]
    with pytest.raises(dibs.errors.UnknownSchedule):
        client.schedules.get("s")


# --- apps -------------------------------------------------------------------------------------------------------------


def make_app(dsn: str, **options: Any) -> dibs.App:
    return dibs.App(dsn, **options)


async def test_an_app_declares_its_schedules(
    dsn: str, client: dibs.Client, database: AsyncDatabase, clock: Clock
) -> None:
    clock.freeze(START)
    app = make_app(dsn)

    @app.schedule("0 9 * * *", zone="Europe/Berlin", kwargs={"region": "eu"}, overlap="queue")
    @app.task(queue="reports", priority=8, name="report")
    def report(region: str, dry: bool = False) -> str:
        return region

    app.schedule(fixed_delay=60, name="report us", args=("us",))(report.using(priority=1))

    @app.schedule(interval=timedelta(minutes=5))
    def plain() -> None: ...

    assert app.schedules.app == __name__
    assert report("eu") == "eu"
    assert plain.name in app.tasks
    assert set((await declare(database, app.schedules)).values()) == {"created"}
    assert set((await declare(database, app.schedules)).values()) == {"unchanged"}
    assert [s.name for s in client.schedules.list()] == sorted(["report", "report us", plain.name])
    clock.move(8 * 3600)
    await tick(database)
    await tick(database)
    job = max(client.claim("reports", 5), key=lambda job: job.priority)
    assert (job.kind, job.payload, job.priority) == ("report", {"region": "eu"}, 8)
    assert job.headers == {"dibs-schedule": "report", "dibs-slot": "2030-01-01 08:00:00Z"}

    changed = make_app(dsn)
    changed.schedule("0 10 * * *", name="report", args=("eu",))(changed.task(name="report")(report.function))
    assert await declare(database, changed.schedules) == {
        "report": "changed",
        "report us": "retired",
        plain.name: "retired",
    }
    assert client.schedules.get("report").zone == "UTC"
    other = make_app(dsn, name="another")
    assert await declare(database, other.schedules) == {}


def test_declarations_are_checked_when_they_are_made(dsn: str) -> None:
    app = make_app(dsn)

    def needs(user_id: int) -> None: ...

    with pytest.raises(dibs.InvalidArgument, match="user_id"):
        app.schedule("@daily")(needs)
    with pytest.raises(dibs.errors.InvalidSchedule, match="Bad minute"):
        app.schedule("99 * * * *")
    with pytest.raises(dibs.errors.InvalidSchedule, match="one rule"):
        app.schedule("@daily", interval=5)
    with pytest.raises(dibs.errors.InvalidSchedule, match="one rule"):
        app.schedule(zone="UTC")
    task = app.schedule("@daily", args=(1,))(app.task(name="twice")(needs))
    with pytest.raises(dibs.InvalidArgument, match="there is a schedule twice already"):
        app.schedule("@hourly", args=(1,))(task)


# --- the command line -------------------------------------------------------------------------------------------------


def test_dibs_maintain_fires_in_real_time(dsn: str, client: dibs.Client) -> None:
    client.schedules.set("s", JOB, cron="* * * * * *", overlap="allow")
    command = [sys.executable, "-m", "dibs", "maintain", "--dsn", dsn, "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: client.schedules.get("s").fired >= 2, what="two slots are fired")
        finally:
            process.terminate()
        assert process.wait(20) == 0


def test_the_command_sets_shows_and_removes(run: Dibs, client: dibs.Client) -> None:
    assert "no schedules yet" in run("schedules").err
    said = run("schedules", "set", "nightly", "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--queue", "q",
               "--kind", "k", "--payload", '{"x": 1}', "--overlap", "queue", "--catch-up", "5", "--pause-after", "3",
               ).out  # fmt: skip
    assert said.startswith("schedule nightly: created; next at ")
    assert "cron 0 3 * * * Europe/Berlin" in run("schedules").out
    (listed,) = run("schedules", "--json").json
    assert (listed["name"], listed["status"], listed["catch_up"]) == ("nightly", "healthy", 5)
    changed = run("schedules", "set", "nightly", "--jitter", "5m", "--pause-after", "none", "--json").json
    assert (changed["answer"], changed["jitter"], changed["overlap"], changed["pause_after"]) == (
        "changed",
        300,
        "queue",
        None,
    )
    made = run("schedules", "trigger", "nightly", "--json").json
    assert made["answer"] == "triggered"
    assert "not ended" in run("schedules", "trigger", "nightly").out
    assert run("schedules", "trigger", "nightly", "--force").out
    shown = run("schedules", "show", "nightly", "--json").json
    assert (shown["job"]["payload"], len(shown["runs"]), shown["fired"]) == ({"x": 1}, 2, 2)
    assert made["id"] in run("schedules", "show", "nightly").out
    assert run("schedules", "drop", "nightly", "--json").json == {"schedule": "nightly", "dropped": True}
    assert client.schedules.list() == []


def test_the_command_pauses_resumes_and_previews(run: Dibs, client: dibs.Client) -> None:
    run("schedules", "set", "s", "--fixed-rate", "1m", "--queue", "q", "--kind", "k", "--start-at", "none")
    assert "is paused" in run("schedules", "pause", "s", "--reason", "why not").out
    assert "was paused already" in run("schedules", "pause", "s").out
    assert "why not" in run("schedules").out
    assert run("schedules", "resume", "s", "--json").json == {"schedule": "s", "paused": False, "changed": True}
    assert len(run("schedules", "preview", "s", "-n", "3", "--json").json) == 3
    berlin = run("schedules", "preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "-n", 400, "--json").json
    assert {slot[11:16] for slot in berlin} == {"00:30", "01:30", "01:00"}
    assert "slot" in run("schedules", "preview", "--cron", "@daily").out


def test_the_command_says_what_it_did_not_understand(run: Dibs) -> None:
    assert "there is no schedule 'x'" in run("schedules", "show", "x", code=4).err
    assert "there is no schedule 'x'" in run("schedules", "pause", "x", code=4).err
    assert "Bad hour" in run("schedules", "set", "x", "--cron", "0 25 * * *", "--queue", "q", "--kind", "k", code=1).err
    assert (
        "one rule"
        in run(
            "schedules", "set", "x", "--interval", "5", "--cron", "@daily", "--queue", "q", "--kind", "k", code=1
        ).err
    )
    assert "--queue and --kind" in run("schedules", "set", "x", "--interval", "5", "--queue", "q", code=2).err
    assert "not a catch-up" in run("schedules", "set", "x", "--catch-up", "some", code=2).err
    assert "not a number" in run("schedules", "set", "x", "--pause-after", "some", code=2).err
    assert "or --cron" in run("schedules", "preview", code=2).err


async def test_a_worker_declares_the_schedules_of_its_app_and_runs_their_jobs(dsn: str, client: dibs.Client) -> None:
    app, ran = dibs.App(dsn, name="shop", queue="q"), asyncio.Event()

    @app.schedule(fixed_rate=timedelta(seconds=1))
    @app.task(name="ticks")
    async def ticks() -> None:
        ran.set()

    worker = Worker(app, WorkerSettings(["q"]))
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        await ran.wait()
    worker.stop()
    await working
    [known] = client.schedules.list()
    assert (known.name, known.app) == ("ticks", "shop")
