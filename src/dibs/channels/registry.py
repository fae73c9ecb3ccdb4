"""The channels: built-in ones, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from dibs.channels.environment import Environment
from dibs.channels.provider import Provider
from dibs.channels.providers import email, sms
from dibs.errors import InvalidArgument

Factory = Callable[[Environment], Provider | None]
"""A function that makes a channel's provider from the environment; None if it is not configured."""

GROUP = "dibs.channels"
"""The entry points under which other packages offer channels: a kind, and its factory."""

_registered: dict[str, Factory] = {}


def register(kind: str, factory: Factory) -> None:
    """Register a channel for jobs of this kind; ``email`` and ``sms`` may be replaced."""
    if kind == "db_function":
        raise InvalidArgument("db_function is no channel, and cannot be replaced by one")
    _registered[kind] = factory


def factories() -> dict[str, Factory]:
    """Return every channel by its kind. Channels registered here take precedence over those of other packages."""
    offered = {point.name: point.load() for point in entry_points(group=GROUP)}
    return {"email": email, "sms": sms, **offered, **_registered}


def providers(environment: Environment) -> dict[str, Provider]:
    """Return the configured channels, each with its provider."""
    made = {kind: factory(environment) for kind, factory in factories().items()}
    return {kind: provider for kind, provider in made.items() if provider is not None}
