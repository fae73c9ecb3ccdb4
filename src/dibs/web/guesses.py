"""Limits on guesses of a password or token: for one address, and for all together."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from ipaddress import IPv6Address, ip_network
from typing import TYPE_CHECKING

from dibs.web.access import address_of, resolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from dibs.web.access import Access, Authorize, Proxies

MOST = 10_000
"""The number of addresses that are remembered; the oldest are forgotten."""

log = logging.getLogger("dibs.web")


class TooManyGuesses(Exception):
    """An address has guessed too often; it must wait ``wait`` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"too many guesses: the next one in {wait:.0f} s")
        self.wait = wait


class RateLimit:
    """A leaky bucket for each key: it holds ``most`` guesses and drains within ``per`` seconds."""

    def __init__(self, most: int, per: float) -> None:
        self._step = per / most
        self._per = per
        self._empty_at: OrderedDict[str, float] = OrderedDict()
        """The time at which the bucket of each key is empty again."""

    def wait(self, key: str, now: float) -> float:
        """Seconds until the next guess is allowed; 0 or less if it is allowed now."""
        return self._empty_at.get(key, now) + self._step - self._per - now

    def add(self, key: str, now: float, count: int) -> None:
        """Add ``count`` guesses; -1 takes one back."""
        self._empty_at[key] = max(self._empty_at.pop(key, now), now) + count * self._step
        while self._empty_at and (len(self._empty_at) > MOST or next(iter(self._empty_at.values())) <= now):
            self._empty_at.popitem(last=False)


class GuessLimit:
    """Counts wrong guesses of each address, and of all together.

    The limit of all together does not hold back an address that was right before.
    """

    def __init__(
        self, each: int = 10, together: int = 100, per: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._each, self._together = RateLimit(each, per), RateLimit(together, per)
        self._right: OrderedDict[str, None] = OrderedDict()
        self._clock = clock

    def count_guess(self, address: str) -> None:
        """Count a guess as wrong; :meth:`take_back` corrects that. Raise if the address has guessed too often."""
        now = self._clock()
        wait = self._each.wait(address, now)
        if address not in self._right:
            wait = max(wait, self._together.wait("", now))
        if wait > 0:
            raise TooManyGuesses(wait)
        self._count(address, now, 1)
        if self._each.wait(address, now) > 0:
            log.warning("too many passwords or tokens from %s: it has to wait unless this one is right", address)

    def take_back(self, address: str) -> None:
        """Take the last guess back: it was right."""
        self._count(address, self._clock(), -1)
        self._right[address] = None
        self._right.move_to_end(address)
        if len(self._right) > MOST:
            self._right.popitem(last=False)

    def _count(self, address: str, now: float, count: int) -> None:
        self._each.add(address, now, count)
        self._together.add("", now, count)


def limit_guesses(authorize: Authorize, proxies: Proxies, guesses: GuessLimit | None = None) -> Authorize:
    """Limit the wrong guesses of an ``authorize``. Only a request with an ``Authorization`` header is a guess."""
    counted = guesses or GuessLimit()

    async def limit(request: Request) -> Access | None:
        if "authorization" not in request.headers:
            return await resolved(authorize(request))
        address = client_address(request, proxies)
        counted.count_guess(address)  # Before the check, so that many guesses at the same moment count.
        if access := await resolved(authorize(request)):
            counted.take_back(address)
        return access

    return limit


def client_address(request: Request, proxies: Proxies) -> str:
    """Return the client's address: the peer, or behind our proxies the last address that is none of them."""
    path = [request.client.host if request.client else ""]
    if path[0] in proxies:
        passed_on = ",".join(request.headers.getlist("x-forwarded-for"))
        path += [address.strip() for address in reversed(passed_on.split(","))]
    return _key(next((address for address in path if address not in proxies), path[-1]))


def _key(address: str) -> str:
    """Return the key of an address. A network of IPv6 has one key, since one person may have all of it."""
    known = address_of(address)
    if isinstance(known, IPv6Address):
        return str(ip_network(f"{known}/64", strict=False))
    return "somewhere" if known is None else str(known)


def seconds(wait: float) -> str:
    """Return a wait for the header Retry-After: whole seconds, rounded up."""
    return str(max(1, math.ceil(wait)))
