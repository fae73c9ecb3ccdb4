"""The page: a summary, one of four tables, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Input, Static

from dibs.cli.text import clean
from dibs.cli.top.screens import JobScreen, Question
from dibs.cli.top.snapshot import Snapshot, read_snapshot
from dibs.cli.top.views import VIEWS, View, cell, order
from dibs.errors import DibsError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.worker import Worker

    from dibs.client.client_async import AsyncClient

STYLE = """
#summary { height: 1; background: $panel; }
#tabs { height: 1; }
#filter { display: none; height: 1; border: none; padding: 0; }
#question { width: 60; height: auto; padding: 1 2; border: round $accent; background: $surface; }
DataTable { height: 1fr; }
Question { align: center middle; }
"""


class Page(App[None]):
    """Reads a snapshot every few seconds, and shows one of the tables."""

    CSS = STYLE
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"show({n - 1})", view.name, show=False) for n, view in enumerate(VIEWS, 1)),
        ("s", "sort", "Sort"),
        ("slash", "filter", "Filter"),
        ("p", "pause", "Pause"),
        ("r", "retry", "Retry"),
        ("c", "cancel", "Cancel"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, client: AsyncClient, where: str, every: float) -> None:
        super().__init__()
        self.client = client
        self.seen: Snapshot | None = None
        self._reading: Worker[None] | None = None
        self._where = where
        self._every = every
        self._view: View = VIEWS[0]
        self._sorted: dict[str, int] = {}
        self._filter = ""
        self._summary = Static(id="summary")
        self._tabs = Static(id="tabs")
        self._field = Input(placeholder="show only rows with …", id="filter")
        self._table = DataTable[Text](cursor_type="row", zebra_stripes=True)

    def compose(self) -> ComposeResult:
        """The parts of the page."""
        yield from (self._summary, self._tabs, self._field, self._table, Footer())

    def on_mount(self) -> None:
        """Start reading."""
        self._table.focus()
        self._tell(f"looking at {self._where} …")
        self.refresh_data()
        self.set_interval(self._every, self._refresh_if_idle)

    def refresh_data(self) -> None:
        """Read a snapshot. A read that is under way ends: it may have begun before a change."""
        self._reading = self.run_worker(self._refresh_data(), group="refresh", exclusive=True)

    def _refresh_if_idle(self) -> None:
        """Read a snapshot, unless a read is under way: it may take longer than the time between two."""
        if self._reading is None or self._reading.is_finished:
            self.refresh_data()

    async def _refresh_data(self) -> None:
        try:
            self.seen = await read_snapshot(self.client)
        except DibsError as error:
            self._tell(str(error).splitlines()[0], "bold red")
        else:
            self._fill()

    def _tell(self, text: str, style: str = "") -> None:
        self._summary.update(Text(clean(text), style, no_wrap=True))

    def _fill(self) -> None:
        if self.seen is None:
            return
        self._tell(_summed_up(self._where, self.seen))
        names = (f"[{n} {v.name}]" if v is self._view else f" {n} {v.name} " for n, v in enumerate(VIEWS, 1))
        self._tabs.update(Text(" ".join(names)))
        table = self._table
        key, row = self._selected(), table.cursor_row
        table.clear(columns=True)
        table.add_columns(*(Text(name.lstrip(">"), justify=_side(name)) for name in self._view.columns))
        keys = [self._add(*found) for found in self._rows(self.seen)]
        table.move_cursor(row=keys.index(key) if key in keys else row)

    def _rows(self, seen: Snapshot) -> list[tuple[str, tuple[Any, ...]]]:
        column = self._sorted.get(self._view.name)
        rows = [row for row in self._view.rows(seen) if self._filter in " ".join(map(cell, row[1])).casefold()]
        if column is None:
            return rows
        known = [row for row in rows if row[1][column] is not None]
        missing = [row for row in rows if row[1][column] is None]
        numbers = self._view.columns[column].startswith(">")
        return sorted(known, key=lambda row: order(row[1][column]), reverse=numbers) + missing

    def _add(self, key: str, values: tuple[Any, ...]) -> str:
        sides = map(_side, self._view.columns)
        self._table.add_row(
            *(Text(clean(cell(v)), justify=side) for v, side in zip(values, sides, strict=True)), key=key
        )
        return key

    def _selected(self) -> str | None:
        """Return the key of the row under the cursor."""
        table = self._table
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None

    def _job(self) -> UUID | None:
        """Return the job on the screen, or under the cursor."""
        if isinstance(self.screen, JobScreen):
            return self.screen.job_id
        key = self._selected() if self._view.name in {"running", "dead"} else None
        return UUID(key) if key else None

    def action_show(self, number: int) -> None:
        """Show another table."""
        self._view = VIEWS[number]
        self._fill()

    def action_sort(self) -> None:
        """Sort by the next column; after the last one, not at all."""
        after = self._sorted.get(self._view.name, -1) + 1
        self._sorted.pop(self._view.name, None)
        if after < len(self._view.columns):
            self._sorted[self._view.name] = after
            self.notify(f"sorted by {self._view.columns[after].lstrip('>') or 'state'}", timeout=2)
        self._fill()

    def action_filter(self) -> None:
        """Ask for a text that rows must have."""
        self._field.display = True
        self._field.focus()

    def on_input_changed(self, changed: Input.Changed) -> None:
        """Show only what matches."""
        self._filter = changed.value.casefold()
        self._fill()

    def on_input_submitted(self) -> None:
        """Return to the table; hide the field if it has no text."""
        self._field.display = bool(self._filter)
        self._table.focus()

    def on_data_table_row_selected(self) -> None:
        """Open the job of the row."""
        if id := self._job():
            self.push_screen(JobScreen(self.client, id, self._every))

    def action_pause(self) -> None:
        """Pause the queue of the row, or resume it."""
        name = self._selected() if self._view.name == "queues" and self.seen else None
        depth = next((d for d in self.seen.depths if d.queue == name), None) if self.seen else None
        if depth and depth.paused:
            self._ask(f"Resume queue {name}?", self.client.queues.resume(depth.queue))
        elif depth:
            self._ask(f"Pause queue {name}? Its jobs wait until it is resumed.", self.client.queues.pause(depth.queue))

    def action_retry(self) -> None:
        """Let the dead job of the row run again."""
        if id := self._job():
            self._ask(f"Run job {id} again?", self._retry(id))

    async def _retry(self, id: UUID) -> None:
        retried = await self.client.retry({"ids": [id]}, now=True)
        if retried.done:
            return
        if retried.refused:
            self.notify("it stays dead: another job has its dedup key, or a transaction has locked it")
        else:
            self.notify("only a dead job can run again")

    def action_cancel(self) -> None:
        """Cancel the job of the row, or ask its worker to stop."""
        if id := self._job():
            self._ask(f"Cancel job {id}?", self.client.cancel(id))

    def _ask(self, question: str, change: Coroutine[Any, Any, object]) -> None:
        """Ask whether to make a change, which begins only when it is awaited; `close` spares a warning if it is not."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._change(change))
            else:
                change.close()

        self.push_screen(Question(question), answered)

    async def _change(self, change: Coroutine[Any, Any, object]) -> None:
        try:
            await change
        except DibsError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
        else:
            self.refresh_data()


def _side(column: str) -> Any:
    return "right" if column.startswith(">") else "left"


def _summed_up(where: str, seen: Snapshot) -> str:
    ready, running, dead = (sum(getattr(d, name) for d in seen.depths) for name in ("ready", "running", "dead"))
    rate = sum(r.succeeded + r.failed for r in seen.rates.values())
    counts = f"{ready:,} ready · {running:,} running · {dead:,} dead · {rate:,.1f}/s"
    return f"{where} · {counts} · {seen.at:%H:%M:%S}Z"
