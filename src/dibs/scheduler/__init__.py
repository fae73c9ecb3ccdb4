"""Slots become jobs. SQL decides; only reading cron expressions is done here."""

from dibs.scheduler.declared import Schedules
from dibs.scheduler.sync import declare
from dibs.scheduler.tick import answer

__all__ = ["Schedules", "answer", "declare"]
