"""Limits on guesses of a password or token: for one address, and for all together."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from ipaddress import IPv6Address, ip_network
from typing import TYPE_CHECKING

from dibs.web.access import address_of, settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from dibs.web.access import Access, Authorize, Proxies

MOST = 10_000
"""The number of addresses that are remembered; the oldest are forgotten."""

log = logging.getLogger("dibs.web")


class TooManyGuesses(Exception):
    """Somebody guesses; ``wait`` is how many seconds they have to."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"too many guesses: the next one in {wait:.0f} s")
        self.wait = wait


class Meter:
    """Lets ``most`` of something happen in ``per`` seconds, for each key; what was used comes back little by little."""

    def __init__(self, most: int, per: float) -> None:
        self._step = per / most
        self._per = per
        self._used: OrderedDict[str, float] = OrderedDict()
        """Until when each key would have to wait for all it has used to come back."""

    def wait(self, key: str, now: float) -> float:
        """Seconds until the next guess is allowed; 0 or less if it is allowed now."""
        return self._used.get(key, now) + self._step - self._per - now

    def add(self, key: str, now: float, count: int) -> None:
        """It happened, or, with a count of -1, did not count."""
        self._used[key] = max(self._used.pop(key, now), now) + count * self._step
        while self._used and (len(self._used) > MOST or next(iter(self._used.values())) <= now):
            self._used.popitem(last=False)


class Guesses:
    """Counts what is tried and wrong.

    When too much is wrong from everywhere, addresses that were right before still get in.
    """

    def __init__(
        self, each: int = 10, together: int = 100, per: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._each, self._together = Meter(each, per), Meter(together, per)
        self._right: OrderedDict[str, None] = OrderedDict()
        self._clock = clock

    def begin(self, address: str) -> None:
        """Somebody tries; refused if they tried too often. It counts as wrong until it is found right."""
        now = self._clock()
        wait = self._each.wait(address, now)
        if address not in self._right:
            wait = max(wait, self._together.wait("", now))
        if wait > 0:
            raise TooManyGuesses(wait)
        self._count(address, now, 1)
        if self._each.wait(address, now) > 0:
            log.warning("too many wrong passwords or tokens from %s", address)

    def right(self, address: str) -> None:
        """It was right after all."""
        self._count(address, self._clock(), -1)
        self._right[address] = None
        self._right.move_to_end(address)
        if len(self._right) > MOST:
            self._right.popitem(last=False)

    def _count(self, address: str, now: float, count: int) -> None:
        self._each.add(address, now, count)
        self._together.add("", now, count)


def limited(authorize: Authorize, proxies: Proxies, guesses: Guesses | None = None) -> Authorize:
    """Limit the wrong guesses of an ``authorize``. Only a request with an ``Authorization`` header is a guess."""
    counted = guesses or Guesses()

    async def limit(request: Request) -> Access | None:
        if "authorization" not in request.headers:
            return await settled(authorize(request))
        address = place_of(request, proxies)
        counted.begin(address)
        if access := await settled(authorize(request)):
            counted.right(address)
        return access

    return limit


def place_of(request: Request, proxies: Proxies) -> str:
    """Return the client's address: the peer, or behind our proxies the last address that is none of them."""
    way = [request.client.host if request.client else ""]
    if way[0] in proxies:
        passed_on = ",".join(request.headers.getlist("x-forwarded-for"))
        way += [address.strip() for address in reversed(passed_on.split(","))]
    return _place(next((address for address in way if address not in proxies), way[-1]))


def _place(address: str) -> str:
    """An address as it is counted: a whole network of IPv6, which one person may have, is one place."""
    known = address_of(address)
    if isinstance(known, IPv6Address):
        return str(ip_network(f"{known}/64", strict=False))
    return "somewhere" if known is None else str(known)


def seconds(wait: float) -> str:
    """A wait as HTTP tells it: whole, and not too short."""
    return str(max(1, math.ceil(wait)))
