"""Removes dibs from a database."""

from __future__ import annotations

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier

from dibs import sql
from dibs.db.dsn import connect
from dibs.db.schema import installed
from dibs.db.translate import translated
from dibs.errors import SchemaInUse, SchemaMissing

MOST = 1_000_000
"""The most jobs to count."""

COUNT = "select count(*) from (select from dibs.job limit %s) as j"

WORKERS = "select name from dibs.worker where seen_at > dibs.now() - interval '30 seconds' order by name"

DEPENDENTS = """
select distinct pg_describe_object(d.classid, d.objid, d.objsubid) from (
  -- A view depends through its rule.
  select 'pg_class'::regclass as classid, r.ev_class as objid, 0 as objsubid, d.refclassid, d.refobjid
  from pg_depend as d join pg_rewrite as r on r.oid = d.objid
  where d.classid = 'pg_rewrite'::regclass and d.deptype = 'n'
  union all
  select d.classid, d.objid, d.objsubid, d.refclassid, d.refobjid
  from pg_depend as d where d.classid <> 'pg_rewrite'::regclass and d.deptype = 'n'
) as d
cross join lateral pg_identify_object(d.refclassid, d.refobjid, 0) as o
cross join lateral pg_identify_object(d.classid, d.objid, 0) as i
where o.schema = 'dibs' and case when i.schema is not null then i.schema <> 'dibs'
  else i.type not in ('schema', 'default value') and i.identity not like '%dibs.%' end
order by 1
"""


class Uninstalled(msgspec.Struct, frozen=True):
    """The extent of an uninstall: jobs, roles, dependent objects of others, and running workers."""

    jobs: int
    workers: tuple[str, ...]
    dependents: tuple[str, ...]
    roles: tuple[str, ...] = ()
    roles_kept: tuple[str, ...] = ()


def uninstall(dsn: str, *, roles: bool = False, force: bool = False, dry_run: bool = False) -> Uninstalled:
    """Drop the schema with all jobs and their history; with ``roles``, the roles too, if nothing else needs them.

    Without ``force`` it refuses while workers run or something of others depends on it. ``dry_run`` changes nothing.
    """
    with translated(), connect(dsn) as conn:
        conn.execute("set search_path = pg_catalog, pg_temp")
        if installed(conn) is None:
            raise SchemaMissing("dibs is not installed in this database", hint="there is nothing to uninstall")
        conn.execute(sql.REFUSE_FOREIGN)
        found = _find(conn)
        if dry_run:
            return found
        if not force:
            _refuse_if_used(found)
        conn.execute("drop schema dibs cascade")
        there = _our_roles(conn) if roles else []
        dropped = tuple(role for role in there if _drop_role(conn, role))
        return msgspec.structs.replace(
            found, roles=dropped, roles_kept=tuple(role for role in there if role not in dropped)
        )


def _find(conn: psycopg.Connection) -> Uninstalled:
    row = conn.execute(COUNT, (MOST,)).fetchone()
    workers = tuple(name for (name,) in conn.execute(WORKERS))
    return Uninstalled(row[0] if row else 0, workers, tuple(name for (name,) in conn.execute(DEPENDENTS)))


def _refuse_if_used(found: Uninstalled) -> None:
    if found.workers:
        raise SchemaInUse(
            f"workers are running: {', '.join(found.workers)}", hint="stop them first, or force it: --force"
        )
    if found.dependents:
        raise SchemaInUse(
            f"this would be dropped, too: {', '.join(found.dependents)}",
            hint="drop it yourself first, or force it: --force",
        )


def _our_roles(conn: psycopg.Connection) -> list[str]:
    """Return the roles of dibs that this server has."""
    there = {
        name for (name,) in conn.execute("select rolname from pg_roles where rolname = any (%s)", (list(sql.ROLES),))
    }
    return [role for role in sql.ROLES if role in there]


def _drop_role(conn: psycopg.Connection, role: str) -> bool:
    """Drop a role. Return false if another database needs it, or we may not."""
    try:
        conn.execute(SQL("drop role {}").format(Identifier(role)))
    except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.InsufficientPrivilege):
        return False
    return True
