"""Base classes of commands, with the shared options: --json, --csv, --dsn and --debug, before or after the name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dibs.cli.help import EXAMPLES
from dibs.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NEAR = 0.7
"""The least similarity of a word and a command that is suggested for it: prune is not purge."""


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).output.as_json = True


def _set_csv(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        output = ctx.ensure_object(Session).output
        output.as_json = output.as_csv = True


def _set_dsn(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).dsn = value


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).debug = True
        logging.getLogger("psycopg").setLevel(logging.NOTSET)


def _shared() -> list[click.Parameter]:
    return [
        click.Option(["--dsn"], metavar="DSN", expose_value=False, callback=_set_dsn,
                     help="The database; DIBS_DSN or the embedded PostgreSQL if not given."),
        click.Option(["--json", "as_json"], is_flag=True, expose_value=False, callback=_set_json,
                     help="Answer with JSON on standard output."),
        click.Option(["--csv", "as_csv"], is_flag=True, expose_value=False, callback=_set_csv,
                     help="Answer with lines of CSV on standard output."),
        click.Option(["--debug"], is_flag=True, expose_value=False, callback=_set_debug,
                     help="Show where an error came from."),
    ]  # fmt: skip


limit_option = click.option(
    "-n", "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="At most this many."
)
"""The greatest length of a list."""


class Documented(click.Command):
    """A command with the shared options, and an example in its help."""

    def __init__(self, *args: Any, shared: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)
        if shared:
            self.params.extend(_shared())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example."""
        super().format_epilog(ctx, formatter)
        if example := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Example"):
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class Command(Documented):
    """A command without subcommands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option given twice if only the last one would count."""
        if ctx.resilient_parsing:  # A shell completes.
            return super().parse_args(ctx, args)
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        given = [p for p in order if isinstance(p, click.Option) and not (p.multiple or p.is_flag)]
        for option in given:
            if given.count(option) > 1:
                raise click.UsageError(f"{option.opts[-1]} is given twice", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; warn first if the command line has a password in it."""
        ctx.ensure_object(Session).warn()
        return super().invoke(ctx)


class Group(Documented, click.Group):
    """A group of commands, which suggests a command for a misspelt one."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, list the commands."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if there is none, suggest the nearest one."""
        if not args[0].startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"there is no command {args[0]!r}{self.nearest(ctx, args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def nearest(self, ctx: click.Context, word: str) -> str:
        """Guess the command that a misspelled word stands for: of this group, or of a group in it."""
        names = self.list_commands(ctx)
        inner: dict[str, list[str]] = {}
        for name in names:
            for last in self._of_group(ctx, name):
                inner.setdefault(last, []).append(f"{name} {last}")
        if word not in inner and (suggestion := did_you_mean(word, names)):
            return suggestion
        from difflib import get_close_matches

        meant = inner.get(word) or [path for last in get_close_matches(word, inner, 1, NEAR) for path in inner[last]]
        return f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""

    def _of_group(self, ctx: click.Context, name: str) -> list[str]:
        found = self.get_command(ctx, name)
        return found.list_commands(ctx) if isinstance(found, click.Group) else []


class Listing(Group):
    """A group that lists its objects when it is given no command."""

    def __init__(self, *args: Any, callback: Callable[..., Any], **kwargs: Any) -> None:
        def listing(**options: Any) -> Any:
            ctx = click.get_current_context()
            if ctx.invoked_subcommand is None:
                ctx.ensure_object(Session).warn()
                return callback(**options)
            for option in self.params:
                if ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE and option.expose_value:
                    raise click.UsageError(f"{option.opts[-1]} is for the list, not for {ctx.invoked_subcommand}", ctx)
            return None

        super().__init__(*args, callback=listing, invoke_without_command=True, **kwargs)

    def nearest(self, ctx: click.Context, word: str) -> str:
        """Guess the command that a misspelled word stands for. The list itself has no name."""
        return f"; {ctx.command_path} alone lists them" if word == "list" else super().nearest(ctx, word)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing when no word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
