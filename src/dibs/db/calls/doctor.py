"""The doctor: what is wrong now."""

from __future__ import annotations

from dibs.db.calls.call import Call, columns
from dibs.info import Finding, Vital


def doctor() -> Call[list[Finding]]:
    """What is wrong, worst first."""
    return Call(
        f"select {columns(Finding)} from dibs.doctor()", (), lambda rows: [Finding(*row) for row in rows], slow=True
    )


def vitals() -> Call[list[Vital]]:
    """Numbers of the whole database."""
    return Call(
        f"select {columns(Vital)} from dibs.vitals()", (), lambda rows: [Vital(*row) for row in rows], slow=True
    )
