"""Keeps a process in the registry of workers, and holds its exclusive queues and shards."""

from dibs.cluster.holding import Holding
from dibs.cluster.member import Member

__all__ = ["Holding", "Member"]
