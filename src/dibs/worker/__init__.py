"""Runs tasks: claims jobs, runs their handlers, and reports what came of them."""

from dibs.client.context import Context, context
from dibs.worker.settings import Settings
from dibs.worker.shares import Share
from dibs.worker.worker import Worker

__all__ = ["Context", "Settings", "Share", "Worker", "context"]
