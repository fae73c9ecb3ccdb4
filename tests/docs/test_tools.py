"""Tests of the tools that guard the SQL, the comments and the pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import lint_sql, website, words

from tests.docs.pages import PAGES, ROOT

pytestmark = pytest.mark.once

COMMENT = "comment on function dibs.x is 'Says what it does.';\n"
PINNED = "set search_path = pg_catalog, pg_temp\n"


@pytest.mark.parametrize(
    ("file", "text", "seen"),
    [
        ("claim.sql", "begin execute format('drop table %I', t); end", 1),
        ("_days.sql", "begin execute format('drop table %I', t); end", 0),
        ("ring.sql", "create trigger t after insert on dibs.ready execute function dibs._ring();", 0),
        ("claim.sql", "begin x; exception when others then null; end", 1),
        ("prune.sql", "begin x; exception when others then null; end", 0),
        ("claim.sql", "begin raise exception using errcode = 'DI010'; end", 0),
        ("x.sql", "create function dibs.x() returns void\nas $$ $$;", 1),
        ("x.sql", "create function dibs.x() returns void\nas $$ $$;\n" + COMMENT, 0),
        ("x.sql", "create function dibs.x() returns void\nsecurity definer\nas $$ $$;\n" + COMMENT, 1),
        ("x.sql", "create function dibs.x() returns void\nsecurity definer\n" + PINNED + "as $$ $$;\n" + COMMENT, 0),
        ("x.sql", "create table dibs.lease (id uuid constraint lease_pkey primary key);", 0),
        ("x.sql", "create table dibs.lease (id uuid constraint key_ix primary key);", 1),
        ("x.sql", "create index due_idx on dibs.ready (due_at);", 1),
        ("x.sql", "-- execute format('only a comment')\n", 0),
    ],
)
def test_sql_rules(file: str, text: str, seen: int) -> None:
    found = [finding for check in lint_sql.CHECKS for finding in check(Path(file), text)]
    assert len(found) == seen, found


def test_a_disabled_rule_has_a_reason() -> None:
    assert all(len(reason) > 20 for reason in lint_sql.NOT_FOR_US.values())


LONG = "a" + " word" * 30


@pytest.mark.parametrize(
    ("page", "seen"),
    [
        (LONG, [1]),
        ("short\n\n" + LONG, [3]),
        ("- " + LONG, [1]),
        ("| " + LONG + " |", []),
        ("```text\n" + LONG + "\n```", []),
        ("```console\n" + LONG + "\n```\n" + LONG, [4]),
        ("```python\n" + LONG + "\n```", [2]),
        ("- [" + LONG + "](page.md)", []),
        ("https://example.org/" + "a" * 120, []),
        ("[a link](page.md) and " + LONG, [1]),
    ],
)
def test_long_lines_of_a_page_are_seen(page: str, seen: list[int]) -> None:
    assert words.long_lines(page) == seen


@pytest.mark.parametrize(
    ("file", "text", "seen"),
    [
        ("a.py", '"""What it does."""\n', [1]),
        ("a.py", '"""Does it."""\nX = 1\n"""Who may read it."""\n', [3]),
        ("a.py", "# Those that run.\nx = 1  # whatever is left\ny = 2  # Whatever is left\n", [1, 3]),
        ("a.py", "# The workers, and\n# What they run.\n", []),
        ("a.py", '"""Whole numbers."""\nx = "# What"\n', []),
        ("a.sql", "-- Who sweeps next.\n-- Who came first.\nselect 1;  -- What is left\n", [1, 3]),
        ("a.sql", "comment on column dibs.job.id is\n    'What names it.';\n", [1]),
        ("a.sql", "comment on column dibs.job.id is 'The name of the job. What else?';\n", []),
    ],
)
def test_comments_without_a_subject_are_seen(file: str, text: str, seen: list[int]) -> None:
    assert words.headless(Path(file), text) == seen


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = {
        page for section in website.navigation() for pages in section.values() for p in pages for page in p.values()
    }
    assert menu - {"examples/README.md", "src/dibs/sql/README.md"} == {str(page.relative_to(ROOT)) for page in PAGES}


def test_a_page_that_loads_from_another_host_is_seen(tmp_path: Path) -> None:
    (tmp_path / "fine.html").write_text('<a href="https://example.org/">there</a><script src="/own.js"></script>')
    (tmp_path / "font.html").write_text('<link rel="stylesheet" href="https://fonts.example.org/css">')
    (tmp_path / "font.css").write_text("@font-face { src: url(//fonts.example.org/a.woff2) }")
    assert website.outside_requests(tmp_path) == [
        "font.html: https://fonts.example.org/css",
        "font.css: //fonts.example.org/a.woff2",
    ]
