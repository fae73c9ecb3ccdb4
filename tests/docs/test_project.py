"""The files around the code: the lock, the changelog, what the package says of itself, the workflows and the hooks."""

from __future__ import annotations

import re
import shlex
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import dist, lint_yaml

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once

LOCK = (ROOT / "requirements-dev.lock").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
WORKFLOWS = {file.name: yaml.safe_load(file.read_text()) for file in (ROOT / ".github" / "workflows").iterdir()}
FRAMEWORKS = {"django", "flask", "fastapi", "sqlalchemy", "asyncpg"}


def needed(extra: str) -> list[Requirement]:
    """What an extra needs, with what the extras in it need."""
    found = []
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == "dibs":
            found += [inner for name in sorted(requirement.extras) for inner in needed(name)]
        else:
            found.append(requirement)
    return found


def locked() -> list[Requirement]:
    """Each package of the lock, without its hashes."""
    return [Requirement(line.removesuffix(" \\")) for line in LOCK.splitlines() if re.match(r"\w", line)]


# --- the lock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_all_that_development_needs(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.9"}
    versions = {
        canonicalize_name(r.name): next(iter(r.specifier)).version
        for r in locked()
        if r.marker is None or r.marker.evaluate(here)
    }
    wanted = [*map(Requirement, PROJECT["dependencies"]), *needed("dev"), *needed("browser"), *needed("release")]
    lacking = [
        str(r)
        for r in wanted
        if not r.specifier.contains(versions.get(canonicalize_name(r.name), "0"), prereleases=True)
    ]
    assert not lacking, "run `make lock`"


def test_every_package_of_the_lock_has_one_version_and_a_hash() -> None:
    entries = re.split(r"\n(?=\w)", re.sub(r"^\s*#.*\n", "", LOCK, flags=re.MULTILINE).strip())
    assert len(entries) == len(locked()) > 50
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; [^\\]+?)?( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry


def test_the_lock_names_no_place() -> None:
    """No index, no mirror, no folder of wheels: pip takes the packages from wherever it is set up to."""
    assert not re.search(r"://|@|^-|\bfile:|/", LOCK, re.MULTILINE)


# --- the package -----------------------------------------------------------------------------------------------------


def test_everything_of_dibs_is_no_framework() -> None:
    assert not FRAMEWORKS & {r.name for r in needed("all")}
    assert {r.name for r in needed("dev")} >= FRAMEWORKS
    offered = set(EXTRAS) - {"all", "dev", "browser", "release"} - FRAMEWORKS
    assert offered == Requirement(EXTRAS["all"][0]).extras


def test_the_package_says_what_it_is() -> None:
    assert PROJECT["description"] == "A job queue that lives inside your PostgreSQL."
    named = [
        c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if c.startswith("Programming Language :: Python :: 3.")
    ]
    assert named == PYTHONS
    assert not [c for c in PROJECT["classifiers"] if c.startswith("License ::")]  # `license` says it
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])


def test_the_package_names_its_pages() -> None:
    urls = PROJECT["urls"]
    assert list(urls) == ["Homepage", "Documentation", "Repository", "Issues", "Changelog"]
    assert all(url.startswith(urls["Repository"]) for url in urls.values())
    for name in ("Documentation", "Changelog"):
        assert (ROOT / urls[name].partition("/blob/main/")[2]).is_file()


def test_the_package_has_the_sql_and_the_pages() -> None:
    found = dist.sources()
    assert "dibs/py.typed" in found
    for folder, kind in [
        ("sql/functions", ".sql"),
        ("sql/schema", ".sql"),
        ("web/templates", ".html"),
        ("web/static", ".css"),
    ]:
        assert any(name.startswith(f"dibs/{folder}/") and name.endswith(kind) for name in found), folder


# --- the changelog ---------------------------------------------------------------------------------------------------


def test_an_entry_of_the_changelog_is_at_most_two_lines() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    entries = re.findall(r"^- .*\n(?:  .*\n)*", text, re.MULTILINE)
    assert len(entries) > 20
    assert not [entry for entry in entries if entry.count("\n") > 2]
    assert not [line for line in text.splitlines() if len(line) > 120]


# --- workflows, hooks, templates -------------------------------------------------------------------------------------


def test_every_yaml_file_can_be_read() -> None:
    names = {str(file.relative_to(ROOT)) for file in lint_yaml.files()}
    assert {".github/workflows/ci.yml", ".pre-commit-config.yaml", "examples/deploy/compose.yaml"} <= names
    assert not [line for file in lint_yaml.files() for line in lint_yaml.findings(file.name, file.read_text())]


@pytest.mark.parametrize("text", ["a: [1", "a: 1\na: 2", "a: {b: 1, b: 2}", "a: `b`"])
def test_yaml_that_is_wrong_is_seen(text: str) -> None:
    assert lint_yaml.findings("x.yml", text)


def test_yaml_may_merge() -> None:
    assert not lint_yaml.findings("x.yml", "x: &x {a: 1}\ny:\n  <<: *x\n  a: 2")


def test_ci_runs_everything_on_each_python() -> None:
    job = WORKFLOWS["ci.yml"]["jobs"]["run"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    assert job["container"]["image"] == "debian:12"
    assert job["steps"][-1]["run"] == ".ci/run"


def test_only_a_tag_is_published_and_without_a_token() -> None:
    jobs = WORKFLOWS["release.yml"]["jobs"]
    publish = jobs["publish"]
    assert (publish["if"], publish["needs"]) == ("github.ref_type == 'tag'", "build")
    assert publish["permissions"] == {"id-token": "write"}
    assert not [step for step in publish["steps"] if "secrets." in str(step)]
    assert "make dist" in [step.get("run") for step in jobs["build"]["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read_and_ends(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in WORKFLOWS[name]["jobs"].values())


def test_the_hooks_run_what_make_check_runs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in local["hooks"]:
        program, *options = shlex.split(hook["entry"])
        words = [word for word in options if word != "--force-exclude"]
        command = " ".join(["$(BIN)" + program.removeprefix(".venv/bin"), *words])
        assert f"\t{command}" in makefile, hook["id"]
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))


def test_a_wheel_that_lacks_a_file_is_seen(tmp_path: Path) -> None:
    wheel = tmp_path / "dibs.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in sorted(dist.sources() - {"dibs/py.typed"}):
            archive.writestr(name, "")
        archive.writestr("dibs/left_over.py", "")
    assert dist.wheel_differs(wheel) == [
        "the wheel lacks dibs/py.typed",
        "the wheel has dibs/left_over.py, which is no source",
    ]
