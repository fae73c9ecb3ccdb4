"""Users of a public name can name every type in its signature."""

from __future__ import annotations

import ast
import inspect
import sys
from typing import TYPE_CHECKING

import pytest

import dibs
from dibs import events, types

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.once

PUBLIC = {*dibs.__all__, *types.__all__, *(name for name, value in vars(events).items() if inspect.isclass(value))}
PASSED_BY_DIBS = {"Arguments", "AsyncDatabase", "Batch", "Database", "Databases", "Note", "Untold"}
"""Only dibs itself makes what takes these: a task and its settings, a context, a transaction, a client's upkeep.

``Untold`` is what no function returns, for type checkers.
"""
NAMES = {name: getattr(module, name) for module in (dibs, types) for name in module.__all__}
DEFINED = [name for name, thing in NAMES.items() if inspect.isclass(thing) or inspect.isfunction(thing)]


@pytest.mark.parametrize("name", DEFINED)
def test_every_type_in_a_public_signature_is_public(name: str) -> None:
    thing = NAMES[name]
    tree = ast.parse(inspect.getsource(sys.modules[thing.__module__]))
    [defined] = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == thing.__name__]
    used = {n.id for hint in _hints(defined) for n in ast.walk(hint) if isinstance(n, ast.Name)}
    assert used & _ours(tree) <= PUBLIC | PASSED_BY_DIBS


def _ours(tree: ast.Module) -> set[str]:
    """What of a module's names is not Python's or another library's: imported from dibs, a class, or an alias."""
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dibs":
            names |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, ast.Assign) and not _makes_a_type_variable(node):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _makes_a_type_variable(node: ast.Assign) -> bool:
    made = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(made, ast.Name) and made.id in {"TypeVar", "ParamSpec"}


def _hints(defined: ast.ClassDef | ast.FunctionDef) -> Iterator[ast.expr]:
    """The types a class or function names where others see them."""
    for part in defined.body if isinstance(defined, ast.ClassDef) else [defined]:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_private(part.name):
            hints = [part.returns, *(n.annotation for n in ast.walk(part.args) if isinstance(n, ast.arg))]
            yield from (hint for hint in hints if hint is not None)
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not _is_private(part.target.id):
            yield part.annotation


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
