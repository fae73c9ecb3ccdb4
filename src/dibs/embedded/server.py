"""A private PostgreSQL server: start it, stop it, read its status."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Literal, Self

from dibs.embedded import cluster, log, paths, postmaster, terminal
from dibs.embedded.account import account_for
from dibs.embedded.binaries import Binaries, find_binaries
from dibs.embedded.lock import locked
from dibs.embedded.starting import start
from dibs.embedded.status import ServerStatus, environment, url
from dibs.embedded.temporary import guarded_folder
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from dibs.embedded.account import Account

Mode = Literal["smart", "fast", "immediate"]
SIGNALS: Mapping[Mode, Signals] = {
    "smart": Signals.SIGTERM,
    "fast": Signals.SIGINT,
    "immediate": Signals.SIGQUIT,
}
STOP_TIMEOUT = 60.0


class Server:
    """A server and its data folder; by default the one that all processes of this user share."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        binaries: Binaries | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._binaries = binaries
        self._settings = dict(settings or {})

    @classmethod
    @contextmanager
    def temporary(
        cls,
        *,
        binaries: Binaries | None = None,
        settings: Mapping[str, str] | None = None,
        in_memory: bool = False,
    ) -> Iterator[Self]:
        """A server that is ended and removed with this context, or at the latest with us.

        ``in_memory`` keeps its data in ``/dev/shm`` if that has 4 GiB free: making many databases is then much quicker.
        """
        with guarded_folder(in_memory=in_memory) as folder:
            server = cls(folder / "data", binaries=binaries, settings=settings)
            try:
                yield server.start()
            finally:
                server.stop("immediate")

    @cached_property
    def binaries(self) -> Binaries:
        """The PostgreSQL it runs."""
        return self._binaries or find_binaries()

    @cached_property
    def data_dir(self) -> Path:
        """Its data folder."""
        if self._data_dir is not None:
            return Path(self._data_dir).absolute()
        return paths.default_data_dir(self.binaries.major)

    def start(self) -> Self:
        """Start the server. One that runs already stays unchanged, whatever the settings."""
        with self._explained():
            found = postmaster.find(self.data_dir)
            if found and found.ready:
                log.keep_small(self.data_dir, self._account)
                return self
            paths.make_parents(self.data_dir, self._account)
            with locked(self.data_dir, self._account) as lock:
                start(self.data_dir, self.binaries, self._account, self._settings, lock)
        return self

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server: when its clients have left, by cutting them off, or like a crash."""
        if mode not in SIGNALS:
            raise EmbeddedError(f"no such way to stop: {mode!r}", hint=", ".join(SIGNALS))
        with self._explained():
            if postmaster.find(self.data_dir) is None:
                return
            with locked(self.data_dir, self._account):
                stopped = postmaster.end(self.data_dir, SIGNALS[mode], STOP_TIMEOUT)
        if not stopped:
            raise EmbeddedError(
                f"the server in {self.data_dir} did not stop in {STOP_TIMEOUT:.0f} s",
                hint="some client keeps it; stop it with the mode immediate",
            )

    def status(self) -> ServerStatus:
        """The present status of the server."""
        with self._explained():
            found = postmaster.find(self.data_dir)
        return ServerStatus(
            running=bool(found and found.ready),
            pid=found.pid if found else None,
            started_at=datetime.fromtimestamp(found.started, UTC) if found else None,
            data_dir=self.data_dir,
            socket_dir=self._socket_dir,
            port=postmaster.PORT,
            version=self.binaries.version,
            dsn=self.dsn(),
            log=self.data_dir / log.FILE,
        )

    def dsn(self, dbname: str = cluster.DATABASE) -> str:
        """Return a URL for libpq, and so for psycopg."""
        return url(self._socket_dir, dbname)

    def psql(self, *args: str) -> int:
        """Run psql on our terminal, with these arguments. Return its exit code."""
        return terminal.run([self.binaries["psql"], *args], environment(self._socket_dir))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _account(self) -> Account:
        return account_for(self.data_dir)

    @property
    def _socket_dir(self) -> Path:
        with self._explained():
            found = postmaster.find(self.data_dir)
            # The socket's real folder, which may differ from ours: the starter may have had another TMPDIR.
            return (found and found.socket_dir) or paths.socket_dir(self.data_dir, self._account)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as why:
            raise EmbeddedError(
                f"the server in {self.data_dir} cannot be managed: {why}",
                hint="the folder must be yours, or not exist yet; choose one by DIBS_DATA_DIR",
            ) from why


def ensure_running(data_dir: Path | None = None) -> Server:
    """Return the server that all processes of this user share. Start it if it does not run."""
    return Server(data_dir).start()
