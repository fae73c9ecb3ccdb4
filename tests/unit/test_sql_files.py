"""What the SQL files must look like, read from their text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

import pytest

from dibs import sql

pytestmark = pytest.mark.once

HEAD = re.compile(r"^create (?:or replace )?(?:function|view) dibs\.(\w+)", re.MULTILINE)
END = re.compile(r"^\$\$;$|^end;$|^return .*?;$|^comment on ", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Defined:
    """A function or a view, with its text from `create` to its end."""

    path: str
    name: str
    text: str

    @property
    def is_bound_early(self) -> bool:
        return "as $$" not in self.text

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1

    def uses(self) -> set[str]:
        return set(re.findall(r"\bdibs\.(\w+)", re.sub(r"'(?:[^']|'')*'|--[^\n]*", "", self.text))) - {self.name}


def defined(path: str, text: str) -> list[Defined]:
    found = []
    for head in HEAD.finditer(text):
        end = END.search(text, head.end())
        found.append(Defined(path, head[1], text[head.start() : end.end() if end else len(text)].rstrip()))
    return found


def all_defined() -> list[Defined]:
    tables = [("schema", text) for _, _, text in sql.migrations()]
    return [each for path, text in [*tables, *sql.modules()] for each in defined(path, text)]


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


def test_no_function_is_longer_than_a_page_and_most_are_short() -> None:
    lengths = {each.name: each.lines for each in all_defined()}
    assert {name: lines for name, lines in lengths.items() if lines > 70} == {}
    assert median(lengths.values()) <= 17


@pytest.mark.parametrize("room", [folder.split("/")[1] for folder in sql.FOLDERS if "/" in folder])
def test_every_room_opens_with_its_tables_and_invariants(room: str) -> None:
    page = (sql.ROOT / "functions" / room / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 18
    if room in sql.TABLES:
        tables = (sql.ROOT / "schema" / f"{room}.sql").read_text(encoding="utf-8")
        made = set(re.findall(r"^create table dibs\.(\w+)", tables, re.MULTILINE))
        assert {name for name in made if not name.endswith("_default") and f"`{name}`" not in page} == set()


def test_the_page_on_the_core_is_short_and_names_every_room() -> None:
    page = (sql.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 110
    rooms = {folder.split("/")[1] for folder in sql.FOLDERS if "/" in folder}
    assert set(re.findall(r"\(functions/(\w+)/README\.md\)", page)) == rooms
