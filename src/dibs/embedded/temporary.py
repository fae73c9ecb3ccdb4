"""A folder for a throwaway server. It is removed when its owner ends, even by SIGKILL."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.embedded import paths, postmaster
from dibs.embedded.account import account_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def guarded_folder(*, in_memory: bool = False) -> Iterator[Path]:
    """Make a fresh folder, on disk or in memory. A server in its subfolder ``data`` ends with it."""
    account = account_for()
    base = paths.memory_base(account) if in_memory else paths.temp_base(account)
    folder = Path(tempfile.mkdtemp(dir=base, prefix="dibs-"))
    account.own(folder)
    with _guard(folder) as guard:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            guard.communicate()


def _guard(folder: Path) -> subprocess.Popen[bytes]:
    """Start the guard. Only we hold the other end of its standard input, so it sees us end."""
    # Run it by its path and isolated: it needs neither our sys.path nor the imports of the dibs package.
    argv = [sys.executable, "-I", "-S", postmaster.__file__, str(folder)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True)
