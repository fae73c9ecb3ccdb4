"""``make demo-comms``: five hundred e-mails, one in five turned away; then the same with a worker that is killed."""

from __future__ import annotations

import json
import sys

from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server
from examples.comms.story import Report, play

LINES = (
    ("mails", "e-mails kicked off, each twice"),
    ("sent", "ended as sent"),
    ("given_up", "ended as given up"),
    ("attempts", "attempts were scheduled"),
    ("failures", "of them failed"),
    ("turned_away", "messages the mail server turned away"),
    ("accepted_by_server", "messages it accepted"),
    ("accepted_on_record", "acceptances on record"),
    ("kills", "times the worker was killed with -9"),
    ("restarts", "times PostgreSQL was restarted"),
    ("interrupted", "sends interrupted before they were on record"),
    ("sent_twice", "messages that went out twice, each of them reported"),
    ("stuck", "processes that are stuck"),
    ("too_early", "attempts that came too early"),
)


def main() -> int:
    reports = []
    for title, kills, restarts in (
        ("500 e-mails, one in five turned away", 0, 0),
        ("the same, with the worker killed five times and PostgreSQL restarted", 5, 1),
    ):
        with Server.temporary(settings=UNSAFE_FAST) as server:
            migrate(server.dsn())
            reports.append(play(server, mails=500, kills=kills, restarts=restarts))
        if "--json" not in sys.argv:
            show(title, reports[-1])
    if "--json" in sys.argv:
        print(json.dumps([report.as_json() for report in reports]))
    return any(report.wrong for report in reports)


def show(title: str, report: Report) -> None:
    print(f"\n{title}: {report.seconds:g} s\n")
    for name, words in LINES:
        print(f"{getattr(report, name):>8}  {words}")
    print("\n  all as it should be" if not report.wrong else f"\n  WRONG: not true that {'; '.join(report.wrong)}")


if __name__ == "__main__":
    sys.exit(main())
