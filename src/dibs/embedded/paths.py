"""Paths of data folders, sockets and temporary folders."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.embedded.postmaster import PORT
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from dibs.embedded.account import Account

LONGEST_SOCKET_PATH = 103
"""The limit of macOS; that of Linux is 107."""
LONGEST_SOCKET_DIR = LONGEST_SOCKET_PATH - len(f"/.s.PGSQL.{PORT}")
PLAIN = re.compile(r"[\w/. +@-]+")
"""The characters that unix_socket_directories takes without quotes."""
LONGEST_TEMP = 48
"""The greatest length of a temporary folder's path: it leaves room for the socket below it."""
MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 4 * 2**30
"""With less free memory than this, in bytes, a folder in it is not used."""


def default_data_dir(major: int) -> Path:
    """Return the shared folder of this user. The version is in its name, so no two versions share a folder."""
    return base() / f"pg{major}"


def base() -> Path:
    """Return the folder that holds all of our folders."""
    if chosen := os.environ.get("DIBS_DATA_DIR"):
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:
        return _for_root()
    return _for_user()


def make_parents(folder: Path, account: Account) -> None:
    """Make the folders above, so that the account can pass them whatever our umask is."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        if account.drops:
            parent.chmod(0o755)
    if not account.can_enter(folder.parent):
        raise EmbeddedError(
            f"the user {account.name}, whom PostgreSQL runs as, cannot enter {folder.parent}",
            hint="as root, choose a data folder that other users can reach (DIBS_DATA_DIR)",
        )


def socket_dir(data_dir: Path, account: Account) -> Path:
    """Return the data folder, which only its owner and root can enter, or another folder if its path is too long."""
    if len(os.fsencode(data_dir)) <= LONGEST_SOCKET_DIR and PLAIN.fullmatch(str(data_dir)):
        return data_dir
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    return temp_base(account) / f"dibs-{account.uid}-{digest}"


def make_socket_dir(folder: Path, account: Account) -> None:
    """Make the socket's folder private. Refuse one that another user made under our name in a public place."""
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        pass
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or found.st_mode & 0o077:
        raise EmbeddedError(
            f"{folder} is not a private folder of the user {account.name}",
            hint="someone else made it: remove it, or use a data folder with a shorter path",
        )


def temp_base(account: Account) -> Path:
    """Return a folder for temporary files that the account can reach, with a short path."""
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108
        if len(os.fsencode(folder)) <= LONGEST_TEMP and account.can_enter(Path(folder)):
            return Path(folder)
    raise EmbeddedError(
        f"no folder for temporary files that the user {account.name} can enter",
        hint="set TMPDIR to a folder with a short path",
    )


def memory_base(account: Account) -> Path:
    """Like ``temp_base``, but in memory if there is such a folder with enough room."""
    try:
        roomy = shutil.disk_usage(MEMORY).free >= ROOM and os.access(MEMORY, os.W_OK)
    except OSError:
        roomy = False
    return MEMORY if roomy and account.can_enter(MEMORY) else temp_base(account)


def _for_root() -> Path:
    # Root's home is closed to the user that the server runs as.
    if sys.platform == "darwin":
        return Path("/Library/Application Support/dibs")
    return Path("/var/lib/dibs")


def _for_user() -> Path:
    xdg = os.environ.get("XDG_DATA_HOME")
    if xdg and Path(xdg).is_absolute():
        return Path(xdg) / "dibs"
    try:
        home = Path.home()
    except RuntimeError as why:
        raise EmbeddedError("this user has no home folder", hint="set DIBS_DATA_DIR") from why
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "dibs"
    return home / ".local" / "share" / "dibs"
