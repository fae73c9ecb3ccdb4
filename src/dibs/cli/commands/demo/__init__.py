"""``dibs demo``: a few hundred jobs live their lives before your eyes."""

from dibs.cli.commands.demo.command import demo

__all__ = ["demo"]
