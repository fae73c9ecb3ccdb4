"""The providers that send messages: each is a file, and the environment chooses one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from dibs.channels.messages import Email, Sms
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dibs.channels.environment import Environment
    from dibs.channels.provider import Provider


def email(environment: Environment) -> Provider | None:
    """Return the provider of e-mail, by DIBS_EMAIL_PROVIDER; with DIBS_SMTP_HOST it is smtp."""
    inferred = "smtp" if environment.get("DIBS_SMTP_HOST") else None
    made = {"smtp": _smtp, "webhook": _webhook_of(Email, "DIBS_EMAIL_WEBHOOK"), "console": _console_of(Email)}
    return _choose(environment, "DIBS_EMAIL_PROVIDER", inferred, made)


def sms(environment: Environment) -> Provider | None:
    """Return the provider of text messages, by DIBS_SMS_PROVIDER; with DIBS_SMS_ACCOUNT it is twilio."""
    inferred = "twilio" if environment.get("DIBS_SMS_ACCOUNT") else None
    made = {"twilio": _twilio, "webhook": _webhook_of(Sms, "DIBS_SMS_WEBHOOK"), "console": _console_of(Sms)}
    return _choose(environment, "DIBS_SMS_PROVIDER", inferred, made)


def _choose(
    environment: Environment, setting: str, inferred: str | None, made: Mapping[str, Callable[[Environment], Provider]]
) -> Provider | None:
    name = environment.get(setting, inferred)
    if name is None:
        return None
    if name not in made:
        near = get_close_matches(name, list(made), 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidArgument(f"{setting} is {name!r}, which is no provider", hint=f"{meant}it is {', '.join(made)}")
    return made[name](environment)


def _smtp(environment: Environment) -> Provider:
    from dibs.channels.providers.smtp import Smtp

    return Smtp(environment)


def _twilio(environment: Environment) -> Provider:
    from dibs.channels.providers.twilio import Twilio

    return Twilio(environment)


def _webhook_of(shape: type[Email | Sms], setting: str) -> Callable[[Environment], Provider]:
    def make(environment: Environment) -> Provider:
        from dibs.channels.providers.webhook import Webhook

        return Webhook(environment, setting, shape)

    return make


def _console_of(shape: type[Email | Sms]) -> Callable[[Environment], Provider]:
    def make(environment: Environment) -> Provider:  # noqa: ARG001
        from dibs.channels.providers.console import Console

        return Console(shape)

    return make
