"""Explains why the server did not start, with a hint."""

from __future__ import annotations

import re

from dibs.errors import EmbeddedError

TAIL = 15
ORPHANS = "shared memory block .* still in use"

HINTS = (
    (ORPHANS, "processes of a killed server are still at work; end them, or try again"),
    ("No space left on device|Disk quota", "the disk is full"),
    (
        "could not (create|map|resize|attach) .*shared memory|could not create semaphores",
        "not enough shared memory or semaphores: lower shared_buffers or max_connections",
    ),
    (
        "lock file .* already exists|Address already in use|another server",
        "another server uses the same folder or socket; stop it first",
    ),
    ("unrecognized configuration|invalid value for|contains? errors", "a setting is wrong"),
    (
        "not compatible with this version|database files are incompatible",
        "the data folder was made by another version; choose another, or that version's programs",
    ),
    ("cannot be run as root|must not be.* root", "PostgreSQL refuses root: run as another user"),
    (
        "could not look up effective user ID|could not look up local user ID",
        "this user has no name: add it to the system's users",
    ),
    (
        "Permission denied|wrong ownership|invalid permissions",
        "the data folder must belong to, and be reachable for, the user the server runs as",
    ),
)


def failure(what: str, output: str) -> EmbeddedError:
    """Return an error with the last lines of the output, and a hint if the cause is a known one."""
    lines = "\n  ".join(output.strip().splitlines()[-TAIL:])
    hint = next((hint for words, hint in HINTS if re.search(words, output)), None)
    return EmbeddedError(f"{what}; its last words:\n  {lines or '(none)'}", hint=hint)
