"""The rights of logins: gives them roles, and finds faults in their rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

import msgspec
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from dibs.db.calls.schema import TAKEABLE
from dibs.db.dsn import connect
from dibs.db.translate import translated
from dibs.errors import InvalidArgument
from dibs.sql import OWNERS_OF_OBJECTS
from dibs.sql import ROLES as OUR_ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = tuple(role.removeprefix("dibs_") for role in OUR_ROLES)
"""The roles that ``dibs grants give`` can give."""

HOLDERS: LiteralString = """
with recursive held (member, roleid) as (
  select m.member, m.roleid from pg_auth_members as m join pg_roles as r on r.oid = m.roleid
  join pg_roles as h on h.oid = m.member
  where r.rolname = any (%(roles)s) and h.rolname <> all (%(roles)s)
  union
  select m.member, h.roleid from held as h join pg_auth_members as m on m.roleid = h.member
)
select r.rolname as role, r.rolcanlogin as login, array_agg(distinct d.rolname order by d.rolname)::text[] as roles,
  (select c.queues from dibs.confinements as c where c.role = r.oid::regrole::text) as queues,
  array(
    select f.name from dibs.functions as f
    where has_function_privilege(r.oid, to_regprocedure(f.name || '(jsonb)'), 'execute') order by f.name) as functions
from held as h join pg_roles as r on r.oid = h.member join pg_roles as d on d.oid = h.roleid
group by r.oid, r.rolname, r.rolcanlogin order by r.rolname
"""

CHECKS: dict[str, LiteralString] = {
    "something in the schema dibs belongs to somebody beside its owner": OWNERS_OF_OBJECTS
    + "where o.owner <> o.schema_owner",
    "PUBLIC may execute a function of dibs": """
        select p.oid::regprocedure::text from pg_proc as p,
          aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
        where p.pronamespace = 'dibs'::regnamespace and a.grantee = 0""",
    "a SECURITY DEFINER function of dibs pins no search_path of pg_catalog and pg_temp": """
        select p.oid::regprocedure::text from pg_proc as p
        where p.pronamespace = 'dibs'::regnamespace and p.prosecdef and not exists (
          select from unnest(p.proconfig) as c where c = 'search_path=pg_catalog, pg_temp')""",
    "a table of dibs is open to somebody beside its owner": """
        select c.oid::regclass || ' to ' || coalesce(r.rolname, 'public')
        from pg_class as c, aclexplode(c.relacl) as a left join pg_roles as r on r.oid = a.grantee
        where c.relnamespace = 'dibs'::regnamespace and c.relkind in ('r', 'p') and a.grantee <> c.relowner""",
    "somebody beside its owner may create things in the schema dibs": """
        select coalesce(r.rolname, 'public') from pg_namespace as n, aclexplode(n.nspacl) as a
          left join pg_roles as r on r.oid = a.grantee
        where n.nspname = 'dibs' and a.privilege_type = 'CREATE' and a.grantee <> n.nspowner""",
    "a role of dibs is missing": """
        select r.r from unnest(%(roles)s::text[]) as r (r)
        where not exists (select from pg_roles as p where p.rolname = r.r)""",
    "a role of dibs can log in": """
        select rolname from pg_roles
        where rolcanlogin and rolname = any (%(roles)s)""",
    "dibs_admin lacks the role of an action, so its members cannot do that in the dashboard": """
        select r.rolname from pg_roles as r join pg_roles as a on a.rolname = 'dibs_admin'
        where r.rolname = any ((%(roles)s::text[])[5:]) and not pg_has_role(a.oid, r.oid, 'member')""",
    "a function on the allow-list would not be run": """
        select name || ': ' || flaw from dibs.functions where flaw is not null""",
    "a function on the allow-list can be executed by no worker": """
        select f.name from dibs.functions as f
        where f.flaw is null and exists (select from pg_roles where rolname = 'dibs_worker')
          and not has_function_privilege('dibs_worker', to_regprocedure(f.name || '(jsonb)'), 'execute')
          and not exists (
            select from pg_auth_members as m
            where m.roleid = (select oid from pg_roles where rolname = 'dibs_worker')
              and has_function_privilege(m.member, to_regprocedure(f.name || '(jsonb)'), 'execute'))""",
    "somebody beside its owners may create things in a schema of allowed functions": """
        select distinct n.nspname || ' by ' || coalesce(r.rolname, 'public') from dibs.functions as f
        join pg_namespace as n on n.nspname = (parse_ident(f.name))[1], aclexplode(n.nspacl) as a
        left join pg_roles as r on r.oid = a.grantee
        where a.privilege_type = 'CREATE' and a.grantee <> n.nspowner and not exists (
          select from dibs.functions as o where (parse_ident(o.name))[1] = n.nspname and o.owner = r.rolname)""",
    "a worker has a table in a schema of allowed functions": """
        select distinct c.oid::regclass || ' to ' || w.rolname
        from (
          select m.member as oid, r.rolname from pg_auth_members as m join pg_roles as r on r.oid = m.member
          where m.roleid = (select oid from pg_roles where rolname = 'dibs_worker') and not r.rolsuper
          union all select oid, rolname from pg_roles where rolname = 'dibs_worker'
        ) as w
        cross join pg_class as c join pg_namespace as n on n.oid = c.relnamespace
        where c.relkind in ('r', 'p', 'v', 'm') and n.nspname in (
            select (parse_ident(f.name))[1] from dibs.functions as f)
          and has_table_privilege(w.oid, c.oid, 'select, insert, update, delete, truncate')""",
    "a confined role is an administrator as well": """
        select c.role from dibs.confinements as c
        where exists (select from pg_roles where rolname = 'dibs_admin')
          and pg_has_role(c.role::regrole, 'dibs_admin', 'member')""",
}
"""The faults to check for, and the query that finds each."""


class Asked(msgspec.Struct, frozen=True):
    """The rights to give to a login: a role of dibs, these queues and no others, these functions."""

    role: str
    login: str
    queues: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    create: bool = False


def grant(dsn: str, asked: Asked, *, dry_run: bool = False) -> list[str]:
    """Give rights to a login, all or none. Return the statements, which a dry run does not execute."""
    if asked.role not in ROLES:
        raise InvalidArgument(f"there is no role {asked.role!r}", hint=f"it is one of {', '.join(ROLES)}")
    with translated(), connect(dsn, autocommit=False) as conn:
        statements = [*_role(asked), *_functions(conn, asked), *_confinement(asked)]
        for statement in statements:
            if not dry_run:
                conn.execute(statement)
        return [statement.as_string(conn) for statement in statements]


def _role(asked: Asked) -> list[sql.Composed]:
    login = sql.Identifier(asked.login)
    made = [sql.SQL("create role {} login").format(login)] if asked.create else []
    return [*made, sql.SQL("grant {} to {}").format(sql.Identifier(f"dibs_{asked.role}"), login)]


def _functions(conn: psycopg.Connection[Any], asked: Asked) -> list[sql.Composed]:
    """Make the grants of allowed functions, by their names on the list; a worker gets all of them by default."""
    found = conn.execute(
        "select f.name, parse_ident(f.name) from dibs.functions as f order by f.name",
    ).fetchall()
    known: dict[str, list[str]] = dict(found)
    if unknown := set(asked.functions) - known.keys():
        raise InvalidArgument(
            f"{min(unknown)} is not on the allow-list", hint="allow it first: dibs functions allow " + min(unknown)
        )
    names = asked.functions or (tuple(known) if asked.role == "worker" else ())
    login = sql.Identifier(asked.login)
    usage = [
        sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), login)
        for schema in sorted({known[name][0] for name in names})
    ]
    return usage + [
        sql.SQL("grant execute on function {}(jsonb) to {}").format(sql.Identifier(*known[name]), login)
        for name in names
    ]


def _confinement(asked: Asked) -> list[sql.Composed]:
    if not asked.queues:
        return []
    role = sql.Literal(sql.Identifier(asked.login).as_string(None))
    return [sql.SQL("select dibs.confine({}, {})").format(role, sql.Literal(list(asked.queues)))]


def holders(dsn: str) -> list[dict[str, Any]]:
    """Return every role that has a role of dibs: which one, if it can log in, its queues, and its functions."""
    with translated(), connect(dsn) as conn, conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(HOLDERS, {"roles": list(OUR_ROLES)}).fetchall()


def check(dsn: str) -> list[tuple[str, str]]:
    """Return the faults in the rights: each with its place."""
    with translated(), connect(dsn) as conn:
        return [(what, row[0]) for what, question in CHECKS.items() for row in _ask(conn, question)]


def _ask(conn: psycopg.Connection[Any], question: LiteralString) -> Sequence[tuple[Any, ...]]:
    return conn.execute(question, {"roles": list(OUR_ROLES)}).fetchall()


def taken(dsn: str) -> tuple[str, list[str]] | None:
    """Return the login, and the roles of dibs that it can take; None if dibs is not installed."""
    with translated(), connect(dsn) as conn:
        return conn.execute(TAKEABLE, (list(OUR_ROLES),)).fetchone()
