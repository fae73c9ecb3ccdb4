"""What the SQL files must look like, read from their text."""

from __future__ import annotations

import re

import pytest
from tools.reach import Defined, all_defined, defined, reach

from dibs import sql

pytestmark = pytest.mark.once


def early_references_ahead(definitions: list[Defined]) -> list[str]:
    place = {each.name: n for n, each in enumerate(definitions)}
    return [
        f"{each.path}: {each.name} is bound when it is made, and uses {used}, which {definitions[place[used]].path}"
        " makes later"
        for n, each in enumerate(definitions)
        if each.is_bound_early
        for used in sorted(each.uses())
        if place.get(used, -1) > n
    ]


def test_what_is_bound_early_points_backwards() -> None:
    assert early_references_ahead(all_defined()) == []


def test_a_reference_ahead_is_named() -> None:
    files = [
        ("a/_one", "create or replace function dibs._one() returns integer\nreturn dibs._two();"),
        ("b/_two", "create or replace function dibs._two() returns integer\nreturn 2;"),
    ]
    [said] = early_references_ahead([each for path, text in files for each in defined(path, text)])
    assert said == "a/_one: _one is bound when it is made, and uses _two, which b/_two makes later"


def test_every_folder_of_code_is_applied() -> None:
    rooms = {f"functions/{room.name}" for room in (sql.ROOT / "functions").iterdir() if room.is_dir()}
    assert rooms | {"views"} == set(sql.FOLDERS)
    assert {file.name for file in (sql.ROOT / "schema").iterdir()} == {f"{name}.sql" for name in sql.TABLES}


@pytest.mark.parametrize("path", [path for path, _ in sql.modules() if "/_" in path])
def test_an_internal_file_has_internal_functions(path: str) -> None:
    text = dict(sql.modules())[path]
    assert [each.name for each in defined(path, text) if not each.name.startswith("_")] == []


def test_no_function_has_more_than_3500_characters() -> None:
    assert {each.name for each in all_defined() if len(each.text) > 3500} == set()


def test_no_file_has_more_than_350_lines() -> None:
    assert {path: text.count("\n") for path, text in sql.modules() if text.count("\n") > 350} == {}


def test_a_claim_leads_to_few_functions() -> None:
    assert len(reach("claim")) <= 70


@pytest.mark.parametrize("room", [folder.split("/")[1] for folder in sql.FOLDERS if "/" in folder])
def test_every_room_opens_with_its_tables_and_invariants(room: str) -> None:
    page = (sql.ROOT / "functions" / room / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 60
    if room in sql.TABLES:
        tables = (sql.ROOT / "schema" / f"{room}.sql").read_text(encoding="utf-8")
        made = set(re.findall(r"^create table dibs\.(\w+)", tables, re.MULTILINE))
        assert {name for name in made if not name.endswith("_default") and f"`{name}`" not in page} == set()


def test_the_page_on_the_core_is_short_and_names_every_room() -> None:
    page = (sql.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 125
    rooms = {folder.split("/")[1] for folder in sql.FOLDERS if "/" in folder}
    assert set(re.findall(r"\(functions/(\w+)/README\.md\)", page)) == rooms
