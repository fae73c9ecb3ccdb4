"""Every public name of Python, of SQL and of the command line has its page, and their number is bounded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from tools.pyref import NOUNS
from tools.sqlref import PROTOCOL, ROLES

import dibs
from dibs import types
from dibs.cli.app import dibs as command_line
from dibs.cli.help import COMMANDS

if TYPE_CHECKING:
    import psycopg

REFERENCE = Path(__file__).resolve().parents[2] / "docs/reference"
pytestmark = pytest.mark.once

GRANTED = """
select distinct p.proname, coalesce(obj_description(p.oid, 'pg_proc'), '') like %s || '%%' as is_protocol
from pg_proc as p
where p.pronamespace = 'dibs'::regnamespace and exists (
  select from unnest(%s::text[]) as r where has_function_privilege('dibs_' || r, p.oid, 'execute'))
order by 1"""


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def methods(cls: type[Any]) -> list[str]:
    return sorted(name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name)))


def test_every_name_of_python_is_in_the_reference() -> None:
    index = page("python.md")
    shown = {*re.findall(r"`dibs\.(?:types\.|errors\.)?(\w+)`", index)}
    twins = {name for name in types.__all__ if name.startswith("Async") and name.removeprefix("Async") in types.__all__}
    parts = {noun.capitalize() for noun in NOUNS}
    assert {*dibs.__all__, *types.__all__} - twins - parts - {"AsyncClient", "AsyncJob", "types"} <= shown
    assert len(dibs.__all__) <= 50


def test_every_method_of_a_client_is_in_the_reference() -> None:
    assert {f"### Client.{name}" for name in methods(dibs.Client)} <= {*page("python-client.md").splitlines()}
    for noun in NOUNS:
        part = getattr(types, noun.capitalize())
        assert {f"### {part.__name__}.{name}" for name in methods(part)} <= {*page(f"python-{noun}.md").splitlines()}
    assert len(methods(dibs.Client)) <= 45


def test_every_granted_function_is_in_the_reference(shared_db: psycopg.Connection[Any]) -> None:
    found = shared_db.execute(GRANTED, (PROTOCOL, list(ROLES))).fetchall()
    for name, is_protocol in found:
        assert f"### {name}" in page("sql-protocol.md" if is_protocol else "sql.md").splitlines(), name
    assert sum(not is_protocol for _, is_protocol in found) <= 77


def test_every_command_is_in_the_reference() -> None:
    text = page("cli.md")
    for name in COMMANDS:
        assert re.search(rf"\bdibs {name}\b|`{name}`", text), name
        command = command_line.get_command(click.Context(command_line), name)
        if isinstance(command, click.Group):
            for inner in command.list_commands(click.Context(command)):
                assert re.search(rf"\bdibs {name} {inner}\b|`{inner}`", text), f"{name} {inner}"
    assert len(COMMANDS) <= 36
