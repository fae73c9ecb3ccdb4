"""Copies binaries to a place that the account can reach: a venv below root's home is closed to others."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.embedded import paths
from dibs.embedded.binaries import PROGRAMS
from dibs.embedded.lock import locked
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from dibs.embedded.account import Account
    from dibs.embedded.binaries import Binaries


def reachable(binaries: Binaries, account: Account) -> Binaries:
    """Return the binaries, or a copy of them, made once."""
    if _runs(binaries, account):
        return binaries
    source = binaries.folder.parent
    if not (source / "share").is_dir() or not (source / "lib").is_dir():
        raise _out_of_reach(binaries, account)
    target = paths.base() / _key(binaries)
    paths.make_parents(target, account)
    with locked(target, account):
        if not target.exists():
            _copy(source, target)
    inside = target / source.parent.name / source.name / "bin"
    copy = dataclasses.replace(binaries, folder=inside)
    if not _runs(copy, account):
        raise _out_of_reach(copy, account)
    return copy


def _runs(binaries: Binaries, account: Account) -> bool:
    # Try each program: not all link the same libraries.
    return all(account.can_run(binaries[program]) for program in PROGRAMS)


def _out_of_reach(binaries: Binaries, account: Account) -> EmbeddedError:
    return EmbeddedError(
        f"the user {account.name}, whom PostgreSQL runs as, cannot run it in {binaries.folder}",
        hint="as root, choose a PostgreSQL that other users can reach (DIBS_PG_BIN)",
    )


def _key(binaries: Binaries) -> str:
    postgres = Path(binaries["postgres"])
    build = postgres.stat()
    identity = f"{postgres} {build.st_size} {build.st_mtime_ns}"
    number = re.search(r"\) (\S+)", binaries.version)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"postgresql-{number[1] if number else binaries.major}-{digest}"


def _copy(source: Path, target: Path) -> None:
    for left_over in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        staging = Path(folder) / "copy"
        needless = shutil.ignore_patterns("include", "*.a")
        for part in (source, *_vendored(source)):
            place = staging / part.relative_to(source.parent.parent)
            shutil.copytree(part, place, symlinks=True, ignore=needless)
        _open(staging)
        staging.rename(target)


def _vendored(source: Path) -> list[Path]:
    """The places where wheels keep the libraries of their programs, relative to the programs."""
    package = source.parent
    places = (package.with_name(f"{package.name}.libs"), package / ".dylibs")
    return [place for place in places if place.is_dir()]


def _open(folder: Path) -> None:
    """Let everyone read the copy, and run what its owner can: the source may be closed to others."""
    for parent, _, names in os.walk(folder):
        Path(parent).chmod(0o755)
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
