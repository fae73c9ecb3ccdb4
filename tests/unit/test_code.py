"""What the code must never do, read from its text."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path

import bench
import pytest
from bench.__main__ import SCENARIOS
from bench.compare import MODULES

import dibs
from dibs.cli.commands.worker import worker
from dibs.worker_settings import WorkerOptions, WorkerSettings

pytestmark = pytest.mark.once

ROOT = Path(dibs.__file__).parent
FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "compile"}
LONGEST = 40


def test_nothing_read_from_a_database_becomes_code() -> None:
    """Classes named in data, pickle, and tracebacks rebuilt from data are code execution."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_IMPORTS, file
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_IMPORTS, file
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, f"{file}:{node.lineno}"


def test_no_function_is_long() -> None:
    """Docstrings do not count."""
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines"
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (length := lines_of(node)) > LONGEST
    ]
    assert not long


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        whole -= (first.end_lineno or 0) - first.lineno + 1
    return whole


def test_every_public_name_exists_and_is_listed() -> None:
    assert len(dibs.__all__) == len(set(dibs.__all__))
    for name in dibs.__all__:
        value = getattr(dibs, name)
        assert value.__doc__ or (not inspect.isclass(value) and not inspect.isfunction(value)), name


def test_sync_and_async_clients_have_the_same_verbs() -> None:
    public = [{n for n in vars(c) if not n.startswith("_")} for c in (dibs.Client, dibs.AsyncClient)]
    assert public[0] == public[1]
    public = [
        {n for n in vars(c) if not n.startswith("_")} for c in (dibs.types.MessageQueue, dibs.types.AsyncMessageQueue)
    ]
    assert public[0] == public[1]


def test_every_scenario_of_the_bench_can_be_run() -> None:
    modules = {
        file.stem for file in Path(bench.__file__).parent.glob("*.py") if "\ndef run(" in file.read_text("utf-8")
    }
    assert modules == {MODULES.get(name, name) for name in SCENARIOS}


def test_errors_python_has_a_class_for_are_of_that_class_too() -> None:
    assert issubclass(dibs.InvalidArgument, ValueError)
    assert issubclass(dibs.WaitTimeout, TimeoutError)
    told = dibs.WaitTimeout("still ready", hint="no worker")
    assert (str(told), told.hint) == ("still ready\nhint: no worker", "no worker")


def test_options_of_a_worker_are_the_same_everywhere() -> None:
    settings = {*WorkerSettings.__struct_fields__}
    types = {name: getattr(type, "__forward_arg__", type) for name, type in WorkerOptions.__annotations__.items()}
    assert types == {name: WorkerSettings.__annotations__[name] for name in settings}
    command = {param.name for param in worker.params if param.name is not None}
    assert settings - {"upkeep", "name"} <= command
    assert "no_upkeep" in command


def test_the_layers_drawn_are_those_that_are_held() -> None:
    project = ROOT.parent.parent
    contracts = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    held = [layer.replace("dibs.", "") for layer in contracts[0]["layers"]]
    section = (project / "ARCHITECTURE.md").read_text("utf-8").split("## Layers")[1]
    drawn = section.split("```text")[1].split("```")[0].strip().splitlines()
    assert [re.split(r"\s{2,}", line)[0] for line in drawn] == held
