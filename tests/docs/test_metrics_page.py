"""The page on events and metrics lists what there is."""

from __future__ import annotations

import logging
import re

import pytest
import yaml

from dibs import events
from dibs.metrics import Prometheus
from dibs.metrics.families import Families
from dibs.metrics.fleet import FleetFamilies
from dibs.metrics.lines import LEVELS
from tests.docs.pages import ROOT, Block, blocks, table

pytestmark = pytest.mark.once

PAGE = ROOT / "docs" / "run" / "metrics.md"
FLEET = ROOT / "docs" / "run" / "monitoring.md"


def words(cell: str) -> list[str]:
    return re.findall(r"\w+", cell)


def test_every_event_is_documented_with_its_fields() -> None:
    written = {row[0]: words(row[1]) for row in table(PAGE, "Events")}
    there = {e.__name__: list(e.__struct_fields__) for e in vars(events).values() if is_event(e)}
    assert written == there
    assert list(written) == list(there), "in the order of events.py"


def is_event(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, events.Event) and value is not events.Event


def test_the_log_levels_of_events_are_documented() -> None:
    written = {row[0]: row[3] for row in table(PAGE, "Events")}
    for event, most in LEVELS.items():
        assert logging.getLevelName(most).lower() in written[event.__name__], event.__name__


def test_every_metric_is_documented_with_its_labels() -> None:
    written = [(row[0], words(row[1])) for row in table(PAGE, "Prometheus")]
    assert written == [(family.name, list(family.labels)) for family in Families().all()]
    histograms = {row[0] for row in table(PAGE, "Prometheus") if row[2].startswith("histogram")}
    assert histograms == {family.name for family in Families().all() if family.type == "histogram"}


def test_the_output_has_every_metric_that_is_documented() -> None:
    named = re.findall(r"^# TYPE (dibs_\w+)", Prometheus(events.Events()).text(), re.MULTILINE)
    assert named == [row[0] for row in table(PAGE, "Prometheus")]


def test_every_metric_of_the_fleet_is_documented_with_its_labels() -> None:
    rows = table(FLEET, "Fleet")
    assert [(row[0], words(row[1])) for row in rows] == [(f.name, list(f.labels)) for f in FleetFamilies().all()]
    histograms = {row[0] for row in rows if row[2].startswith("histogram")}
    assert histograms == {f.name for f in FleetFamilies().all() if f.type == "histogram"}
    shared = {row[0]: row[2] for row in table(PAGE, "Prometheus")}
    assert all(shared[row[0]] == row[2] for row in rows if row[0] in shared and row[0] != "dibs_depth_age_seconds")


@pytest.mark.parametrize("block", [b for b in blocks(PAGE) if b.language == "text"], ids=lambda b: str(b.line))
def test_queries_ask_for_metrics_that_exist(block: Block) -> None:
    names = {family.name for family in Families().all()}
    asked = re.findall(r"dibs_\w+", block.text)
    assert asked
    assert {re.sub("_bucket$", "", name) for name in asked} <= names


def test_every_alert_is_documented() -> None:
    rules = yaml.safe_load((ROOT / "examples" / "monitoring" / "alerts.yml").read_text())["groups"][0]["rules"]
    assert [row[:2] for row in table(FLEET, "Alerts")] == [[r["alert"], r["labels"]["severity"]] for r in rules]
