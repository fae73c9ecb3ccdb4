"""Passwords, tokens and headers: who they let in, the files they are in, and how often one may guess."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

import dibs
from dibs.web import app
from dibs.web.access import Proxies, by_header, by_password, by_token, first_of, from_this_machine, resolved
from dibs.web.guesses import MOST, GuessLimit, TooManyGuesses, client_address, limit_guesses
from dibs.web.secrets import SecretFile

if TYPE_CHECKING:
    from pathlib import Path

    from dibs.web import Authorize

pytestmark = pytest.mark.once


class Time:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(*headers: tuple[str, str], peer: str = "10.0.0.1") -> Request:
    sent = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "headers": sent, "client": (peer, 1), "method": "GET", "path": "/"})


def basic(text: str) -> tuple[str, str]:
    return "Authorization", "Basic " + base64.b64encode(text.encode()).decode()


def bearer(text: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {text}"


def kept(folder: Path, text: str, *, named: bool = True, mode: int = 0o600) -> SecretFile:
    file = folder / ("secrets" if named else "tokens")
    file.write_text(text)
    file.chmod(mode)
    return SecretFile(file, named=named)


def ways(folder: Path) -> Authorize:
    passwords = kept(folder, "# who may look\nana:pass:word\nonly-a-password\n:a:b\nbob:x\nbob:#y\n")
    return first_of([
        by_password(passwords, write=False),
        by_token(kept(folder, "t0ken\nwith:colon\n", named=False), write=True),
        by_header("X-User", Proxies(["10.0.0.1"]), write=False),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "who"),
    [
        ([basic("ana:pass:word")], "ana"),  # the name ends at the first colon
        ([basic("ana:word")], None),
        ([basic("ana:pass")], None),
        ([basic("bob:pass:word")], None),  # that is hers
        ([basic("carol:only-a-password")], "carol"),
        ([basic("carol:a:b")], "carol"),
        ([basic(":a:b")], "password"),
        ([basic("bob:x")], "bob"),
        ([basic("bob:#y")], "bob"),
        ([basic("bob:")], None),
        ([basic("")], None),
        ([("Authorization", "Basic ???")], None),
        ([("Authorization", "Basic")], None),
        ([("Authorization", "Basic " + base64.b64encode(b"\xff:\xff").decode())], None),
        ([bearer("t0ken")], "token"),
        ([bearer("with:colon")], "token"),
        ([bearer("t0ke")], None),
        ([bearer("")], None),
        ([bearer("only-a-password")], None),
        ([("X-User", "carol")], "carol"),
        ([("X-User", " ")], None),
        ([("X-User", "admin"), ("X-User", "carol")], None),  # the proxy added its own to what somebody sent
        ([], None),
    ],
)
async def test_passwords_tokens_and_headers(headers: list[tuple[str, str]], who: str | None, tmp_path: Path) -> None:
    access = await resolved(ways(tmp_path)(request(*headers)))
    assert (access and access.who) == who


def test_a_header_counts_only_from_a_proxy_of_ours() -> None:
    for proxies, passes in (
        (["10.9.9.9"], False),
        (["10.9.9.9", "10.0.0.0/24"], True),
        (["10.0.0.1"], True),
        ([], False),
    ):
        for peer in ("10.0.0.1", "::ffff:10.0.0.1"):
            access = by_header("X-User", Proxies(proxies), write=True)(request(("X-User", "carol"), peer=peer))
            assert (access is not None) is passes
    for wrong in ("proxy.example", "10.0.0.1/24", ""):
        with pytest.raises(dibs.InvalidArgument, match="by its address"):
            Proxies([wrong])
    assert from_this_machine(write=True)(request(("Host", "localhost"))) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no secret in it"),
        ("\n#\n", "has no secret in it"),
        ("ana:x\nbob:\n", "line 2 of"),
        ("\n\nana:hush \n", "line 3 of"),
        ("ana :hush\n", "line 1 of"),
        ("ana:hu\tsh\n", "line 1 of"),
        ("ana:$2y$05$abcdefghijklmnopqrstuu\n", "the hash of a secret"),
    ],
)
def test_a_file_that_is_wrong_lets_nobody_start_and_no_secret_is_shown(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(dibs.InvalidArgument, match=told) as refused:
        kept(tmp_path, text)
    assert "hush" not in str(refused.value)
    assert "$2y$" not in str(refused.value)


def test_a_file_of_secrets_is_for_its_owner(tmp_path: Path) -> None:
    assert not kept(tmp_path, "x").is_open
    assert kept(tmp_path, "x", mode=0o644).is_open
    with pytest.raises(dibs.InvalidArgument, match="let themselves in"):
        kept(tmp_path, "x", mode=0o602)
    (tmp_path / "secrets").write_bytes(b"\xff\xfe")
    (tmp_path / "secrets").chmod(0o600)
    with pytest.raises(dibs.InvalidArgument, match="not text"):
        SecretFile(tmp_path / "secrets", named=True)
    with pytest.raises(dibs.InvalidArgument, match="cannot be read"):
        SecretFile(tmp_path / "none", named=True)


def test_a_file_that_changes_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = kept(tmp_path, "ana:old\n")
    (tmp_path / "secrets").write_text("ana:newer\n")
    assert known.find("ana", "newer")
    assert not known.find("ana", "old")
    (tmp_path / "secrets").write_text("ana:\n")
    assert known.find("ana", "newer"), "what was known stays in force"
    (tmp_path / "secrets").unlink()
    assert known.find("ana", "newer")
    assert "the old secrets stay in force" in caplog.text
    assert "newer" not in caplog.text


async def test_one_address_may_guess_ten_times_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Time()
    known = limit_guesses(by_password(kept(tmp_path, "ana:right"), write=False), Proxies([]), GuessLimit(clock=clock))

    async def guess(password: str, peer: str = "10.0.0.1") -> bool:
        return await resolved(known(request(basic(f"ana:{password}"), peer=peer))) is not None

    assert [await guess(str(n)) for n in range(10)] == [False] * 10
    assert "from 10.0.0.1" in caplog.text
    for password in ("11", "right"):  # what is right is not told, either
        with pytest.raises(TooManyGuesses) as slowed:
            await guess(password)
        assert 0 < slowed.value.wait <= 6
    assert await guess("right", peer="10.0.0.2")
    assert await resolved(known(request(peer="10.0.0.1"))) is None, "who does not guess is only asked who they are"
    clock.now += 6
    assert await guess("right")
    assert [await guess("right") for _ in range(50)] == [True] * 50, "what is right does not count"


async def test_all_together_may_guess_a_hundred_times_and_who_was_right_gets_in(tmp_path: Path) -> None:
    clock = Time()
    known = limit_guesses(
        by_token(kept(tmp_path, "right", named=False), write=False), Proxies([]), GuessLimit(clock=clock)
    )

    async def guess(token: str, peer: str) -> bool:
        return await resolved(known(request(bearer(token), peer=peer))) is not None

    assert await guess("right", "10.0.0.1")
    assert not any([await guess("wrong", f"10.1.{n}.1") for n in range(100)])
    for peer in ("10.2.0.1", "::1"):
        with pytest.raises(TooManyGuesses):
            await guess("right", peer)
    assert await guess("right", "10.0.0.1")
    clock.now += 60
    assert await guess("right", "10.2.0.1")


def test_what_is_remembered_of_guesses_is_bounded() -> None:
    clock = Time()
    guesses = GuessLimit(each=2, together=10**9, clock=clock)
    for n in range(MOST + 500):
        guesses.count_guess(f"network {n}")
        guesses.take_back(f"friend {n}")
    assert len(guesses._each._empty_at) <= MOST
    assert len(guesses._right) <= MOST
    clock.now += 100
    guesses.count_guess("one more")
    assert len(guesses._each._empty_at) == 1, "what is past is forgotten"


@pytest.mark.parametrize(
    ("peer", "passed_on", "place"),
    [
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7", "10.0.0.1"),  # no proxy of ours: anyone can say that
        ("10.9.9.9", "192.0.2.7", "192.0.2.7"),
        ("10.9.9.9", "1.1.1.1, 192.0.2.7", "192.0.2.7"),  # only the last is our proxy's word
        ("10.9.9.9", "192.0.2.7, 10.9.9.8", "192.0.2.7"),
        ("10.9.9.9", None, "somewhere"),
        ("10.9.9.9", "evil\x01", "somewhere"),
        ("2001:db8::1:2:3:4", None, "2001:db8::/64"),
        ("::ffff:192.0.2.7", None, "192.0.2.7"),
    ],
)
def test_where_a_guess_is_from(peer: str, passed_on: str | None, place: str) -> None:
    headers = [("X-Forwarded-For", passed_on)] if passed_on else []
    assert client_address(request(*headers, peer=peer), Proxies(["10.9.9.9", "10.9.9.8"])) == place


def test_who_guesses_too_often_is_told_how_long_to_wait(tmp_path: Path) -> None:
    guesses = GuessLimit(each=1, clock=Time())
    served = app(
        "postgresql://127.0.0.1:1/x",
        authorize=limit_guesses(by_password(kept(tmp_path, "x"), write=True), Proxies([]), guesses),
    )
    with TestClient(served, client=("10.0.0.1", 1)) as asking:
        first = asking.get("/", auth=("a", "b"))
        assert (first.status_code, first.headers["www-authenticate"]) == (401, 'Basic realm="dibs", charset="UTF-8"')
        second = asking.get("/", auth=("a", "x"))
        assert (second.status_code, second.headers["retry-after"]) == (429, "60")
        assert "content-security-policy" in second.headers
        assert asking.get("/").status_code == 401
