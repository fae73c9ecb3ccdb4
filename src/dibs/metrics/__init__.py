"""Listeners to the events: logs, Prometheus, OpenTelemetry, and your own collector.

``Tracing`` is in :mod:`dibs.metrics.tracing`, because it needs the extra ``otel``.
"""

from dibs.metrics.collector import MetricsCollector, collect
from dibs.metrics.fleet import Fleet
from dibs.metrics.formats import JobFilter, JsonFormat, TextFormat
from dibs.metrics.logs import EventLog, log_events
from dibs.metrics.prometheus import Prometheus

__all__ = [
    "EventLog",
    "Fleet",
    "JobFilter",
    "JsonFormat",
    "MetricsCollector",
    "Prometheus",
    "TextFormat",
    "collect",
    "log_events",
]
