"""Checks the words of the project: the list in tools/words.txt, how comments begin, and how long lines of pages are.

codespell looks for the listed words. It knows single words only, so it is given a pattern that also takes each phrase
of the list as one word.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("words.txt")
PLACES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    ".github",
    "docs",
    "examples",
    "src",
    "tests",
    "bench",
    "tools",
)
SKIPPED = "*.pyc,words.txt,words.py"

WIDTH = 120
GENERATED = re.compile(r"docs/reference/(python|sql)(-\w+)?\.md")
OUTPUT = {"text", "console"}
ONE_LINK = re.compile(r"\s*(?:[-*] |\d+\. )?(?:!?\[[^\]]*\]\(\S+\)|\[[^\]]+\]: \S+|<?https?://\S+>?)[.,;]?\s*")
HEADLESS = re.compile(r"\s*(?:What|Who|Those|Whoever|Whatever)\b")


def pattern() -> str:
    """One word, or one phrase of the list."""
    listed = (line.split("->")[0] for line in LIST.read_text(encoding="utf-8").splitlines())
    phrases = sorted((re.escape(words) for words in listed if " " in words), key=len, reverse=True)
    return rf"(?i:\b(?:{'|'.join(phrases)})\b)|\w(?:[\w\-']*\w)?"


def pages() -> list[Path]:
    """The pages that are written by hand."""
    found = {ROOT / place for place in PLACES if place.endswith(".md")}
    found |= {page for place in PLACES for page in (ROOT / place).rglob("*.md")}
    return sorted(page for page in found if not GENERATED.fullmatch(page.relative_to(ROOT).as_posix()))


def long_lines(text: str) -> list[int]:
    """The numbers of the lines of a page that are too long, except table rows, output and lines of a single link."""
    found = []
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        if fence := re.match(r"\s*```(\w*)", line):
            block = fence[1] if block is None else None
        elif len(line) > WIDTH and block not in OUTPUT and not line.startswith("|") and not ONE_LINK.fullmatch(line):
            found.append(number)
    return found


def headless(file: Path, text: str) -> list[int]:
    """The lines where a comment or docstring begins with a word such as "What" in place of a name."""
    comments = _of_python(text) if file.suffix == ".py" else _of_sql(text)
    return sorted(number for number, comment in comments if HEADLESS.match(comment))


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    above = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            number, column = token.start
            alone = not token.line[:column].strip()
            if not (alone and above == number - 1):
                yield number, token.string.lstrip("#")
            if alone:
                above = number


def _of_sql(text: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r"(?<!--)\bcomment on [^;']*?\bis\s+'([^']*)", text):
        yield text.count("\n", 0, found.start()) + 1, found[1]
    above = -1
    for number, line in enumerate(text.splitlines(), 1):
        code, mark, comment = line.partition("--")
        if mark:
            alone = not code.strip()
            if not (alone and above == number - 1):
                yield number, comment
            if alone:
                above = number


def findings() -> list[str]:
    """A line for each rule that is broken, and all its places."""
    sources = sorted(file for file in (ROOT / "src").rglob("*") if file.suffix in {".py", ".sql"})
    text = {file: file.read_text(encoding="utf-8") for file in [*pages(), *sources]}
    long = {file: long_lines(text[file]) for file in pages()} | {
        file: [n for n, line in enumerate(text[file].splitlines(), 1) if len(line) > WIDTH]
        for file in sources
        if file.suffix == ".sql"  # ruff checks Python.
    }
    begun = {file: headless(file, text[file]) for file in sources}
    return [
        f"{rule}:\n  " + "\n  ".join(f"{file.relative_to(ROOT)}:{n}" for file, lines in places.items() for n in lines)
        for places, rule in (
            (long, f"these lines are longer than {WIDTH} characters"),
            (begun, "these comments begin with What, Who, Those, Whoever or Whatever: name the thing first"),
        )
        if any(places.values())
    ]


def main() -> int:
    options = ["--check-hidden", "-D", str(LIST), "--regex", pattern(), "--skip", SKIPPED]
    listed = subprocess.run([sys.executable, "-m", "codespell_lib", *options, *PLACES], check=False).returncode
    found = findings()
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else listed


if __name__ == "__main__":
    sys.exit(main())
