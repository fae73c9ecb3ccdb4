# Written by tools/unasync.py from messages_async.py: change that and run `make sync`.
"""A queue with the verbs of SQS: send, receive, ack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from dibs.job import NewJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from dibs.client.client import Client
    from dibs.info import Depth
    from dibs.job import Claimed, Enqueued, Failed, JobOptions
    from dibs.policy import Seconds
    from dibs.states import Answer

KIND = "message"
"""The kind of a job that is just a message."""


class Message(msgspec.Struct, frozen=True):
    """A received message. It is yours until its visibility timeout, which is its lease."""

    client: Client
    job: Claimed

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def token(self) -> UUID:
        """The token that proves that the message is yours; with the id, SQS's receipt handle."""
        return self.job.token

    @property
    def body(self) -> Any:
        """The message: bytes if bytes were sent, otherwise JSON."""
        return self.job.content

    @property
    def headers(self) -> dict[str, Any]:
        """The headers sent along."""
        return self.job.headers or {}

    @property
    def receive_count(self) -> int:
        """The number of receives, with this one."""
        return self.job.run

    def ack(self, result: Any = None) -> Answer:
        """End the message, so that it is never delivered again. Raises LeaseLost if it is no longer yours."""
        return self.client.complete(self.job, result)

    def extend(self, visibility: Seconds | None = None) -> Answer:
        """Renew its visibility timeout from now."""
        return self.client.extend(self.job, visibility)

    def release(self, delay: Seconds | None = None) -> Answer:
        """Let others receive it, now or after a delay, without counting this receive as an attempt."""
        return self.client.release(self.job, delay)

    def fail(self, error: str | None = None, *, final: bool = False) -> Failed:
        """Report a failure: deliver it again by the queue's policy, or never if ``final``."""
        return self.client.fail(self.job, error, final=final)


class MessageQueue(msgspec.Struct, frozen=True):
    """One queue of a client."""

    client: Client
    name: str

    def send(self, body: Any, *, kind: str = KIND, **options: Unpack[JobOptions]) -> Enqueued:
        """Send one message: bytes, or anything JSON can hold."""
        return self.client.enqueue(self.name, kind, body, **options)

    def send_many(self, bodies: Iterable[Any], **options: Unpack[JobOptions]) -> Sequence[Enqueued]:
        """Send many messages, all or none."""
        return self.client.enqueue_many(NewJob(queue=self.name, kind=KIND, payload=body, **options) for body in bodies)

    def receive(self, max: int = 1, *, visibility: Seconds | None = None, wait: float = 0.0) -> list[Message]:
        """Receive up to ``max`` messages, hidden for ``visibility``; wait up to ``wait`` seconds for one."""
        claimed = self.client.claim(self.name, max, lease=visibility, wait=wait)
        return [Message(self.client, job) for job in claimed]

    def depth(self) -> Depth:
        """Count the messages in each state, and the age of the oldest; zeros for an empty queue."""
        return self.client.queues.depth(self.name)
