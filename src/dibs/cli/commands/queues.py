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
from dibs.info import told
from dibs.queue_settings import SETTINGS, Setting, write_backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs import Client
    from dibs.info import Depth, GroupInfo, SettingInfo

COLUMNS = ("queue", "?paused", ">scheduled", ">ready", "?>blocked", ">running", ">dead", ">oldest ready")
GROUPS = (">running", ">waiting", ">oldest due", "noisy", "?>weight", "group")
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
        depths = client.queues.depths()
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
    midnight = client.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    found = client.stats.statistics(by="queue", since=day, every=day)
    return Counter({s.queue: s.succeeded for s in found if s.queue is not None and s.at == midnight})


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
        depth = client.queues.depth(name)
        settings = client.queues.settings(name)
    if session.as_json:
        told_of = {one.setting: _source(one) for one in settings}
        session.output.json({**policy, "depth": _depth(depth), "sources": told_of})
        return
    sources = {one.setting: _told(one) for one in settings}
    session.output.facts((key, _value(key, value), sources.get(key, "")) for key, value in policy.items())
    session.output.say("")
    session.output.table(COLUMNS[2:], [_row(depth)[2:]])


def _value(key: str, value: Any) -> Any:
    return write_backoff(value) if key == "backoff" else value


def _source(setting: SettingInfo) -> dict[str, Any]:
    return {"source": setting.source, "by": setting.set_by, "at": setting.set_at, "tasks": setting.tasks}


def _told(setting: SettingInfo) -> str:
    by = f"set by {setting.set_by}" if setting.set_by else setting.source
    return f"{by}; tasks with their own: {', '.join(setting.tasks)}" if setting.tasks else by


def _policy(client: Client, name: str) -> dict[str, Any]:
    known = {queue.name: queue for queue in client.queues.list()}
    if name not in known:
        hint = "a queue exists from its first job, or from: dibs queues set"
        raise UnknownQueue(f"there is no queue {name!r}{did_you_mean(name, known)}", hint=hint)
    return asdict(known[name])


TYPES: dict[tuple[str, bool], Any] = {
    ("whole", False): int, ("whole", True): COUNT_OR_NONE, ("number", False): float, ("number", True): SHARE_OR_NONE,
    ("duration", False): DURATION, ("duration", True): DURATION_OR_NONE, ("backoff", False): BACKOFF,
}  # fmt: skip
OPPOSITES = {"newest_first": "--oldest-first"}
EXCLUSIVE = click.option("--exclusive/--no-exclusive", default=None, help="Let one worker at a time claim from it.")


def _policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each setting of a queue."""
    for setting in reversed(SETTINGS):
        command = _option(setting)(command)
        if setting.name == "shard_lease":
            command = EXCLUSIVE(command)
    return command


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    flag = "--" + setting.name.replace("_", "-")
    if setting.sort == "switch":
        off = OPPOSITES.get(setting.name, f"--no-{setting.name}")
        return click.option(f"{flag}/{off}", default=None, help=setting.help)
    kind = click.Choice(setting.choices) if setting.choices else TYPES[setting.sort, setting.optional]
    return click.option(flag, type=kind, help=setting.help)


@queues.command("set")
@click.argument("name", type=QUEUE)
@_policy_options
@pass_session
def set_queue(session: Session, /, name: str, **options: Any) -> None:
    """Make a queue, or change its policy while it runs; what you do not name stays."""
    source = click.get_current_context().get_parameter_source
    policy: Any = {key: value for key, value in options.items() if source(key) is not ParameterSource.DEFAULT}
    with session.client() as client:
        client.queues.set(name, **policy)
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
        estimate = client.queues.drain_estimate(name, span)
    if session.as_json:
        session.output.json(estimate)
    else:
        session.output.facts(asdict(estimate).items())


@queues.command("workers-wanted")
@click.argument("name", type=QUEUE, required=False)
@click.option("--target", type=DURATION, default="5m", show_default=True, help="Within which time to do what is due.")
@click.option("--slots", type=int, help="How many jobs a worker runs at once; by default what live ones say.")
@click.option("--run-time", type=DURATION, help="How long a run takes; by default as measured.")
@pass_session
def workers_wanted(session: Session, /, name: str | None, **options: Any) -> None:
    """Say how many workers a queue needs, or each queue: a number for autoscalers.

    Enough to keep up and to do what is due within the target, as far as limits allow; 0 when there is nothing to do.
    """
    with session.client() as client:
        found = client.workers.wanted(name, **options)
    if session.as_json:
        session.output.json(found if name is None else found[0])
        return
    rows = [(w.queue, w.workers, w.live, w.ready, w.running, f"{w.arriving:.3g}", w.run_mean, w.limited) for w in found]
    session.output.table(("queue", "wanted", "live", "ready", "running", "per_second", "run_mean", "limited"), rows)


@queues.command()
@click.argument("name", type=QUEUE)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many of each sort.")
@pass_session
def groups(session: Session, name: str, limit: int) -> None:
    """List the groups that run or wait most, have waited longest, or are noisy."""
    with session.client() as client:
        found = client.groups.list(name, limit=limit)
    session.show(found, GROUPS, _group, empty="no job of a group waits or runs in it")


def _group(g: GroupInfo) -> tuple[Any, ...]:
    return (g.running, told(g.waiting, estimate=g.is_estimate), g.oldest, g.noisy, g.weight, g.group)


@queues.command()
@click.argument("name", type=QUEUE)
@pass_session
def drop(session: Session, name: str) -> None:
    """Take away a queue that has no jobs and no schedule, with its policy and statistics."""
    with session.client() as client:
        client.queues.drop(name)
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
        client.queues.set_strict(switch == "on")
    if session.as_json:
        session.output.json({"strict": switch == "on"})
    else:
        session.output.say(f"strict mode is {switch}")
