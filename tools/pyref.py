"""Writes docs/reference/python*.md from the docstrings; ``--check`` only says whether the files are up to date."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from dataclasses import fields as dataclass_fields
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
from msgspec import NODEFAULT

import dibs
from dibs import errors, events, operation, policy, schedule, testing, types, web, worker
from dibs.client import context
from dibs.db.adapters import detect
from dibs.web import access, settings

ROOT = Path(__file__).resolve().parent.parent
CLIENT = "dibs.client."
TASKS = tuple(CLIENT + name for name in ("app", "task", "remote", "context", "middleware"))
NOUNS = ("queues", "schedules", "limits", "groups", "workers", "stats", "failures", "channels", "upkeep")
"""The parts of a client, such as ``client.queues``; each has a page."""
GIVEN = {
    "Context", "Held", "Job", "Message", "MessageQueue", "RemoteTask", "Task", "Transaction",
    *(noun.capitalize() for noun in NOUNS),
}  # fmt: skip
"""Classes one gets and does not make, so nobody calls them."""
OPENING = "<!-- Written by tools/pyref.py from the docstrings: change those and run `make docs`. -->"


@dataclass(frozen=True)
class Page:
    """A page of the reference: where it is, and what opens it."""

    file: str
    title: str
    about: str

    @property
    def path(self) -> Path:
        return ROOT / "docs/reference" / self.file


PYTHON = Page(
    "python.md",
    "Python reference",
    "Every public name. `import dibs` brings the names of application code; `dibs.errors` has every error, and "
    "`dibs.types` the types of arguments and answers, for annotations.",
)
TASK = Page("python-tasks.md", "Python: apps and tasks", "[Tasks](../use/tasks.md) shows how these go together.")
CLIENTS = Page(
    "python-client.md",
    "Python: clients and handles",
    "[The client](../use/client.md) shows how these go together. A class with an async twin, such as `AsyncClient`, is "
    "listed once: the twin has the same methods, awaited.",
)
PARTS = {
    noun: Page(
        f"python-{noun}.md",
        f"Python: client.{noun}",
        f"An async client has the same methods, awaited: `await client.{noun}.…`. "
        "[Values](python-values.md) has the types.",
    )
    for noun in NOUNS
}
VALUES = Page("python-values.md", "Python: values", "What goes in and what comes back.")
EVENTS = Page("python-events.md", "Python: dibs.events", "[Metrics, logs, traces](../run/metrics.md) shows their use.")
WORKER = Page("python-worker.md", "Python: dibs.worker", "[Workers](../run/workers.md) shows their use.")
TESTING = Page("python-testing.md", "Python: dibs.testing", "[Testing](../use/testing.md) shows their use.")
WEB = Page("python-web.md", "Python: dibs.web", "[Dashboard](../run/dashboard.md) shows their use.")
MODULES = {EVENTS: events, WORKER: worker, TESTING: testing, WEB: web}


class Raw:
    """An annotation that is shown as it is written."""

    def __init__(self, text: object) -> None:
        self.text = text

    def __repr__(self) -> str:
        return annotation(self.text)


def annotation(of: object) -> str:
    """A type as it is written in the source, where that is known."""
    text = getattr(of, "__forward_arg__", of)
    return text if isinstance(text, str) else inspect.formatannotation(text)


def signature(name: str, of: Any, *, bound: bool = False) -> str:
    """Return the signature, on one line if that fits."""
    found = inspect.signature(of)
    given = [
        p.replace(
            annotation=p.annotation if p.annotation is p.empty else Raw(p.annotation),
            default=p.default if p.default is p.empty else Raw(default(p.default)),
        )
        for p in found.parameters.values()
    ]
    given = given[1:] if bound else given
    back = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    name = f"async {name}" if inspect.iscoroutinefunction(of) else name
    one_line = f"{name}{found.replace(parameters=given, return_annotation=found.empty)}{back}"
    if len(one_line) <= 100:
        return one_line
    return f"{name}(\n" + "".join(f"    {line},\n" for line in marked(given)) + f"){back}"


def marked(given: list[inspect.Parameter]) -> list[str]:
    """Each parameter on a line, with the marks ``/`` and ``*`` where they stand."""
    kinds = [p.kind for p in given]
    lines = [str(p) for p in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        lines.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        lines.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    return lines


def default(value: object) -> str:
    """A default as one would write it; of an object without a readable form, three dots."""
    if isinstance(value, enum.Enum):
        return str(value)
    if value is MISSING or " at 0x" in repr(value):
        return "..."
    return repr(value)


def alias_docs(*modules: ModuleType) -> dict[str, str]:
    """Return the lines below each type that is only a name for others."""
    found = {}
    for module in modules:
        body = ast.parse(inspect.getsource(module)).body
        for alias, below in pairwise(body):
            target = alias.targets[0] if isinstance(alias, ast.Assign) else getattr(alias, "target", None)
            if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[target.id] = str(below.value.value)
    return found


ALIASES = alias_docs(context, policy, schedule, detect, access, settings, operation)


def alias_section(name: str, of: object) -> list[str]:
    return [f"## {name}", "", "```text", annotation(of).replace("typing.", ""), "```", "", markdown(ALIASES[name]), ""]


def prose(of: object) -> str:
    """A docstring as Markdown."""
    return markdown(inspect.getdoc(of) or "")


def markdown(text: str) -> str:
    text = re.sub(r":\w+:`(.+?)`", r"`\1`", re.sub(r"``(.+?)``", r"`\1`", text))
    return re.sub(r"^>>> .*(?:\n.+)*", lambda example: f"```text\n{example[0]}\n```", text, flags=re.MULTILINE)


def first_sentence(of: object, name: str = "") -> str:
    text = " ".join((markdown(ALIASES[name]) if name in ALIASES else prose(of)).split("\n\n")[0].split())
    return re.split(r"(?<=[.;]) ", text, maxsplit=1)[0].rstrip(".;").replace("|", "\\|")


def members(cls: type) -> dict[str, Any]:
    """The public members our own code gives a class, in the order they are written."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("dibs"):
            found = {name: value for name, value in vars(base).items() if not name.startswith("_")} | found
    return {name: found[name] for name in sorted(found, key=lambda name: name not in vars(cls))}


def is_made(value: object) -> bool:
    """True if the default of a struct's field is made for each value."""
    return repr(value) == "<factory>"


def field_rows(cls: type) -> list[tuple[str, str, str]]:
    """The fields of a value: name, type, default."""
    if hasattr(cls, "__dataclass_fields__"):
        return [
            (f.name, annotation(f.type), "" if f.default is MISSING else default(f.default))
            for f in dataclass_fields(cls)
            if not f.name.startswith("_")
        ]
    if issubclass(cls, msgspec.Struct):
        types = inspect.get_annotations(cls)
        for base in cls.__mro__:
            types = {**inspect.get_annotations(base), **types}
        names, given = cls.__struct_fields__, cls.__struct_defaults__
        defaults = dict(zip(names[len(names) - len(given) :], given, strict=True))
        told = {n: default(value) for n, value in defaults.items() if value is not NODEFAULT and not is_made(value)}
        return [(n, annotation(types[n]), told.get(n, "")) for n in names if not n.startswith("_")]
    if typing.is_typeddict(cls):
        return [(n, annotation(t), "") for n, t in inspect.get_annotations(cls).items()]
    return []


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    return f"`{text}`".replace("|", r"\|") if text else ""


def fields_table(rows: list[tuple[str, str, str]]) -> list[str]:
    if not rows:
        return []
    if any(row[2] for row in rows):
        lines = [f"| {code(name)} | {code(kind)} | {code(given)} |" for name, kind, given in rows]
        return ["| field | type | default |", "|---|---|---|", *lines, ""]
    return ["| field | type |", "|---|---|", *(f"| {code(name)} | {code(kind)} |" for name, kind, _ in rows), ""]


def callable_section(title: str, name: str, of: Any, *, level: int, bound: bool) -> list[str]:
    assert inspect.getdoc(of), f"nothing is said of {title}; if it is a name for other types, ALIASES must know it"
    called = typing.get_overloads(of) or [of]
    lines = [f"{'#' * level} {title}", "", "```text"]
    lines += [signature(name, each, bound=bound) for each in called]
    return [*lines, "```", "", prose(of), ""]


def member_sections(cls: type) -> list[str]:
    lines, properties = [], []
    fields = {row[0] for row in field_rows(cls)}
    for name, value in members(cls).items():
        if isinstance(value, property):
            back = inspect.signature(typing.cast("FunctionType", value.fget)).return_annotation
            properties.append((name, code(annotation(back)), first_sentence(value)))
        elif isinstance(value, FunctionType | classmethod | staticmethod) and name not in fields:
            of = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            bound = not isinstance(value, staticmethod)
            lines += callable_section(f"{cls.__name__}.{name}", name, of, level=3, bound=bound)
    if properties:
        rows = [f"| `{name}` | {kind} | {said} |" for name, kind, said in properties]
        return ["| property | type | |", "|---|---|---|", *rows, "", *lines]
    return lines


def class_section(cls: type, twin: str | None) -> list[str]:
    lines = [f"## {cls.__name__}", ""]
    rows = field_rows(cls)
    if issubclass(cls, enum.Enum):
        lines += [prose(cls), "", "One of " + ", ".join(f"`{member.value}`" for member in cls) + ".", ""]
        return lines
    if not rows and "__init__" in vars(cls) and cls.__name__ not in GIVEN:
        lines += ["```text", signature(cls.__name__, cls.__init__, bound=True).removesuffix(" -> None"), "```", ""]
    lines += [prose(cls), ""]
    if twin:
        lines += [f"Async: `{twin}`.", ""]
    return [*lines, *fields_table(rows), *member_sections(cls)]


def section(name: str, of: Any, twin: str | None = None) -> list[str]:
    if name in ALIASES:
        return alias_section(name, of)
    if isinstance(of, type):
        return class_section(of, twin)
    if callable(of):
        return callable_section(name, name, of, level=2, bound=False)
    lines = [f"## {name}", ""]
    if isinstance(of, Mapping):
        return [*lines, "| key | value |", "|---|---|", *(f"| `{key}` | {value} |" for key, value in of.items()), ""]
    return [*lines, f"`{of!r}`", ""]


def public(module: ModuleType) -> dict[str, Any]:
    """The public names of a module: those it lists, or those it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return {name: getattr(module, name) for name in listed}
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name: value for name, value in own.items() if getattr(value, "__module__", "") == module.__name__}


def page_of(of: Any) -> Page:
    """Return the page and heading of a name of ``dibs``."""
    home = getattr(of, "__module__", "")
    part = home.removeprefix(CLIENT).removesuffix("_async")
    if home.startswith(CLIENT) and part in PARTS:
        return PARTS[part]
    if home.startswith((*TASKS, "dibs.retry", "dibs.policy")) and not typing.is_typeddict(of):
        return TASK
    return CLIENTS if home.startswith(CLIENT) else VALUES


def is_error(of: Any) -> bool:
    return isinstance(of, type) and issubclass(of, errors.DibsError)


def twins(names: dict[str, Any]) -> dict[str, str]:
    """The async half of each name that has one."""
    found = {name: f"Async{name}" for name in names if f"Async{name}" in names}
    # AsyncTask is a kind of Task, and not its twin.
    return {name: twin for name, twin in found.items() if names[name] not in getattr(names[twin], "__mro__", ())}


def opened(page: Page) -> list[str]:
    return [f"# {page.title}", "", OPENING, "", page.about, ""]


def listed(names: dict[str, Any], module: str) -> list[str]:
    """A table of names, with a line about each."""
    twin_names = twins(names).values()
    shown = {n: of for n, of in names.items() if n not in twin_names}
    rows = [
        f"| [`{module}.{n}`]({page_of(of).file}#{n.lower()}) | {first_sentence(of, n)} |" for n, of in shown.items()
    ]
    return ["| name | |", "|---|---|", *rows, ""]


def index(own: dict[str, Any], kinds: dict[str, Any]) -> list[str]:
    """Every name with a line about it, and the other modules."""
    values = {n: of for n, of in kinds.items() if n.removeprefix("Async").lower() not in PARTS}
    lines = [*opened(PYTHON), "## dibs", "", *listed(own, "dibs")]
    lines += ["## Parts of a client", "", "| part | |", "|---|---|"]
    lines += [f"| [`client.{n}`]({page.file}) | {first_sentence(kinds[n.capitalize()])} |" for n, page in PARTS.items()]
    lines += ["", "## dibs.types", "", *listed(values, "dibs.types")]
    lines += ["## Other modules", "", "| module | |", "|---|---|"]
    lines += [f"| [`{m.__name__}`]({page.file}) | {first_sentence(m)} |" for page, m in MODULES.items()]
    lines += ["", "## Errors", "", "[Errors](errors.md) has the tree and what to do about each.", ""]
    lines += ["| error | |", "|---|---|"]
    for name, of in vars(errors).items():
        if is_error(of):
            lines += [f"| `{'dibs' if name in dibs.__all__ else 'dibs.errors'}.{name}` | {first_sentence(of)} |"]
    return [*lines, ""]


def pages() -> dict[Path, str]:
    """The text of every page."""
    own = {n: of for n, of in public(dibs).items() if not is_error(of) and not isinstance(of, ModuleType)}
    kinds = public(types)
    names = own | kinds
    pairs = twins(names)
    written = {page: opened(page) for page in (TASK, CLIENTS, *PARTS.values(), VALUES, *MODULES)}
    for name, of in names.items():
        if name not in pairs.values():
            written[page_of(of)] += section(name, of, pairs.get(name))
    for page, module in MODULES.items():
        for name, of in public(module).items():
            if of is not names.get(name):
                written[page] += section(name, of)
    written[PYTHON] = index(own, kinds)
    return {page.path: "\n".join(lines).rstrip() + "\n" for page, lines in written.items()}


def main() -> int:
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        if "--check" in sys.argv:
            print(f"stale: {path.relative_to(ROOT)} does not match the docstrings; run `make docs`")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote: {path.relative_to(ROOT)}")
    if not stale:
        print("up to date: docs/reference/python*.md")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
