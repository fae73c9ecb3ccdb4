"""The type of a call, and the helpers of all rooms that write arguments and read answers."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from dibs.db.translate import NUL
from dibs.errors import InvalidArgument
from dibs.job import Answered, Claimed, Held
from dibs.places import children, place_of
from dibs.policy import Backoff, Seconds, seconds
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

R = TypeVar("R")
Row = tuple[Any, ...]

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL in JSON, but not an escaped backslash before the text u0000."""

SPAN = "make_interval(secs => %s)"
"""A duration in a statement; its argument is :func:`in_seconds`."""


class Call(msgspec.Struct, Generic[R], frozen=True):
    """A statement, its arguments, and the function that reads its rows."""

    sql: str
    args: tuple[Any, ...]
    read: Callable[[list[Row]], R]
    repeatable: bool = True
    """True if it may be sent again when its answer was lost: the second time changes nothing more, or does no harm."""
    repeat: Callable[[], Call[R]] | None = None
    """Makes the call to send when the answer was lost, unless it is this one again."""
    slow: bool = False
    """True if it may take long though all is well, as upkeep and reports do: the server may be silent for longer."""
    cure: Callable[[], Call[Any]] | None = None
    """Makes a call to run when data cannot be read. If that returns anything, this one is tried again."""
    binary: bool = False
    """True to get the answer in binary, where the driver can choose: quicker for many bytes and numbers."""


def first(rows: list[Row]) -> Any:
    """Read the only value of the only row."""
    return rows[0][0]


def nothing(rows: list[Row]) -> None:  # noqa: ARG001
    """Read no answer."""
    return


def one_answer(rows: list[Row]) -> Answer:
    """Read the answer of the only row."""
    return Answer(rows[0][0])


def all_answers(rows: list[Row]) -> list[Answered]:
    """Read an answer for each item of a batch."""
    return [Answered(id, Answer(answer)) for id, answer in rows]


RENAMED: Mapping[str, str] = {"queue": "in_queue", "kind": "of_kind"}
"""The columns of functions whose arguments are called queue and kind."""


def columns(cls: type[msgspec.Struct], renamed: Mapping[str, str] = {}) -> str:
    """List the columns whose rows become values of this class. With ``*`` a later schema could add one."""
    return ", ".join(renamed.get(name, name) for name in cls.__struct_fields__)


def to_json(value: Any) -> str:
    """Write a value as JSON. Refuse NaN and infinity."""
    try:
        text = msgspec.json.encode(value, enc_hook=_encode)
    except RecursionError:
        raise InvalidArgument("what is nested too deeply cannot be sent as JSON") from None
    except UnicodeEncodeError as error:
        message = f"text with a lone surrogate cannot be sent as JSON: {error}"
        raise InvalidArgument(message + _place(value, _cannot_be_sent)) from None
    except TypeError as error:
        raise InvalidArgument(
            f"{error}{_place(value, _cannot_be_sent)}",
            hint="JSON holds numbers, text, lists and dicts with names for keys; send bytes as the whole payload",
        ) from None
    if b"null" in text and _has_nan(value):
        message = "JSON has no NaN and no infinity; send null, a string, or bytes"
        raise InvalidArgument(message + _place(value, _has_nan))
    if b"\\u0000" in text and _NUL.search(text):
        raise InvalidArgument(NUL)
    return text.decode()


def _place(value: Any, is_unfit: Callable[[Any], bool]) -> str:
    return f" - at `{place_of(value, is_unfit)[0]}`"


def _cannot_be_sent(value: Any) -> bool:
    try:
        msgspec.json.encode(value, enc_hook=_encode)
    except (TypeError, UnicodeEncodeError, RecursionError):
        return True
    return False


def _has_nan(value: Any) -> bool:
    """Return True if there is NaN or infinity in a value: msgspec silently writes them as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(_has_nan(child) for _, child in children(value))


def _encode(value: Any) -> Any:
    if isinstance(value, Backoff):
        return value.as_json()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def to_jsonb(value: Any) -> str | None:
    """Write a value as JSON for a jsonb argument; None is SQL's null."""
    return None if value is None else to_json(value)


def uuids(ids: Iterable[UUID]) -> str:
    """Write ids as the text of an array."""
    # An int is formatted faster than a UUID. Ids may be given as text, too.
    return "{" + ",".join([f"{id.int:032x}" if isinstance(id, UUID) else str(id) for id in ids]) + "}"


def ids_and_tokens(held: Sequence[Held]) -> tuple[str, str]:
    """Write the ids and the tokens of held jobs as the texts of two arrays."""
    ids = [h._key.hex() if isinstance(h, Claimed) else str(h.id) for h in held]
    tokens = [h._token.hex() if isinstance(h, Claimed) else str(h.token) for h in held]
    return "{" + ",".join(ids) + "}", "{" + ",".join(tokens) + "}"


def clean(text: str) -> str:
    """Replace the characters that PostgreSQL refuses: the report of an error has to be sent, whatever its text."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def as_interval(duration: Seconds | None) -> str | None:
    """Write a duration as the text of an interval, for arrays."""
    return None if duration is None else f"{seconds(duration):.6f} seconds"  # PostgreSQL reads no 5e-05.


def in_seconds(duration: Seconds | None) -> float | None:
    """Write a duration as the argument of ``SPAN``."""
    return None if duration is None else seconds(duration)
