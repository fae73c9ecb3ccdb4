"""``dibs limits``: list them with what is in use; set or remove one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Group
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

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
        known = client.limits()
    session.show(known, COLUMNS, _row, empty="there are no limits; set one with: dibs limits set")


def _row(limit: Limit) -> tuple[Any, ...]:
    name = limit.name or "every group"
    used = limit.used if limit.name else None
    return (
        limit.scope, limit.queue, name, limit.concurrency, used, limit.blocked, limit.rate, limit.burst, limit.weight,
    )  # fmt: skip


def _target(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--resource", help="A named resource, of which jobs need units."),
        click.option("--group", help="A group of the queue; * for every group without its own settings."),
        click.option("--kind", help="The jobs of a kind, in every queue."),
        click.option("--queue", help="A queue; with --group, a group of it."),
    ):
        command = option(command)
    return command


@limits.command("set")
@_target
@click.option("--concurrency", type=int, help="How many run at once; of a resource, how many units there are.")
@click.option("--rate", type=float, help="How many start per second; for a queue or a group.")
@click.option(
    "--burst", type=int, help="How many may start at once before the rate counts; one second's worth if not given."
)
@click.option("--weight", type=int, help="The share of a group against the others; 1 is usual.")
@click.option("--max-depth", type=int, help="How many jobs of a group may wait.")
@click.option("--max-age", type=DURATION, help="How long the oldest job of a group may be due.")
@pass_session
def set_limit(session: Session, /, group: str | None, **options: Any) -> None:
    """Set a limit: a higher one counts at once, a lower one as jobs end."""
    queue = options.pop("queue")
    with session.client() as client:
        if group is not None:
            _need_queue(queue, options)
            policy: Any = options
            given = {key: value for key, value in policy.items() if value is not None}
            client.set_group(queue, None if group == "*" else group, **given)
        elif others := [name for name in GROUPS if options.pop(name) is not None]:
            named = others[0].replace("_", "-")
            raise click.UsageError(f"only a group has a {named} here; name one with --group, or see: dibs queues set")
        else:
            client.set_limit(queue=queue, **options)
    _say(session, "set")


@limits.command("unset")
@_target
@pass_session
def unset_limit(session: Session, /, group: str | None, queue: str | None, **options: Any) -> None:
    """Remove a limit; jobs that waited for it are ready at once."""
    with session.client() as client:
        if group is not None:
            _need_queue(queue, options)
            client.unset_group(str(queue), None if group == "*" else group)
        else:
            client.unset_limit(queue=queue, **options)
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
