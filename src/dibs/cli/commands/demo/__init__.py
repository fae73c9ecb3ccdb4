"""``dibs demo``: run a few hundred jobs and show each step."""

from dibs.cli.commands.demo.command import demo

__all__ = ["demo"]
