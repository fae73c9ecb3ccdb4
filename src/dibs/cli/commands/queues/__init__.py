"""``dibs queues``: list queues, show one, set its policy, pause it, purge it."""

from dibs.cli.commands.queues import flow, policy
from dibs.cli.commands.queues.group import queues

__all__ = ["flow", "policy", "queues"]
