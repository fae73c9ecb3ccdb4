"""Runs tasks: claims jobs, runs their handlers, and sends back how they ended."""

from dibs.client.context import Context, context
from dibs.worker.worker import Worker
from dibs.worker_settings import Share, WorkerSettings

__all__ = ["Context", "Share", "Worker", "WorkerSettings", "context"]
