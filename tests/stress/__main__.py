"""``python -m tests.stress``: a stress by hand, with as many seeds and minutes as wanted."""

from __future__ import annotations

import argparse
import json
import random
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server
from tests.stress.run import Summary, stress

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {**UNSAFE_FAST, "shared_buffers": "128MB", "max_connections": "80", "max_wal_size": "1GB"}


def main() -> int:
    """Run all seeds; 1 if anything was found."""
    options = _options()
    seeds = _seeds(options)
    seconds = (options.minutes * 60 if options.minutes else options.seconds) / len(seeds)
    summaries: list[Summary] = []
    with _server(options.dsn) as server:
        for seed in seeds:
            with _database(server, seed) as dsn:
                summary = stress(
                    dsn,
                    seed,
                    seconds,
                    widened=options.widened,
                    workers=options.workers,
                    without=frozenset(options.without.split(",")),
                    say=_say,
                )
            summaries.append(summary)
            _say(str(summary))
    if options.json:
        text = json.dumps([summary.as_dict() for summary in summaries], indent=2)
        Path(options.json).write_text(text, "utf-8")
    return int(any(summary.findings for summary in summaries))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--seed", type=int, help="of all random choices; how threads interleave differs each time")
    parser.add_argument("--seeds", help="such as 1-10: one after the other, which divide the time")
    parser.add_argument("--seconds", type=float, default=60, help="how long the load lasts (default: 60)")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument(
        "--widened", action="store_true", help="sleep at random between the statements of the functions"
    )
    parser.add_argument("--dsn", help="a server on which databases may be made (default: an embedded one)")
    parser.add_argument("--workers", type=int, default=4, help="how many threads claim (default: 4)")
    parser.add_argument("--without", default="", help="acts of operators to leave out, such as undo,cancel_and_undo")
    parser.add_argument("--json", help="write what happened to this file")
    return parser.parse_args()


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seeds:
        first, _, last = options.seeds.partition("-")
        return list(range(int(first), int(last or first) + 1))
    return [options.seed if options.seed is not None else random.randrange(10**6)]


@contextmanager
def _server(dsn: str | None) -> Iterator[str]:
    if dsn is not None:
        yield dsn
        return
    with Server.temporary(settings=SETTINGS, in_memory=True) as server:
        yield server.dsn("postgres")


@contextmanager
def _database(server: str, seed: int) -> Iterator[str]:
    """A fresh database with dibs, dropped afterwards."""
    name = sql.Identifier(f"dibs_stress_{seed}")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("drop database if exists {} with (force)").format(name))
        admin.execute(sql.SQL("create database {}").format(name))
        dsn = make_conninfo(server, dbname=f"dibs_stress_{seed}")
        migrate(dsn)
        yield dsn
        admin.execute(sql.SQL("drop database {} with (force)").format(name))


if __name__ == "__main__":
    sys.exit(main())
