"""The screens above the page: one job, and a question before a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from rich.text import Text
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Static

from dibs.cli.text import clean
from dibs.errors import DibsError, NotPermitted

if TYPE_CHECKING:
    from uuid import UUID

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.worker import Worker

    from dibs.client.client_async import AsyncClient


class JobScreen(Screen[None]):
    """Everything known of one job, read again while it is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "app.pop_screen", "Back"),
        ("r", "app.retry", "Retry"),
        ("c", "app.cancel", "Cancel"),
    ]

    def __init__(self, client: AsyncClient, id: UUID, every: float) -> None:
        super().__init__()
        self.job_id = id
        self._client = client
        self._every = every
        self._reading: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        with VerticalScroll():
            yield Static(id="job")
        yield Footer()

    def on_mount(self) -> None:
        """Start reading."""
        self.refresh_data()
        self.set_interval(self._every, self._refresh_if_idle)

    def refresh_data(self) -> None:
        """Read the job."""
        self._reading = self.run_worker(self._refresh_data(), exclusive=True)

    def _refresh_if_idle(self) -> None:
        """Read the job, unless a read is under way: it may take longer than the time between two."""
        if self._reading is None or self._reading.is_finished:
            self.refresh_data()

    async def _refresh_data(self) -> None:
        try:
            text = await describe(self._client, self.job_id)
        except DibsError as error:
            text = Text(clean(str(error)), "red")
        self.query_one("#job", Static).update(text)


async def describe(client: AsyncClient, id: UUID) -> Text:
    """Describe a job: the reason for its state, its facts, and its attempts with their errors."""
    text = Text.assemble((f"job {id}\n", "bold"), clean(await client.why(id)), "\n\n")
    try:
        known = await client.show(id)
    except NotPermitted:
        return text.append("payload and attempts are for dibs_admin", "dim")
    for name, value in (known or {}).items():
        if name != "attempts" and value not in (None, {}, []):
            text.append(f"{name:>16}  ", "dim").append(_shown(value) + "\n")
    for run in (known or {}).get("attempts", []):
        text.append(f"\nrun {run['run']}: {run['outcome']} at {run['ended_at']}, worker {run['worker']}\n", "bold")
        text.append(clean(run["error"] or _shown(run["result"])) + "\n")
    return text


def _shown(value: Any) -> str:
    return clean(value if isinstance(value, str) else msgspec.json.encode(value).decode())


class Question(ModalScreen[bool]):
    """Yes or no, before something is changed."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "dismiss(True)", "Yes"), ("n,escape", "dismiss(False)", "No")]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield Static(Text(f"{clean(self._question)}\n\n  y  yes      n  no"), id="question")
