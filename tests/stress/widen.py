"""Random short sleeps between the statements of the core's functions, so that narrow races become wide.

Only the test database is changed. `if dibs._widen() then null; end if;` changes neither FOUND nor ROW_COUNT, so it may
stand after any statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

WAITS = ("dibs._stop_claims(10)", "dibs._stop_claims(40)")
"""What sets a limit waits a second for claims in flight, which take longer here. Claims beyond that are not counted."""

CALL = "if dibs._widen() then null; end if;"
FEWEST = 150
"""Were fewer functions rewritten, the race windows would not be where they are thought to be."""

SLEEP = """
create function dibs._widen() returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  v_chance double precision := random();
begin
  if v_chance < 0.0015 then
    perform pg_sleep(0.005 + 0.03 * random());
  elsif v_chance < 0.02 then
    perform pg_sleep(0.004 * random());
  end if;
  return true;
end $$"""
CALM = """
create or replace function dibs._widen() returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  return true;
end $$"""

FUNCTIONS = """
select p.oid::regprocedure::text, p.prosrc, pg_get_functiondef(p.oid)
from pg_proc as p join pg_language as l on l.oid = p.prolang
where p.pronamespace = 'dibs'::regnamespace and l.lanname = 'plpgsql' and p.provolatile = 'v' and p.prokind = 'f'
  and p.prorettype <> 'trigger'::regtype order by 1"""


def widen(conn: psycopg.Connection[Any]) -> int:
    """Rewrite the functions of the connection's database. Returns how many."""
    functions = conn.execute(FUNCTIONS).fetchall()
    conn.execute(SLEEP)
    widened = 0
    for name, body, definition in functions:
        wide = widened_body(body).replace(*WAITS)
        if wide == body:
            continue
        assert definition.count(body) == 1, f"the body of {name} is not there once"
        conn.execute(definition.replace(body, wide).encode())
        widened += 1
    assert widened > FEWEST, f"only {widened} functions were rewritten"
    return widened


def calm(conn: psycopg.Connection[Any]) -> None:
    """Let nobody sleep from now on."""
    conn.execute(CALM)


def widened_body(body: str) -> str:
    """The body of a function with a call after each statement that ends a line."""
    lines, out = body.split("\n"), []
    last = max((n for n, line in enumerate(lines) if line.strip() in {"end", "end;"}), default=-1)
    is_running, is_string = False, False
    for number, line in enumerate(lines):
        out.append(line)
        code = line if is_string else line.split("--")[0]
        word = code.strip()
        if word == "declare" and not is_string:
            is_running = False
        is_string ^= code.count("'") % 2 == 1
        if word.endswith(";") and is_running and not is_string and number < last:
            out.append(CALL)
        if word == "begin" and not is_string:
            is_running = True
    return "\n".join(out)
