"""Access to the dashboard: the permissions of a request, and the ways to determine them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import Request

from dibs.errors import InvalidArgument
from dibs.operation import ACTIONS as ALL
from dibs.operation import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.web.secrets import SecretFile

ACTIONS: frozenset[Action] = frozenset(ALL)
"""Everything that an access may allow."""

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Access:
    """The user of a request and their permissions; without ``read``, none."""

    who: str
    actions: frozenset[Action] = field(default_factory=lambda: frozenset[Action](("read",)))

    def __post_init__(self) -> None:
        if unknown := self.actions - ACTIONS:
            raise InvalidArgument(f"there is no action {min(unknown)!r}", hint=f"there are {', '.join(ALL)}")

    @classmethod
    def to(cls, who: str, *, write: bool) -> Access:
        """Return an access to everything, or only to read."""
        return cls(who, ACTIONS) if write else cls(who)

    def may(self, action: Action) -> bool:
        """True if this access allows an action."""
        return action in self.actions and "read" in self.actions


Authorize = Callable[[Request], Access | Awaitable[Access | None] | None]
"""A function that returns the access of a request; None if the user is unknown."""


def is_loopback(host: str | None) -> bool:
    """True if an address belongs to this machine alone."""
    try:
        return host is not None and ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; None if it is none. An IPv4 address mapped to IPv6 becomes IPv4."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


class Proxies:
    """Our own proxies, by their addresses or networks: 10.0.0.5, 10.1.0.0/16."""

    def __init__(self, given: Sequence[str]) -> None:
        try:
            self._networks: list[IPv4Network | IPv6Network] = [ip_network(text) for text in given]
        except ValueError as error:
            raise InvalidArgument(f"a proxy is given by its address, or a network: {error}") from None

    def __contains__(self, host: str) -> bool:
        address = address_of(host)
        return address is not None and any(address in network for network in self._networks)


def from_this_machine(*, write: bool) -> Authorize:
    """Let in requests from this machine under a local host name.

    The host name is checked because another site can point its own name to this machine and read the answers (DNS
    rebinding). A request that a proxy passed on is not from here.
    """

    def authorize(request: Request) -> Access | None:
        local = request.client is not None and is_loopback(request.client.host)
        passed_on = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "x-real-ip", "via"))
        if local and not passed_on and _name(request.headers.get("host", "")) in LOCAL_NAMES:
            return Access.to("local", write=write)
        return None

    return authorize


def by_password(file: SecretFile, *, write: bool) -> Authorize:
    """Let in users with a password of the file. A line is ``NAME:PASSWORD``, or a password for any name."""

    def authorize(request: Request) -> Access | None:
        name, password = _basic(request)
        return Access.to(name or "password", write=write) if file.find(name, password) else None

    return authorize


def by_token(file: SecretFile, *, write: bool) -> Authorize:
    """Let in requests with ``Authorization: Bearer`` and a token of the file."""

    def authorize(request: Request) -> Access | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and file.find("", token.strip()):
            return Access.to("token", write=write)
        return None

    return authorize


def by_header(name: str, proxies: Proxies, *, write: bool) -> Authorize:
    """Let in a user by a header that one of these proxies sets.

    A request with the header twice is refused: the client may have sent one, and the proxy added another.
    """

    def authorize(request: Request) -> Access | None:
        names = [who.strip() for who in request.headers.getlist(name)]
        if len(names) == 1 and names[0] and request.client is not None and request.client.host in proxies:
            return Access.to(names[0], write=write)
        return None

    return authorize


def first_of(ways: Sequence[Authorize]) -> Authorize:
    """Return an ``authorize`` that tries each way, and takes the first access."""

    async def authorize(request: Request) -> Access | None:
        for way in ways:
            if access := await resolved(way(request)):
                return access
        return None

    return authorize


async def resolved(access: Access | Awaitable[Access | None] | None) -> Access | None:
    """Await the access, if it must be."""
    return access if access is None or isinstance(access, Access) else await access


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _basic(request: Request) -> tuple[str, str]:
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(sent, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
