"""The command ``dibs``: finds the command, and turns errors into sentences and exit codes."""

from __future__ import annotations

import platform
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from dibs import __version__
from dibs.cli.command import Group
from dibs.cli.exits import Exit, exit_code
from dibs.cli.help import COMMANDS, GROUPS, SHORT
from dibs.cli.session import Session
from dibs.cli.text import clean
from dibs.errors import DibsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.output import Output


class Root(Group):
    """The root command. It imports a command's module when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return every command, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of a name."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"dibs.cli.commands.{cmd_name}"), cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with --version, print the release."""
        if ctx.params["version"]:
            return _tell_version(ctx.ensure_object(Session).output)
        return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write every command, by topic."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, SHORT[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a word."""
        found = [CompletionItem(name, help=SHORT[name]) for name in COMMANDS if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002
        **extra: Any,
    ) -> NoReturn:
        """Run the command, and exit with its exit code."""
        given = list(sys.argv[1:] if args is None else args)
        try:
            done = super().main(given, prog_name or "dibs", complete_var, False, **extra)
        except click.UsageError as error:
            sys.exit(_refuse_usage(error, given))
        except click.ClickException as error:
            sys.exit(_tell(given, type(error).__name__, error.format_message(), None, Exit.FAILED))
        except (click.Abort, KeyboardInterrupt):
            sys.stderr.write("\n")
            sys.exit(Exit.INTERRUPTED)
        except DibsError as error:
            if "--debug" in given:
                traceback.print_exc()
            sys.exit(_tell(given, type(error).__name__, error.message, error.hint, exit_code(error)))
        sys.exit(done if isinstance(done, int) else Exit.OK)

    def run(self) -> NoReturn:
        """Run with the process's own arguments."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        self.main()


def _tell_version(output: Output) -> Exit:
    from dibs.sql import latest_version

    facts = {"dibs": __version__, "schema": latest_version(), "python": platform.python_version()}
    if output.as_json:
        output.json(facts)
    else:
        click.echo(f"dibs {__version__} (schema version {facts['schema']}, Python {facts['python']})")
    return Exit.OK


def _refuse_usage(error: click.UsageError, given: list[str]) -> Exit:
    hint = f"see: {error.ctx.command_path} --help" if error.ctx else None
    return _tell(given, "UsageError", error.format_message(), hint, Exit.USAGE)


def _tell(given: list[str], name: str, message: str, hint: str | None, code: Exit) -> Exit:
    if "--json" in given:
        import msgspec

        document = {"error": name, "message": message, "hint": hint, "exit_code": int(code)}
        sys.stderr.write(msgspec.json.encode(document).decode() + "\n")
    else:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(clean(message), err=True)
        if hint:
            click.echo(f"hint:  {clean(hint)}", err=True)
    return code


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.option("--version", is_flag=True, help="Say which release, schema and Python this is.")
def dibs(version: bool) -> None:
    """A job queue that lives inside your PostgreSQL.

    Start with: dibs demo
    """
