"""The calls of the doctor."""

from __future__ import annotations

from dibs.db.calls.call import Call, columns
from dibs.info import Finding, Vital


def doctor() -> Call[list[Finding]]:
    """Return the doctor's findings, worst first."""
    return Call(
        f"select {columns(Finding)} from dibs.doctor()", (), lambda rows: [Finding(*row) for row in rows], slow=True
    )


def vitals() -> Call[list[Vital]]:
    """Return numbers about the whole database."""
    return Call(
        f"select {columns(Vital)} from dibs.vitals()", (), lambda rows: [Vital(*row) for row in rows], slow=True
    )
