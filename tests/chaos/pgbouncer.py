"""A PgBouncer of our own, from Debian's package."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, urlsplit

from tools.debian import install

from tests.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = "/usr/sbin/pgbouncer"


class PgBouncer:
    """Pools transactions, or what ``mode`` says, in front of a server, with ``pool_size`` connections for everybody."""

    def __init__(self, dsn: str, pool_size: int, mode: str = "transaction", *settings: str) -> None:
        if not Path(PROGRAM).exists():
            install(["pgbouncer"])
        options = {k: v[0] for k, v in parse_qs(urlsplit(dsn).query).items()}
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self._user = Path(options["host"]).owner()
        self._folder = Path(tempfile.mkdtemp(prefix="dibs-pgbouncer-"))
        name, user = urlsplit(dsn).path.lstrip("/"), options["user"]
        (self._folder / "users.txt").write_text(f'"{user}" ""\n')
        (self._folder / "pgbouncer.ini").write_text(
            f"[databases]\n{name} = host={options['host']} port={options.get('port', '5432')} user={user}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self._folder}/users.txt\n"
            f"pool_mode = {mode}\ndefault_pool_size = {pool_size}\nmax_client_conn = 200\n"
            f"logfile = {self._folder}/log\nignore_startup_parameters = extra_float_digits\n"
            + "".join(f"{setting}\n" for setting in settings)
        )
        self.dsn = f"postgresql://{user}@127.0.0.1:{self._port}/{name}?sslmode=disable"

    def __enter__(self) -> Self:
        command = [PROGRAM, "-q", str(self._folder / "pgbouncer.ini")]
        if os.geteuid() == 0:
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, self._user)
            command[1:1] = ["-u", self._user]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._listens, what="PgBouncer listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._folder)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
