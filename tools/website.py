"""Builds the documentation as a site into site/; ``--check`` only says whether it builds, and writes nothing.

The site has the repository's own layout, so a link that works there works here. A broken link is an error, and so is
anything a page would load from another host.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs/index.md"
LOOK = ROOT / "tools/website.toml"
PROJECT = [{"Contributing": "CONTRIBUTING.md"}, {"Security policy": "SECURITY.md"}, {"Changes": "CHANGELOG.md"}]
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""The attributes by which a browser fetches without a click."""


def navigation() -> list[dict[str, Any]]:
    """The menu: the README, then the headings of the map with the pages below each."""
    sections: list[dict[str, Any]] = []
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## (.+)", line):
            sections.append({heading[1]: []})
        elif page := re.match(r"(?:\| |- )\[(.+?)\]\((\S+\.md)\)", line):
            path = (MAP.parent / page[2]).resolve().relative_to(ROOT)
            next(iter(sections[-1].values())).append({page[1]: str(path)})
    return [
        {"Home": [{"dibs": "README.md"}, {"All pages": "docs/index.md"}, *PROJECT]},
        *(s for s in sections if any(s.values())),
    ]


def as_toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def stage(folder: Path) -> None:
    """Lay out what the site is made of as it lies in the repository."""
    shutil.copytree(ROOT / "docs", folder / "pages/docs")
    shutil.copytree(ROOT / "examples", folder / "pages/examples", ignore=shutil.ignore_patterns("__pycache__"))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("src/**/README.md")]:
        target = folder / "pages" / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    look = LOOK.read_text(encoding="utf-8").replace("nav = []", f"nav = {as_toml(navigation())}")
    (folder / "zensical.toml").write_text(look, encoding="utf-8")


class Fetches(HTMLParser):
    """Return the addresses of other sites that a page loads from."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address and re.match(r"(https?:)?//", address):
            self.outside.append(address)


def outside_requests(site: Path) -> list[str]:
    found = []
    for page in site.rglob("*.html"):
        fetches = Fetches()
        fetches.feed(page.read_text(encoding="utf-8"))
        found += [f"{page.relative_to(site)}: {address}" for address in fetches.outside]
    for sheet in site.rglob("*.css"):
        imports = re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", sheet.read_text(encoding="utf-8"))
        found += [f"{sheet.relative_to(site)}: {address}" for address in imports]
    return found


def build(folder: Path) -> list[str]:
    """Build into ``folder``/site, and say what is wrong."""
    stage(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return [re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)]
    return [f"loads from another host: {found}" for found in outside_requests(folder / "site")]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wrong = build(Path(folder))
        print("\n".join(wrong) or "site: 0 findings")
        if not wrong and "--check" not in sys.argv:
            shutil.rmtree(ROOT / "site", ignore_errors=True)
            shutil.copytree(Path(folder) / "site", ROOT / "site")
            print("wrote: site/index.html")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
