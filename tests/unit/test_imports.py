"""What is imported for nothing: every process that uses dibs would pay for it, and every press of the Tab key."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import dibs
from dibs.cli.help import COMMANDS, SHORT

CLIENT = """\
import sys, psycopg
before = {*sys.modules}
import dibs
dibs.App, dibs.Client
print(*{*sys.modules} - before)
"""
HELP = """\
import sys
from dibs.cli.app import dibs
try:
    dibs({arguments})
finally:
    print(*sys.modules, file=sys.stderr)
"""

NOT_BY_CLIENT = (
    "click", "concurrent.futures.process", "difflib", "email", "http.client", "http.server", "multiprocessing", "rich",
    "urllib.request", "dibs.channels", "dibs.cli", "dibs.embedded", "dibs.info", "dibs.metrics", "dibs.stats",
    "dibs.testing", "dibs.types", "dibs.web", "dibs.worker", "dibs.db.calls.queues", "dibs.db.calls.statistics",
)  # fmt: skip
NOT_BY_HELP = ("asyncio", "dibs.cli.commands", "dibs.client", "dibs.db", "msgspec", "psycopg", "rich")

pytestmark = pytest.mark.once


def test_a_client_imports_only_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=True)
    assert not {*done.stdout.split()} & {*NOT_BY_CLIENT}


def test_a_list_of_commands_imports_neither_them_nor_the_driver() -> None:
    program = HELP.format(arguments=["--help"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout
    assert not {*done.stderr.split()} & {*NOT_BY_HELP}


def test_a_completion_of_commands_imports_none_of_them() -> None:
    told = {"_DIBS_COMPLETE": "bash_complete", "COMP_WORDS": "dibs sch", "COMP_CWORD": "1"}
    program = f"import os; os.environ.update({told})\n" + HELP.format(arguments=[])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,schedules"]
    assert not {*done.stderr.split()} & {*NOT_BY_HELP}


def test_the_list_of_commands_has_a_line_for_each() -> None:
    assert list(SHORT) == list(COMMANDS)
    assert max(map(len, COMMANDS)) + max(map(len, SHORT.values())) < 80 - 4
    for name in COMMANDS:
        assert getattr(import_module(f"dibs.cli.commands.{name}"), name).name == name


def test_every_name_of_the_package_is_there() -> None:
    for name in dibs.__all__:
        assert getattr(dibs, name) is not None
    assert {*dibs.__all__} <= {*dir(dibs)}
    with pytest.raises(AttributeError, match="no attribute 'client_of'"):
        dibs.client_of  # type: ignore[attr-defined]  # noqa: B018
