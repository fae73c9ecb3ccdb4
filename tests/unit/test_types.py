"""Results are typed from the decorator to ``wait``: both type checkers agree with every line of ``typed.py``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("typed.py")


@pytest.mark.parametrize(
    "checker",
    [
        ("mypy", "--strict", "--no-error-summary", f"--cache-dir={os.devnull}", "--follow-imports=silent"),
        ("pyright", "--pythonpath", sys.executable),
    ],
    ids=lambda checker: str(checker[0]),
)
def test_results_are_typed_from_end_to_end(checker: tuple[str, ...]) -> None:
    done = check(checker, SAMPLE)
    assert done.returncode == 0, f"{checker[0]} has complaints:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", ["mypy", "pyright"])
def test_a_wrong_type_is_found(name: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import dibs\n\napp = dibs.App()\n\n\n@app.task\nasync def charge(order: int) -> str:\n    return ''\n\n\n"
        "charge.enqueue('one')\nnumber: int = charge.enqueue(1).wait()\n"
    )
    done = check((name,) if name == "mypy" else (name, "--pythonpath", sys.executable), wrong)
    lines = [line for line in done.stdout.splitlines() if "wrong.py:" in line and "error" in line]
    assert [line.split("wrong.py:")[1].split(":")[0] for line in lines] == ["11", "12"], done.stdout + done.stderr


def check(checker: tuple[str, ...], file: Path) -> subprocess.CompletedProcess[str]:
    """Run a type checker on one file, from the root, so that ``src`` is found."""
    return subprocess.run(
        [find(checker[0]), *checker[1:], str(file)],
        cwd=ROOT, env={**os.environ, "MYPYPATH": "src"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def find(name: str) -> str:
    """Where the dev extra has put a program: beside the Python that runs the tests, otherwise on the path."""
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    found = beside or shutil.which(name)
    assert found is not None, f"{name} is not installed: pip install -e '.[dev]'"
    return found
