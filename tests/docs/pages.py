"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

RUN = {"python", "sql", "console"}
NOT_RUN = {"text", "sh", "json", "ini", "toml", "yaml", "dockerfile"}
"""What is shown and not run; ``text`` is the word for anything else."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of code, and where it begins."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file it belongs to, if its first line says so in a comment."""
        named = re.match(r"# (\S+\.py)\n", self.text)
        return named and named[1]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _BLOCK.finditer(text)]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head; each cell without backticks."""
    section = re.split(rf"^#+ {re.escape(heading)}$", page.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[
        1
    ]
    found = re.search(r"^\|.*\|\n\|[-|: ]+\|\n((?:\|.*\|\n)+)", section, re.MULTILINE)
    assert found, f"{name(page)} has no table below {heading!r}"
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in found[1].splitlines()]
