"""Channels as tasks of an app, for jobs of the kinds db_function, email and sms, and of registered channels."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dibs.channels.delivery import Delivery
from dibs.channels.environment import Environment
from dibs.channels.functions import Functions, Invalid
from dibs.channels.registry import providers
from dibs.client.app import App
from dibs.client.context import context
from dibs.client.find import find_database
from dibs.db.database_async import AsyncDatabase
from dibs.retry import GiveUp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.channels.provider import Provider

log = logging.getLogger("dibs.channels")


class ChannelApp(App):
    """An app whose tasks are channels, without any Python code from you."""

    def __init__(
        self, dsn: str | None = None, *, queue: str = "default", environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(dsn, queue=queue)
        self.channels = add(self, environment)


class Channels:
    """The channels of an app. Each event loop has its own connections to the database; all share the providers."""

    def __init__(self, app: App, environment: Environment) -> None:
        self._app = app
        self._environment = environment
        self.providers = providers(environment)
        self._functions: WeakKeyDictionary[asyncio.AbstractEventLoop, Functions] = WeakKeyDictionary()
        self._deliveries: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Delivery]] = WeakKeyDictionary()

    def functions(self) -> Functions:
        """The functions of the app's database, for the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._functions:
            database = AsyncDatabase(lambda: find_database(self._app.dsn), pool_size=20, patience=30.0, reset=True)
            self._functions[loop] = Functions(database, self._environment)
        return self._functions[loop]

    async def run_function(self, payload: Any) -> None:
        """Run the function that a job of kind db_function names. The database completes the job with its result."""
        if not isinstance(payload, dict) or not isinstance(payload.get("db_function"), str):
            raise GiveUp('the payload of a db_function is an object with the function\'s name: {"db_function": "…"}')
        if payload.get("task_type", "db_function") != "db_function":
            raise GiveUp(f"the payload says task_type {payload['task_type']!r}, and the job is of kind 'db_function'")
        try:
            await self.functions().run_job(context(), payload["db_function"], payload)
        except Invalid as error:
            raise GiveUp(str(error)) from None

    def delivery(self, kind: str) -> Delivery:
        """The sender of the messages of a kind, for the running event loop."""
        deliveries = self._deliveries.setdefault(asyncio.get_running_loop(), {})
        if kind not in deliveries:
            deliveries[kind] = Delivery(kind, self.providers[kind], self.functions(), self._environment)
        return deliveries[kind]

    async def close(self) -> None:
        """Finish the recordings under way, and close every connection of this event loop."""
        loop = asyncio.get_running_loop()
        for delivery in self._deliveries.pop(loop, {}).values():
            await delivery.close()
        functions = self._functions.pop(loop, None)
        if functions is not None:
            await functions.database.close()


def add(app: App, environment: Mapping[str, str] | None = None) -> Channels:
    """Add the configured channels to an app, as tasks named after their kinds."""
    channels = Channels(app, Environment(environment))

    @app.task(name="db_function", raw=True)
    async def db_function(payload: Any) -> None:
        await channels.run_function(payload)

    app.closing.append(channels.close)
    for kind, provider in channels.providers.items():
        _add_one(app, channels, kind, provider)
    return channels


def _add_one(app: App, channels: Channels, kind: str, provider: Provider) -> None:
    @app.task(name=kind, raw=True)
    async def send(payload: Any) -> Any:
        return await channels.delivery(kind).run(payload)

    log.info("jobs of kind %s are sent through %s", kind, provider.name)


def app(dsn: str | None = None, *, queue: str = "default", environment: Mapping[str, str] | None = None) -> ChannelApp:
    """Return an app of channels alone: db_function, and the channels that the environment configures."""
    return ChannelApp(dsn, queue=queue, environment=environment)
