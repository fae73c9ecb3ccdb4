"""What other programs read of the dashboard: the fleet's metrics, and how many workers a queue needs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools.prometheus import program

from dibs.db import calls
from dibs.metrics.exposition import CONTENT_TYPE, Gauge, render
from dibs.metrics.fleet import FleetFamilies
from dibs.web import Access
from dibs.web.access import by_token
from tests.web.test_guesses import kept

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from starlette.testclient import TestClient

    import dibs
    from tests.web.conftest import Browse

ODD = 'a "kind" \\ with {braces}, #1? ünïcode'
PARTS = ["depths", "workers_wanted", "counters", "vitals", "doctor"]


def samples(text: str) -> dict[tuple[Any, ...], float]:
    """Every sample, by its name and the values of its labels in the order of their names."""
    return {
        (s.name, *(value for _, value in sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


@pytest.fixture
def told(made: dict[str, UUID], web: TestClient, crew: dibs.Client) -> str:
    crew.enqueue("odd", ODD)
    crew.complete_many(crew.claim("odd"))
    crew._run(calls.workers.register_worker("another", {"queues": ["work"]}))  # Those of a while ago count as lost.
    crew.limits.set(resource=ODD, concurrency=7)
    crew.upkeep.roll_up()
    answer = web.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    return answer.text


def test_the_page_tells_of_everything_in_the_database(told: str) -> None:
    read = samples(told)
    assert {part: read["dibs_part_up", part] for part in PARTS} == dict.fromkeys(PARTS, 1)
    assert read["dibs_jobs", "work", "running"] == read["dibs_jobs", "mail", "ready"] == 1
    assert read["dibs_fleet_runs_total", ODD, "succeeded", "odd"] >= 1
    assert read["dibs_limit_concurrency", ODD, "resource"] == 7
    assert read["dibs_queue_paused", "mail"] == 1
    assert read["dibs_workers_wanted", "work"] == 1
    assert read["dibs_queue_workers", "work"] >= 1
    assert read["dibs_workers_wanted", "mail"] == 0
    assert read["dibs_arriving_per_second", "work"] > 0
    assert read["dibs_fleet_runs_total", "succeeded", "succeeded", "work"] == 1
    assert read["dibs_fleet_runs_total", "failed", "failed", "work"] == 1
    assert read["dibs_fleet_run_seconds_count", "succeeded", "work"] == 1
    assert read["dibs_fleet_run_seconds_bucket", "succeeded", "+Inf", "work"] == 1
    assert read["dibs_fleet_wait_seconds_sum", "succeeded", "work"] > 0
    assert read["dibs_workers", "live"] >= 1
    assert read["dibs_workers", "lost"] >= 0
    assert read["dibs_schedules", "healthy"] == 2
    assert read["dibs_schedule_late_seconds", "often"] >= 0
    assert (read["dibs_limit_concurrency", "work", "queue"], read["dibs_limit_used", "work", "queue"]) == (3, 1)
    assert read["dibs_table_bytes", "job"] > 8192
    assert read["dibs_connections_max",] >= read["dibs_connections",] > 0
    assert read["dibs_chore_late_seconds", "prune"] == float("inf"), "it was never done"
    assert read["dibs_chore_failures", "prune"] == 0
    assert any(name[0] == "dibs_doctor_findings" for name in read)


def test_prometheus_itself_has_nothing_against_it(told: str) -> None:
    checked = subprocess.run([program("promtool"), "check", "metrics"], input=told, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    empty = render(FleetFamilies().all())
    names = [family.name for family in FleetFamilies().all()]
    assert [line.split()[2] for line in empty.splitlines() if line.startswith("# TYPE")] == names
    assert all(f"# HELP {name} " in empty for name in names)


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    gauge = Gauge("a", "A.", "of")
    for value in ("NaN", "+Inf", "-Inf"):
        gauge.set(float(value), 'say "hi" \\\n')
    gauge.set(float("nan"), "nan")
    gauge.set(float("inf"), "inf")
    text = render([gauge])
    assert 'a{of="nan"} NaN\n' in text
    assert 'a{of="inf"} +Inf\n' in text
    assert 'a{of="say \\"hi\\" \\\\\\n"} -Inf\n' in text
    assert subprocess.run([program("promtool"), "check", "metrics"], input=text, text=True).returncode == 0


def test_it_needs_access_as_every_page_does(browse: Browse, made: dict[str, UUID], tmp_path: Path) -> None:
    tokens = kept(tmp_path, "s3cret\n", named=False)
    for path in ("/metrics", "/workers/wanted?name=work"):
        guarded = browse(authorize=by_token(tokens, write=False))
        assert guarded.get(path).status_code == 401
        assert guarded.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert guarded.get(path, headers={"Authorization": "Bearer s3cret"}).status_code == 200
        nobody = browse(authorize=lambda _: Access("x", frozenset({"retry"})))
        assert nobody.get(path).status_code == 403
        assert guarded.post(path, headers={"Authorization": "Bearer s3cret"}).status_code == 405


def test_without_its_database_it_says_so(browse: Browse) -> None:
    answer = browse(dsn="postgresql://127.0.0.1:1/none").get("/metrics")
    assert answer.status_code == 200
    assert samples(answer.text) == {("dibs_part_up", part): 0 for part in PARTS}


def test_how_many_workers_a_queue_needs_is_told_as_json(web: TestClient, made: dict[str, UUID]) -> None:
    answer = web.get("/workers/wanted", params={"name": "work", "target": "1m", "slots": "1", "run_time": "30s"})
    told = answer.json()
    assert (told["queue"], told["workers"], told["running"], told["run_mean"]) == ("work", 1, 1, 30.0)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("", 400, "which queue"),
        ("name=none", 404, "none"),
        ("name=work&target=soon", 400, "soon"),
        ("name=work&target=0", 400, "7 days"),
        ("name=work&target=1e400", 400, "1e400"),
        ("name=work&slots=many", 400, "many"),
        ("name=work&slots=-1", 400, "-1"),
        ("name=work&slots=0", 400, "0"),
        ("name=work&run_time=100000d", 400, "year"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(
    web: TestClient, made: dict[str, UUID], query: str, status: int, says: str
) -> None:
    answer = web.get(f"/workers/wanted?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert says in answer.text
