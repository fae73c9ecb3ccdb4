"""``dibs limits``: list them with what is in use; set or remove one."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dibs.cli.command import Group, did_you_mean
from dibs.cli.session import Session, pass_session
from dibs.cli.types import COUNT_OR_NONE, DURATION, KIND, QUEUE, SHARE_OR_NONE
from dibs.errors import UnknownQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs import Client
    from dibs.info import Limit

GROUPS = ("weight", "max_depth", "max_age")
"""What is set of groups only."""

COLUMNS = ("of", "queue", "name", ">concurrency", ">used", ">blocked", ">rate", ">burst", ">weight")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def limits(ctx: click.Context) -> None:
    """List the limits and what is in use; set or remove one."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(_list)


@pass_session
def _list(session: Session) -> None:
    with session.client() as client:
        known = client.limits.list()
    session.show(known, COLUMNS, _row, empty="there are no limits; set one with: dibs limits set")


def _row(limit: Limit) -> tuple[Any, ...]:
    name = limit.name or "every group"
    used = limit.used if limit.name else None
    blocked = f"{limit.blocked}+" if limit.blocked_more else limit.blocked
    return (
        limit.scope, limit.queue, name, limit.concurrency, used, blocked, limit.rate, limit.burst, limit.weight,
    )  # fmt: skip


def _target(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--resource", help="A named resource, of which jobs need units."),
        click.option("--group", help="A group of the queue; * for every group without its own settings."),
        click.option("-k", "--kind", type=KIND, help="The jobs of a kind, in every queue."),
        click.option("-q", "--queue", type=QUEUE, help="A queue; with --group, a group of it."),
    ):
        command = option(command)
    return command


@limits.command("set")
@_target
@click.option(
    "--concurrency", type=COUNT_OR_NONE, help="How many run at once; of a resource, how many units there are."
)
@click.option(
    "--rate", type=SHARE_OR_NONE, help="How many start per second; of a resource, how many jobs that name it."
)
@click.option(
    "--burst",
    type=COUNT_OR_NONE,
    help="How many may start at once before the rate counts; one second's worth if not given.",
)
@click.option("--weight", type=int, help="The share of a group against the others; 1 is usual.")
@click.option("--max-depth", type=int, help="How many jobs of a group may wait.")
@click.option("--max-age", type=DURATION, help="How long the oldest job of a group may be due.")
@pass_session
def set_limit(session: Session, /, group: str | None, **options: Any) -> None:
    """Set a limit, or change it: what you do not name stays. More counts at once, less as jobs end."""
    queue = options.pop("queue")
    with session.client() as client:
        if group is not None:
            _need_queue(queue, options)
            given: Any = {name: value for name, value in options.items() if _given(name)}
            client.groups.set(queue, None if group == "*" else group, **given)
        elif others := [name for name in GROUPS if options.pop(name) is not None]:
            named = others[0].replace("_", "-")
            raise click.UsageError(f"only a group has a {named} here; name one with --group, or see: dibs queues set")
        else:
            _refuse_unknown_queue(client, queue)
            client.limits.set(queue=queue, **_merged(client, queue, options))
    _say(session, "set")


def _given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def _merged(client: Client, queue: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options, and of a limit that is there already what was not named; ``none`` takes a part of it away."""
    wanted = {"queue": queue, "kind": options["kind"], "resource": options["resource"]}
    known = [
        limit for limit in client.limits.list() if limit.name is not None and wanted.get(limit.scope) == limit.name
    ]
    for old in known:
        kept = {"concurrency": old.concurrency, "rate": old.rate, "burst": old.burst}
        if old.rate is None or old.burst == ceil(old.rate) or (options["rate"] is None and _given("rate")):
            kept["burst"] = None  # It follows from the rate.
        options |= {name: value for name, value in kept.items() if not _given(name)}
    return options


def _refuse_unknown_queue(client: Client, queue: str | None) -> None:
    """To limit a queue makes it: a misspelt name would stay in every list."""
    names = [known.name for known in client.queues.list()]
    if queue is not None and queue not in names:
        raise UnknownQueue(
            f"there is no queue {queue!r}{did_you_mean(queue, names)}", hint=f"make it first: dibs queues set {queue}"
        )


@limits.command("drop")
@_target
@pass_session
def drop(session: Session, /, group: str | None, queue: str | None, **options: Any) -> None:
    """Remove a limit; jobs that waited for it are ready at once."""
    with session.client() as client:
        if group is not None:
            _need_queue(queue, options)
            client.groups.drop(str(queue), None if group == "*" else group)
        else:
            client.limits.drop(queue=queue, **options)
    _say(session, "removed")


def _need_queue(queue: str | None, options: dict[str, Any]) -> None:
    if queue is None or options.get("kind") or options.get("resource"):
        raise click.UsageError(
            "a group belongs to a queue: give --queue with --group, and neither --kind nor --resource"
        )
    options.pop("kind", None)
    options.pop("resource", None)


def _say(session: Session, what: str) -> None:
    if session.as_json:
        session.output.json({"limit": what})
    else:
        session.output.say(f"the limit is {what}")
