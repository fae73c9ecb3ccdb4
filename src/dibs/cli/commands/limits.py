"""``dibs limits``: list them with what is in use; set or drop one."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dibs.cli.checks import refuse_unknown_queue
from dibs.cli.command import Listing
from dibs.cli.session import Session, pass_session
from dibs.cli.types import COUNT_OR_NONE, KIND, QUEUE, SHARE_OR_NONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs import Client
    from dibs.info import Limit

COLUMNS = ("of", "queue", "name", ">concurrency", ">used", ">blocked", ">rate", ">burst", ">weight")


@click.group(cls=Listing)
@pass_session
def limits(session: Session) -> None:
    """List the limits and what is in use; set or drop that of a queue, a kind or a resource.

    Those of groups are in the list, too; dibs groups set and dibs groups drop change them.
    """
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


TARGET = (
    click.option("-q", "--queue", type=QUEUE, help="The jobs of a queue."),
    click.option("-k", "--kind", type=KIND, help="The jobs of a kind, in every queue."),
    click.option("--resource", help="A named resource, of which jobs need units."),
)


def _target(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(TARGET):
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
@pass_session
def set_limit(session: Session, /, queue: str | None, **options: Any) -> None:
    """Set a limit, or change it: what you do not name stays. More counts at once, less as jobs end."""
    with session.client() as client:
        if queue is not None:
            refuse_unknown_queue(client, queue)
        client.limits.set(queue=queue, **_complete_from_existing(client, queue, options))
    _say(session, "set")


def _given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def _complete_from_existing(client: Client, queue: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, completed by the parts of an existing limit; ``none`` removes a part."""
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


@limits.command("drop")
@_target
@pass_session
def drop_limit(session: Session, /, **target: str | None) -> None:
    """Drop a limit; jobs that waited for it are ready at once."""
    with session.client() as client:
        client.limits.drop(**target)
    _say(session, "dropped")


def _say(session: Session, what: str) -> None:
    if session.as_json:
        session.output.json({"limit": what})
    else:
        session.output.say(f"the limit is {what}")
