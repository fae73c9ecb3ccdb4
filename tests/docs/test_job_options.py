"""A job's options are the same in Python, in SQL, on the command line and in the docs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import dibs
from dibs.cli.commands.enqueue import enqueue
from dibs.job import JobOptions
from tests.docs.pages import ROOT, table

if TYPE_CHECKING:
    import psycopg

OPTIONS = {*dibs.NewJob.__struct_fields__} - {"queue", "kind", "payload", "id"}


def test_a_task_takes_what_a_job_does() -> None:
    assert JobOptions.__annotations__.keys() == OPTIONS


def test_sql_takes_them(db: psycopg.Connection[Any]) -> None:
    [[names]] = db.execute("select proargnames[:pronargs] from pg_proc where oid = 'dibs.enqueue'::regproc").fetchall()
    assert set(names) - {"queue", "kind", "payload", "id", "body", "fresh"} == OPTIONS


def test_a_batch_in_sql_takes_them(db: psycopg.Connection[Any]) -> None:
    columns = db.execute("select (null::dibs.job_request).*").description or ()
    assert {column.name for column in columns} - {"queue", "kind", "payload", "id", "body"} == OPTIONS


def test_the_command_line_takes_them() -> None:
    given = {parameter.name for parameter in enqueue.params if parameter.name}
    assert (
        given - {"queue", "kind", "payload", "id", "file", "raw", "many", "as_json", "as_csv", "dsn", "debug"}
        == OPTIONS
    )


def test_the_docs_tell_them() -> None:
    cells = [row[0] for row in table(ROOT / "docs/use/tasks.md", "Options of a job")]
    assert {name for cell in cells for name in re.findall(r"\w+", cell)} == OPTIONS
