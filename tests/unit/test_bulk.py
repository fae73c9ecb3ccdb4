"""Many jobs on their way in: encoded once, sent as often as needed, and never all in memory."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import dibs
from dibs.arguments import Arguments
from dibs.client import bulk
from dibs.client.bulk import Bulk
from dibs.db.calls.encoder import Encoder, encode, statement_for
from dibs.ids import IdMaker
from dibs.lazy import LazyList

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.once

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=5,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(-100, 100),
        "delay": st.floats(0, 100),
        "headers": st.dictionaries(st.text("ab", min_size=1), st.text("xy"), max_size=2),
        "max_attempts": st.integers(1, 10),
        "backoff": st.just(dibs.constant(3)),
        "dedup_key": st.text("kl", min_size=1),
    },
)


@given(payload=JSON, options=OPTIONS)
def test_a_call_is_sent_as_the_job_that_it_is(payload: Any, options: dict[str, Any]) -> None:
    """The options of a task's calls are encoded once."""
    call = Encoder(queue="q", kind="k", **options).job(payload)
    whole = dibs.NewJob(queue="q", kind="k", payload=payload, **options)
    assert json.loads(encode(call) + "}") == json.loads(encode(whole) + "}")
    assert call == Encoder(queue="q", kind="k", **options).job(payload)


def test_a_call_whose_options_a_middleware_changed_is_sent_with_them() -> None:
    call = replace(Encoder(queue="q", kind="k", headers={"tenant": "a"}).job(1), headers={"tenant": "b"})
    assert json.loads(encode(call) + "}")["headers"] == {"tenant": "b"}
    statement = statement_for(call)
    assert statement is not None
    assert '{"tenant":"b"}' in statement.options


@given(
    args=st.lists(st.integers(), max_size=4),
    kwargs=st.dictionaries(st.sampled_from("abcde"), st.integers(), max_size=3),
)
def test_arguments_are_bound_as_python_binds_them(args: list[int], kwargs: dict[str, int]) -> None:
    def task(a: int, b: int, c: int = 3, *, d: int = 4) -> None: ...

    try:
        bound = dict(inspect.signature(task).bind(*args, **kwargs).arguments)
    except TypeError as error:
        with pytest.raises(dibs.InvalidArgument, match=str(error).replace("(", r"\(").replace(")", r"\)")):
            Arguments("task", task).pack(tuple(args), kwargs)
    else:
        packed = Arguments("task", task).pack(tuple(args), kwargs)
        assert list(packed.items()) == list(bound.items())


def jobs(count: int, **options: Any) -> Iterator[dibs.NewJob]:
    return (dibs.NewJob(queue="q", payload=b"x" if n == 1 else n, **options) for n in range(count))


@pytest.mark.parametrize("in_memory", [0, 1_000_000])
def test_what_was_sent_in_part_is_sent_again_whole(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 10)
    monkeypatch.setattr(bulk, "IN_MEMORY", in_memory)
    many = Bulk(jobs(25), IdMaker())
    first = next(many.calls(is_repeat=False))
    again = list(many.calls(is_repeat=True))
    assert [len(json.loads(call.args[0])) for call in again] == [10, 10, 5]
    assert (again[0].args[:2], first.args[2], again[0].args[2]) == (first.args[:2], True, False)
    assert again[0].args[1] == [None, b"x"] + [None] * 8
    assert again[1].args[1] is None
    ids = [job["id"] for call in again for job in json.loads(call.args[0])]
    assert [made.id.hex for made in many.answers([[], [], []])] == ids == sorted(set(ids))
    many.close()


def test_jobs_with_keys_are_repeated_in_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 10)
    many = Bulk(jobs(25, dedup_key="x"), IdMaker())
    assert len(list(many.calls(is_repeat=False))) == 3
    [call] = many.calls(is_repeat=True)
    own = IdMaker().make(1)[0]
    made = many.answers([[(1, many._id(0), "duplicate"), (12, own, "duplicate"), (25, many._id(24), "replaced")]])
    assert len(json.loads(call.args[0])) == len(call.args[1]) == 25
    assert {n: m.outcome for n, m in enumerate(made) if m.outcome != "enqueued"} == {11: "duplicate", 24: "replaced"}
    assert made[11].id == own
    many.close()


def test_a_lazy_list_is_like_a_list() -> None:
    squares = LazyList(4, lambda n: n * n)
    assert squares == [0, 1, 4, 9]
    assert (squares[-1], squares[1:3], len(squares), list(reversed(squares))) == (9, [1, 4], 4, [9, 4, 1, 0])
    assert (repr(squares), repr(LazyList(9, int))) == ("[0, 1, 4, 9]", "[0, 1, 2, 3, 4, …]")
    assert squares != LazyList(3, int)
    with pytest.raises(IndexError):
        squares[4]


def test_a_repeat_knows_its_own_jobs_beside_one_whose_id_was_given() -> None:
    given_id = IdMaker().make(1)[0]
    many = Bulk(iter([dibs.NewJob(queue="q"), dibs.NewJob(queue="q", id=given_id)]), IdMaker())
    list(many.calls(is_repeat=False))
    answers = many.answers([[(1, many._id(0), "duplicate"), (2, given_id, "duplicate")]])
    assert [made.outcome for made in answers] == ["enqueued", "duplicate"]
    many.close()
