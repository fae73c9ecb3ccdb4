"""Counts the SQL functions that each verb can lead to: ``python -m tools.reach [verb…]``.

The count is read from the text of the functions: a name after ``dibs.`` that is a function, and the names in that one.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from dibs import sql

HEAD = re.compile(r"^create (?:or replace )?(?:function|view) dibs\.(\w+)", re.MULTILINE)
END = re.compile(r"^\$\$;$|^end;$|^return .*?;$|^comment on ", re.MULTILINE | re.DOTALL)

VERBS = ("enqueue", "enqueue_many", "claim", "complete", "complete_many", "fail_many", "run_schedules", "set_limit")


@dataclass(frozen=True)
class Defined:
    """A function or a view, with its text from ``create`` to its end."""

    path: str
    name: str
    text: str

    @property
    def is_bound_early(self) -> bool:
        return "as $$" not in self.text

    def uses(self) -> set[str]:
        code = re.sub(r"'(?:[^']|'')*'|--[^\n]*", "", self.text)
        return set(re.findall(r"\bdibs\.(\w+)", code)) - {self.name}


def defined(path: str, text: str) -> list[Defined]:
    """The functions and views that one file makes."""
    found = []
    for head in HEAD.finditer(text):
        end = END.search(text, head.end())
        found.append(Defined(path, head[1], text[head.start() : end.end() if end else len(text)].rstrip()))
    return found


def all_defined() -> list[Defined]:
    """The functions and views of the whole install, in the order in which they are made."""
    tables = [("schema", text) for _, _, text in sql.migrations()]
    return [each for path, text in [*tables, *sql.modules()] for each in defined(path, text)]


def reach(verb: str) -> list[Defined]:
    """The functions that a verb can lead to, with itself."""
    named = {each.name: each for each in all_defined()}
    found: dict[str, Defined] = {}
    waiting = [verb]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = named[name]
            waiting += [used for used in named[name].uses() if used in named]
    return list(found.values())


def main(verbs: list[str]) -> None:
    print(f"{'verb':<16}{'functions':>10}{'files':>8}{'rooms':>8}")
    for verb in verbs or VERBS:
        found = reach(verb)
        rooms = {each.path.rsplit("/", 1)[0] for each in found}
        print(f"{verb:<16}{len(found):>10}{len({each.path for each in found}):>8}{len(rooms):>8}")


if __name__ == "__main__":
    main(sys.argv[1:])
