"""``dibs edit``: change a job that waits or is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, JOB_ID, JSON, MOMENT

if TYPE_CHECKING:
    from dibs.cli.session import IdGiven


@click.command(cls=Command)
@click.argument("id", type=JOB_ID)
@click.option("--payload", type=JSON, help="Its payload from now on, as JSON.")
@click.option("--priority", type=click.IntRange(-100, 100), help="-100 to 100; higher goes first.")
@click.option("--due-at", type=MOMENT, help="When it is due: 2026-10-31T09:00Z.")
@click.option("--delay", type=DURATION, help="In how long it is due; 0s for now.")
@pass_session
def edit(session: Session, /, id: IdGiven, **options: Any) -> None:
    """Change the payload, the priority or the due time of a job that waits or is dead."""
    source = click.get_current_context().get_parameter_source
    changes: Any = {name: value for name, value in options.items() if source(name) is not ParameterSource.DEFAULT}
    if not changes or {"due_at", "delay"} <= changes.keys():
        raise click.UsageError("give --payload, --priority, and one of --due-at and --delay, or some of these")
    with session.client() as client:
        job = session.job_id(client, id)
        client.edit(job, **changes)
    if session.as_json:
        session.output.json({"id": job, "changed": sorted(changes)})
    else:
        session.output.say(f"{job}: changed {', '.join(sorted(changes))}", "green")
