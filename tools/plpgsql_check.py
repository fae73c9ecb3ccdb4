"""Installs dibs on a server with the extension plpgsql_check and checks every PL/pgSQL function with it."""

from __future__ import annotations

import sys

import psycopg

from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server

CHECK = """
select p.oid::regprocedure::text, c.*
from pg_proc as p
join pg_language as l on l.oid = p.prolang and l.lanname = 'plpgsql'
cross join lateral plpgsql_check_function(
  p.oid, relid => coalesce((select t.tgrelid from pg_trigger as t where t.tgfoid = p.oid order by t.oid limit 1), 0),
  fatal_errors => false, other_warnings => true, performance_warnings => false, extra_warnings => true,
  security_warnings => true) as c
where p.pronamespace = 'dibs'::regnamespace
order by 1
"""
ACCEPTED = (
    "unused parameter",  # a field of a record filled by SELECT INTO is not always read
    "never read variable",
    "is not single argument",  # a function may return several values, and some of them are rows
    "reserved keyword",  # a job's option is called group, and so is the argument
)


def main() -> int:
    with Server.temporary(settings=UNSAFE_FAST) as server:
        migrate(server.dsn())
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("create extension plpgsql_check")
            found = [(f, text) for f, text in conn.execute(CHECK) if not any(a in text for a in ACCEPTED)]
    for function, text in found:
        print(f"{function}: {text}")
    print(f"plpgsql_check: {len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
