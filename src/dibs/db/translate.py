"""Translates errors of drivers to errors of dibs, with hints."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import psycopg

from dibs import errors, sql

EXPECTED = {
    "queue_name_shape": "letters, digits and _ . : / -, at most 127, beginning with a letter, digit or _",
    "limit_rule_name_shape": "a limit's name of 1 to 200 printable characters",
    "supervised_process_name_shape": "a process's name of 1 to 500 printable characters",
    "priority_range": "a priority from -100 to 100",
    "lease_range": "a lease from 0.1 s to 7 days",
    "lease_growth_range": "a lease growth from 1 to 100",
    "lease_cap_range": "a lease cap from 0.1 s to 7 days",
    "lease_within_cap": "a lease that is not above the lease cap",
    "max_attempts_range": "1 to 10000 attempts",
    "max_losses_range": "1 to 10000 losses",
    "ttl_range": "a TTL above 0 and up to 10 years, or none",
    "payload_limit_range": "a payload limit from 1 to 256000000 bytes",
    "history_known": "a history of all, failures or none",
    "retention_range": "a retention from 1 day to 10 years",
    "error_retention_range": "an error retention from 1 hour to 10 years",
    "audit_retention_range": "an audit retention from 30 days to 100 years",
    "history_retention_range": "a history retention from 1 day to 10 years",
    "shards_range": "1 to 256 shards",
    "shard_lease_range": "a shard lease from 1 s to 1 hour",
    "shard_named": "a name without #, which marks a shard of a queue",
    "stat_minutes_range": "2 hours to 1 year",
    "stat_hours_range": "8 days to 10 years",
    "max_depth_range": "a max_depth from 1 to 100000000, or none",
    "max_age_range": "a max_age from 1 s to 10 years, or none",
    "when_full_known": "a when_full of refuse or sideline",
    "noisy_share_range": "a noisy_share above 0 and below 1, or none",
    "cpu_range": "a cpu from 0 to 10000 processors, or none",
    "memory_range": "a memory of 0 bytes or more, or none",
    "weight_range": "a weight from 1 to 1000",
    "group_policy_concurrency_range": "a concurrency from 1 to 1000000, or none",
    "limit_rule_concurrency_range": "a concurrency from 0 to 1000000, or none",
    "rate_range": "a rate from 0.000001 to 1000000 per second, or none",
    "burst_range": "a burst from 1 to 1000000 that the rate makes up for within 300 years, or none",
    "kind_known": "a backoff that is constant, list or exponential",
    "delays_sane": "1 to 100 delays, each from 0 to 1 year",
    "schedule_name_shape": "a schedule's name of 1 to 200 printable characters",
    "rule_known": "a rule of cron, interval, fixed_rate, fixed_delay or once",
    "rule_whole": "a rule with its value",
    "every_range": "a period from 1 s to 10 years",
    "window_range": "a start_at that is not after the end_at",
    "schedule_jitter_range": "a jitter from 0 to 7 days",
    "overlap_known": "an overlap of skip, queue, allow or cancel",
    "catch_up_range": "a catch_up of none, last or 2 to 1000",
    "grace_range": "a grace from 1 s to 1 day",
    "on_failure_known": "an on_failure of retry or next",
    "pause_after_range": "a pause_after from 1 to 10000, or none",
    "timeout_range": "a timeout from 0.01 s to 1 day",
    "factor_sane": "a backoff factor from 1 to 100",
    "cap_sane": "a backoff cap from 0 to 1 year",
    "jitter_sane": "a jitter from 0 to 1",
}
"""The values that each named constraint allows, by the end of its name; the longest end counts."""

_GONE = ("08", "57P", "53300")
_REFUSED = {
    "28000": "the server does not know this role, or does not let it in from here: see its pg_hba.conf",
    "28P01": "check the password in the DSN, in PGPASSWORD or in ~/.pgpass",
    "3D000": "create it with createdb, or name another one in the DSN",
}
"""The hints for refused logins, by SQLSTATE. Trying again does not help."""


NUL = "PostgreSQL keeps no text with a NUL character in it; leave it out, or send bytes"
_LACKING = re.compile(r'role "(dibs_\w+)" does not exist')
_UNTAKEN = re.compile(r'permission denied to set role "(dibs_\w+)"')
_DENIED = re.compile(r"permission denied for (function|view) (\w+)")


class Report(msgspec.Struct, frozen=True):
    """The fields of a server's error, from any driver."""

    sqlstate: str | None
    message: str
    hint: str | None
    detail: str | None
    constraint: str | None


class translated:  # noqa: N801 - a context manager read as a verb
    """Raises errors of dibs instead of psycopg's in the block."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, psycopg.Error):
            raise translate(error) from error


def translate(error: psycopg.Error) -> errors.DibsError:
    """Translate an error of psycopg."""
    diag = error.diag
    message = diag.message_primary or str(error).strip() or type(error).__name__
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return errors.InvalidArgument(NUL if "NUL" in message else message)
    return error_of(Report(error.sqlstate, message, diag.message_hint, diag.message_detail, diag.constraint_name))


def error_of(report: Report) -> errors.DibsError:
    """Make the error of dibs for a report."""
    state, message, hint = report.sqlstate, report.message, report.hint
    if state in _REFUSED:
        return _with_state(errors.LoginRefused(message, hint=hint or _REFUSED[state]), state)
    if state is None or state.startswith(_GONE):
        return errors.ConnectionLost(f"the database cannot be reached: {message}", hint=hint)
    if state == "23514":
        return errors.InvalidPolicy(_constraint_message(report), hint=hint)
    if state == "23505" and not re.fullmatch(r"job_\w+_pkey", report.constraint or ""):
        return _with_state(errors.ServerError(message, hint=hint), state)
    if state == "42501":
        return errors.NotPermitted(message, hint=hint or _who_may(message))
    if state == "22023" and (lacking := _LACKING.search(message)):
        return errors.SchemaMissing(
            f"this server lacks the role {lacking[1]}", hint="run dibs migrate as a role that may create roles"
        )
    if known := errors.BY_SQLSTATE.get(state):
        return known(message, hint=hint)
    if state == "3F000" and '"dibs"' in message:
        return errors.SchemaMissing(
            "dibs is not installed in this database", hint="run: dibs migrate (or: dibs sql | psql)"
        )
    if state in {"42883", "42P01"} and "dibs." in message:
        return errors.SchemaMissing(f"this database lacks a part of dibs: {message}", hint="run: dibs migrate")
    if state.startswith("22"):
        return _with_state(errors.InvalidArgument(message, hint=hint or report.detail), state)
    return _with_state(errors.ServerError(message, hint=hint), state)


def _who_may(message: str) -> str | None:
    """Name the roles of dibs that have the missing right."""
    if "schema dibs" in message:
        ours = "dibs_producer, dibs_worker, dibs_observer and dibs_admin"
        return f"grant the login one of {ours}; see: dibs grants give --help"
    if untaken := _UNTAKEN.search(message):
        return f"let an administrator run: grant {untaken[1]} to the login; or give it dibs_admin, which has them all"
    denied = _DENIED.search(message)
    if denied is None:
        return None
    roles = ["dibs_admin", "dibs_observer"] if denied[1] == "view" else sql.granted_to(denied[2])
    if not roles:
        return "only the role that dibs belongs to may do that"
    return f"that takes {' or '.join(roles)}; see: dibs grants give --help"


def _with_state(error: errors.DibsError, state: str) -> errors.DibsError:
    error.sqlstate = state
    return error


def _constraint_message(report: Report) -> str:
    wanted = expected(report.constraint or "")
    return f"{report.constraint} is broken: expected {wanted}" if wanted else report.message


def expected(constraint: str) -> str | None:
    """Return the values that a named constraint allows, in words."""
    words = constraint.split("_")
    suffixes = ("_".join(words[n:]) for n in range(len(words)))
    return next((EXPECTED[suffix] for suffix in suffixes if suffix in EXPECTED), None)
