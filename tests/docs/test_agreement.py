"""What the docs say of the code is what the code says of itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tools import pyref, sqlref

import dibs
from dibs import errors, sql, states
from dibs.client.task import TASK_SETTINGS
from dibs.job import JobOptions
from dibs.maintenance import CHORES
from dibs.operation import ACTIONS
from tests.docs.pages import PAGES, ROOT, name, prose, table

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

DOCS = ROOT / "docs"
CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.DibsError)]


def anchors(page: Path) -> set[str]:
    """What a link into the page may name: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.once
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_on_the_map() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", (DOCS / "index.md").read_text()))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert pages <= linked


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_errors_are_drawn_and_explained(cls: type[errors.DibsError]) -> None:
    assert errors.__doc__
    drawn = re.search(rf"^[ │├└─]*{cls.__name__}(?: +(\w{{5}})\b)?", errors.__doc__, re.MULTILINE)
    assert drawn, f"{cls.__name__} is not in the tree of errors.py"
    assert drawn[1] == cls.__dict__.get("sqlstate") or cls is errors.DibsError
    explained = {row[0]: row[1] for row in table(DOCS / "reference/errors.md", "What each one means")}
    assert explained[cls.__name__] == (cls.sqlstate or "")


def test_states_are_those_of_the_code() -> None:
    assert [row[0] for row in table(DOCS / "reference/states.md", "States")] == [state.value for state in states.State]
    assert [row[0] for row in table(DOCS / "reference/states.md", "Outcomes")] == [
        outcome.value for outcome in states.Outcome
    ]


def test_answers_are_those_of_the_code() -> None:
    documented = [row[0] for row in table(DOCS / "reference/states.md", "Answers")]
    assert documented == [answer.value for answer in states.Answer]


def test_outcomes_are_those_of_the_database(db: psycopg.Connection[Any]) -> None:
    rows = db.execute("select unnest(enum_range(null::dibs.outcome))::text").fetchall()
    assert [row[0] for row in rows] == [outcome.value for outcome in states.Outcome]


def test_roles_may_do_what_the_docs_say(db: psycopg.Connection[Any]) -> None:
    granted = db.execute(
        """select p.proname, r.r from pg_proc as p cross join unnest(%s::text[]) as r (r)
           where p.pronamespace = 'dibs'::regnamespace and has_function_privilege('dibs_' || r.r, p.oid, 'execute')
           union all
           select 'view ' || c.relname, r.r from pg_class as c cross join unnest(%s::text[]) as r (r)
           where c.relnamespace = 'dibs'::regnamespace and has_table_privilege('dibs_' || r.r, c.oid, 'select')""",
        (list(sqlref.ROLES), list(sqlref.ROLES)),
    ).fetchall()
    documented = {
        (verb, role)
        for verb, *marks in table(DOCS / "run/security.md", "Roles and verbs")
        for role, mark in zip(sqlref.ROLES, marks, strict=True)
        if mark == "✓"
    }
    assert documented == set(granted)


def test_roles_of_actions_may_do_what_the_docs_say(db: psycopg.Connection[Any]) -> None:
    granted = db.execute(
        """select r, p.proname from pg_proc as p cross join unnest(%s::text[]) as r
           where p.pronamespace = 'dibs'::regnamespace and has_function_privilege(r, p.oid, 'execute')
             and not has_function_privilege('dibs_observer', p.oid, 'execute')""",
        ([f"dibs_{action}" for action in ACTIONS],),
    ).fetchall()
    documented = {
        (role, verb)
        for role, verbs in table(DOCS / "run/security.md", "Roles of actions")
        for verb in re.findall(r"\w+", verbs.partition(", and all")[0])
    }
    assert documented == set(granted)
    assert db.execute("select dibs._dibs_roles()").fetchall() == [(list(sql.ROLES),)]


def test_settings_of_a_queue_are_documented(db: psycopg.Connection[Any]) -> None:
    columns = [column.name for column in db.execute("select * from dibs.queues").description or ()]
    settings = [row[0] for row in table(DOCS / "reference/settings.md", "Settings")]
    assert sorted(settings) == sorted(set(columns) - {"name", "paused_at", "created_at"})


def test_every_queue_default_is_documented(db: psycopg.Connection[Any]) -> None:
    db.execute("select dibs.set_queue('fresh')")
    asked = ", ".join(
        f"coalesce({row[0]}::text, 'none')"
        for row in table(DOCS / "reference/settings.md", "Settings")
        if row[0] != "backoff"
    )
    defaults = db.execute(f"select {asked} from dibs.queues where name = 'fresh'").fetchone()
    documented = [row[1] for row in table(DOCS / "reference/settings.md", "Settings") if row[0] != "backoff"]
    assert documented == list(defaults or ())


def test_options_are_in_the_tables_of_tasks() -> None:
    page = DOCS / "use/tasks.md"
    of_task = [row[0] for row in table(page, "Options of a task")]
    assert sorted(of_task) == sorted({"name", "queue", "retry", "raw", *TASK_SETTINGS} - {"batch"})
    of_job = [option for row in table(page, "Options of a job") for option in re.findall(r"\w+", row[0])]
    assert sorted(of_job) == sorted(JobOptions.__annotations__)


def test_chores_are_documented() -> None:
    told = [row[0] for row in table(DOCS / "run/maintenance.md", "What it does")]
    assert told == list(CHORES)


@pytest.mark.parametrize("page", pyref.pages(), ids=name)
def test_the_python_reference_is_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pyref.pages()[page], "run `make docs`"


def test_the_sql_reference_is_up_to_date(installed_dsn: str) -> None:
    for page, text in sqlref.reference(installed_dsn).items():
        assert (sqlref.REFERENCE / page).read_text() == text, "run `make docs`"


def test_the_changelog_names_this_version() -> None:
    newest = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] == dibs.__version__


def test_decisions_are_numbered_in_turn() -> None:
    numbers = [int(page.name[:4]) for page in sorted((DOCS / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_defect_is_shown_by_tests_that_exist() -> None:
    page = (DOCS / "reference/defects.md").read_text()
    tests = {n for file in (ROOT / "tests").rglob("test_*.py") for n in re.findall(r"def (test_\w+)", file.read_text())}
    named = set(re.findall(r"`(test_\w+)`", page))
    assert named <= tests, named - tests
    unshown = [row for row in re.findall(r"^\| (?!seen elsewhere).*$", page, re.MULTILINE) if "`test_" not in row]
    assert not unshown
