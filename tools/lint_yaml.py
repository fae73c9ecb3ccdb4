"""Reads every YAML file of the project: each parses, and names no key twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PLACES = (".", ".github", "docs", "examples", "src", "tests", "tools")


class Reader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads YAML as ``safe_load`` does, and refuses a key that is there twice, of which the last would count."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Look at the keys before a merge adds others."""
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {', '.join(twice)}", node.start_mark)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def files() -> list[Path]:
    """Every YAML file, of hidden folders too."""
    found = [
        file
        for place in PLACES
        for kind in ("*.yml", "*.yaml")
        for file in ((ROOT / place).glob(kind) if place == "." else (ROOT / place).rglob(kind))
    ]
    return sorted(found)


def findings(name: str, text: str) -> list[str]:
    """Return the errors of a file."""
    try:
        list(yaml.load_all(text, Reader))
    except yaml.YAMLError as error:
        return [f"{name}: {error}"]
    return []


def main() -> int:
    """Print what is wrong."""
    found = [line for file in files() for line in findings(str(file.relative_to(ROOT)), file.read_text("utf-8"))]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
