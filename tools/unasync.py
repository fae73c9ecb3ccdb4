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
    "src/dibs/client/schedules_async.py": "src/dibs/client/schedules.py",
    "src/dibs/client/operate_async.py": "src/dibs/client/operate.py",
    "src/dibs/client/noun_async.py": "src/dibs/client/noun.py",
    "src/dibs/client/steps_async.py": "src/dibs/client/steps.py",
    "src/dibs/client/queues_async.py": "src/dibs/client/queues.py",
    "src/dibs/client/limits_async.py": "src/dibs/client/limits.py",
    "src/dibs/client/groups_async.py": "src/dibs/client/groups.py",
    "src/dibs/client/workers_async.py": "src/dibs/client/workers.py",
    "src/dibs/client/stats_async.py": "src/dibs/client/stats.py",
    "src/dibs/client/failures_async.py": "src/dibs/client/failures.py",
    "src/dibs/client/channels_async.py": "src/dibs/client/channels.py",
    "src/dibs/client/messages_async.py": "src/dibs/client/messages.py",
    "src/dibs/client/handle_async.py": "src/dibs/client/handle.py",
}
WORDS = {
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncConnection": "Connection",
    "AsyncCursor": "Cursor",
    "AsyncDatabase": "Database",
    "AsyncClient": "Client",
    "AsyncNoun": "Noun",
    "AsyncRun": "Run",
    "AsyncQueues": "Queues",
    "AsyncSchedules": "Schedules",
    "AsyncLimits": "Limits",
    "AsyncGroups": "Groups",
    "AsyncWorkers": "Workers",
    "AsyncStats": "Stats",
    "AsyncFailures": "Failures",
    "AsyncChannels": "Channels",
    "AsyncOperating": "Operating",
    "AsyncEnqueuer": "Enqueuer",
    "AsyncUpkeep": "Upkeep",
    "AsyncMessageQueue": "MessageQueue",
    "AsyncMessage": "Message",
    "AsyncBell": "Bell",
    "AsyncJob": "Job",
    "asynccontextmanager": "contextmanager",
    "AsyncIterator": "Iterator",
    "asyncio.to_thread(self._locate)": "self._locate()",
    "self._claim_shielded(make_call())": "self._run(make_call())",
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
    "handle_async": "handle",
    "schedules_async": "schedules",
    "noun_async": "noun",
    "steps_async": "steps",
    "queues_async": "queues",
    "limits_async": "limits",
    "groups_async": "groups",
    "workers_async": "workers",
    "stats_async": "stats",
    "failures_async": "failures",
    "channels_async": "channels",
    "messages_async": "messages",
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
    text = re.sub(r"^( *)# sync only: ", r"\1", text, flags=re.MULTILINE)
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
