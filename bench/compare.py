"""Compares two versions: ``python -m bench compare REV scenario…`` runs them in turns, and REV against itself.

Each turn runs a scenario on REV, on the working tree, and on REV again, in alternating order. The ratio of a number is
the median over all turns of new / old, with speeds and costs turned so that below 1 is worse. The second run of REV
shows what the machine alone does to such a ratio: its quartiles are the noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

HERE = Path(__file__).resolve().parents[1]
ALLOWED_LOSS = 0.03
FASTER_IS_MORE = ("_per_s", "ratio")
FASTER_IS_LESS = (
    "_instructions",
    "_us",
    "_us_per_job",
    "_ms",
    "_mb",
    "bytes_per_job",
    "_seconds",
    "import_ratio",
    "help_ratio",
)
MODULES = {"import": "import_cost"}
"""Scenarios whose names cannot be those of modules."""


@dataclass
class Difference:
    """One number of one scenario: old, new, and the ratios over all turns."""

    scenario: str
    number: str
    old: float
    new: float
    ratio: float
    same: tuple[float, float]
    """The quartiles of the ratio of REV to itself."""

    @property
    def is_loss(self) -> bool:
        """Above 3 %, and above what the machine does to two runs of the same code."""
        return self.ratio < 1 - ALLOWED_LOSS and self.ratio < self.same[0]


def main(arguments: list[str]) -> int:
    """Compare; 1 if something was lost."""
    options = _options(arguments)
    for name in options.scenario:
        scenario_of(name)
    with _checked_out(options.rev) as old:
        own = HERE if options.same_bench else old
        differences = []
        for name in options.scenario:
            differences += compare(name, (old, own), (HERE, HERE), options.turns)
    if options.json:
        print(json.dumps([asdict(difference) for difference in differences], indent=2))
    else:
        Console().print(_table(options.rev, differences))
    return int(any(difference.is_loss for difference in differences))


def scenario_of(name: str) -> ModuleType:
    """The module of a scenario."""
    return import_module(f"bench.{MODULES.get(name, name)}")


def compare(name: str, old: tuple[Path, Path], new: tuple[Path, Path], turns: int) -> list[Difference]:
    """Run one scenario so many times on both versions: for each, its source and the bench that measures it."""
    runs: dict[str, list[dict[str, Any]]] = {"old": [], "new": [], "again": []}
    for turn in range(turns):
        order = ["old", "new", "again"] if turn % 2 == 0 else ["again", "new", "old"]
        for version in order:
            runs[version].append(_measure(name, *(new if version == "new" else old)))
            print(f"{name}: turn {turn + 1} of {turns}, {version}", file=sys.stderr, flush=True)
    return [_difference(name, number, runs) for number in runs["old"][0] if _is_compared(number, runs)]


def _measure(name: str, source: Path, bench: Path) -> dict[str, Any]:
    """Run a scenario in a process that imports dibs from this source."""
    path = os.pathsep.join(map(str, (source / "src", bench)))
    done = subprocess.run(
        [sys.executable, "-m", "bench", name, "--json"],
        cwd=bench, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        sys.exit(f"bench {name} failed in {bench}:\n{done.stderr}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _is_compared(number: str, runs: dict[str, list[dict[str, Any]]]) -> bool:
    """A number that both versions measure, and of which we know whether more is better."""
    values = [run.get(number) for version in runs.values() for run in version]
    return number.endswith(FASTER_IS_MORE + FASTER_IS_LESS) and all(isinstance(value, (int, float)) for value in values)


def _difference(name: str, number: str, runs: dict[str, list[dict[str, Any]]]) -> Difference:
    old, new, again = ([float(run[number]) for run in version] for version in runs.values())
    sign = -1 if number.endswith(FASTER_IS_LESS) else 1
    same = sorted((b / a) ** sign for a, b in zip(old, again, strict=True))
    spread = quantiles(same, n=4) if len(same) > 1 else [same[0]] * 3
    return Difference(
        scenario=name,
        number=number,
        old=median(old + again),
        new=median(new),
        # Both runs of REV stand around the new one, so that a machine that slows down does so for both.
        ratio=median((n / ((a + b) / 2)) ** sign for a, n, b in zip(old, new, again, strict=True)),
        same=(spread[0], spread[2]),
    )


@contextlib.contextmanager
def _checked_out(rev: str) -> Iterator[Path]:
    """The files of a commit, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", rev], cwd=HERE, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
        yield Path(folder)


def _table(rev: str, differences: list[Difference]) -> Table:
    title = f"the working tree against {rev}: a ratio below 1 is worse"
    table = Table("scenario", "number", "old", "new", "ratio", f"{rev} against itself", title=title)
    for difference in differences:
        ratio = f"{difference.ratio:.3f}"
        table.add_row(
            difference.scenario,
            difference.number,
            _text(difference.old),
            _text(difference.new),
            f"[red]{ratio}" if difference.is_loss else ratio,
            "{:.3f} … {:.3f}".format(*difference.same),
        )
    return table


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench compare", description=__doc__)
    parser.add_argument("rev", help="the commit to compare the working tree with")
    parser.add_argument("scenario", nargs="+", help="such as claim, drain or singles")
    parser.add_argument("--turns", type=int, default=9, help="how often each is run (default: 9)")
    parser.add_argument("--same-bench", action="store_true", help="measure REV with this bench, not with its own")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    return parser.parse_args(arguments)
