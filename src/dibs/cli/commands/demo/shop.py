"""The shop whose jobs the dashboard shows: tasks that take a while, flake, or fail until somebody retries them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from dibs.cli.commands.demo.plan import BILLING, IMAGES, MAIL, QUEUES, REPORTS
from dibs.client.app import App
from dibs.client.context import context
from dibs.policy import exponential
from dibs.retry import Snooze
from dibs.runtime.wake import wait_for

if TYPE_CHECKING:
    from dibs.client.client_async import AsyncClient

ATTEMPTS = 2
"""How often a task is tried; what is retried by hand after that, succeeds."""
FIRST = 40
"""How many jobs there are at first."""


class PartnerDown(Exception):
    """The partner does not answer."""


class BankTimeout(Exception):
    """The bank takes too long."""


async def send_mail(user: int, lang: str) -> dict[str, str]:
    """Send a mail: nothing goes wrong."""
    await _work(0.3)
    return {"message_id": f"<{user}.{lang}@shop.example>"}


async def resize_image(url: str, widths: list[int]) -> int:
    """Resize an image, and tell how far it is."""
    for n, width in enumerate(widths):
        context().progress(n, len(widths), message=f"{width} px")
        await _work(0.6)
    return len(url)


async def charge_card(order: int) -> str:
    """Charge a card: the bank is slow the first time, every third time."""
    await _work(0.4)
    if order % 3 == 0 and context().attempt == 1:
        raise BankTimeout(f"no answer to order {order} within 5 s")
    return "charged"


async def call_partner(order: int) -> str:
    """Call a partner who is down, until somebody retries by hand."""
    await _work(0.2)
    if context().job.run <= ATTEMPTS:
        raise PartnerDown(f"no route to partner.example, order {order}")
    return "confirmed"


async def build_report(day: str) -> str:
    """Build a report, when its data is there."""
    if context().job.run == 1:
        raise Snooze(5)
    await _work(1.0)
    return f"report of {day}"


async def _work(seconds: float) -> None:
    await asyncio.sleep(seconds * random.uniform(0.4, 1.8))  # noqa: S311


def make_app(dsn: str) -> App:
    """The shop's tasks, and a schedule."""
    app = App(dsn)
    for task, queue in ((send_mail, MAIL), (resize_image, IMAGES), (charge_card, BILLING), (call_partner, BILLING)):
        app.task(name=task.__name__, queue=queue)(task)
    report = app.task(name="build_report", queue=REPORTS)(build_report)
    app.schedule(name="demo report", interval=20, args=["today"])(report)
    return app


async def feed(client: AsyncClient, stop: asyncio.Event) -> None:
    """Enqueue jobs, now and then, until told to stop; and keep the charts up to date."""
    for queue in QUEUES:
        await client.queues.set(queue, max_attempts=ATTEMPTS, backoff=exponential(0.5, cap=2.0))
    number = 0
    while not stop.is_set():
        for _ in range(FIRST if number == 0 else random.choice((0, 1, 1, 2, 4))):  # noqa: S311
            number += 1
            await _enqueue(client, number)
        await client.upkeep.roll_up()
        await wait_for(stop, random.uniform(0.3, 0.9))  # noqa: S311


async def _enqueue(client: AsyncClient, number: int) -> None:
    if number % 12 == 7:
        await client.enqueue(BILLING, "call_partner", {"order": number})
    elif number % 5 == 0:
        await client.enqueue(IMAGES, "resize_image", {"url": f"/{number}.png", "widths": [320, 640, 1280]})
    elif number % 5 == 3:
        await client.enqueue(BILLING, "charge_card", {"order": number})
    else:
        await client.enqueue(MAIL, "send_mail", {"user": number, "lang": random.choice(("en", "de", "fr"))})  # noqa: S311
