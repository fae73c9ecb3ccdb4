"""The core: the SQL files, and the one script that installs or migrates them.

``dibs migrate`` runs the same script that ``dibs sql`` prints for ``psql``. It is safe to run twice
and by two at once: one waits for the other. It applies the versions that are missing, and then the functions, the views
and the grants again. Version 1 is ``schema/``; from the first release on, each change of a table is a file in
``migrations/``.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from dibs.operation import ACTIONS

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ROOT = files(__name__)

ROLES = ("dibs_producer", "dibs_worker", "dibs_observer", "dibs_admin", *(f"dibs_{action}" for action in ACTIONS))
"""The roles of dibs: four for logins, and one for each action of a person; ``dibs._dibs_roles()`` has the same."""

TABLES = (
    "values", "queues", "jobs", "dedup", "backpressure", "groups", "limits", "claiming", "shards", "schedules",
    "stats", "failures", "workers", "db_functions", "channels", "security", "upkeep", "audit", "operate", "doctor",
)  # fmt: skip
"""The files of ``schema/``, in the order in which they are applied."""

FOLDERS = (
    "functions/values", "functions/audit", "functions/security", "functions/db_functions", "views", "functions/shards",
    "functions/queues", "functions/history", "functions/stats", "functions/failures", "functions/dedup",
    "functions/groups", "functions/limits", "functions/backpressure", "functions/jobs", "functions/claiming",
    "functions/schedules", "functions/workers", "functions/channels", "functions/upkeep", "functions/operate",
    "functions/doctor",
)  # fmt: skip
"""The folders of code, in the order in which they are applied; within a folder by name, so that internal files, whose
names begin with ``_``, come first. A function whose body PostgreSQL binds early (``return`` and ``begin atomic``)
may use only earlier functions."""

OWNERS_OF_OBJECTS = """\
select o.what, pg_catalog.pg_get_userbyid(o.owner) as owner, o.schema_owner
from (
  select 'the schema ' || n.nspname as what, n.nspowner as owner, n.nspowner as schema_owner
  from pg_catalog.pg_namespace as n where n.nspname = 'dibs'
  union all
  select c.oid::pg_catalog.regclass::text, c.relowner, n.nspowner
  from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace where n.nspname = 'dibs'
  union all
  select p.oid::pg_catalog.regprocedure::text, p.proowner, n.nspowner
  from pg_catalog.pg_proc as p join pg_catalog.pg_namespace as n on n.oid = p.pronamespace where n.nspname = 'dibs'
  union all
  select t.oid::pg_catalog.regtype::text, t.typowner, n.nspowner
  from pg_catalog.pg_type as t join pg_catalog.pg_namespace as n on n.oid = t.typnamespace where n.nspname = 'dibs'
) as o
"""
"""All objects in the schema dibs and their owners. Objects of others would run with the installer's rights."""

REFUSE_FOREIGN = f"""\
do $ours$
declare
  v_other record;
begin
  select f.* into v_other from (
{OWNERS_OF_OBJECTS}) as f
  where f.owner <> current_user limit 1;
  if v_other is not null then
    raise exception using errcode = '42501',
      message = format('%s belongs to %I, so %I installs nothing there', v_other.what, v_other.owner, current_user),
      hint = format('what is there would run with your rights: install as %I, or drop the schema dibs', v_other.owner);
  end if;
end
$ours$;
"""
"""Refuses an install into a schema that is not wholly the installer's. Nothing in the schema is called before."""

OLDEST_CLIENT = 1
"""The oldest client that this schema's functions serve, by the version of the schema it came with. A release that
changes what clients call expands: it serves those of the version before, too. The next may contract and raise this."""

PREAMBLE = f"""\
-- dibs: the whole install, for psql -v ON_ERROR_STOP=1 -f. Safe to run again.
begin isolation level read committed;
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = on;
set local lock_timeout = '{{turn_timeout}}';
{REFUSE_FOREIGN}
do $first$ begin
if pg_catalog.to_regnamespace('dibs') is null then create schema dibs; end if;
create table if not exists dibs.migration (
  version integer not null constraint migration_pkey primary key,
  name text not null,
  applied_at timestamptz not null default pg_catalog.clock_timestamp()
);
exception when duplicate_schema or duplicate_table or unique_violation then
null;  -- Another install made them at the same moment: perhaps another role's, so the owners are looked at again.
end $first$;
-- One migration at a time, which nobody else waits for. Everything else is used by others, who wait behind us.
lock table dibs.migration in share row exclusive mode;
set local lock_timeout = '{{lock_timeout}}';
{REFUSE_FOREIGN}
comment on table dibs.migration is 'Which schema version this is: one row for each version applied.';
create table if not exists dibs.code (
  one boolean not null default true constraint code_pkey primary key constraint code_one_row check (one),
  digest text not null,
  oldest_client integer not null
);
comment on table dibs.code is 'Which functions, views and grants are installed, and whom they serve: one row.';
"""

VIEWS = """\
do $views$
declare
  v_view pg_catalog.regclass;
begin
  if (select coalesce(pg_catalog.max(m.version), 0) from dibs.migration as m) < {latest} then
    for v_view in
      select c.oid from pg_catalog.pg_class as c
      where c.relnamespace = 'dibs'::pg_catalog.regnamespace and c.relkind = 'v' order by c.oid desc
    loop
      execute pg_catalog.format('alter view %s set (security_barrier)', v_view);
    end loop;
  end if;
end $views$;
"""
"""Locks the views before a version changes the tables below them. A query locks a view and then its tables: the other
order would wait in a circle, again and again where many ask. A view made of another is younger, and locked first."""


def _scripts(*folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder as (stem, text), by name; none if there is no such folder."""
    where = ROOT.joinpath(*folder)
    found: list[Traversable] = [f for f in where.iterdir() if f.name.endswith(".sql")] if where.is_dir() else []
    return [(f.name.removesuffix(".sql"), f.read_text(encoding="utf-8")) for f in sorted(found, key=lambda f: f.name)]


def _schema() -> str:
    return "\n".join((ROOT / "schema" / f"{name}.sql").read_text(encoding="utf-8") for name in TABLES)


def migrations() -> list[tuple[int, str, str]]:
    """Every version of the schema as (number, name, text), in order."""
    later = [(int(stem.split("_", 1)[0]), stem.split("_", 1)[1], text) for stem, text in _scripts("migrations")]
    return [(1, "schema", _schema()), *later]


def modules() -> list[tuple[str, str]]:
    """The files that are applied again each time, as (path, text), in order."""
    found = [(f"{folder}/{stem}", text) for folder in FOLDERS for stem, text in _scripts(*folder.split("/"))]
    last = [(name, (ROOT / f"{name}.sql").read_text(encoding="utf-8")) for name in ("plans", "grants")]
    return [*found, *last]


def granted_to(verb: str) -> list[str]:
    """The roles that may call a verb, by ``grants.sql``."""
    text = (ROOT / "grants.sql").read_text(encoding="utf-8")
    lists = re.findall(r"\('(dibs_\w+)', '\{([^}]*)\}'", text)
    found = {role for role, verbs in lists if verb in re.findall(r"\w+", verbs)}
    return sorted(found | ({"dibs_read"} if "dibs_observer" in found else set()))


def code() -> str:
    """The code that is applied again each time, as one text."""
    return "\n".join(text for _, text in modules())


def latest_version() -> int:
    """The number of the newest version this package brings."""
    return migrations()[-1][0]


def oldest_schema() -> int:
    """The oldest version of the schema that this package's client works with: the one before its own."""
    return max(latest_version() - 1, 1)


def digest() -> str:
    """Return the hash that identifies this release's functions."""
    return hashlib.sha256(f"{OLDEST_CLIENT}\n{code()}".encode()).hexdigest()[:16]


def _guarded(version: int, name: str, text: str) -> str:
    return f"""\
do $guard$ begin
if not exists (select from dibs.migration where version = {version}) then
execute $migration_{version:04}$
{text}
$migration_{version:04}$;
insert into dibs.migration (version, name) values ({version}, '{name}');
end if; end $guard$;
"""


def install_script(*, lock_timeout: str = "200ms", turn_timeout: str = "10s", upto: int | None = None) -> str:
    """The whole install as one script; ``upto`` stops after that version and applies no code.

    It waits for another migration up to ``turn_timeout``, and up to ``lock_timeout`` for any other lock.
    """
    first = PREAMBLE.format(lock_timeout=lock_timeout, turn_timeout=turn_timeout)
    steps = [_guarded(*m) for m in migrations() if upto is None or m[0] <= upto]
    if upto is not None:
        return "\n".join([first, *steps, "commit;\n"])
    return "\n".join(
        [
            first,
            VIEWS.format(latest=latest_version()),
            *steps,
            code(),
            f"insert into dibs.code (digest, oldest_client) values ('{digest()}', {OLDEST_CLIENT})"
            " on conflict (one) do update set digest = excluded.digest, oldest_client = excluded.oldest_client;",
            "select name, outcome from dibs.make_days() where outcome <> 'exists';",
            "select dibs._record_installed_code();",
            "commit;\n",
        ]
    )
