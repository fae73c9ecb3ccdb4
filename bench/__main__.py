"""Runs the scenarios."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench import compare
from bench.stage import Stage, staged

if TYPE_CHECKING:
    from types import ModuleType

SCENARIOS = (
    "enqueue",
    "singles",
    "claim",
    "idle",
    "horizon",
    "newest",
    "instant",
    "wal",
    "wakeups",
    "latency",
    "pickup",
    "drain",
    "fleet",
    "sustained",
    "start",
    "resting",
    "costs",
    "fairness",
    "weights",
    "lanes",
    "grouped_horizon",
    "limits",
    "limited_horizon",
    "instructions",
    "size",
    "web",
    "import",
)


def main() -> int:
    if sys.argv[1:2] == ["compare"]:
        return compare.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=SCENARIOS, help="one scenario; all without it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="for size and web: the part of their ten million jobs to make"
    )
    parser.add_argument("--dsn", help="a database to measure; a throwaway server without it")
    options = parser.parse_args()
    names = [options.name] if options.name else list(SCENARIOS)
    results = {}
    missed = False
    table = Table("scenario", "measured", "value", "wanted", title="dibs, measured")
    with staged(options.dsn, options.scale) as make_stage:
        for name in names:
            scenario = compare.scenario_of(name)
            with make_stage(name) as stage:
                results[name] = scenario.run(stage)
            missed |= add_rows(table, name, scenario, results[name])
    if options.json:
        print(json.dumps(results[names[0]] if options.name else results))
    else:
        Console().print(table)
    return int(missed)


def add_rows(table: Table, name: str, scenario: ModuleType, measured: dict[str, Any]) -> bool:
    """Add what was measured to the table; whether something was missed."""
    missed = False
    for key, value in measured.items():
        if isinstance(value, list):
            continue
        if isinstance(value, str):
            table.add_row(name, key, value, "")
            continue
        wanted: tuple[str, float] | None = scenario.WANTED.get(key)
        met = wanted is None or (value >= wanted[1] if wanted[0] == "≥" else value <= wanted[1])
        missed |= not met
        text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        table.add_row(name, key, text if met else f"[red]{text}", f"{wanted[0]} {wanted[1]:,g}" if wanted else "")
        name = ""
    table.add_section()
    return missed


__all__ = ["Stage", "main"]

if __name__ == "__main__":
    sys.exit(main())
