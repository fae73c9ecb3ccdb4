"""Follows every link of every page."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINK = re.compile(r'(?:href|src|action)="([^"#]+)"')


def links(page: str) -> set[str]:
    """Where a page points to; forms that change something are left out."""
    page = re.sub(r'<form method="post".*?</form>', "", page, flags=re.DOTALL)
    return {unescape(found) for found in LINK.findall(page)}


def crawl(start: str, get: Callable[[str], tuple[int, str, str]], most: int = 300) -> set[str]:
    """Every address that can be reached from the first; each has to answer with 200."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        address = ahead.pop()
        status, kind, text = get(address)
        assert status == 200, f"{address} answers {status}"
        seen.add(address)
        assert len(seen) < most, "there is no end"
        if kind.startswith("text/html"):
            ahead += sorted(links(text) - seen - set(ahead))
    return seen
