"""The app that the files of this folder deploy: put your own in its place.

dibs worker shop:app
"""

from __future__ import annotations

import logging

import dibs

app = dibs.App(queue="shop")


@app.task(retry=dibs.Retry(max_attempts=5, backoff=dibs.exponential(1, cap=600)), concurrency=4, timeout=60)
async def confirm(sale: int) -> str:
    """Confirm a sale to the customer; at most four at once in the whole fleet."""
    logging.getLogger("shop").info("sale %s is confirmed", sale)
    return f"sale {sale} is confirmed"
