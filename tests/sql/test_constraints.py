"""Every constraint that somebody's input can break says in words what is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.db.calls import Call
from dibs.db.translate import EXPECTED, expected

if TYPE_CHECKING:
    import psycopg

UNBREAKABLE = {
    "code_one_row", "dead_state_known", "delivery_provider_shape", "delivery_step_known", "error_source_shape",
    "fingerprint_scope_known", "limit_rule_scope_known", "limit_rule_something", "setting_one_row", "stat_grain_known",
    "stat_mark_one_row", "task_arguments_array", "task_options_object", "worker_facts_object", "worker_name_shape",
}  # fmt: skip
"""What no input reaches: our own functions write these values, or check them first."""


def named(db: psycopg.Connection[Any]) -> set[str]:
    rows = db.execute(
        """select k.conname from pg_constraint as k left join pg_class as c on c.oid = k.conrelid
           where k.connamespace = 'dibs'::regnamespace and k.contype = 'c' and not coalesce(c.relispartition, false)"""
    )
    return {row[0] for row in rows}


def test_every_constraint_has_its_sentence_and_every_sentence_its_constraint(db: psycopg.Connection[Any]) -> None:
    constraints = named(db) - {"test_clock_one_row"}
    assert {name for name in constraints if expected(name) is None} == UNBREAKABLE
    unused = set(EXPECTED.values()) - {expected(name) for name in constraints}
    assert not unused


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("dibs.set_queue('q', '{\"noisy_share\": 1}')", "a noisy_share above 0 and below 1"),
        ("dibs.enqueue('q', 'k', cost => 0)", "a cost from 1"),
        ("dibs.enqueue('q', 'k', \"group\" => repeat('g', 201))", "a group of 1 to 200"),
        ("dibs.set_group('q', 'g', '{\"weight\": 0}')", "a weight from 1 to 1000"),
        ("dibs.set_group('q', 'g', '{\"concurrency\": 0}')", "a concurrency from 1"),
        ("dibs.set_group('q', 'g', '{\"rate\": 0}')", "a rate from 0.000001"),
        ("dibs.set_group('q', 'g', '{\"rate\": 1, \"burst\": 0}')", "a burst from 1"),
        ("dibs.set_limit(kind => 'k', concurrency => -1)", "a concurrency from 0"),
        ("dibs.set_limit(queue => 'q', rate => 1e-300)", "a rate from 0.000001"),
        ("dibs.set_limit(queue => 'q', rate => 1, burst => 0)", "a burst from 1"),
        ("dibs.set_limit(kind => repeat('k', 201), concurrency => 1)", "a limit's name of 1 to 200"),
        ("dibs.append_error('no', null, '')", "a source has 1 to 200"),
        ("dibs.register_worker('')", "a worker's name has 1 to 200"),
        ("dibs.register_worker('w', '[]')", "facts are a JSON object"),
        ("dibs.set_error_retention('1 minute')", "an error retention from 1 hour"),
        ("dibs.set_audit_retention('1 minute')", "an audit retention from 30 days"),
    ],
)
def test_what_is_broken_is_said(shared_client: dibs.Client, statement: str, told: str) -> None:
    with pytest.raises((dibs.errors.InvalidPolicy, dibs.InvalidArgument), match=told):
        shared_client._run(Call(f"select {statement}", (), len))
