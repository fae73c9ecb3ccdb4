"""The files of examples/deploy are well-formed and agree with each other, and every command in them is one of ours."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

import dibs
from dibs.cli.app import dibs as command_line
from tests.docs.pages import ROOT, blocks
from tests.examples.test_examples import environment, free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "examples" / "deploy"
DOCKERFILE = FOLDER / "Dockerfile"
COMPOSE = FOLDER / "compose.yaml"
UNIT = FOLDER / "shop-worker.service"
WORKERS = ROOT / "docs" / "run" / "workers.md"
PASSWORDS = "/run/secrets/web_passwords"
INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each on one line, in their order."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def unit() -> configparser.ConfigParser:
    read = configparser.ConfigParser(delimiters="=", interpolation=None, comment_prefixes="#")
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(UNIT)
    return read


def image_command() -> list[str]:
    found: list[str] = json.loads(dict(instructions())["CMD"])
    return found


def commands() -> dict[str, list[str]]:
    """Every command line of dibs in the files, and in the pages that show others like them."""
    found = {"Dockerfile": image_command()}
    found |= {name: s["command"] for name, s in services().items() if s.get("command", [""])[0] == "dibs"}
    _, *options = shlex.split(unit()["Service"]["ExecStart"])
    found["unit"] = ["dibs", *options]
    for block in blocks(WORKERS):
        if block.language == "yaml":
            (container,) = yaml.safe_load(block.text)["spec"]["template"]["spec"]["containers"]
            found["kubernetes"] = container["args"]
    return found


def parsed(words: list[str], passwords: Path) -> click.Context:
    """What our command line makes of the words; it refuses what it does not know."""
    given = [str(passwords) if word == PASSWORDS else word for word in words[1:]]
    root = command_line.make_context("dibs", given)
    name, command, rest = command_line.resolve_command(root, [*root._protected_args, *root.args])
    assert command is not None
    return command.make_context(name, rest, parent=root)


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    file = tmp_path / "passwords"
    file.write_text("ana:correct horse\n")
    file.chmod(0o600)
    return file


@pytest.mark.once
@pytest.mark.parametrize("where", commands())
def test_every_command_is_one_of_ours(where: str, passwords: Path) -> None:
    assert commands()[where][0] == "dibs"
    context = parsed(commands()[where], passwords)
    if context.info_name == "worker":
        assert context.params["grace"] == 30
        assert context.params["health"] == 8080


@pytest.mark.once
def test_a_command_that_is_not_ours_is_seen(passwords: Path) -> None:
    for wrong in (["dibs", "worker", "shop:app", "--helth", "8080"], ["dibs", "wurker", "shop:app"]):
        with pytest.raises(click.UsageError):
            parsed(wrong, passwords)


# --- the image -------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_the_image_is_well_formed() -> None:
    found = instructions()
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[0][0] == "FROM"
    last = found[max(n for n, (name, _) in enumerate(found) if name == "FROM") :]
    names = [name for name, _ in last]
    assert {"USER", "STOPSIGNAL", "HEALTHCHECK", "CMD"} <= set(names)
    assert dict(last)["USER"] not in {"root", "0"}
    assert f" {dict(last)['USER']}" in next(rest for name, rest in last if name == "RUN" and "useradd" in rest)
    assert names.index("USER") > max(n for n, name in enumerate(names) if name in {"RUN", "COPY"})


@pytest.mark.once
def test_the_image_copies_what_is_there() -> None:
    sent = {line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from=build ")
        for word in rest.split()[:-1]
    }
    assert all((ROOT / path).exists() for path in copied)
    assert copied == sent
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {needed["readme"], *needed["license-files"], "pyproject.toml", "src"} <= copied


@pytest.mark.once
def test_the_image_asks_for_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = set(re.search(r'\.whl\)\[([\w,]+)\]"', DOCKERFILE.read_text())[1].split(","))  # type: ignore[index]
    assert {"cli", "web", "binary"} <= asked <= set(extras)
    assert f"dibs[{','.join(sorted(asked))}]" in DOCKERFILE.read_text()


@pytest.mark.once
def test_the_probe_of_the_image_asks_where_the_worker_answers(passwords: Path) -> None:
    rest = dict(instructions())
    worker = parsed(image_command(), passwords).params
    check = json.loads(rest["HEALTHCHECK"].partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    compile(check[2], "HEALTHCHECK", "exec")
    assert f"http://127.0.0.1:{worker['health']}/ready" in check[2]
    assert rest["EXPOSE"].split() == [str(worker["health"]), services()["web"]["ports"][0].rpartition(":")[2]]
    assert worker["host"] == "0.0.0.0"  # outside of the container somebody may ask, too


# --- the compose file ------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_the_services_start_in_order() -> None:
    after = {name: s.get("depends_on", {}) for name, s in services().items()}
    assert after["migrate"] == {"db": {"condition": "service_healthy"}}
    assert after["declare"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert after["worker"] == {"declare": {"condition": "service_completed_successfully"}}
    assert after["web"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert services()["migrate"]["command"] == ["dibs", "migrate"]
    assert services()["migrate"]["restart"] == services()["declare"]["restart"] == "no"


@pytest.mark.once
def test_the_services_fit_each_other(passwords: Path) -> None:
    found, web = services(), parsed(services()["web"]["command"], passwords).params
    assert (COMPOSE.parent / found["web"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / found["web"]["build"]["dockerfile"]).resolve() == DOCKERFILE
    database = found["db"]["environment"]
    dsn = f"postgresql://{database['POSTGRES_USER']}@db:5432/{database['POSTGRES_DB']}"
    ours = {name for name, s in found.items() if s["image"] == "shop"}
    assert ours == {"migrate", "declare", "worker", "web"}
    assert {found[name]["environment"]["DIBS_DSN"] for name in ours} == {dsn}
    assert found["web"]["ports"] == [f"127.0.0.1:{web['port']}:{web['port']}"]
    assert f"('127.0.0.1', {web['port']})" in found["web"]["healthcheck"]["test"][-1]
    compile(found["web"]["healthcheck"]["test"][-1], "healthcheck", "exec")
    assert f"/run/secrets/{found['web']['secrets'][0]}" == PASSWORDS
    assert "command" not in found["worker"]  # it is that of the image
    grace = parsed(image_command(), passwords).params["grace"]
    assert int(found["worker"]["stop_grace_period"].removesuffix("s")) >= grace + 10


@pytest.mark.once
def test_the_volume_is_where_the_image_keeps_its_data() -> None:
    """From 18 on the folder of the data is below the one to mount, by version."""
    database = services()["db"]
    assert database["image"] == "postgres:18"
    assert database["volumes"] == ["db:/var/lib/postgresql"]
    assert "db" in yaml.safe_load(COMPOSE.read_text())["volumes"]


# --- the unit --------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_the_unit_is_one(tmp_path: Path) -> None:
    found, service = unit(), unit()["Service"]
    assert found.sections() == ["Unit", "Service", "Install"]
    assert service["KillMode"] == "mixed"
    options = shlex.split(service["ExecStart"])
    assert int(service["TimeoutStopSec"]) >= float(options[options.index("--grace") + 1]) + 10
    assert options[0].startswith(f"{service['WorkingDirectory']}/")
    if shutil.which("systemd-analyze"):
        there = tmp_path / UNIT.name
        there.write_text(UNIT.read_text().replace(options[0], sys.executable))
        done = subprocess.run(["systemd-analyze", "verify", there], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


# --- all together ----------------------------------------------------------------------------------------------------


def in_folder(words: list[str], dsn: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=FOLDER, env=environment(dsn), stdout=pipe, stderr=pipe, text=True)


def test_a_deploy_from_an_empty_database_to_a_job_that_ended(empty_dsn: str) -> None:
    for words in (services()["migrate"]["command"], services()["declare"]["command"]):
        with in_folder(words, empty_dsn) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    with dibs.Client(empty_dsn) as client:
        job = client.enqueue("shop", "shop.confirm", {"sale": 1})
        port = str(free_port())
        words = [port if word == "8080" else word for word in image_command()]
        with in_folder([*words, "--drain"], empty_dsn) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert client.status(job.id).result == "sale 1 is confirmed"
        assert [limit.concurrency for limit in client.limits.list()] == [4]


def test_the_dashboard_asks_who_it_is(dsn: str, passwords: Path) -> None:
    port = str(free_port())
    given = {PASSWORDS: str(passwords), "8321": port, "0.0.0.0": "127.0.0.1"}
    words = [given.get(word, word) for word in services()["web"]["command"]]

    def status() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    with in_folder(words, dsn) as process:
        try:
            wait_until(lambda: status() != 0 or process.poll() is not None, timeout=60, what="the dashboard answers")
            assert status() == 401
        finally:
            process.terminate()
            process.communicate(timeout=30)
