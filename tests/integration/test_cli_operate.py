"""The commands of operators: by filter, by the beginning of an id; and how lists look on a terminal and in a pipe."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.shell_completion import ShellComplete
from rich.console import Console

import dibs
from dibs.cli import progress
from dibs.cli.app import dibs as app
from dibs.cli.commands.jobs import COLUMNS
from dibs.cli.help import COMMANDS, EXAMPLES
from dibs.cli.output import Output
from dibs.policy import FOREVER
from tests.integration.test_cli import UNKNOWN, Dibs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from dibs.testing import Clock


@pytest.fixture
def run(dsn: str) -> Dibs:
    return Dibs(dsn)


def bury(client: dibs.Client, count: int, queue: str = "q", **options: Any) -> list[UUID]:
    """Jobs that failed for good."""
    made = [client.enqueue(queue, "k", {"n": n, "who": "ann"}, **options).id for n in range(count)]
    for job in client.claim(queue, count):
        client.fail(job, f"ValueError: no card {job.payload['n']}\n  trace", final=True)
    return made


def test_what_changes_jobs_counts_first_and_does_it_with_yes(run: Dibs, client: dibs.Client) -> None:
    bury(client, 3)
    client.queues.set("there")
    assert "3 would be brought back; nothing was changed" in run("retry", "-q", "q").out
    assert client.queues.depth("q").failed == 3
    assert run("retry", "-q", "q", "--payload", "n=1", "-y").out == "1 brought back\n"
    assert run("move", "--dead", "--to", "there", "-y", "--json").json["done"] == 2
    assert run("delete", "-q", "there", "-y", "-n", "1").out == "1 deleted\n"
    assert run("queues", "purge", "q", "--yes").out == "1 deleted\n"
    assert run("delete", "-q", "q", "--json").json["matched"] == 0
    assert "no job matches" in run("delete", UNKNOWN, code=1).out
    assert "name jobs" in run("delete", "--yes", code=2).err
    assert "--all and no filter" in run("delete", "--all", "-q", "q", code=2).err
    assert run("delete", "--all", "--yes").out == "1 deleted\n"
    assert "is gone" in run("queues", "drop", "there").out
    assert run("queues", "drop", "there", code=4).out == ""


def test_a_cancel_is_undone_by_its_number(run: Dibs, client: dibs.Client) -> None:
    for n in range(3):
        client.enqueue("q", "k", {"n": n})
    assert "3 would be cancelled" in run("cancel", "-k", "k").out
    done = run("cancel", "-k", "k", "--because", "wrong list", "--yes")
    assert done.out == "3 cancelled\n"
    [undo] = re.findall(r"dibs undo (\d+) --yes", done.err)
    assert "wrong list" in run("jobs", "--dead").out
    assert "3 would be taken back" in run("undo", undo).out
    assert run("undo", undo, "-y").out == "3 taken back\n"
    assert client.queues.depth("q").ready == 3


def test_the_audit_says_who(run: Dibs, client: dibs.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    client.enqueue("q", "k")
    run("queues", "pause", "q")
    [told] = run("audit", "--json").json
    assert (told["verb"], told["queue"], told["actor"]) == ("pause", "q", "ann")
    assert "ann (" in run("audit").out
    assert run("audit", "--before", told["operation"]).out == ""
    assert "deleted by the upkeep" in run("audit", "--keep", "365d").out
    assert "from 30 days" in run("audit", "--keep", "1h", code=1).err
    assert run("audit", "--json").json[0]["detail"] == {"keep": "365 days"}


def test_edit_changes_a_job(run: Dibs, client: dibs.Client) -> None:
    id = client.enqueue("q", "k", {"n": 1}, delay=60).id
    assert "changed delay, payload" in run("edit", id, "--payload", '{"n": 2}', "--delay", "0s").out
    assert [job.payload for job in client.claim("q")] == [{"n": 2}]
    assert "runs, so it cannot be changed" in run("edit", id, "--priority", 3, code=1).err
    assert "give --payload" in run("edit", id, code=2).err


# Which jobs


def test_every_filter_chooses(run: Dibs, client: dibs.Client) -> None:
    bury(client, 2, group="g", dedup_key=None, headers={"team": "a"})
    client.enqueue("other", "x", {"n": 7}, dedup_key="d")
    client.upkeep.roll_up()
    group = client.failures.list()[0].fingerprint

    def count(*args: str) -> int:
        return len(run("jobs", *args, "--json").json)

    assert [count(*args) for args in ([], ["--dead"], ["-s", "ready", "-s", "failed"], ["-s", "ready"])] == [3, 2, 3, 1]
    assert [count(*args) for args in (["-q", "q"], ["-k", "x"], ["--group", "g"])] == [2, 1, 2]
    assert [count("-q", queue, "--dedup-key", "d") for queue in ("other", "q")] == [1, 0]
    assert [count("--reason", text) for text in ("card 1", "%card%", "ValueError%", "nothing")] == [1, 2, 2, 0]
    assert [count("--failure", one) for one in (group, "other")] == [2, 0]
    assert [count("--payload", text) for text in ("n=7", "who=ann", 'n="7"')] == [1, 2, 0]
    assert count("--payload", "n=1", "--payload", "who=ann") == 1
    assert count("--header", "team=a") == 2
    assert [count(*args) for args in (["--since", "1h"], ["--until", "1h"], ["--ended-after", "1h"])] == [3, 0, 2]


def test_the_beginning_of_an_id_stands_for_it(run: Dibs, client: dibs.Client) -> None:
    first, second = client.enqueue("q", "k").id, client.enqueue("q", "k").id
    shared = next(n for n in range(36) if str(first)[n] != str(second)[n])
    unique = str(second)[: shared + 1]
    assert run("show", unique, "--json").json["id"] == str(second)
    assert run("why", unique.upper()).out
    assert run("show", str(second).replace("-", ""), "--json").json["id"] == str(second)
    assert [job["id"] for job in run("jobs", unique, "--json").json] == [str(second)]
    assert [job["id"] for job in run("jobs", "--before", unique, "--json").json] == [str(first)]
    several = run("why", str(second)[:shared], code=1).err
    assert "several jobs have an id that begins with" in several
    assert str(first) in several
    assert "there is no job whose id begins with ffff" in run("show", "ffff", code=4).err
    for wrong in ("fff", "zzzz", UNKNOWN + "0"):
        assert "is not a job's id" in run("show", wrong, code=2).err
    assert str(second) in run("cancel", unique).out


def test_a_job_that_waits_shows_its_last_error(run: Dibs, client: dibs.Client) -> None:
    client.enqueue("q", "k")
    client.fail(client.claim("q")[0], "ValueError: no\ntrace", delay=60)
    assert run("jobs").out.splitlines()[1].endswith("ValueError: no")


# Lists


def drawn(width: int, columns: tuple[str, ...], *rows: tuple[Any, ...]) -> list[str]:
    """What a table looks like on a terminal of that width."""
    output, text = Output(), io.StringIO()
    output.out = Console(file=text, force_terminal=True, width=width, color_system=None, highlight=False)
    output.table(columns, rows)
    return text.getvalue().splitlines()


JOB = (UNKNOWN, "mail", "welcome", "exhausted", "5/5", "2026-01-01 00:00:00Z", None, 5, None, "ValueError: " + "x" * 99)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_an_id_is_never_cut_and_the_reason_gets_the_rest(width: int) -> None:
    lines = drawn(width, COLUMNS, JOB)
    assert all(len(line.rstrip()) <= width for line in lines)
    [line] = [line for line in lines if UNKNOWN in line]
    assert all(word in line for word in ("mail", "welcome", "exhausted", "ValueErr"))
    assert [name for name in ("attempts", "due") if name in lines[0]] == ["attempts", "due"][: (width - 80) // 20]
    assert len(line.rstrip()) >= min(width, 190) - 1, "the whole width is used"


def test_what_does_not_fit_is_wrapped_by_the_terminal_and_not_cut() -> None:
    long = (UNKNOWN, "a-queue-with-a-long-name", "a.kind.with.a.long.name", *JOB[3:])
    [line] = [line for line in drawn(80, COLUMNS, long) if UNKNOWN in line]
    assert "a-queue-with-a-long-name" in line
    assert "a.kind.with.a.long.name" in line


def test_numbers_are_never_cut() -> None:
    columns = ("queue", ">succeeded", "?>lost", ">p95", "?>max")
    lines = drawn(30, columns, ("a-queue", 1234567, 1, "400ms", "1m 40s"))
    assert "400ms" in lines[-1]
    assert "lost" in lines[0] or "max" not in lines[0]


LISTS = (
    ["jobs"], ["queues"], ["groups"], ["audit"], ["channels", "error-log"], ["channels", "supervised"], ["failures"],
    ["stats"], ["workers"], ["workers", "wanted"], ["--version"],
)  # fmt: skip


def test_a_pipe_gets_every_column_as_csv_or_json(run: Dibs, client: dibs.Client) -> None:
    bury(client, 2)
    for args in LISTS:
        as_json = run(*args, "--json").json
        rows = list(csv.DictReader(io.StringIO(run(*args, "--csv").out)))
        told = as_json if isinstance(as_json, list) else [as_json]
        assert [set(row) for row in rows] == [set(row) for row in told], args
    [job, _] = csv.DictReader(io.StringIO(run("jobs", "--csv").out))
    assert (job["reason"], job["progress"], job["attempts"]) == ("ValueError: no card 1", "", "1")
    lines = run("jobs").out.splitlines()
    assert lines[0].split() == [name.strip(">?") for name in COLUMNS if name != "?expires"], "no job waits"
    assert lines[1].endswith("ValueError: no card 1")


def test_queues_show_what_succeeded_today(run: Dibs, client: dibs.Client) -> None:
    client.enqueue("q", "k")
    client.complete(client.claim("q")[0])
    client.upkeep.roll_up()
    assert run("queues").out.splitlines()[0].endswith("today")
    assert run("queues", "--json").json[0]["succeeded_today"] == 1


def test_groups_as_json_and_a_drain_estimate_are_shown(run: Dibs, client: dibs.Client) -> None:
    client.enqueue("q", "k", group="g")
    assert [(group["queue"], group["group"]) for group in run("groups", "--json").json] == [("q", "g")]
    assert "waiting     1" in run("queues", "drain-estimate", "q").out


def test_failures_that_are_alike_are_one_line(run: Dibs, client: dibs.Client) -> None:
    bury(client, 3)
    assert "no failures" in run("failures").err
    client.upkeep.roll_up()
    [group] = run("failures", "--json").json
    assert (group["failures"], group["error"], group["message"]) == (3, "ValueError", "no card N")
    assert run("failures").out.splitlines()[1].endswith("ValueError: no card N")
    assert f"dibs retry --failure {group['fingerprint']}" in run("failures").err
    assert "3 would be" in run("retry", "--failure", group["fingerprint"]).out


def test_jobs_are_exported_as_lines(run: Dibs, client: dibs.Client, tmp_path: Path) -> None:
    ids = bury(client, 3, headers={"trace": "=1+1"})
    odd = client.enqueue("q", "=cmd()", {"big": 2**60}, group="@sum", priority=-5).id
    lines = [json.loads(line) for line in run("export").out.splitlines()]
    assert [line["id"] for line in lines] == [str(odd), *map(str, reversed(ids))]
    assert (lines[0]["payload"], lines[0]["kind"]) == ({"big": 2**60}, "=cmd()")
    assert (lines[1]["state"], lines[1]["reason"]) == ("failed", "ValueError: no card 2")
    assert run("export", "--json").out == run("export").out
    rows = list(csv.DictReader(io.StringIO(run("export", "--csv").out)))
    # What a spreadsheet would run is text; a number stays one.
    assert (rows[0]["kind"], rows[0]["group"], rows[0]["priority"]) == ("'=cmd()", "'@sum", "-5")
    assert json.loads(rows[1]["headers"]) == {"trace": "=1+1"}
    assert run("jobs", "--csv", "-k", "=cmd()").out.splitlines()[1].split(",")[2] == "'=cmd()"
    run("export", "--csv", "--no-payloads", "-n", 2, "-o", tmp_path / "jobs.csv")
    written = (tmp_path / "jobs.csv").read_text().splitlines()
    assert len(written) == 3
    assert "payload" not in written[0]
    rest = run("export", "--before", json.loads(run("export", "-n", 2).out.splitlines()[1])["id"]).out.splitlines()
    assert [json.loads(line)["id"] for line in rest] == [str(ids[1]), str(ids[0])]
    assert run("export", "--payload", "n=1").out.count("\n") == 1
    assert json.loads(run("export", "-n", 1, "--mask", "sum, BIG").out)["payload"] == {"big": "•••"}


def test_long_commands_say_how_far_they_are(
    run: Dibs, client: dibs.Client, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0)
    bury(client, 3)
    assert re.search(r"^3 exported of 3, about 0s left$", run("export").err, re.MULTILINE)
    assert "3 brought back of 3, about 0s left" in run("retry", "-q", "q", "--yes").err
    assert "3 cancelled of 3" in run("cancel", "-q", "q", "--yes").err
    assert "3 brought back of 3" in run("retry", "-q", "q", "--state", "cancelled", "--yes").err
    assert "2 deleted of 2" in run("queues", "purge", "q", "-n", 2, "--yes").err
    assert run("delete", "-q", "q", "--yes", "--json").err == ""
    assert run("maintain", "--prune-only").out == "0 days dropped, 0 rows deleted\n"
    clock.move(40 * 86400)
    client.upkeep.roll_up()
    pruned = run("maintain", "--prune-only")
    assert re.search(r"^\d+ days dropped of \d+, about \w+ left$", pruned.err, re.MULTILINE)
    assert re.match(r"[1-9]\d* days dropped", pruned.out)
    assert run("maintain", "--prune-only", "--json").json == {"days": 0, "rows": 0, "locked": [], "crowded": []}


def test_a_bar_says_how_much_is_left() -> None:
    output = Output()
    output.err = Console(file=(told := io.StringIO()), force_terminal=True, width=100)
    with progress.counting(output, "deleted", 40) as advance:
        advance(10)
    assert "10/40" in told.getvalue()
    assert "left" in told.getvalue()


def test_a_rate_has_a_unit(run: Dibs, client: dibs.Client) -> None:
    bury(client, 3)
    run("retry", "-q", "q", "--rate", "2/m", "--yes")
    due = sorted(job.due_at for job in client.find_jobs().jobs)
    assert [round((at - due[0]).total_seconds()) for at in due] == [0, 30, 60]
    assert client.audit(limit=1)[0].detail == {"rate": 2 / 60}
    for wrong in ("0", "-1", "2/x", "2/", "many"):
        assert "is not a rate" in run("retry", "-q", "q", "--rate", wrong, code=2).err


def test_a_job_is_cloned(run: Dibs, client: dibs.Client) -> None:
    made = client.enqueue("q", "k", {"n": 1}).id
    clone = run("clone", str(made)[:30]).out.strip()
    assert run("show", clone, "--json").json["payload"] == {"n": 1}
    run("clone", UNKNOWN, code=4)


# Help and completion


def commands(of: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its path."""
    context = click.Context(of)
    for name in of.list_commands(context):
        found = of.get_command(context, name)
        assert found is not None
        yield f"{path}{name}", found
        if isinstance(found, click.Group):
            yield from commands(found, f"{path}{name} ")


def test_every_command_has_an_example_that_can_be_run(run: Dibs) -> None:
    found = dict(commands(app))
    assert set(EXAMPLES) == set(found)
    for path, example in EXAMPLES.items():
        assert example in run(*path.split(), "--help").out
        words = shlex.split(re.split(r" [|>]", example)[0])
        assert words[: 1 + len(path.split())] == ["dibs", *path.split()]
        found[path].make_context(path, words[1 + len(path.split()) :])


def test_help_is_in_groups(run: Dibs) -> None:
    told = run("--help").out
    for title in ("Start:", "Jobs:", "Queues and workers:", "Operate:"):
        assert f"\n{title}\n" in told
    assert len(set(COMMANDS)) == len(COMMANDS)
    assert run("jobs", "-h").out == run("jobs", "--help").out


def test_names_in_the_database_are_completed(run: Dibs, client: dibs.Client, dsn: str) -> None:
    made = client.enqueue("mail", "welcome").id
    client.complete(client.claim("mail")[0])
    client.upkeep.roll_up()
    client.schedules.set("nightly", dibs.NewJob(queue="mail", kind="k"), interval=60)

    def offered(*args: str, word: str) -> list[str]:
        shell = ShellComplete(app, {}, "dibs", "_DIBS_COMPLETE")
        return [item.value for item in shell.get_completions(["--dsn", dsn, *args], word)]

    assert offered("jobs", "--queue", word="ma") == ["mail"]
    assert offered("jobs", "-k", word="w") == ["welcome"]
    assert offered("why", word=str(made)[:10]) == [str(made)]
    assert offered("schedules", "show", word="n") == ["nightly"]
    assert offered("queues", "pause", word="x") == []
    assert "_DIBS_COMPLETE" in run("completion", "bash").out
    shell = ShellComplete(app, {}, "dibs", "_DIBS_COMPLETE")
    assert shell.get_completions(["--dsn", "postgresql://nobody@127.0.0.1:1/no", "queues", "pause"], "x") == []


def test_durations_are_the_same_everywhere(run: Dibs) -> None:
    """What takes a duration takes 30s; none takes bare seconds only."""
    for path, command in commands(app):
        for option in command.params:
            if isinstance(option, click.Option) and re.search(r"\bin seconds\b", option.help or ""):
                raise AssertionError(f"{path} {option.opts}: {option.help}")
    assert json.loads(run("--version", "--json").out)


# Options that would change more, or less, than they say


@pytest.mark.parametrize("option", ["--queue", "--kind", "--group", "--dedup-key", "--reason", "--failure"])
def test_an_empty_condition_is_refused(run: Dibs, client: dibs.Client, option: str) -> None:
    made = client.enqueue("q", "newsletter")
    for verb in ("cancel", "delete", "retry", "jobs", "export"):
        refused = run(
            verb, option, "", "--state", "ready", *(["--yes"] if verb in {"cancel", "delete"} else []), code=2
        )
        assert "is empty" in refused.err
    assert client.status(made.id).state == "ready"


def test_an_id_with_an_empty_queue_is_not_cancelled(run: Dibs, client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    assert "is empty" in run("cancel", made.id, "-q", "", code=2).err
    assert client.status(made.id).state == "ready"


def test_max_is_refused_where_it_does_not_count(run: Dibs, client: dibs.Client) -> None:
    one, two = client.enqueue("q", "k", dedup_key="d"), client.enqueue("q", "k")
    assert "--max is for a filter" in run("cancel", one.id, two.id, "-n", 1, code=2).err
    assert "--max is for a filter" in run("cancel", "-q", "q", "--dedup-key", "d", "-n", 1, code=2).err
    assert client.queues.depth("q").ready == 2


def test_a_name_given_twice_is_refused(run: Dibs, client: dibs.Client) -> None:
    client.enqueue("q", "k")
    assert "n is given twice" in run("jobs", "--payload", "n=1", "--payload", "n=2", code=2).err
    assert "a is given twice" in run("jobs", "--header", "a=1", "--header", "a=2", code=2).err
    assert "gpu is given twice" in run("enqueue", "q", "k", "--resource", "gpu=1", "--resource", "gpu=2", code=2).err
    assert "a is given twice" in run("enqueue", "q", "k", "--header", "a=1", "--header", "a=2", code=2).err
    assert client.queues.depth("q").ready == 1


def test_an_id_has_four_digits(run: Dibs) -> None:
    assert "is not a job's id" in run("show", "a---", code=2).err


def test_a_crowded_day_does_not_keep_prune_busy(run: Dibs, client: dibs.Client, clock: Clock) -> None:
    client.enqueue_many([dibs.NewJob(queue="q", kind="k", ttl=FOREVER) for _ in range(1001)])
    clock.move(40 * 86400)
    pruned = run("maintain", "--prune-only", "--json").json
    assert pruned["locked"] == []
    [crowded] = pruned["crowded"]
    assert crowded.startswith("job_")
    assert f"too many jobs to drop it: {crowded}" in run("maintain", "--prune-only").out
    assert client.queues.depth("q").ready == 1001


def test_a_refused_export_leaves_the_last_one(run: Dibs, client: dibs.Client, tmp_path: Path) -> None:
    client.enqueue("q", "k")
    path = tmp_path / "jobs.jsonl"
    path.write_text("the last export\n")
    run("export", "deadbeef", "-o", path, code=4)
    assert path.read_text() == "the last export\n"
    refused = run("export", "-o", tmp_path / "nowhere" / "jobs.jsonl", code=1)
    assert "nowhere/jobs.jsonl cannot be written: No such file" in refused.err


def test_csv_in_parts_has_one_heading(run: Dibs) -> None:
    written = run("enqueue", "q", "k", "--many", "--csv", stdin="1\n2\n3\n").out.splitlines()
    assert written[0] == "id,outcome"
    assert [line.partition(",")[2] for line in written[1:]] == ["enqueued"] * 3


def test_duplicates_are_counted_apart(run: Dibs) -> None:
    assert run("enqueue", "q", "k", "--many", "--dedup", stdin="1\n1\n2\n").out == "enqueued 2 jobs; 1 duplicate\n"


def test_totals_take_no_time(run: Dibs) -> None:
    for option in (["--since", "2h"], ["--every", "1m"], ["--by", "queue"]):
        assert f"{option[0]} is not for --totals" in run("stats", "--totals", *option, code=2).err


def test_the_zone_of_a_schedule_is_its_own(run: Dibs, client: dibs.Client) -> None:
    client.schedules.set("s", dibs.NewJob(queue="q", kind="k"), cron="0 9 * * *")
    assert "--zone is for --cron" in run("schedules", "preview", "s", "--zone", "Europe/Berlin", code=2).err


def test_a_port_is_a_port(run: Dibs) -> None:
    assert "65535" in run("web", "--port", 99999, code=2).err
    assert "65535" in run("demo", "--web", "--port", 99999, code=2).err


def test_the_options_of_psql_are_its_own(run: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class Server:
        def psql(self, *args: str) -> int:
            given.extend(args)
            return 0

    monkeypatch.setattr("dibs.cli.commands.embedded.ensure_running", Server)
    run("embedded", "psql", "--csv", "-c", "select 1", "--dsn")
    assert given == ["--csv", "-c", "select 1", "--dsn"]
