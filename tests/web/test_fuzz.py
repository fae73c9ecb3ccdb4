"""Whatever is put into an address or a form, a page answers: never with an error of ours, or of the driver's."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from starlette.datastructures import ImmutableMultiDict

from dibs import InvalidArgument, NotPermitted
from dibs.db.calls.call import to_json
from dibs.web.filters import JobSearch
from dibs.web.pages import ROUTES
from dibs.web.settings import Settings

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.testclient import TestClient

ODD = [
    "", " ", "0", "-1", "7", "9" * 17, "9" * 30, "1.5", "1e400", "NaN", "Infinity", "null", "\u0663", "\uff11", "²",
    "'", '"', "\\", "%", "_", "%%%s%s", "\x00", "a\x00b", "\r\nSet-Cookie: a=b", "💥", "é" * 300, "a" * 5000, "\u202e",
    "<script>alert(1)</script>", "{{7*7}}", "../../etc/passwd", "//evil.example/", "javascript:alert(1)",
    "'; drop table dibs.job; --", "{", "{}", "[]", "[1]", '{"a":', '{"a": {"b": [1, 1e400]}}', '{"a": 1e999}',
    '"\\u0000"', '{"a": "\\ud800"}', "[" * 3000, '{"a":' * 1200, "a=b", "=", "a=", "a.b.c=1", "." * 3000 + "=1",
    "a=" + "9" * 400, 'a="\\u0000"', "..=..", "30s", "-30s", "1e9d", "999999999999999d", "9" * 30 + "w", "0s", "P1D",
    "1 day ago", "infinity", "ready", "dead", "mail", "work", "nightly", "hour", "yes", "retry", "move", "delete",
    "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "{01a1e2fa}",
]  # fmt: skip
"""What people, scanners and broken links send."""

NAMES = [
    *(f.name for f in fields(JobSearch)), "before", "name", "range", "source", "interrupted", "did", "n", "operation",
    "more", "act", "to", "sure", "priority", "number", "rate", "format",
]  # fmt: skip
"""Whatever any page reads, and some that it does not."""

RAW = re.compile(r"psycopg|Traceback|syntax error at|invalid input|DETAIL:|LINE \d+:|violates|byte sequence|SQLSTATE")
"""What only the driver or PostgreSQL says."""


@pytest.mark.parametrize("name", [f.name for f in fields(JobSearch)])
def test_what_is_no_filter_is_refused(name: str) -> None:
    for value in ODD:
        with suppress(InvalidArgument, NotPermitted):
            found = JobSearch.read(ImmutableMultiDict([(name, value)])).filter(datetime.now(UTC), Settings())
            to_json(found)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_that_is_sent_breaks_a_page(method: str, web: TestClient, made: dict[str, UUID]) -> None:
    dice = random.Random(f"{method} 14")
    ids = [str(made["ready"]), str(made["failed"]), str(uuid4()), "x"]
    where = [route.path for route in ROUTES if method in (route.methods or ())]
    for path in [*where, *dice.choices(where, k=50), *["/jobs" if method == "GET" else "/jobs/many"] * 20]:
        sent = {dice.choice(NAMES): dice.choice(ODD) for _ in range(dice.randrange(1, 5))}
        address = path.replace("{id}", dice.choice(ids))
        answer = web.get(address, params=sent) if method == "GET" else web.post(address, data=sent)
        checked(answer, (address, sent))


def checked(answer: Any, sent: object) -> None:
    """No error of ours, no header and no script of theirs, and nowhere else to go."""
    assert answer.status_code < 500, (answer.status_code, sent, answer.text[-600:])
    if answer.headers.get("content-type", "").startswith("text/html"):
        assert "<script>alert" not in answer.text
        assert answer.status_code < 400 or not RAW.search(answer.text), (sent, answer.text[-600:])
    assert "set-cookie" not in answer.headers
    assert re.match("/(?!/)", answer.headers.get("location", "/here")), sent
