"""Named points: nothing happens there unless a test says so, and every one of them exists."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dibs
from dibs.runtime.points import POINTS, armed, crash_at, reach
from tests.docs.pages import ROOT, table

pytestmark = pytest.mark.once

SOURCES = Path(dibs.__file__).parent


def test_every_point_is_placed_and_every_place_is_listed() -> None:
    place = re.compile(r'^ +reach\("([^"]*)"\)$', re.MULTILINE)
    texts = [file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py")]
    assert {found for text in texts for found in place.findall(text)} == set(POINTS)


def test_points_are_documented() -> None:
    assert dict(table(ROOT / "docs" / "use" / "testing.md", "Crash points")) == dict(POINTS)


def test_an_armed_point_acts_at_the_nth_time_and_only_within_its_block() -> None:
    seen: list[int] = []
    with armed("worker.claimed", lambda: seen.append(1), nth=2) as point:
        reach("worker.claimed")
        reach("worker.before_run")
        assert (seen, point.fired) == ([], False)
        reach("worker.claimed")
        reach("worker.claimed")
        assert (seen, point.fired, point.passed) == ([1], True, 3)
        with pytest.raises(dibs.InvalidArgument, match="armed already"), armed("worker.claimed", lambda: None):
            pass
    reach("worker.claimed")
    assert point.passed == 3


def test_what_an_action_raises_is_raised_there() -> None:
    def fail() -> None:
        raise dibs.ConnectionLost("gone")

    with armed("database.after_send", fail), pytest.raises(dibs.ConnectionLost, match="gone"):
        reach("database.after_send")


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(dibs.InvalidArgument, match=r"no point 'worker.claim'\nhint: did you mean worker.claimed\?"):
        crash_at("worker.claim")
    with pytest.raises(dibs.InvalidArgument, match="at 1, not 0"):
        crash_at("worker.claimed", nth=0)


PROGRAM = """
import sys
from dibs.runtime.points import reach
for n in range(3):
    print(n, flush=True)
    reach("worker.claimed")
"""


@pytest.mark.parametrize(
    ("told", "status", "output"),
    [
        ("", 0, "0\n1\n2\n"),
        ("worker.claimed:2", -signal.SIGKILL, "0\n1\n"),
        ("keeper.after_send, worker.claimed", -signal.SIGKILL, "0\n"),
        ("worker.claimed:two", 1, "such as worker.claimed:2"),
        ("worker.claimd", 1, "did you mean worker.claimed?"),
    ],
)
def test_a_child_crashes_where_its_environment_says(told: str, status: int, output: str) -> None:
    env = {"DIBS_CRASH_AT": told, "PYTHONPATH": str(SOURCES.parent)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert output in (done.stdout if status != 1 else done.stderr)
