"""``dibs queues``: list them, look at one, set its policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dibs.cli.command import Group, did_you_mean
from dibs.cli.session import Session, pass_session
from dibs.cli.types import BACKOFF, COUNT_OR_NONE, DURATION, DURATION_OR_NONE, QUEUE, SHARE_OR_NONE
from dibs.errors import UnknownQueue

if TYPE_CHECKING:
    from dibs import Client
    from dibs.info import Depth

COLUMNS = ("queue", "?paused", ">scheduled", ">ready", "?>blocked", ">running", ">dead", ">oldest ready")
LISTED = (*COLUMNS, ">today")
"""What succeeded since midnight comes last."""


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def queues(ctx: click.Context) -> None:
    """List the queues and what is in them; show or set one."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(_list)


@pass_session
def _list(session: Session) -> None:
    with session.client() as client:
        depths = client.depths()
        today = _today(client)
    session.show(
        depths,
        LISTED,
        lambda d: (*_row(d), today[d.queue]),
        empty="there are no queues yet; a queue is made by its first job",
        as_json=lambda d: {**_depth(d), "succeeded_today": today[d.queue]},
    )


def _today(client: Client) -> Counter[str]:
    """What succeeded since midnight, in UTC, as far as it is counted."""
    now = client.now().astimezone(UTC)
    passed = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
    every = timedelta(hours=1) if passed > timedelta(hours=1) else timedelta(minutes=1)
    found: Counter[str] = Counter()
    for rate in client.queue_rates(since=max(passed, every), every=every):
        found[rate.queue] += rate.succeeded
    return found


def _row(d: Depth) -> tuple[Any, ...]:
    counts = (d.told(state) for state in ("scheduled", "ready", "blocked", "running", "dead"))
    return (d.queue, d.paused, *counts, d.oldest_ready if d.ready else None)


def _depth(d: Depth) -> dict[str, Any]:
    return {**asdict(d), "waiting": d.waiting, "dead": d.dead}


@queues.command()
@click.argument("name", type=QUEUE)
@pass_session
def show(session: Session, name: str) -> None:
    """Show a queue's policy and what is in it."""
    with session.client() as client:
        policy = _policy(client, name)
        depth = client.depth(name)
    if session.as_json:
        session.output.json({**policy, "depth": _depth(depth)})
        return
    session.output.facts((key, _backoff(value) if key == "backoff" else value) for key, value in policy.items())
    session.output.say("")
    session.output.table(COLUMNS[2:], [_row(depth)[2:]])


def _policy(client: Client, name: str) -> dict[str, Any]:
    known = {queue.name: queue for queue in client.queues()}
    if name not in known:
        hint = "a queue exists from its first job, or from: dibs queues set"
        raise UnknownQueue(f"there is no queue {name!r}{did_you_mean(name, known)}", hint=hint)
    return asdict(known[name])


def _backoff(value: dict[str, Any]) -> str:
    told = f"{value['kind']}: {', '.join(map(str, value['delays']))}"
    extra = ", ".join(f"{name} {value[name]}" for name in ("factor", "cap", "jitter") if value.get(name))
    return f"{told} ({extra})" if extra else told


@queues.command("set")
@click.argument("name", type=QUEUE)
@click.option("--priority", type=int, help="The default of its jobs: -100 to 100, higher goes first.")
@click.option("--lease", type=DURATION, help="How long a worker may hold a job without renewing.")
@click.option("--lease-growth", type=float, help="Each attempt's lease is this many times the one before.")
@click.option("--lease-cap", type=DURATION, help="No lease grows beyond this.")
@click.option("--max-attempts", type=int, help="How often a job is tried before it is exhausted.")
@click.option("--max-losses", type=int, help="How often a job's worker may die before the job is quarantined.")
@click.option("--backoff", type=BACKOFF, help="exponential:1s,cap=10m,jitter=0.1, constant:5s or list:1s,5s,30s.")
@click.option("--ttl", type=DURATION_OR_NONE, help="Jobs expire that long after they were first due; none for never.")
@click.option("--payload-limit", type=int, help="The largest payload, in bytes.")
@click.option("--history", type=click.Choice(["all", "failures", "none"]), help="Which attempts are kept.")
@click.option("--retention", type=DURATION, help="How long jobs are kept, from their enqueue.")
@click.option("--history-retention", type=DURATION, help="How long attempts are kept.")
@click.option("--ring/--no-ring", default=None, help="Whether an enqueue wakes waiting workers at once.")
@click.option(
    "--shards", type=COUNT_OR_NONE, help="Split it into shards, each claimed by one worker at a time; or none."
)
@click.option("--exclusive/--no-exclusive", default=None, help="Let one worker at a time claim from it.")
@click.option("--shard-lease", type=DURATION, help="How long a worker holds it, or a shard, without renewing.")
@click.option("--max-depth", type=COUNT_OR_NONE, help="How many jobs may wait; none for any number.")
@click.option("--max-age", type=DURATION_OR_NONE, help="How long the oldest may be due; none for any time.")
@click.option("--when-full", type=click.Choice(["refuse", "sideline"]), help="What happens to new jobs then.")
@click.option("--newest-first/--oldest-first", default=None, help="From which end the queue is served.")
@click.option(
    "--noisy-share", type=SHARE_OR_NONE, help="Groups with more than this share of what runs are served last; or none."
)
@pass_session
def set_queue(session: Session, /, name: str, **options: Any) -> None:
    """Make a queue, or change its policy while it runs; what you do not name stays."""
    source = click.get_current_context().get_parameter_source
    policy: Any = {key: value for key, value in options.items() if source(key) is not ParameterSource.DEFAULT}
    with session.client() as client:
        client.set_queue(name, **policy)
        now = _policy(client, name)
    if session.as_json:
        session.output.json(now)
    else:
        changed = ", ".join(sorted(policy)) or "nothing changed"
        session.output.say(f"queue {name}: {changed}")


@queues.command()
@click.argument("name", type=QUEUE)
@click.option("--span", type=DURATION, default="5m", show_default=True, help="How far back to look.")
@pass_session
def eta(session: Session, name: str, span: timedelta) -> None:
    """Estimate when a queue's backlog will be gone."""
    with session.client() as client:
        estimate = client.drain_estimate(name, span)
    if session.as_json:
        session.output.json(estimate)
    else:
        session.output.facts(asdict(estimate).items())


@queues.command("workers-wanted")
@click.argument("name", type=QUEUE, required=False)
@click.option("--target", type=DURATION, default="5m", show_default=True, help="Within which time to do what is due.")
@click.option("--concurrency", type=int, help="How many jobs a worker runs at once; as the live ones say.")
@click.option("--run-time", type=DURATION, help="How long a run takes; as measured.")
@pass_session
def workers_wanted(session: Session, /, name: str | None, **options: Any) -> None:
    """Say how many workers a queue needs, or each queue: a number for autoscalers.

    Enough to keep up and to do what is due within the target, as far as limits allow; 0 when there is nothing to do.
    """
    with session.client() as client:
        found = client.workers_wanted(name, **options)
    if session.as_json:
        session.output.json(found if name is None else found[0])
        return
    rows = [(w.queue, w.workers, w.live, w.ready, w.running, f"{w.arriving:.3g}", w.run_mean, w.limited) for w in found]
    session.output.table(("queue", "wanted", "live", "ready", "running", "per_second", "run_mean", "limited"), rows)


@queues.command()
@click.argument("name", type=QUEUE)
@pass_session
def drop(session: Session, name: str) -> None:
    """Take away a queue that has no jobs and no schedule, with its policy and statistics."""
    with session.client() as client:
        client.drop_queue(name)
    if session.as_json:
        session.output.json({"queue": name, "dropped": True})
    else:
        session.output.say(f"queue {name} is gone; its next job would make it again")


@queues.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@pass_session
def strict(session: Session, switch: str) -> None:
    """Refuse enqueues to queues that do not exist (on), or let them make the queue (off)."""
    with session.client() as client:
        client.set_strict(switch == "on")
    if session.as_json:
        session.output.json({"strict": switch == "on"})
    else:
        session.output.say(f"strict mode is {switch}")
