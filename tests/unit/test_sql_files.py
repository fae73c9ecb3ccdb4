"""What the SQL files must look like, read from their text."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from dibs import sql

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
