"""An app whose jobs are traced, and whose first task runs in a separate process, which imports this module."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider

import dibs
from dibs.metrics.tracing import Tracing

provider = TracerProvider()
app = dibs.App(queue="mail")
app.add_middleware(Tracing(provider))


@app.task(process=True, name="elsewhere")
def elsewhere() -> None:
    dibs.context().enqueue(here.call())


@app.task(name="here")
async def here() -> None: ...
