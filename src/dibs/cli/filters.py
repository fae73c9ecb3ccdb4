"""The options of a filter of jobs: equal for every command, and named as in SQL."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from dibs.cli.types import DEAD_STATES, JOB_ID, KIND, PAIR, PAST, QUEUE, STATES_OF, by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs import Client
    from dibs.cli.session import Session
    from dibs.types import JobFilter

F = TypeVar("F", bound="Callable[..., Any]")


def _text_option(*names: str, **attrs: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_refuse_empty, **attrs)


def _refuse_empty(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty text, such as that of an unset variable: without its condition the filter would be wider."""
    if value == "":
        raise click.UsageError(f"{param.opts[-1]} is empty")
    return value


OPTIONS = (
    click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]"),
    _text_option("-q", "--queue", type=QUEUE, help="Only of this queue."),
    _text_option("-k", "--kind", type=KIND, help="Only of this kind."),
    click.option("-s", "--state", "states", type=STATES_OF, multiple=True, help="Only in this state; several add up."),
    click.option("--dead", is_flag=True, help="The same as --state dead: all that ended badly."),
    _text_option("--group", help="Only of this group."),
    _text_option("--dedup-key", help="Only with this key, of the queue."),
    _text_option("--reason", help="Only with this in the reason or the last error; with a %, as a pattern of LIKE."),
    _text_option("--failure", help="Only failures with this fingerprint: dibs failures lists them."),
    click.option("--payload", type=PAIR, multiple=True, metavar="KEY=VALUE", help="Only with this in the payload."),
    click.option("--header", type=PAIR, multiple=True, metavar="NAME=VALUE", help="Only with this header."),
    click.option("--since", type=PAST, help="Only enqueued since this time, or this long ago: 1h."),
    click.option("--until", type=PAST, help="Only enqueued before this time, or longer ago than this."),
    click.option("--ended-after", type=PAST, help="Only ended since this time, or this long ago."),
    click.option("--ended-before", type=PAST, help="Only ended before this time, or longer ago than this."),
)
TIMES = {"since": "enqueued_after", "until": "enqueued_before"} | {n: n for n in ("ended_after", "ended_before")}


def filter_options(command: F) -> F:
    """Add the options of a filter."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def read_filter(session: Session, client: Client, given: dict[str, Any]) -> JobFilter:
    """Return the filter that the options describe."""
    states = [*chain(*given["states"]), *(DEAD_STATES if given["dead"] else ())]
    asked: dict[str, Any] = {
        **{name: given[name] for name in ("queue", "kind", "group", "dedup_key", "failure")},
        "ids": [session.job_id(client, id) for id in given["ids"]],
        "states": list(dict.fromkeys(states)),
        "reason": _pattern(given["reason"]),
        "payload": dict(map(_value, by_name(given["payload"]).items())),
        "headers": by_name(given["header"]),
        **{name: moment(client, given[option]) for option, name in TIMES.items()},
    }
    found: JobFilter = {name: value for name, value in asked.items() if value}  # type: ignore[assignment]
    return found


def _pattern(text: str | None) -> str | None:
    return f"%{text}%" if text and "%" not in text else text


def _value(pair: tuple[str, str]) -> tuple[str, Any]:
    """Parse a value: JSON if it is JSON (42 is a number, "42" a text), otherwise a text."""
    name, text = pair
    try:
        return name, msgspec.json.decode(text)
    except msgspec.DecodeError:
        return name, text


def moment(client: Client, value: Any) -> Any:
    """Return the time that an option stands for: a time, or a duration before now."""
    # "An hour ago" is an hour before the database's clock, by which times were written.
    return client.now() - value if isinstance(value, timedelta) else value
