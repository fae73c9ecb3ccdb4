"""Looks for words and phrases that plain English does without, in tools/words.txt; codespell does the looking.

codespell knows single words only, so it is given a pattern that also takes each phrase of the list as one word.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
SKIPPED = "*.pyc,words.txt"


def pattern() -> str:
    """One word, or one phrase of the list."""
    listed = (line.split("->")[0] for line in LIST.read_text(encoding="utf-8").splitlines())
    phrases = sorted((re.escape(words) for words in listed if " " in words), key=len, reverse=True)
    return rf"(?i:\b(?:{'|'.join(phrases)})\b)|\w(?:[\w\-']*\w)?"


def main() -> int:
    options = ["--check-hidden", "-D", str(LIST), "--regex", pattern(), "--skip", SKIPPED]
    return subprocess.run([sys.executable, "-m", "codespell_lib", *options, *PLACES], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
