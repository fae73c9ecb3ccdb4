"""Makes a data folder, completely or not at all."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.embedded import settings
from dibs.embedded.explain import failure
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from dibs.embedded.account import Account
    from dibs.embedded.binaries import Binaries

SUPERUSER = "dibs"
DATABASE = "dibs"
LOCALES = ("C.UTF-8", "C")


def ensure(data_dir: Path, binaries: Binaries, account: Account, lock: int, *, sync: bool) -> None:
    """Make the data folder if it is missing; refuse one that we would not have made."""
    # A half-made folder is abandoned: an orphaned initdb would still hold the lock.
    for left_over in data_dir.parent.glob(f".{glob.escape(data_dir.name)}.new-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    if not data_dir.exists() or not any(data_dir.iterdir()):
        _make(data_dir, binaries, account, lock, sync=sync)
    _check(data_dir, binaries)


def _make(data_dir: Path, binaries: Binaries, account: Account, lock: int, *, sync: bool) -> None:
    staging = Path(tempfile.mkdtemp(dir=data_dir.parent, prefix=f".{data_dir.name}.new-"))
    try:
        account.own(staging)
        _initdb(staging, binaries, account, lock, sync=sync)
        _create_database(staging, binaries, account, lock, sync=sync)
        settings.include(staging)
        staging.rename(data_dir)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    _sync(data_dir.parent)


def _initdb(folder: Path, binaries: Binaries, account: Account, lock: int, *, sync: bool) -> None:
    # There is no password: over the network nobody gets in, whatever listen_addresses is set to.
    options = ["--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", f"--username={SUPERUSER}"]
    options += [] if sync else ["--no-sync"]
    for locale in LOCALES:
        argv = [binaries["initdb"], f"--pgdata={folder}", f"--locale={locale}", *options]
        done = account.run(argv, pass_fds=[lock])
        if done.returncode == 0:
            return
        if "locale" not in done.stdout:
            break
    raise failure("initdb could not make a data folder", done.stdout)


def _create_database(folder: Path, binaries: Binaries, account: Account, lock: int, *, sync: bool) -> None:
    # In single-user mode, before the folder gets its name: it never exists without the database.
    argv = [binaries["postgres"], "--single", "-D", str(folder), "-c", "exit_on_error=on"]
    argv += ["-c", f"fsync={'on' if sync else 'off'}", "postgres"]
    done = account.run(argv, input=f"create database {DATABASE}\n", pass_fds=[lock])
    if done.returncode != 0:
        raise failure(f"the database {DATABASE} could not be made", done.stdout)


def _check(data_dir: Path, binaries: Binaries) -> None:
    try:
        made_by = (data_dir / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise EmbeddedError(
            f"{data_dir} is not empty and is not a data folder of PostgreSQL",
            hint="choose another folder, or an empty one",
        ) from None
    if made_by != str(binaries.major):
        raise EmbeddedError(
            f"{data_dir} was made by PostgreSQL {made_by}; this is {binaries.version}",
            hint=f"set DIBS_PG_BIN to the programs of {made_by}, or choose another folder",
        )
    if not settings.is_included(data_dir):
        raise EmbeddedError(
            f"{data_dir} was not made by dibs: its postgresql.conf lacks {settings.INCLUDE!r}",
            hint="choose another folder; dibs starts only its own servers",
        )


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
