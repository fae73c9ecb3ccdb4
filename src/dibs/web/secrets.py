"""Files of secrets: checked for their permissions, and read again when they change."""

from __future__ import annotations

import hashlib
import hmac
import logging
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

HASHES = ("$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$apr1$", "$argon2", "{SHA}", "{SSHA}")
"""The prefixes of password hashes that other programs write."""

log = logging.getLogger("dibs.web")


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret and the user it belongs to; without a name, any user. Only its digest is kept."""

    name: str
    digest: bytes

    def is_same(self, text: str) -> bool:
        """True if this is the secret. A wrong one takes equally long."""
        return hmac.compare_digest(_digest(text), self.digest)


class SecretFile:
    """The secrets of a file: one on each line, with ``named`` as ``NAME:SECRET``. Empty lines and # are skipped.

    When the file changes it is read again. If that fails, the secrets read before stay in force.
    """

    def __init__(self, file: Path, *, named: bool) -> None:
        self._file = file
        self._named = named
        self._seen = self._stamp()
        self._secrets = self._read()

    def find(self, name: str, text: str) -> Secret | None:
        """Return the secret that was given, or None. All are compared, so that the time reveals nothing."""
        found = None
        for secret in self._current():
            if secret.is_same(text) and secret.name in {"", name}:
                found = secret
        return found

    @property
    def is_open(self) -> bool:
        """True if others than its owner may read the file."""
        return bool(self._seen[0] & (stat.S_IRGRP | stat.S_IROTH))

    def _current(self) -> list[Secret]:
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp  # Before the read, so that a bad file is reported once. The read checks its mode.
                self._secrets = self._read()
        except InvalidArgument as error:
            log.warning("the old secrets stay in force: %s", error.message)
        return self._secrets

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = self._file.stat()
        except OSError as error:
            raise InvalidArgument(f"{self._file} cannot be read: {error.strerror}") from None
        return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> list[Secret]:
        if self._seen[0] & stat.S_IWOTH:
            raise InvalidArgument(
                f"anyone on this machine may write {self._file}, and so let themselves in", hint="run: chmod o-w on it"
            )
        try:
            lines = self._file.read_text("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InvalidArgument(f"{self._file} is not text in UTF-8") from None
        except OSError as error:
            raise InvalidArgument(f"{self._file} cannot be read: {error.strerror}") from None
        found = [self._line(n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
        if not found:
            raise InvalidArgument(f"{self._file} has no secret in it", hint="write one on each line")
        return found

    def _line(self, number: int, line: str) -> Secret:
        name, colon, text = line.partition(":") if self._named else ("", "", line)
        if not colon:
            name, text = "", line
        where = f"line {number} of {self._file}"
        if not text:
            raise InvalidArgument(f"{where} has no secret", hint="write NAME:SECRET, or a secret alone")
        if text != text.strip() or name != name.strip() or not line.isprintable():
            raise InvalidArgument(f"{where} has a space at an end, or a character that cannot be seen")
        if text.startswith(HASHES):
            raise InvalidArgument(
                f"{where} has the hash of a secret", hint="write the secret itself; only you should be able to read it"
            )
        return Secret(name, _digest(text))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
