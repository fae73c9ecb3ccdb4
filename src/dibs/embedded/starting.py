"""The start of a server, in whatever state it was left."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.embedded import cluster, explain, install, log, paths, postmaster, settings
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dibs.embedded.account import Account
    from dibs.embedded.binaries import Binaries

TIMEOUT = 60.0
RETRY = 0.1


@dataclass(frozen=True)
class Start:
    """One start, under the folder's lock."""

    data_dir: Path
    binaries: Binaries
    account: Account
    wanted: Mapping[str, str]
    lock: int

    def run(self) -> None:
        """Make what is missing, launch, and wait until the server is ready."""
        sync = self.wanted.get("fsync", "on") != "off"
        cluster.ensure(self.data_dir, self.binaries, self.account, self.lock, sync=sync)
        self._until_ready()

    def _until_ready(self) -> None:
        until = time.monotonic() + TIMEOUT
        while not self._ready(until):
            if time.monotonic() > until:
                raise EmbeddedError(
                    f"the server in {self.data_dir} was not ready after {TIMEOUT:.0f} s",
                    hint=f"it may still be recovering: see {self.data_dir / log.FILE}",
                )
            time.sleep(RETRY)

    def _ready(self, until: float) -> bool:
        if postmaster.find(self.data_dir) is None:
            self._launch(until)
        found = postmaster.find(self.data_dir)
        return found is not None and found.ready

    def _launch(self, until: float) -> None:
        socket_dir = self._prepare()
        seconds = max(1, round(until - time.monotonic()))
        # The folder is passed by environment: pg_ctl puts its arguments into a shell's line, badly quoted.
        argv = [self.binaries["pg_ctl"], "start", "--silent", "--wait", f"--timeout={seconds}"]
        output = log.open_log(self.data_dir, self.account)
        try:
            log.trim(output)
            start = os.fstat(output).st_size
            done = self.account.run(argv, output=output, env={"PGDATA": str(self.data_dir)})
            said = log.since(output, start)
        finally:
            os.close(output)
        if done.returncode and not self._will_pass(said, until):
            raise explain.failure(f"PostgreSQL could not start on {socket_dir}", said)

    def _prepare(self) -> Path:
        socket_dir = paths.socket_dir(self.data_dir, self.account)
        if socket_dir != self.data_dir:
            paths.make_socket_dir(socket_dir, self.account)
        postmaster.forget(self.data_dir, socket_dir)
        chosen = settings.effective(self.binaries, socket_dir, self.wanted)
        settings.write(self.data_dir, chosen, self.account)
        return socket_dir

    def _will_pass(self, said: str, until: float) -> bool:
        """True if waiting helps: against a slow recovery, and orphans of a killed server."""
        if postmaster.find(self.data_dir):
            return True
        return bool(re.search(explain.ORPHANS, said)) and time.monotonic() < until


def start(
    data_dir: Path,
    binaries: Binaries,
    account: Account,
    wanted: Mapping[str, str],
    lock: int,
) -> None:
    """Start the server of a data folder; the caller holds its lock."""
    Start(data_dir, install.reachable(binaries, account), account, wanted, lock).run()
