"""The tools that guard the SQL and the pages see what they are there to see."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import lint_sql, website

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
