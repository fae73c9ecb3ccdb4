"""The account the server runs as: our own or, since PostgreSQL refuses root, an unprivileged one."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from errno import EACCES, ENOENT
from typing import TYPE_CHECKING

from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SERVICE_ACCOUNTS = ("postgres", "nobody")
KEPT_ENVIRONMENT = ("PATH", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class Account:
    """A user of this machine, and whether we must switch to it."""

    name: str
    uid: int
    gid: int
    drops: bool

    def run(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,
        output: int = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this user, detached from our terminal and from our environment."""
        try:
            return subprocess.run(
                argv,
                input=input,
                stdin=subprocess.DEVNULL if input is None else None,
                stdout=output,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
                cwd="/",  # ours may be unreadable for them
                env=_environment() | dict(env or {}),
                pass_fds=pass_fds,
                start_new_session=True,
                umask=0o077,
                user=self.uid if self.drops else None,
                group=self.gid if self.drops else None,
                extra_groups=[] if self.drops else None,
            )
        except OSError as why:
            raise EmbeddedError(
                f"cannot run {argv[0]} as {self.name}: {why}",
                hint="run as an ordinary user instead of root" if self.drops else None,
            ) from why

    def own(self, target: int | Path) -> None:
        """Give the account the ownership of a file that we made for it."""
        if self.drops:
            os.chown(target, self.uid, self.gid)

    def can_enter(self, folder: Path) -> bool:
        """True if each folder on the way, and the last one, lets the account through."""
        return not self.drops or self._succeeds("test", "-x", str(folder))

    def can_run(self, program: str) -> bool:
        """True if the account can reach a program and its libraries."""
        return not self.drops or self._succeeds(program, "--version")

    def _succeeds(self, *argv: str) -> bool:
        try:
            return self.run(argv).returncode == 0
        except EmbeddedError as why:
            if isinstance(why.__cause__, OSError) and why.__cause__.errno in (EACCES, ENOENT):
                return False
            raise


def account_for(data_dir: Path | None = None) -> Account:
    """Return the account that runs the server of a data folder: ours, or as root the folder's owner."""
    us = os.geteuid()
    if us != 0:
        return Account(_name(us), us, os.getegid(), drops=False)
    if data_dir is None or not data_dir.exists():
        return _service_account()
    owner = data_dir.stat()
    if owner.st_uid == 0:
        return _service_account()
    return Account(_name(owner.st_uid), owner.st_uid, owner.st_gid, drops=True)


def _service_account() -> Account:
    for name in SERVICE_ACCOUNTS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, user.pw_uid, user.pw_gid, drops=True)
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and there is no user {' or '.join(SERVICE_ACCOUNTS)}",
        hint="run as an ordinary user, or create a user named postgres",
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _environment() -> dict[str, str]:
    # The server outlives us and serves others: it gets none of our secrets, and no PGPORT. LC_ALL,
    # because known causes are found by the English words of the messages.
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    return kept | {"LC_ALL": "C"}
