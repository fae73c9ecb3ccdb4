"""``dibs schedules``: list, show, set, pause, resume, trigger, preview and drop schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import asdict

from dibs.cli.command import Listing
from dibs.cli.output import read_time, shown
from dibs.cli.session import Session, pass_session
from dibs.cli.types import BACKOFF, DURATION, JSON, KIND, MOMENT, QUEUE, SCHEDULE, Read
from dibs.cron import Cron
from dibs.job import NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.schedule import Schedule

COLUMNS = ("schedule", "?rule", "status", "next", "?last success", ">failed", "?last took", "message")
_JOB = ("queue", "kind", "payload", "priority", "ttl", "max_attempts", "backoff")


def _catch_up(text: str) -> str | int:
    if text in {"none", "last"}:
        return text
    if text.isdigit():
        return int(text)
    raise ValueError(f"{text!r} is not a catch-up; write none, last, or up to how many")


def _or_none(text: str) -> Any:
    return None if text == "none" else MOMENT.convert(text, None, None)


def _count_or_none(text: str) -> int | None:
    if text != "none" and not text.isdigit():
        raise ValueError(f"{text!r} is not a number; write how many, or none")
    return None if text == "none" else int(text)


CATCH_UP = Read("none, last or a number", _catch_up, choices=("none", "last"))
MOMENT_OR_NONE = Read("time or none", _or_none)
COUNT_OR_NONE = Read("number or none", _count_or_none)


@click.group(cls=Listing)
@pass_session
def schedules(session: Session) -> None:
    """List the schedules and their health; show, set, pause, trigger or drop one."""
    with session.client() as client:
        found = client.schedules.list()
    session.show(found, COLUMNS, _row, empty="there are no schedules yet; make one with: dibs schedules set")


def _row(s: Schedule) -> tuple[Any, ...]:
    message = s.pause_reason or s.status_message
    return (s.name, s.timing, s.status, s.next_scheduled, s.last_success, s.failed_attempts, s.last_duration, message)


@schedules.command()
@click.argument("name", type=SCHEDULE)
@pass_session
def show(session: Session, name: str) -> None:
    """Show a schedule: its rule, its job, its health and its last runs."""
    with session.client() as client:
        found = client.schedules.get(name)
        whole = client.schedules.show(name)
    if session.as_json:
        session.output.json({**asdict(found), "job": whole["job"], "runs": whole["runs"]})
        return
    facts = {key: value for key, value in asdict(found).items() if value is not None and value != []}
    session.output.facts((key, value) for key, value in facts.items() if key not in {"revision", "handled_until"})
    if whole["runs"]:
        session.output.say("")
        columns = ("slot", "job", "triggered", ">failures", "outcome", "took")
        kept = ("id", "triggered", "failures", "outcome", "duration")
        session.output.table(columns, ([read_time(r["slot"]), *(r[name] for name in kept)] for r in whole["runs"]))


@schedules.command("set", short_help="Make a schedule, or change it while it runs.")
@click.argument("name", type=SCHEDULE)
@click.option(
    "--cron", help="Five fields, or six with seconds in front; or @hourly, @daily, @weekly, @monthly, @yearly."
)
@click.option("--interval", type=DURATION, help="This long after the last job was made.")
@click.option("--fixed-rate", type=DURATION, help="This long apart, counted from the start.")
@click.option("--fixed-delay", type=DURATION, help="This long after the end of the last run.")
@click.option("--once", type=MOMENT, help="At that time, and never again.")
@click.option("--zone", help="The time zone of a cron expression, such as Europe/Berlin.")
@click.option("--start-at", type=MOMENT_OR_NONE, help="No slot before; none for no start.")
@click.option("--end-at", type=MOMENT_OR_NONE, help="No slot after; none for no end.")
@click.option("--jitter", type=DURATION, help="Each job is due up to this much later, at random.")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "allow", "cancel"]),
    help="What to do while the last run has not ended.",
)
@click.option("--catch-up", type=CATCH_UP, help="Which missed slots to run: none, last, or how many of the newest.")
@click.option("--grace", type=DURATION, help="How late a slot may be and still count as on time.")
@click.option("--on-failure", type=click.Choice(["retry", "next"]), help="Retry the slot, or wait for the next one.")
@click.option("--pause-after", type=COUNT_OR_NONE, help="Pause after this many failed runs in a row; none for never.")
@click.option("-q", "--queue", type=QUEUE, help="The queue of its jobs.")
@click.option("-k", "--kind", type=KIND, help="The kind of its jobs.")
@click.option("--payload", type=JSON, help="The payload of its jobs, as JSON.")
@click.option("--priority", type=int, help="The priority of its jobs, -100 to 100.")
@click.option("--ttl", type=DURATION, help="Its jobs expire that long after they were due.")
@click.option("--max-attempts", type=int, help="How often each of its jobs is tried.")
@click.option("--backoff", type=BACKOFF, help="exponential:1s,cap=10m,jitter=0.1, constant:5s or list:1s,5s,30s.")
@pass_session
def set_schedule(session: Session, /, name: str, **options: Any) -> None:
    """Make a schedule, or change it while it runs; what you do not name stays.

    A new one needs a rule (--cron, --interval, --fixed-rate, --fixed-delay or --once), a --queue and a --kind. The
    options of the job go together: give them all, or none to keep the job as it is.
    """
    source = click.get_current_context().get_parameter_source
    given = {key: value for key, value in options.items() if source(key) is not ParameterSource.DEFAULT}
    job = {key: given.pop(key) for key in _JOB if key in given}
    if job and not {"queue", "kind"} <= job.keys():
        raise click.UsageError("a job needs --queue and --kind")
    rule: Any = given
    with session.client() as client:
        answer = client.schedules.set(name, NewJob(**job) if job else None, **rule)
        now = client.schedules.get(name)
    if session.as_json:
        session.output.json({**asdict(now), "answer": answer})
    else:
        session.output.say(f"schedule {name}: {answer}; next at {shown(now.next_scheduled)}")


@schedules.command()
@click.argument("name", type=SCHEDULE)
@click.option("--reason", default="paused by request", help="Why, for others to read.")
@pass_session
def pause(session: Session, name: str, reason: str) -> None:
    """Pause a schedule: it makes no jobs; the jobs it has made go on."""
    with session.client() as client:
        changed = client.schedules.pause(name, reason)
    _switched(session, name, paused=True, changed=changed)


@schedules.command(short_help="Let a paused schedule go on from now.")
@click.argument("name", type=SCHEDULE)
@pass_session
def resume(session: Session, name: str) -> None:
    """Resume a schedule from now on; slots of the pause get no jobs."""
    with session.client() as client:
        changed = client.schedules.resume(name)
    _switched(session, name, paused=False, changed=changed)


def _switched(session: Session, name: str, *, paused: bool, changed: bool) -> None:
    if session.as_json:
        session.output.json({"schedule": name, "paused": paused, "changed": changed})
    else:
        state = "paused" if paused else "running"
        session.output.say(f"schedule {name} is {state}" if changed else f"schedule {name} was {state} already")


@schedules.command(short_help="Make a job of a schedule now.")
@click.argument("name", type=SCHEDULE)
@click.option("--force", is_flag=True, help="Even if a run goes on and the overlap policy says no.")
@pass_session
def trigger(session: Session, name: str, force: bool) -> None:
    """Make a job of a schedule now, also while it is paused; its slots stay as they are."""
    with session.client() as client:
        made = client.schedules.trigger(name, force=force)
    if session.as_json:
        session.output.json({"schedule": name, "id": made.job_id, "answer": made.answer})
    else:
        session.output.say(
            str(made.job_id) if made.job_id else f"{made.answer}: the last run has not ended; see --force"
        )


@schedules.command()
@click.argument("name", required=False)
@click.option("--cron", help="Of this expression, instead of a schedule that is there.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone of that expression.")
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@pass_session
def preview(session: Session, name: str | None, cron: str | None, zone: str, count: int) -> None:
    """Show the next slots of a schedule, or of a cron expression."""
    if (name is None) == (cron is None):
        raise click.UsageError("give the name of a schedule, or --cron")
    if cron is None and click.get_current_context().get_parameter_source("zone") is not ParameterSource.DEFAULT:
        raise click.UsageError("--zone is for --cron; a schedule has its own zone")
    if cron is not None:
        slots = Cron(cron, zone).upcoming(datetime.now(UTC), count)
    else:
        with session.client() as client:
            slots = client.schedules.preview(name or "", count)
    _tell_slots(session, slots)


def _tell_slots(session: Session, slots: Sequence[datetime]) -> None:
    if session.as_json:
        session.output.json(slots)
        return
    now = datetime.now(UTC)
    rows = ((slot, max(slot - now, timedelta(0))) for slot in slots)
    session.output.table(("slot", "in"), rows)


@schedules.command()
@click.argument("name", type=SCHEDULE)
@pass_session
def drop(session: Session, name: str) -> None:
    """Drop a schedule and its records; the jobs it has made stay."""
    with session.client() as client:
        client.schedules.drop(name)
    if session.as_json:
        session.output.json({"schedule": name, "dropped": True})
    else:
        session.output.say(f"schedule {name} is dropped")
