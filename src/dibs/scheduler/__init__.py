"""Brings an app's schedules to the database, and reads cron expressions for it. SQL does the rest."""

from dibs.scheduler.declared import Schedules
from dibs.scheduler.sync import declare
from dibs.scheduler.tick import fire_due

__all__ = ["Schedules", "declare", "fire_due"]
