"""The shared part of the commands that change many jobs: a dry run first, a progress bar, and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs.cli.exits import Exit
from dibs.cli.filters import read_filter
from dibs.cli.progress import counted, counting, following
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs import Client
    from dibs.cli.output import Output
    from dibs.cli.session import Session
    from dibs.types import Changed, JobFilter, Steps, StillDead

F = TypeVar("F", bound="Callable[..., Any]")

OPTIONS = (
    click.option("--all", "everything", is_flag=True, help="Without a filter: all of them."),
    click.option("-n", "--max", "most", type=click.IntRange(min=1), help="At most this many."),
    click.option("-y", "--yes", is_flag=True, help="Do it. Without this nothing is changed."),
)
UNDONE = {"retry", "cancel"}
"""The verbs that ``dibs undo`` can take back."""
SHOWN = 20
"""The number of jobs that stay dead and are listed."""
STAYS = {
    Answer.DUPLICATE: "another job has its dedup key now",
    Answer.BUSY: "another transaction holds it; try again",
}


def bulk_options(command: F) -> F:
    """Add the options of all commands that change many jobs."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def chosen(session: Session, client: Client, given: dict[str, Any]) -> JobFilter:
    """Return the filter of a command that changes jobs. An empty filter needs --all."""
    everything = given.pop("everything")
    filter = read_filter(session, client, given)
    if bool(filter) == everything:
        raise click.UsageError("name jobs, or a filter such as --queue, or --all and no filter")
    return filter


def change_chosen(
    session: Session,
    verb: str,
    done: str,
    ask: Callable[[Client, JobFilter, Steps], Changed],
    given: dict[str, Any],
    *,
    most: int | None,
    yes: bool,
) -> Exit:
    """Change the jobs that the options of a filter choose."""
    with session.client() as client:
        filter = chosen(session, client, given)
        return change(
            session, verb, done, lambda steps: ask(client, filter, steps), yes, most=most, named="ids" in filter
        )


def change(
    session: Session,
    verb: str,
    done: str,
    ask: Callable[[Steps], Changed],
    yes: bool,
    *,
    most: int | None = None,
    named: bool = False,
) -> Exit:
    """Make a change, or only count its jobs, and report it. Fail if jobs were named and none can be changed.

    With --yes, the jobs of a filter are counted first, for a few seconds, so that the progress bar has a total.
    """
    total = counted(session.output, ask, most) if yes and not named and not session.as_json else None
    with counting(session.output, done if yes else "found", total) as advance:
        changed = ask({"max": most, "dry_run": not yes, "on_step": following(advance)})
    _report(session, verb, done, changed, yes)
    return Exit.FAILED if named and not (changed.done if yes else changed.matched) else Exit.OK


def _report(session: Session, verb: str, done: str, changed: Changed, yes: bool) -> None:
    output = session.output
    if output.as_json:
        output.json({"dry_run": not yes, **_fields(verb, changed)})
        return
    if not changed.matched:
        output.say("no job matches")
        if verb == "retry":
            output.note("cancelled jobs come back by id, or with --state cancelled")
        return
    if not yes:
        output.say(f"{changed.matched} would be {done}; nothing was changed. Add --yes to do it.")
        return
    output.say(f"{changed.done} {done}", "green")
    _refused(output, changed.refused)
    if left := changed.matched - changed.done - len(changed.refused):
        output.say(f"{left} left as they are: others hold them, or they have changed meanwhile", "yellow")
    if verb in UNDONE and changed.done:
        output.note(f"within an hour, and where nothing ran, this takes it back: dibs undo {changed.operation} --yes")


def _refused(output: Output, refused: Sequence[StillDead]) -> None:
    """Print the jobs that stay dead, each with the reason."""
    for job in refused[:SHOWN]:
        output.say(f"{job.id} stays dead: {STAYS[job.reason]}", "yellow")
    if len(refused) > SHOWN:
        output.say(f"… and {len(refused) - SHOWN} more stay dead; --json lists them", "yellow")


def _fields(verb: str, changed: Changed) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "matched": changed.matched,
        "done": changed.done,
        "operation": changed.operation,
        "more": changed.more,
    }
    if verb == "retry":
        fields["refused"] = changed.refused
    return fields
