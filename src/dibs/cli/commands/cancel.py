"""``dibs cancel``: end waiting jobs, and ask the workers of running ones to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.bulk import bulk_options, change, chosen
from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.filters import filter_options
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs import Client
    from dibs.job import Answered

MEANING = {
    "cancelled": "cancelled",
    "requested": "running: its worker was asked to stop",
    "ended": "had already ended",
    "unknown": "there is no such job",
}


@click.command(cls=Command)
@filter_options
@click.option("--because", default="cancelled by request", show_default=True, help="Kept with the job, as its reason.")
@bulk_options
@pass_session
def cancel(session: Session, /, because: str, most: int | None, yes: bool, **given: Any) -> Exit:
    """Cancel jobs by id or by dedup key, at once; or all that a filter chooses, with --yes.

    By id or key it exits with 4 if a job does not exist, and with 1 if one had already ended.
    """
    named = {name for name, value in given.items() if value}
    has_filter = named not in ({"ids"}, {"queue", "dedup_key"})
    if most is not None and not has_filter:
        raise click.UsageError("--max is for a filter, not for ids or a dedup key")
    with session.client() as client:
        if named == {"ids"}:
            ids = [session.job_id(client, id) for id in given["ids"]]
            return _answer(session, client.cancel_many(ids, because))
        if named == {"queue", "dedup_key"}:
            return _cancel_key(session, client, given["queue"], given["dedup_key"], because)
        filter = chosen(session, client, given)
        return change(
            session,
            "cancel",
            "cancelled",
            lambda steps: client.cancel_where(filter, reason=because, **steps),
            yes,
            most=most,
            named="ids" in filter,
        )


def _cancel_key(session: Session, client: Client, queue: str, key: str, because: str) -> Exit:
    held = client.cancel_key(queue, key, because)
    if held is None:
        session.output.note(f"no job of queue {queue} has this key")
    return _answer(session, [] if held is None else [held])


def _answer(session: Session, answers: list[Answered]) -> Exit:
    if session.as_json:
        session.output.json(answers)
    else:
        for answer in answers:
            session.output.say(f"{answer.id} {MEANING[answer.answer]}")
    given = {answer.answer for answer in answers}
    return Exit.NOT_FOUND if "unknown" in given or not given else Exit.FAILED if "ended" in given else Exit.OK
