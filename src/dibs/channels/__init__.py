"""Channels: jobs that run functions of the database, and jobs that send e-mail and text messages.

>>> from dibs import channels
>>> app = channels.app("postgresql:///shop")                            # doctest: +SKIP

``dibs worker --channels`` runs them without any Python code from you.
"""

from dibs.channels.environment import Environment
from dibs.channels.provider import NotSent, Provider, Refusal, Throttled
from dibs.channels.registry import Factory, register
from dibs.channels.tasks import ChannelApp, add, app

__all__ = [
    "ChannelApp",
    "Environment",
    "Factory",
    "NotSent",
    "Provider",
    "Refusal",
    "Throttled",
    "add",
    "app",
    "register",
]
