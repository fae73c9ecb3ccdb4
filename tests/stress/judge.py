"""The judge: looks at everything in one snapshot, when nobody works any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.stress.checks import AT_REST, TICKETS, UNCOUNTED, rows_of

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from tests.stress.world import World

MEMORY = """
create schema stress;
create table stress.gone (id uuid not null, queue_id integer not null, verb text);
create function stress.note() returns trigger language plpgsql security definer as $$
begin
  insert into stress.gone (id, queue_id, verb) select o.id, o.queue_id, current_query() from old as o;
  return null;
end $$;
create trigger stress_note after delete on dibs.job referencing old table as old
for each statement execute function stress.note();
"""
"""Remembers which jobs were deleted, and by which statement: purge and delete do not say."""


def judge(conn: psycopg.Connection[Any], world: World, *, when: str) -> None:
    """Compare the tables with each other and with what the threads remember."""
    with conn.transaction():
        conn.execute("set transaction isolation level repeatable read, read only")
        for check in AT_REST:
            rows = conn.execute(check.sql).fetchall()
            if rows:
                world.find(f"{check.name} ({when})", check.describe(rows))
        if not any("still open" in warning for warning in world.warnings):
            rows = conn.execute(UNCOUNTED.sql).fetchall()
            if rows:
                world.find(f"{UNCOUNTED.name} ({when})", UNCOUNTED.describe(rows))
        _judge_memory(conn, world, when)


def _judge_memory(conn: psycopg.Connection[Any], world: World, when: str) -> None:
    """Every job has a ticket or was completed; none has both; none is missing."""
    tickets = {row[0] for row in conn.execute(TICKETS + "select id from ticket")}
    jobs = {row[0] for row in conn.execute("select id from dibs.job")}
    succeeded = {row[0] for row in conn.execute("select id from dibs.attempt where outcome is null")}
    gone = dict(conn.execute("select id, verb from stress.gone").fetchall())
    with world.lock:
        made, done, unsure = set(world.made), {id for id, times in world.done.items() if times}, set(world.unsure)
    if lost := jobs - tickets - done - (unsure | succeeded):
        world.find(f"jobs have no ticket, and nobody completed them ({when})", _show(conn, lost))
    if unended := tickets & done:
        world.find(f"jobs were completed and still have a ticket ({when})", _show(conn, unended))
    if unrecorded := (tickets & succeeded) - done:
        world.find(f"jobs succeeded by the history and still have a ticket ({when})", _show(conn, unrecorded))
    if missing := (made | done) - jobs - set(gone):
        world.find(f"jobs that were enqueued are not there ({when})", "\n".join(map(str, sorted(missing)[:10])))
    odd = {id: sql for id, sql in gone.items() if "dibs.purge" not in sql and "dibs.delete" not in sql}
    if odd:
        world.find(f"jobs were deleted by other verbs than purge and delete ({when})", rows_of(list(odd.items())))


SHOW = """
select j.id, q.name, j.kind, j.group_name, j.resources, (
    select array_agg((a.run, coalesce(a.outcome::text, 'succeeded'), a.claimed_at, a.ended_at) order by a.run)
    from dibs.attempt as a where a.id = j.id) as runs, (
    select array_agg((a.verb, a.at, a.detail) order by a.id) from dibs.audit as a
    where a.job_id = j.id or a.filter -> 'ids' ? j.id::text) as changes
from dibs.job as j left join dibs.queue as q on q.id = j.queue_id where j.id = any (%s) order by j.id limit 5"""


def _show(conn: psycopg.Connection[Any], ids: set[UUID]) -> str:
    """What is known of some of these jobs."""
    return f"{len(ids)} jobs\n{rows_of(conn.execute(SHOW, (sorted(ids),)).fetchall())}"
