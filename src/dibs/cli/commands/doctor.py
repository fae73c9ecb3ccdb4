"""``dibs doctor``: what is wrong now."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.db.doctor import examine
from dibs.info import SEVERITIES

if TYPE_CHECKING:
    from dibs.cli.output import Output
    from dibs.info import Finding

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@click.command(cls=Command)
@click.option("--fail-on", type=click.Choice([*SEVERITIES, "never"]), default="warning", show_default=True,
              help="The exit code is 1 if something this bad, or worse, was found.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Leave the notes out.")
@pass_session
def doctor(session: Session, fail_on: str, quiet: bool) -> int:
    """Look for what is wrong, say why it matters and how to fix it."""
    found = [f for f in examine(session.find()) if not (quiet and f.level == "note")]
    if session.as_json:
        session.output.json(found)
    else:
        _tell(session.output, found)
    bad = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on in SEVERITIES else ()
    return Exit.FAILED if any(f.level in bad for f in found) else Exit.OK


def _tell(output: Output, found: list[Finding]) -> None:
    for finding in found:
        output.say(f"{finding.level}: {finding.message} ({finding.name})", STYLES[finding.level])
        for text in (finding.reason, f"→ {finding.fix}"):
            output.say(textwrap.indent(text, "  "))
    counts = ", ".join(f"{n} {severity}{'s' * (n > 1)}" for severity in SEVERITIES if (n := _count(found, severity)))
    output.say(counts or "nothing is wrong", "" if counts else "green")


def _count(found: list[Finding], severity: str) -> int:
    return sum(f.level == severity for f in found)
