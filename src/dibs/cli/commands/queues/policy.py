"""Commands for the settings of a queue: show, set and drop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import asdict

from dibs.cli.command import did_you_mean
from dibs.cli.commands.queues.group import COLUMNS, counts, queues, row
from dibs.cli.session import Session, pass_session
from dibs.cli.types import BACKOFF, COUNT_OR_NONE, DURATION, DURATION_OR_NONE, QUEUE, SHARE_OR_NONE
from dibs.errors import UnknownQueue
from dibs.queue_settings import SETTINGS, Setting, write_backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs import Client
    from dibs.info import SettingInfo


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
        by_setting = {one.setting: _source(one) for one in settings}
        session.output.json({**policy, "depth": counts(depth), "sources": by_setting})
        return
    sources = {one.setting: _source_in_words(one) for one in settings}
    session.output.facts((key, _value(key, value), sources.get(key, "")) for key, value in policy.items())
    session.output.say("")
    session.output.table(COLUMNS[2:], [row(depth)[2:]])


def _value(key: str, value: Any) -> Any:
    return write_backoff(value) if key == "backoff" else value


def _source(setting: SettingInfo) -> dict[str, Any]:
    return {"source": setting.source, "by": setting.set_by, "at": setting.set_at, "tasks": setting.tasks}


def _source_in_words(setting: SettingInfo) -> str:
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
    """Add an option for each setting of a queue."""
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


@queues.command("set", short_help="Make a queue, or change its policy while it runs.")
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


@queues.command(short_help="Drop a queue that has no jobs and no schedule.")
@click.argument("name", type=QUEUE)
@pass_session
def drop(session: Session, name: str) -> None:
    """Drop a queue that has no jobs and no schedule, with its policy and statistics."""
    with session.client() as client:
        client.queues.drop(name)
    if session.as_json:
        session.output.json({"queue": name, "dropped": True})
    else:
        session.output.say(f"queue {name} is gone; its next job would make it again")


@queues.command(short_help="Refuse enqueues to queues that do not exist, or do not.")
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
