"""Writes the sync half of the library from its async half; ``--check`` only says whether they agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIRS = {
    "src/dibs/db/database_async.py": "src/dibs/db/database.py",
    "src/dibs/client/client_async.py": "src/dibs/client/client.py",
    "src/dibs/client/enqueue_async.py": "src/dibs/client/enqueue.py",
    "src/dibs/client/upkeep_async.py": "src/dibs/client/upkeep.py",
    "src/dibs/client/looking_async.py": "src/dibs/client/looking.py",
    "src/dibs/client/schedules_async.py": "src/dibs/client/schedules.py",
    "src/dibs/client/operate_async.py": "src/dibs/client/operate.py",
    "src/dibs/client/queue_async.py": "src/dibs/client/queue.py",
    "src/dibs/client/handle_async.py": "src/dibs/client/handle.py",
}
WORDS = {
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncConnection": "Connection",
    "AsyncCursor": "Cursor",
    "AsyncDatabase": "Database",
    "AsyncClient": "Client",
    "AsyncScheduling": "Scheduling",
    "AsyncLooking": "Looking",
    "AsyncOperating": "Operating",
    "AsyncEnqueuer": "Enqueuer",
    "AsyncUpkeep": "Upkeep",
    "AsyncQueue": "Queue",
    "AsyncMessage": "Message",
    "AsyncBell": "Bell",
    "AsyncJob": "Job",
    "asynccontextmanager": "contextmanager",
    "AsyncIterator": "Iterator",
    "asyncio.to_thread(self._locate)": "self._locate()",
    "self._claim_shielded(ask())": "self._run(ask())",
    "asyncio.to_thread(refused, error, self._conninfo)": "refused(error, self._conninfo)",
    "asyncio.sleep": "time.sleep",
    "asyncio.Lock": "threading.Lock",
    "import asyncio": "import threading",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "enqueue_async": "enqueue",
    "database_async": "database",
    "client_async": "client",
    "queue_async": "queue",
    "handle_async": "handle",
    "schedules_async": "schedules",
    "looking_async": "looking",
    "upkeep_async": "upkeep",
    "operate_async": "operate",
    "async with": "with",
    "async for": "for",
    "async def": "def",
    "await ": "",
}
BANNER = "# Written by tools/unasync.py from {source}: change that and run `make sync`.\n"


def sync_of(source: Path) -> str:
    text = re.sub(r"    # async only\n.*?\n(?=    (?:async )?def )", "", source.read_text(), flags=re.DOTALL)
    for word, plain in WORDS.items():
        whole = rf"(?<!\w){re.escape(word)}(?!\w)" if word[-1].isalnum() or word[-1] == "_" else re.escape(word)
        text = re.sub(whole, plain, text)
    text = BANNER.format(source=source.name) + text
    for command in (["check", "--select", "I,F401", "--fix-only"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(source.with_name("x.py")), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return text


def main() -> int:
    stale = []
    for source, target in PAIRS.items():
        text = sync_of(ROOT / source)
        if not (ROOT / target).exists() or (ROOT / target).read_text() != text:
            stale.append(target)
            if "--check" not in sys.argv:
                (ROOT / target).write_text(text)
    print("\n".join(f"{'stale' if '--check' in sys.argv else 'wrote'}: {name}" for name in stale))
    return bool(stale) and "--check" in sys.argv


if __name__ == "__main__":
    sys.exit(main())
