"""The Grafana dashboard, the alerts and what the docs say of Prometheus and KEDA, tried with Debian's Prometheus."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
import yaml
from tools.prometheus import program

from dibs.cli.commands.web import server_of
from dibs.metrics.families import Families
from dibs.metrics.fleet import FleetFamilies
from dibs.web import app
from tests.docs.pages import ROOT, blocks
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from starlette.testclient import TestClient

FOLDER = ROOT / "examples" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
MONITORING = ROOT / "docs" / "run" / "monitoring.md"
AUTOSCALING = ROOT / "docs" / "run" / "autoscaling.md"

ALERTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "DibsDown": ({"dibs_other": "1"}, {'dibs_part_up{part="depths"}': "1"}),
    "DibsPartMissing": ({'dibs_part_up{part="doctor"}': "0"}, {'dibs_part_up{part="vitals"}': "1"}),
    "DibsQueueLate": (
        {'dibs_oldest_ready_seconds{queue="@"}': "301", 'dibs_queue_paused{queue="@"}': "0"},
        {'dibs_oldest_ready_seconds{queue="@"}': "301", 'dibs_queue_paused{queue="@"}': "1"},
    ),
    "DibsNoWorker": (
        {'dibs_jobs{queue="@",state="ready"}': "1", 'dibs_queue_workers{queue="@"}': "0"},
        {'dibs_jobs{queue="@",state="ready"}': "1", 'dibs_queue_workers{queue="@"}': "1"},
    ),
    "DibsTooFewWorkers": (
        {'dibs_workers_wanted{queue="@"}': "3", 'dibs_queue_workers{queue="@"}': "2"},
        {'dibs_workers_wanted{queue="@"}': "2", 'dibs_queue_workers{queue="@"}': "2"},
    ),
    "DibsFailing": (
        {'dibs_fleet_runs_total{queue="@",outcome="succeeded"}': "0+7",
         'dibs_fleet_runs_total{queue="@",outcome="failed"}': "0+3"},
        {'dibs_fleet_runs_total{queue="@",outcome="succeeded"}': "0+9",
         'dibs_fleet_runs_total{queue="@",outcome="failed"}': "0+1"},
    ),
    "DibsJobsDie": (
        {'dibs_jobs{queue="@",state="exhausted"}': "0+1"},
        {'dibs_jobs{queue="@",state="exhausted"}': "7", 'dibs_jobs{queue="@",state="cancelled"}': "0+1"},
    ),
    "DibsWorkersLost": ({'dibs_workers{state="lost"}': "0+1"}, {'dibs_workers{state="lost"}': "2"}),
    "DibsPausedLong": (
        {'dibs_queue_paused{queue="@"}': "1", 'dibs_jobs{queue="@",state="ready"}': "1"},
        {'dibs_queue_paused{queue="@"}': "1", 'dibs_jobs{queue="@",state="ready"}': "0"},
    ),
    "DibsScheduleLate": (
        {'dibs_schedule_late_seconds{schedule="s"}': "301"}, {'dibs_schedule_late_seconds{schedule="s"}': "59"}
    ),
    "DibsSchedulesFailing": ({'dibs_schedules{status="failing"}': "1"}, {'dibs_schedules{status="healthy"}': "1"}),
    "DibsUpkeepLate": (
        {'dibs_chore_late_seconds{chore="rescue"}': "301"},
        {'dibs_chore_late_seconds{chore="rescue"}': "2", 'dibs_chore_late_seconds{chore="prune"}': "301"},
    ),
    "DibsChoreFailing": ({'dibs_chore_failures{chore="prune"}': "3"}, {'dibs_chore_failures{chore="prune"}': "1"}),
    "DibsHorizonHeld": ({"dibs_horizon_age_seconds": "3601"}, {"dibs_horizon_age_seconds": "60"}),
    "DibsNotifyQueueFills": ({"dibs_notify_queue_ratio": "0.3"}, {"dibs_notify_queue_ratio": "0.01"}),
    "DibsConnectionsRunOut": (
        {"dibs_connections": "95", "dibs_connections_max": "100"},
        {"dibs_connections": "50", "dibs_connections_max": "100"},
    ),
    "DibsDeadRows": ({'dibs_table_dead_rows{table="ready"}': "2e6"}, {'dibs_table_dead_rows{table="ready"}': "5000"}),
    "DibsDoctorFoundError": (
        {'dibs_doctor_findings{check="no-worker",level="error"}': "1"},
        {'dibs_doctor_findings{check="setting",level="note"}': "1"},
    ),
}  # fmt: skip
"""For each alert, series with which it fires, and some with which it does not; a number stays, and ``0+3`` rises by 3
each minute. ``@`` is the alert's name."""

ALL_WELL = ("Late schedules", "Upkeep: late")
"""Panels that show nothing as long as all is well."""


def queries() -> dict[str, str]:
    """Every query of the dashboard, by the title of its panel and its letter, with the variables filled in."""
    return {
        f"{panel['title']} {target['refId']} ({panel['id']})": target["expr"]
        .replace("$queue", ".*")
        .replace("$__rate_interval", "1m")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }


def documents(page: Path) -> list[Any]:
    """What the YAML blocks of a page say."""
    return [d for block in blocks(page) if block.language == "yaml" for d in yaml.safe_load_all(block.text)]


def trigger(kind: str) -> dict[str, str]:
    """What the example for KEDA says of this trigger."""
    scaled = [d for d in documents(AUTOSCALING) if d["kind"] == "ScaledObject"]
    [found] = [t["metadata"] for d in scaled for t in d["spec"]["triggers"] if t["type"] == kind]
    assert all(isinstance(value, str) for value in found.values()), "KEDA takes nothing but text"
    return dict(found)


def promtool(*args: str, cwd: Path = FOLDER) -> None:
    checked = subprocess.run([program("promtool"), *args], cwd=cwd, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.once
def test_every_query_names_metrics_that_exist() -> None:
    known = {f.name for f in (*Families().all(), *FleetFamilies().all())}
    of_the_fleet = {f.name for f in FleetFamilies().all()}
    for where, query in queries().items():
        asked = set(re.findall(r"dibs_\w+?(?=_bucket|\b)", query))
        assert asked, where
        assert asked <= known, where
    for rule in RULES:
        assert set(re.findall(r"dibs_\w+", rule["expr"])) <= of_the_fleet, rule["alert"]


@pytest.mark.once
def test_the_rules_and_the_configuration_are_sound(tmp_path: Path) -> None:
    promtool("check", "rules", "alerts.yml")
    [config] = documents(MONITORING)
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
    config["scrape_configs"][0]["authorization"]["credentials_file"] = "token"
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", "prometheus.yml", cwd=tmp_path)


def tried(alerts: list[str], *, bad: bool) -> dict[str, Any]:
    """A test for promtool of some alerts, all at once; each is about a queue with its name."""
    series = [(name.replace("@", a), value) for a in alerts for name, value in ALERTS[a][0 if bad else 1].items()]
    return {
        "interval": "1m",
        "input_series": [{"series": n, "values": f"{v}x90" if "+" in v else f"{v}+0x90"} for n, v in series],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0 or vector(0)',
                "eval_time": "80m",
                "exp_samples": [{"value": int(bad)}],
            }
            for alert in alerts
        ],
    }


@pytest.mark.once
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    alerts = [rule["alert"] for rule in RULES]
    assert list(ALERTS) == alerts
    # With the first one, all others are missing.
    tests = [tried(alerts[:1], bad=True), tried(alerts[1:], bad=True), tried(alerts, bad=False)]
    rules = {"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(rules))
    promtool("test", "rules", str(tmp_path / "test.yml"))


@pytest.fixture(scope="module")
def dashboard(web_dsn: str, made: dict[str, UUID]) -> Iterator[int]:
    """The port of a dashboard of the database in which there is something of everything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = server_of(app(web_dsn))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def prometheus(dashboard: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes it every second, with the alerts."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yml")],
        "scrape_configs": [{"job_name": "dibs", "static_configs": [{"targets": [f"127.0.0.1:{dashboard}"]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [
        program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1") as client:
            wait_until(lambda: has_scraped(client), what="Prometheus has scraped twice")
            yield client
    finally:
        process.terminate()
        process.wait(30)


def has_scraped(client: httpx.Client) -> bool:
    try:
        return bool(
            asked(client, 'min(count_over_time(dibs_part_up[1m]) >= 3) and min(ALERTS{alertname="DibsPausedLong"})')
        )
    except httpx.HTTPError:  # It does not listen yet, or says that it is not ready.
        return False


def asked(client: httpx.Client, query: str) -> list[Any]:
    answer = client.get("/query", params={"query": query}).raise_for_status().json()
    assert (answer["status"], answer.get("warnings")) == ("success", None), (query, answer)
    found: list[Any] = answer["data"]["result"]
    return found


@pytest.mark.once
def test_a_real_prometheus_answers_every_query(prometheus: httpx.Client) -> None:
    own = {f.name for f in FleetFamilies().all()}
    for where, query in queries().items():
        found = asked(prometheus, query)
        names = set(re.findall(r"dibs_\w+?(?=_bucket|\b)", query))
        assert found or not names <= own or where.startswith(ALL_WELL), where
    assert asked(prometheus, trigger("prometheus")["query"].replace("mail", "work"))
    [group] = prometheus.get("/rules").json()["data"]["groups"]
    assert {rule["name"]: rule["health"] for rule in group["rules"]} == {rule["alert"]: "ok" for rule in RULES}
    told = [a["annotations"]["summary"] for a in prometheus.get("/alerts").json()["data"]["alerts"]]
    assert "mail has been paused for an hour, and jobs wait in it" in told
    assert not [text for text in told if "error expanding" in text or "<no value>" in text]


def test_kedas_examples_ask_for_what_there_is(web: TestClient, made: dict[str, UUID]) -> None:
    api = trigger("metrics-api")
    url = urlsplit(api["url"])
    assert isinstance(web.get(f"{url.path}?{url.query}").json()[api["valueLocation"]], int)
    names = {d["metadata"]["name"] for d in documents(AUTOSCALING) if d["kind"] == "TriggerAuthentication"}
    assert names == {"dibs-token"}
